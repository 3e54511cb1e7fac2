# python/vitune/_compile/patterns/rows.py -- Which rows of its arguments a call reads, of whose result such rows are wanted.
# SPDX-License-Identifier: Apache-2.0
"""Rows are counted along one dimension, from the end: queries have another rank than tokens. What is computed row by row has a rule here;
what has none mixes them."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Optional, Union

from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_leaves

from ..._runtime.errors import Unsupported
from .match import value_of
from .tree import arguments_of, is_op, is_quiet, operation_of


class Rows(NamedTuple):
    """Those from `first` on, before `end`, along a dimension that is counted from the end."""

    dim: int
    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first


Reads = dict[Union[str, int], Rows]  # by the argument's name, or its place in cat's list; what is not there is read whole
_Rule = Callable[[fx.Node, dict[str, Any], Any], Optional[Reads]]
FEW = 2  #: rows are few that are at most one in so many
SELECTIONS = ("getitem", "select", "narrow")  #: operations
_MOVES = ("reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "contiguous")
_MAKES = frozenset(("new_empty", "new_zeros", "new_ones", "new_full"))  #: methods


def size_of(node: fx.Node, dim: int) -> Optional[int]:
    """Of a tensor, or of each of several; None: it is none, or only known when the model runs."""
    tensor = next((leaf for leaf in tree_leaves(value_of(node)) if isinstance(leaf, Tensor)), None)
    size = tensor.shape[dim] if tensor is not None and tensor.dim() >= -dim else None
    return size if isinstance(size, int) else None


def is_move(node: fx.Node) -> bool:
    """Whether it gives the elements that it is given, all of them, in another order or shape."""
    return is_op(node, *_MOVES)


def reads_nothing(node: fx.Node) -> bool:
    """Whether of its arguments it takes the type and the device alone: x.new_empty((2, 1, 1))."""
    return node.op == "call_method" and node.target in _MAKES and len(node.all_input_nodes) == 1 and node.args[:1] == (node.all_input_nodes[0],)


def operands_of(node: fx.Node) -> dict[Union[str, int], Any]:
    found = arguments_of(node)
    return dict(enumerate(found["tensors"])) if is_op(node, "cat") else found


def reads_of(node: fx.Node, rows: Optional[Rows]) -> Optional[Reads]:
    """What is read of the arguments of which such rows are computed; None: it cannot be computed of these alone. rows: None: all."""
    rule = _RULES.get(operation_of(node))
    try:
        return None if rule is None else rule(node, arguments_of(node), rows)
    except Unsupported:
        return None


def _of_each(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    """Element by element, of tensors that are broadcast."""
    return {name: rows for name, each in found.items() if _has_rows(each, node, rows.dim)}


def _has_rows(argument: Any, node: fx.Node, dim: int) -> bool:
    """Whether it has as many as the result of a node. Raises Unsupported where it has others than that or one for all."""
    if not isinstance(argument, fx.Node) or not isinstance(value_of(argument), Tensor) or value_of(argument).dim() < -dim:
        return False
    size = size_of(argument, dim)
    if size not in (1, size_of(node, dim)):
        raise Unsupported("rows that are only known when the model runs")
    return size != 1


def _of_input(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    return {"input": rows}


def _of_dropout(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    return {"input": rows} if is_quiet(node) else None


def _of_norm(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    shape = found["normalized_shape"]
    return {"input": rows} if isinstance(shape, (tuple, list)) and -rows.dim > len(shape) else None


def _of_linear(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    weight, bias = value_of(found["weight"]), value_of(found["bias"])
    return {"input": rows} if rows.dim < -1 and weight.dim() == 2 and (bias is None or bias.dim() == 1) else None


def _of_softmax(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    dim, rank = found["dim"], value_of(node).dim()
    return {"input": rows} if isinstance(dim, int) and dim % rank != rows.dim % rank else None


def _of_product(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    first, second = map(value_of, list(found.values())[:2])
    return {"input": rows} if rows.dim == -2 and min(first.dim(), second.dim()) > 1 else None


def _of_attention(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    if rows.dim != -2 or found["is_causal"] is not False or found["dropout_p"] != 0:
        return None
    mask = {"attn_mask": rows} if _has_rows(found["attn_mask"], node, rows.dim) else {}
    return {"query": rows, **mask}


def _of_view(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    """What gives the same elements in another shape, where the rows are a dimension of both."""
    before, after = value_of(found["input"]).shape, value_of(node).shape
    at = len(after) + rows.dim
    if is_op(node, "reshape", "view") and not isinstance(found["shape"], tuple):
        return None
    if is_op(node, "unflatten"):
        first = found["dim"] % len(before)
        if first <= at < first + len(found["sizes"]):
            return None
    dim = next((dim for dim, size in enumerate(before) if statically_known_true(size == after[at])
                and statically_known_true(math.prod(before[:dim]) == math.prod(after[:at]))), None)
    if is_op(node, "squeeze"):  # of one row it would take these too
        squeezed = range(len(before)) if found["dim"] is None else found["dim"] if isinstance(found["dim"], tuple) else (found["dim"],)
        dim = None if dim in {each % len(before) for each in squeezed} else dim
    return None if dim is None else {"input": rows._replace(dim=dim - len(before))}


def _of_transpose(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    rank = value_of(node).dim()
    a, b = (found[name] % rank - rank for name in ("dim0", "dim1"))
    return {"input": rows._replace(dim={a: b, b: a}.get(rows.dim, rows.dim))}


def _of_permute(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    rank = value_of(node).dim()
    return {"input": rows._replace(dim=found["dims"][rows.dim] % rank - rank)}


def _of_unbind(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    rank = value_of(found["input"]).dim()
    at = rows.dim + rank - 1  # of each
    return {"input": rows._replace(dim=(at if at < found["dim"] % rank else at + 1) - rank)}


def _of_chunk(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    rank = value_of(found["input"]).dim()
    return {"input": rows} if found["dim"] % rank != rows.dim % rank else None


def _of_cat(node: fx.Node, found: dict[str, Any], rows: Rows) -> Optional[Reads]:
    rank, reads, start = value_of(node).dim(), {}, 0
    if any(value_of(tensor).dim() != rank for tensor in found["tensors"]):
        return None
    if found["dim"] % rank != rows.dim % rank:
        return dict.fromkeys(range(len(found["tensors"])), rows)
    if len({value_of(tensor).dtype for tensor in found["tensors"]}) > 1:
        return None  # the widest may be that of rows that would go
    for place, tensor in enumerate(found["tensors"]):
        size = size_of(tensor, rows.dim)
        if size is None:
            return None
        first, end = (min(max(edge - start, 0), size) for edge in (rows.first, rows.end))
        reads[place] = Rows(rows.dim, first, end)
        start += size
    return reads


# --- selections


def index_of(node: fx.Node) -> Optional[list[Any]]:
    """A number or slice for each dimension of what a selection is of; None: it is no such selection."""
    found = arguments_of(node)
    source = value_of(found["input"])
    if not isinstance(source, Tensor) or not isinstance(value_of(node), Tensor):
        return None
    index = [slice(None)] * source.dim()
    if is_op(node, "getitem"):
        given = found["index"] if isinstance(found["index"], tuple) else (found["index"],)
        index[:len(given)] = given
    else:
        start = found["index" if is_op(node, "select") else "start"]
        one = isinstance(start, int) and (start % _extent(source, found["dim"]))
        index[found["dim"]] = one if is_op(node, "select") else slice(one, one + found["length"])
    return index if all(map(_is_fixed, index)) else None


def _extent(source: Tensor, dim: int) -> int:
    if not isinstance(source.shape[dim], int):
        raise Unsupported("rows that are only known when the model runs")
    return source.shape[dim]


def _is_fixed(each: Any) -> bool:
    numbers = (each.start, each.stop, each.step) if isinstance(each, slice) else (each,)
    return all(type(number) is int or number is None and isinstance(each, slice) for number in numbers)


def _span(each: Any, size: Any) -> Optional[tuple[int, int]]:
    """First and end of what is read of a dimension; None: not one row after the other, or the size is not known."""
    if not isinstance(size, int):
        return None
    if isinstance(each, int):
        return each % size, each % size + 1
    first, end, step = each.indices(size)
    return (first, max(first, end)) if step == 1 else None


def _of_selection(node: fx.Node, found: dict[str, Any], rows: Optional[Rows]) -> Optional[Reads]:
    if is_op(node, "getitem") and isinstance(value_of(found["input"]), (tuple, list)):  # one of several tensors
        return None if rows is None else {"input": rows}
    index = index_of(node)
    if index is None:
        return None
    shape = value_of(found["input"]).shape
    if rows is not None:
        dim = [dim for dim, each in enumerate(index) if isinstance(each, slice)][rows.dim]
        span = _span(index[dim], shape[dim])
        return None if span is None else {"input": Rows(dim - len(shape), span[0] + rows.first, span[0] + rows.end)}
    spans = {dim: _span(index[dim], shape[dim]) for dim in range(len(shape) - 1)}
    few = [Rows(dim - len(shape), *span) for dim, span in spans.items() if span is not None and 0 < (span[1] - span[0]) * FEW <= shape[dim]]
    return {"input": few[0]} if len(few) == 1 else None


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("add", "mul", "sub", "div", "pow"), _of_each),
    **dict.fromkeys(("gelu", "relu", "silu", "mish", "sigmoid", "rsqrt", "to", "detach", "contiguous"), _of_input),
    **dict.fromkeys(("layer_norm", "rms_norm"), _of_norm), "dropout": _of_dropout, "linear": _of_linear, "softmax": _of_softmax,
    "matmul": _of_product, "attention": _of_attention, **dict.fromkeys(("reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze"),
                                                                       _of_view),
    "transpose": _of_transpose, "permute": _of_permute, "unbind": _of_unbind, "chunk": _of_chunk, "cat": _of_cat,
    **dict.fromkeys(SELECTIONS, _of_selection)}
