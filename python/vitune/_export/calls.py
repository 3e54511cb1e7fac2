# python/vitune/_export/calls.py -- What every call of a recorded pass is in a model file: nodes, or why none.
# SPDX-License-Identifier: Apache-2.0
"""Functions, methods and Python's operators go by their plain names: torch.add, Tensor.add, operator.add and Tensor.__radd__ are one
entry each. An operator of vitune that the patterns put in is a node of its own kind."""
from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor, fx

from .._compile.patterns.match import value_of
from .._compile.patterns.mutations import written_by
from .._runtime.errors import Unsupported
from .arguments import bound, number, plain_name, refuse
from .graph import View, dense
from .lower import Lowering, maybe
from .products import PRODUCTS
from .windows import WINDOWS

#: Pointwise calls of one tensor.
_UNARY = {
    "neg": "neg(a)", "exp": "exp(a)", "log": "log(a)", "sqrt": "sqrt(a)", "rsqrt": "rsqrt(a)", "sin": "sin(a)", "cos": "cos(a)",
    "tanh": "tanh(a)", "sigmoid": "sigmoid(a)", "erf": "erf(a)", "relu": "relu(a)", "abs": "abs(a)", "square": "mul(a,a)",
    "reciprocal": "div(1,a)", "silu": "silu(a)", "hardswish": "hardswish(a)", "relu6": "min(relu(a),6)",
    "hardsigmoid": "div(min(relu(add(a,3)),6),6)", "mish": "mul(a,tanh(add(max(a,0),log(add(1,exp(neg(abs(a))))))))",
    "logical_not": "sub(1,a)", "bitwise_not": "sub(1,a)", "invert": "sub(1,a)"}
_MAYBE_IN_PLACE = frozenset(("relu", "silu", "hardswish", "relu6", "hardsigmoid", "mish"))  # with an argument of that name
#: Calls of two tensors, or a tensor and a number.
_BINARY = {
    "add": "add(a,b)", "sub": "sub(a,b)", "rsub": "sub(b,a)", "mul": "mul(a,b)", "multiply": "mul(a,b)", "subtract": "sub(a,b)",
    "truediv": "div(a,b)", "div": "div(a,b)", "rtruediv": "div(b,a)", "rdiv": "div(b,a)", "maximum": "max(a,b)", "minimum": "min(a,b)", "lt": "lt(a,b)",
    "gt": "lt(b,a)", "le": "sub(1,lt(b,a))", "ge": "sub(1,lt(a,b))", "and": "mul(a,b)", "logical_and": "mul(a,b)",
    "bitwise_and": "mul(a,b)", "or": "max(a,b)", "logical_or": "max(a,b)", "eq": "mul(sub(1,lt(a,b)),sub(1,lt(b,a)))",
    "ne": "max(lt(a,b),lt(b,a))"}
_HAVE_ALPHA = {"add": "b", "sub": "b", "subtract": "b", "rsub": "a"}  #: with the operand that it multiplies
#: Their expressions are theirs of 0 and 1 alone.
_LOGICAL = frozenset(("logical_not", "bitwise_not", "invert", "and", "or", "logical_and", "bitwise_and", "logical_or"))
#: These give one truth value of two.
_TRUTHS = _LOGICAL | {"lt", "gt", "le", "ge", "eq", "ne", "mul", "multiply", "maximum", "minimum"}
_IDLE = ("dropout", "dropout2d", "feature_dropout", "alpha_dropout", "drop_path")
_COPIES = ("contiguous", "clone", "to", "float", "half", "bfloat16", "type_as", "type", "reshape", "flatten", "expand_as", "bool", "view",
           "unflatten", "_to_copy", "positive", "detach", "reshape_as", "view_as")
#: Arguments of copies that show in the result's type, order and shape, or nowhere.
_OF_COPIES = frozenset(("input", "other", "dtype", "device", "memory_format", "non_blocking", "copy", "layout", "pin_memory", "shape", "size",
                        "sizes", "dim", "start_dim", "end_dim"))


def lower(at: Lowering, node: fx.Node) -> None:
    """Emits the nodes of a call. Raises Unsupported."""
    if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "vitune":
        name = "vitune." + node.target._schema.name.partition("::")[2]
    else:
        name = plain_name(node.target)
    written = written_by(node)
    if written and name != "setitem":
        name = name[1:] if name.startswith("i") and name[1:] in _BINARY else name.rstrip("_")
    if name in _UNARY or name in _BINARY:
        _check_truths(node, name)
    if name in _UNARY:
        x, *_ = bound(node, "input inplace=False" if name in _MAYBE_IN_PLACE else "input")
        _pointwise(at, node, _UNARY[name], (x,))
    elif name in _BINARY:
        _binary(at, node, name)
    elif name in _HANDLERS:
        _HANDLERS[name](at, node)
    elif name in _COPIES:
        _copy(at, node)
    else:
        raise Unsupported("no node of a model file does this")


def _dims(node: fx.Node, dim: Any, rank: int) -> list[int]:
    if dim is None or dim == ():
        return list(range(rank))
    return sorted(each % rank for each in (dim if isinstance(dim, (tuple, list)) else (dim,)))


# --- pointwise

def _out(at: Lowering, node: fx.Node) -> View:
    """Where the result goes: a new tensor, also where one is changed in place."""
    written = written_by(node)
    if written:
        fresh = at.replaced(node, written[0])
        at.hold(node, fresh)
        return fresh
    return at.new(node)


def _pointwise(at: Lowering, node: fx.Node, expression: str, operands: Sequence[Any]) -> None:
    """operands: nodes, or numbers, which take the place of their letters."""
    if not value_of(node).dtype.is_floating_point and value_of(node).dtype is not torch.bool:
        raise Unsupported("arithmetic of integers")
    views, letters = [], {}
    for letter, operand in zip("abcdefgh", operands):
        if isinstance(operand, fx.Node):
            constant = at.constant(operand)
            if constant is not None and constant.numel() == 1:
                letters[letter] = "1" if constant.is_meta else number(constant.item())
                continue
            letters[letter] = "abcdefgh"[len(views)]
            views.append(at.view(operand))
        elif isinstance(operand, numbers.Number):
            letters[letter] = number(operand)
        else:
            raise Unsupported("an argument is no tensor and no number")
    text = _replaced(expression, letters)
    out = _out(at, node)
    at.map(text, [view.expanded(out.extents) for view in views], out)


def _replaced(expression: str, letters: dict[str, str]) -> str:
    """Letters that are operands by other texts. Words have more letters than one."""
    out = []
    for place, character in enumerate(expression):
        alone = character in letters and not expression[place - 1:place].isalpha() and not expression[place + 1:place + 2].isalpha() and (
            expression[place - 1:place] != "_" and expression[place + 1:place + 2] not in ("_", "("))
        out.append(letters[character] if alone else character)
    return "".join(out)


def _binary(at: Lowering, node: fx.Node, name: str) -> None:
    a, b, alpha, rounding = bound(node, "input other alpha=1 rounding_mode")
    if rounding is not None:
        raise Unsupported(f"rounding mode {rounding}")
    expression = _BINARY[name]
    if alpha != 1:
        scaled = _HAVE_ALPHA.get(name) or refuse("with arguments that are not known: alpha")
        expression = _replaced(expression, {scaled: f"mul({scaled},{number(alpha)})"})
    _pointwise(at, node, expression, (a, b))


def _check_truths(node: fx.Node, name: str) -> None:
    given = [value.dtype for value in map(value_of, node.all_input_nodes)]
    if name in _LOGICAL and any(dtype is not torch.bool for dtype in given) or (
            value_of(node).dtype is torch.bool and name not in _TRUTHS):
        raise Unsupported("logic of what is no truth value, or arithmetic of truth values")


def _pow(at: Lowering, node: fx.Node) -> None:
    x, exponent = bound(node, "input exponent")
    texts = {2: "mul(a,a)", 0.5: "sqrt(a)", -0.5: "rsqrt(a)", 3: "mul(a,mul(a,a))", 1: "a", -1: "div(1,a)", 4: "mul(mul(a,a),mul(a,a))"}
    if not isinstance(exponent, numbers.Number) or exponent not in texts:
        raise Unsupported(f"a power of {exponent}")
    _pointwise(at, node, texts[exponent], (x,))


def _gelu(at: Lowering, node: fx.Node) -> None:
    x, approximate = bound(node, "input approximate=none")
    _pointwise(at, node, "gelu_tanh(a)" if approximate == "tanh" else "gelu(a)", (x,))


def _clamp(at: Lowering, node: fx.Node) -> None:
    x, low, high = bound(node, "input min max")
    operands = [x, *(each for each in (low, high) if each is not None)]
    text = "a" if low is None else "max(a,b)"
    text = text if high is None else f"min({text},{'bc'[low is not None]})"
    _pointwise(at, node, text, operands)


def _hardtanh(at: Lowering, node: fx.Node) -> None:
    x, low, high, _ = bound(node, "input min_val=-1.0 max_val=1.0 inplace=False")
    _pointwise(at, node, "min(max(a,b),c)", (x, low, high))


def _leaky_relu(at: Lowering, node: fx.Node) -> None:
    x, slope, _ = bound(node, "input negative_slope=0.01 inplace=False")
    _pointwise(at, node, "max(a,mul(a,b))" if 0 <= slope <= 1 else refuse(f"a slope of {slope}"), (x, slope))


def _softplus(at: Lowering, node: fx.Node) -> None:
    """log(1 + exp(beta x)) / beta, of which exp is of no positive number: none is too large for it."""
    x, beta, threshold = bound(node, "input beta=1 threshold=20")
    if beta <= 0 or threshold < 20:
        raise Unsupported(f"a softplus with beta {beta} and threshold {threshold}")
    text = "add(max(a,0),log(add(1,exp(neg(abs(a))))))"
    if beta != 1:
        text = f"div({_replaced(text, {'a': f'mul(a,{number(beta)})'})},{number(beta)})"
    _pointwise(at, node, text, (x,))


def _elu(at: Lowering, node: fx.Node) -> None:
    x, alpha, _ = bound(node, "input alpha=1.0 inplace=False")
    _pointwise(at, node, "where(lt(a,0),mul(b,sub(exp(min(a,0)),1)),a)", (x, alpha))


def _where(at: Lowering, node: fx.Node) -> None:
    condition, a, b = bound(node, "condition input other")
    if isinstance(node.target, str):  # a.where(condition, b)
        condition, a = a, condition
    _pointwise(at, node, "where(a,b,c)", (condition, a, b))


def _masked_fill(at: Lowering, node: fx.Node) -> None:
    x, mask, value = bound(node, "input mask value")
    _pointwise(at, node, "where(b,c,a)", (x, mask, value))


def _addcmul(at: Lowering, node: fx.Node) -> None:
    x, a, b, value = bound(node, "input tensor1 tensor2 value=1")
    _pointwise(at, node, "add(a,mul(d,mul(b,c)))" if value != 1 else "add(a,mul(b,c))", (x, a, b, *([value] if value != 1 else [])))


def _lerp(at: Lowering, node: fx.Node) -> None:
    _pointwise(at, node, "add(a,mul(c,sub(b,a)))", bound(node, "input end weight"))


def _glu(at: Lowering, node: fx.Node) -> None:
    x, dim = bound(node, "input dim=-1")
    view, out = at.view(x), at.new(node)
    dim %= len(view.extents)
    half = view.extents[dim] // 2
    at.map("mul(a,sigmoid(b))", [view.narrowed(dim, 0, half), view.narrowed(dim, half, half)], out)


def _like(text: Optional[str]) -> Callable[[Lowering, fx.Node], None]:
    def fill(at: Lowering, node: fx.Node) -> None:
        value = text if text is not None else next((each for each in reversed(node.args) if isinstance(each, numbers.Number)), None)
        value = node.kwargs.get("fill_value", value)
        if value is None:
            raise Unsupported("a tensor filled with what is no number")
        at.map(number(value), [], at.new(node))
    return fill


# --- copies

def _copy(at: Lowering, node: fx.Node) -> None:
    """The same elements in the same order, in a tensor of its own."""
    unknown = node.kwargs.keys() - _OF_COPIES
    if unknown:
        raise Unsupported(f"with arguments that are not known: {sorted(unknown)}")
    x = node.args[0] if node.args else node.kwargs["input"]
    made = value_of(node).dtype
    if made.is_floating_point or made is value_of(x).dtype:
        _copy_of(at, node, x)
    elif made is torch.bool:
        _pointwise(at, node, "max(lt(a,0),lt(0,a))", (x,))
    else:
        raise Unsupported(f"a cast to {str(made).removeprefix('torch.')}")


def _copy_of(at: Lowering, node: fx.Node, x: fx.Node) -> None:
    source, out = at.view(x), at.new(node)
    if source.elements != out.elements:
        raise Unsupported("a copy of another size")
    if out.extents != source.extents:
        if not out.is_dense():
            raise Unsupported("a reshape into another order")
        out = View(out.of, out.offset, source.extents, dense(source.extents))
    at.copied(source, out)


def _idle(at: Lowering, node: fx.Node) -> None:
    x, _, training, _ = bound(node, "input p=0.5 training=True inplace=False")
    if training:
        raise Unsupported("dropout while training: call model.eval() first")
    at.hold(node, at.view(x)) if value_of(x).stride() == value_of(node).stride() else _copy_of(at, node, x)


def _cat(at: Lowering, node: fx.Node) -> None:
    tensors, dim = bound(node, "tensors dim=0")
    out, start = at.new(node), 0
    dim %= len(out.extents)
    for tensor in tensors:
        if value_of(tensor).numel() == 0:
            continue
        view = at.view(tensor)
        at.copied(view, out.narrowed(dim, start, view.extents[dim]))
        start += view.extents[dim]


def _stack(at: Lowering, node: fx.Node) -> None:
    tensors, dim = bound(node, "tensors dim=0")
    out = at.new(node)
    dim %= len(out.extents)
    rest = [each for each in range(len(out.extents)) if each != dim]
    for place, tensor in enumerate(tensors):
        at.copied(at.view(tensor), out.narrowed(dim, place, 1).ordered(rest))


def _repeat(at: Lowering, node: fx.Node) -> None:
    times = node.args[1:] if len(node.args) != 2 or isinstance(node.args[1], int) else node.args[1]
    if node.kwargs or not all(isinstance(each, int) for each in times):
        raise Unsupported("with arguments that are not known")
    view, out = at.view(node.args[0]), at.new(node)
    view = view.expanded((1,) * (len(times) - len(view.extents)) + view.extents)
    pairs = [pair for count, extent, stride in zip(times, view.extents, view.strides) for pair in ((count, 0), (extent, stride))]
    source = View(view.of, view.offset, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))
    if not out.is_dense():
        raise Unsupported("a repetition in another order")
    at.copied(source, View(out.of, out.offset, source.extents, dense(source.extents)))


def _repeat_interleave(at: Lowering, node: fx.Node) -> None:
    x, times, dim = bound(node, "input repeats dim")
    view, out = at.view(x), at.new(node)
    if not isinstance(times, int) or dim is None or not out.is_dense():
        raise Unsupported("with arguments that are not known")
    dim %= len(view.extents)
    extents = (*view.extents[:dim + 1], times, *view.extents[dim + 1:])
    source = View(view.of, view.offset, extents, (*view.strides[:dim + 1], 0, *view.strides[dim + 1:]))
    at.copied(source, View(out.of, out.offset, extents, dense(extents)))


def _roll(at: Lowering, node: fx.Node) -> None:
    x, shifts, dims = bound(node, "input shifts dims")
    if dims in (None, ()):
        raise Unsupported("a roll of all elements")
    shifts, dims = ((each,) if isinstance(each, int) else tuple(each) for each in (shifts, dims))
    view, out = at.view(x), at.new(node)
    pieces = [(view, out)]
    for shift, dim in zip(shifts, dims):
        extent = view.extents[dim % len(view.extents)]
        shift, dim = shift % extent, dim % len(view.extents)
        parts = [(0, shift, extent - shift), (extent - shift, 0, shift)]  # from, to, how many
        pieces = [(a.narrowed(dim, start, count), b.narrowed(dim, to, count)) for a, b in pieces for start, to, count in parts if count]
    for a, b in pieces:
        at.copied(a, b)


def _flip(at: Lowering, node: fx.Node) -> None:
    dims = node.args[1] if len(node.args) == 2 and not isinstance(node.args[1], int) else node.args[1:] or node.kwargs["dims"]
    view, out = at.view(node.args[0]), at.new(node)
    for dim in _dims(node, list(dims), len(view.extents)):
        if len(dims) > 1 or view.extents[dim] > 64:
            raise Unsupported("a flip of several dimensions, or of a long one")
        for place in range(view.extents[dim]):
            at.copied(view.narrowed(dim, place, 1), out.narrowed(dim, view.extents[dim] - 1 - place, 1))


def _getitem(at: Lowering, node: fx.Node) -> None:
    """An index of a list of places: views have been seen to."""
    source, index = node.args
    index = list(index) if isinstance(index, tuple) else [index]
    index = [each for place, each in enumerate(index)]
    lists = [place for place, each in enumerate(index) if isinstance(each, (list, fx.Node))]
    if len(lists) != 1 or any(each not in (slice(None),) for each in index if not isinstance(each, (list, fx.Node))):
        raise Unsupported("an index that is no view, nor a list of places of one dimension")
    _gather(at, node, source, lists[0], index[lists[0]])


def _index_select(at: Lowering, node: fx.Node) -> None:
    source, dim, index = bound(node, "input dim index")
    _gather(at, node, source, dim % value_of(source).dim(), index)


def _gather(at: Lowering, node: fx.Node, source: fx.Node, dim: int, index: Any) -> None:
    places = at.constant(index) if isinstance(index, fx.Node) else torch.tensor(index)
    if places is None or places.dim() != 1 or places.dtype is torch.bool:
        raise Unsupported("an index that depends on the input, or is no list of places")
    view, out, runs = at.view(source), at.new(node), []
    for to, start in enumerate(int(place) % view.extents[dim] for place in places):
        if runs and start == runs[-1][0] + runs[-1][2]:
            runs[-1][2] += 1
        else:
            runs.append([start, to, 1])
    if len(runs) > 64:
        raise Unsupported("an index of many places apart from each other")
    for start, to, count in runs:
        at.copied(view.narrowed(dim, start, count), out.narrowed(dim, to, count))


def _setitem(at: Lowering, node: fx.Node) -> None:
    raise Unsupported("a part of a tensor is written")


# --- reductions

def _reduced(at: Lowering, node: fx.Node, x: Any, dim: Any, by: str, pre: str = "a", post: Optional[str] = None,
             more: Sequence[View] = (), out: Optional[View] = None) -> None:
    """Over `dim`, kept as 1 or not."""
    view = at.view(x)
    rank = len(view.extents)
    dims = _dims(node, dim, rank)
    kept = [each for each in range(rank) if each not in dims]
    result = at.new(node) if out is None else out
    if len(result.extents) == rank:
        result = result.ordered(kept)
    operands = [each.expanded(view.extents).ordered([*kept, *dims]) for each in (view, *more)]
    at.map(pre, operands, result, by, len(dims))
    if post is not None:
        at.nodes[-1]["y"] = post


def _reduction(by: str) -> Callable[[Lowering, fx.Node], None]:
    def reduce(at: Lowering, node: fx.Node) -> None:
        x, dim, _, _ = bound(node, "input dim keepdim=False dtype")
        if not isinstance(value_of(node), Tensor):
            raise Unsupported("places of the greatest are no tensor of a file")
        _reduced(at, node, x, dim, by)
    return reduce


def _softmax(at: Lowering, node: fx.Node) -> None:
    x, dim, _, _ = bound(node, "input dim _stacklevel=3 dtype")
    view, out = at.view(x), at.new(node)
    dim %= len(view.extents)
    order = [*(each for each in range(len(view.extents)) if each != dim), dim]
    at.map("a", [view.ordered(order)], out.ordered(order), "softmax", 1)


def _vector_norm(at: Lowering, node: fx.Node) -> None:
    name = plain_name(node.target)
    x, order, dim, _, dtype = bound(node, "x ord=2 dim keepdim=False dtype" if "linalg" in name else "input p=2 dim keepdim=False dtype")
    if order not in (2, 2.0, "fro") or dtype is not None:
        raise Unsupported(f"a norm of order {order}")
    _reduced(at, node, x, dim, "sum", "mul(a,a)", "sqrt(r)")


def _var(at: Lowering, node: fx.Node) -> None:
    x, dim, correction, _, unbiased = bound(node, "input dim correction=1 keepdim=False unbiased")
    if isinstance(dim, bool) or isinstance(correction, bool):
        raise Unsupported("with arguments that are not known")
    correction = correction if unbiased is None else int(unbiased)
    view = at.view(x)
    dims = _dims(node, dim, len(view.extents))
    count = math.prod(view.extents[each] for each in dims)
    kept = tuple(1 if each in dims else extent for each, extent in enumerate(view.extents))
    mean = at.scratch(torch.float32, kept)
    _reduced(at, node, x, dim, "mean", out=mean)
    _reduced(at, node, x, dim, "sum", "mul(sub(a,b),sub(a,b))", f"div(r,{count - correction})", [mean])


# --- norms, layers, attention

def _layer_norm(at: Lowering, node: fx.Node) -> None:
    x, shape, weight, bias, eps, _ = bound(node, "input normalized_shape weight bias eps=1e-5 cudnn_enable=True")
    _norm(at, node, x, shape, weight, bias, eps, "layer")


def _rms_norm(at: Lowering, node: fx.Node) -> None:
    x, shape, weight, eps = bound(node, "input normalized_shape weight eps")
    _norm(at, node, x, shape, weight, None, torch.finfo(torch.float32).eps if eps is None else eps, "rms")


def _norm(at: Lowering, node: fx.Node, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float, kind: str) -> None:
    if len(shape) != 1:
        raise Unsupported(f"a norm over {len(shape)} dimensions")
    views = {key: maybe(at, tensor) for key, tensor in (("weight", weight), ("bias", bias))}
    source = at.view(x)
    at.emit("norm", {"x": _flat(at, source, source.extents[-1:]), **views, "out": at.new(node)}, kind=kind, eps=float(eps))


def _flat(at: Lowering, view: View, last: Sequence[int]) -> View:
    """A view that is read as rows: as it is, if it has no more dimensions than a file takes."""
    if len(view.extents) <= 6:
        return view
    raise Unsupported(f"{len(view.extents)} dimensions")


def _group_norm(at: Lowering, node: fx.Node) -> None:
    _groups(at, node, *bound(node, "input num_groups weight bias eps=1e-5"))


def _vitune_group_norm(at: Lowering, node: fx.Node) -> None:
    _groups(at, node, *node.args)


def _groups(at: Lowering, node: fx.Node, x: Any, groups: int, weight: Any, bias: Any, eps: float, activation: Optional[str] = None) -> None:
    if value_of(x).dtype != value_of(node).dtype or value_of(x).dim() > 6:
        raise Unsupported("a group norm with a result of another type, or of more than 6 dimensions")
    views = {"x": at.view(x), "weight": maybe(at, weight), "bias": maybe(at, bias), "out": at.new(node)}
    at.emit("group_norm", views, groups=groups, eps=float(eps), act=activation)


def _vitune_norm(at: Lowering, node: fx.Node) -> None:
    x, residual, weight, bias, eps, rms, return_sum, statistics, _ = node.args
    if statistics:
        raise Unsupported("statistics of a norm")
    views = {"x": at.view(x), "residual": maybe(at, residual), "weight": maybe(at, weight), "bias": maybe(at, bias),
             "out": at.new(node, 0)}
    if return_sum:
        views["sum"] = at.new(node, 1)
    at.emit("norm", views, kind="rms" if rms else "layer", eps=float(eps))


def _batch_norm(at: Lowering, node: fx.Node) -> None:
    x, mean, variance, weight, bias, training, _, eps, *_ = bound(
        node, "input running_mean running_var weight bias training=False momentum=0.1 eps=1e-5 cudnn_enabled=True")
    if training:
        raise Unsupported("statistics of the batch: call model.eval() first")
    given = [None if each is None else at.constant(each) for each in (mean, variance, weight, bias)]
    if given[0] is None or given[1] is None:
        raise Unsupported("statistics that depend on the input")
    if any(each is not None and each.is_meta for each in given):  # a model without weights
        given = [None if each is None else each.to("meta") for each in given]
    factor = torch.rsqrt(given[1] + eps) * (1 if given[2] is None else given[2])
    offset = (0 if given[3] is None else given[3]) - given[0] * factor
    out = at.new(node)
    ones = (1,) * (len(out.extents) - 2)
    operands = [at.view(x), *(at.constants.view(each.reshape(-1, *ones), (node.name, place)).expanded(out.extents)
                                for place, each in enumerate((factor, offset)))]
    at.map("add(mul(a,b),c)", operands, out)


_HANDLERS: dict[str, Callable[[Lowering, fx.Node], None]] = {
    "pow": _pow, "gelu": _gelu, "clamp": _clamp, "clip": _clamp, "clamp_min": _clamp, "hardtanh": _hardtanh, "leaky_relu": _leaky_relu,
    "elu": _elu, "softplus": _softplus, "where": _where, "masked_fill": _masked_fill, "addcmul": _addcmul, "lerp": _lerp, "glu": _glu,
    "zeros_like": _like("0"), "ones_like": _like("1"), "full_like": _like(None), "zeros": _like("0"), "ones": _like("1"), "full": _like(None),
    "new_zeros": _like("0"), "new_ones": _like("1"), "new_full": _like(None),
    **dict.fromkeys(_IDLE, _idle), "cat": _cat, "concat": _cat, "concatenate": _cat, "stack": _stack, "repeat": _repeat,
    "repeat_interleave": _repeat_interleave, "roll": _roll, "flip": _flip, "getitem": _getitem, "index_select": _index_select,
    "setitem": _setitem, "mean": _reduction("mean"), "sum": _reduction("sum"), "amax": _reduction("max"), "softmax": _softmax,
    "linalg_vector_norm": _vector_norm, "norm": _vector_norm, "var": _var, "layer_norm": _layer_norm, "rms_norm": _rms_norm,
    "group_norm": _group_norm, "batch_norm": _batch_norm, "vitune.norm": _vitune_norm, "vitune.group_norm": _vitune_group_norm,
    **PRODUCTS, **WINDOWS}
