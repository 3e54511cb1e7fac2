# python/vitune/_compile/patterns/tree.py -- Calls in one spelling, and trees of them: the language that fusion patterns are written in.
# SPDX-License-Identifier: Apache-2.0
"""Dynamo's graph has each call as the model wrote it: x.reshape(2, -1), x.reshape((2, -1)) and torch.reshape(x, shape=(2, -1)) are three
nodes. Here they are one operation with its arguments by name. The graph itself stays as it is: what is not replaced is compiled as without
vitune."""
from __future__ import annotations

import abc
import copy
import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ..._ops import attention as attention_ops, originals  # noqa: F401  (the operators)
from ..._runtime.errors import Unsupported
from .match import FusionPattern, value_of, wants_gradient


class _Spelling(NamedTuple):
    """A function or method of an operation, and its parameters in its own order."""

    operation: str
    defaults: dict[str, Any]
    rest: Optional[str] = None  #: the last parameter, whose elements may be given one by one


_spellings: dict[Any, _Spelling] = {}


def _operation(name: str, functions: tuple[Any, ...], methods: str = "", rest: Optional[str] = None, /, **defaults: Any) -> None:
    """defaults: the parameters, None where one must be given. rest: of methods alone."""
    for function in functions:
        _spellings[function] = _Spelling(name, defaults)
    for method in methods.split():
        _spellings[method] = _Spelling(name, defaults, rest)


_operation("linear", (F.linear,), input=None, weight=None, bias=None)
_operation("addmm", (torch.addmm,), input=None, mat1=None, mat2=None, beta=1, alpha=1)
_operation("conv2d", (torch.conv2d, F.conv2d), input=None, weight=None, bias=None, stride=1, padding=0, dilation=1, groups=1)
_operation("max_pool2d", (F.max_pool2d, torch.max_pool2d), input=None, kernel_size=None, stride=None, padding=0, dilation=1,
           ceil_mode=False, return_indices=False)
_operation("layer_norm", (originals.layer_norm, torch.layer_norm), input=None, normalized_shape=None, weight=None, bias=None, eps=1e-5,
           cudnn_enable=True)
_operation("rms_norm", (originals.rms_norm, torch.rms_norm), input=None, normalized_shape=None, weight=None,
           eps=None)
_operation("group_norm", (F.group_norm, torch.group_norm), input=None, num_groups=None, weight=None, bias=None, eps=1e-5,
           cudnn_enabled=True)
_operation("attention", (originals.attention, originals.attention_op), query=None, key=None, value=None,
           attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)
_operation("heads", (F.multi_head_attention_forward,), query=None, key=None, value=None, embed_dim_to_check=None, num_heads=None,
           in_proj_weight=None, in_proj_bias=None, bias_k=None, bias_v=None, add_zero_attn=False, dropout_p=0.0, out_proj_weight=None,
           out_proj_bias=None, training=True, key_padding_mask=None, need_weights=True, attn_mask=None, use_separate_proj_weight=False,
           q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True,
           is_causal=False)
_operation("encoder_layer", (originals.encoder_layer,))
#: The calls that the drop-in (vitune.torch) and the function put there.
_operation("vitune_attention", (torch.ops.vitune.attention.default, torch.ops.vitune.attention_lse.default))
_operation("softmax", (F.softmax,), input=None, dim=None, _stacklevel=3, dtype=None)
_operation("softmax", (torch.softmax,), "softmax", input=None, dim=None, dtype=None)
_operation("matmul", (operator.matmul, torch.matmul), "matmul", input=None, other=None)
_operation("matmul", (torch.bmm,), "bmm", input=None, mat2=None)
_operation("add", (operator.add, torch.add), "add", input=None, other=None, alpha=1)
_operation("add_", (operator.iadd,), "add_", input=None, other=None, alpha=1)
_operation("mul", (operator.mul, torch.mul), "mul", input=None, other=None)
_operation("mul_", (operator.imul,), "mul_", input=None, other=None)
_operation("sub", (operator.sub, torch.sub), "sub", input=None, other=None, alpha=1)
_operation("div", (operator.truediv, torch.div), "div", input=None, other=None, rounding_mode=None)
_operation("pow", (operator.pow, torch.pow), "pow", input=None, exponent=None)
_operation("mean", (torch.mean,), "mean", input=None, dim=None, keepdim=False, dtype=None)
_operation("rsqrt", (torch.rsqrt,), "rsqrt", input=None)
_operation("sigmoid", (torch.sigmoid, F.sigmoid), "sigmoid", input=None)
_operation("gelu", (F.gelu,), input=None, approximate="none")
_operation("relu", (F.relu, torch.relu), "relu", input=None, inplace=False)
_operation("silu", (F.silu,), input=None, inplace=False)
_operation("mish", (F.mish,), input=None, inplace=False)
_operation("dropout", (F.dropout,), input=None, p=0.5, training=True, inplace=False)
_operation("to", (), "to type_as float half bfloat16", input=None, other=None, non_blocking=False, copy=False, memory_format=None,
           dtype=None, device=None)
_operation("detach", (torch.detach,), "detach", input=None)
_operation("contiguous", (), "contiguous", input=None, memory_format=torch.contiguous_format)
_operation("reshape", (torch.reshape,), "reshape", "shape", input=None, shape=None)
_operation("view", (), "view", "shape", input=None, shape=None)
_operation("expand", (), "expand", "size", input=None, size=None)
_operation("flatten", (torch.flatten,), "flatten", input=None, start_dim=0, end_dim=-1)
_operation("unflatten", (torch.unflatten,), "unflatten", input=None, dim=None, sizes=None)
_operation("transpose", (torch.transpose, torch.swapaxes), "transpose swapaxes", input=None, dim0=None, dim1=None)
_operation("permute", (torch.permute,), "permute", "dims", input=None, dims=None)
_operation("squeeze", (torch.squeeze,), "squeeze", input=None, dim=None)
_operation("unsqueeze", (torch.unsqueeze,), "unsqueeze", input=None, dim=None)
_operation("roll", (torch.roll,), "roll", input=None, shifts=None, dims=None)
_operation("pad", (F.pad, torch._C._nn.pad), input=None, pad=None, mode="constant", value=None)
_operation("getitem", (operator.getitem,), input=None, index=None)
_operation("select", (torch.select,), "select", input=None, dim=None, index=None)
_operation("narrow", (torch.narrow,), "narrow", input=None, dim=None, start=None, length=None)
_operation("unbind", (torch.unbind,), "unbind", input=None, dim=0)
_operation("chunk", (torch.chunk,), "chunk", input=None, chunks=None, dim=0)
_operation("split", (torch.split,), "split", input=None, split_size=None, dim=0)
_operation("cat", (torch.cat,), tensors=None, dim=0)

_COMMUTE = frozenset(("add", "mul"))
_UNKNOWN = (fx.Node, torch.SymInt, torch.SymFloat, torch.SymBool)  # until the model runs


def operation_of(node: Any) -> str:
    """The name of the operation that a node calls; "": of none that is known, or it is no call."""
    if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method"):
        return ""
    found = _spellings.get(node.target)
    return "" if found is None else found.operation


def beginning_at(node: fx.Node, patterns: Iterable[FusionPattern]) -> list[FusionPattern]:
    """Those of some patterns whose places may begin at a node. No other one may be asked for its places there."""
    operation = operation_of(node)
    return [pattern for pattern in patterns if not pattern.operations or operation in pattern.operations]


def is_op(node: Any, *operations: str) -> bool:
    found = operation_of(node)
    return found != "" and found in operations


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call whose operation is known, by name. Raises Unsupported where it has others than its operation has."""
    _, defaults, rest = _spellings[node.target]
    args, names = node.args, tuple(defaults)
    if rest is not None and len(args) > len(names):
        args = (*args[:len(names) - 1], tuple(args[len(names) - 1:]))
    elif rest is not None and len(args) == len(names) and isinstance(args[-1], (int, torch.SymInt, fx.Node)):
        args = (*args[:-1], (args[-1],))
    if len(args) > len(names) or not node.kwargs.keys() <= defaults.keys() or not node.kwargs.keys().isdisjoint(names[:len(args)]):
        raise Unsupported(f"arguments that are not known: {node.format_node()}")
    found = {**defaults, **dict(zip(names, args)), **node.kwargs}
    return {name: tuple(each) if isinstance(each, list) else each for name, each in found.items()}


def put_argument(node: fx.Node, name: str, argument: Any) -> None:
    """Gives a call whose operation is known another argument of that name."""
    _, defaults, rest = _spellings[node.target]
    place = list(defaults).index(name)
    if name == rest and len(node.args) > place:  # they may have been given one by one
        node.args = (*node.args[:place], argument)
    elif len(node.args) > place:
        node.update_arg(place, argument)
    else:
        node.update_kwarg(name, argument)


def is_cast(node: Any) -> bool:
    return is_op(node, "to") and isinstance(value_of(node), Tensor)


def is_quiet(node: Any) -> bool:
    """Whether it gives what it is given: dropout that is off, a copy of what lies right, detach() where no gradient is wanted."""
    operation = operation_of(node)
    if operation == "dropout":
        found = arguments_of(node)
        return found["training"] is False or found["p"] == 0.0
    if operation not in ("contiguous", "detach"):
        return False
    found = arguments_of(node)
    value = value_of(found["input"])
    if not isinstance(value, Tensor) or wants_gradient(value):
        return False
    if operation == "detach":
        return True
    is_known = all(isinstance(size, int) for size in value.shape)
    return is_known and found["memory_format"] is torch.contiguous_format and value.is_contiguous()


def only_user(node: fx.Node) -> Optional[fx.Node]:
    """The one node that uses it."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def after_quiet(node: fx.Node) -> tuple[fx.Node, list[fx.Node]]:
    """The last of the quiet nodes that follow each other and nothing else uses, or the node itself; and all of these."""
    quiet: list[fx.Node] = []
    while is_quiet(user := only_user(node)):
        quiet.append(user)
        node = user
    return node, quiet


@dataclasses.dataclass(frozen=True)
class Found:
    """A place of a graph where a tree stands."""

    bound: dict[str, Any]
    nodes: list[fx.Node]  #: the calls of the tree, in the order of their arguments before them: its root is the last

    @property
    def root(self) -> fx.Node:
        return self.nodes[-1]

    @property
    def is_whole(self) -> bool:
        """Whether nothing else uses a node below the root."""
        inside = set(self.nodes)
        return all(inside.issuperset(node.users) for node in self.nodes[:-1])

    def __getitem__(self, name: Any) -> Any:
        return self.bound[name]

    def get(self, name: str) -> Any:
        """None: the operation has no such argument."""
        return self.bound.get(name)


class Part(abc.ABC):
    """What may stand in a tree in the place of an argument, or as a whole."""

    every: tuple[str, ...]  #: operation in it

    @abc.abstractmethod
    def found(self, argument: Any, bound: dict[str, Any]) -> Iterator[Found]:
        """Every way in which it stands at an argument, beside what is bound already."""

    def find(self, root: Any) -> Optional[Found]:
        """What it binds where its root is this node."""
        return next(self.found(root, {}), None)

    def around(self, name: str, node: fx.Node) -> Iterator[Found]:
        """Where this name is bound to a node, the largest first: no further than what is made of the node alone, by operations of the tree."""
        roots = [node]
        while is_op(user := only_user(roots[-1]), *self.every):
            roots.append(user)
        for root in reversed(roots):
            yield from itertools.islice(self.found(root, {name: node}), 1)


class Tree(Part):
    """A call of one of some operations. Of its arguments each is bound to its name, but for those that are given here: a text is another
    name for it, a tree what stands there, anything else its value. What is bound twice must be the same. Sums and products fit either way
    round."""

    def __init__(self, operations: str, /, **arguments: Any) -> None:
        self.operations, self._arguments = tuple(operations.split()), arguments
        self.every = (*self.operations, *_every(arguments.values()))
        self._name, self._fact = "", None

    def named(self, name: str) -> Tree:
        """The same, with the call itself bound to a name."""
        made = copy.copy(self)
        made._name = name
        return made

    def where(self, fact: Callable[[Found], bool]) -> Tree:
        """The same, where this is true of what was found."""
        made = copy.copy(self)
        made._fact = fact
        return made

    def found(self, argument: Any, bound: dict[str, Any]) -> Iterator[Found]:
        if not is_op(argument, *self.operations):
            return
        try:
            arguments = arguments_of(argument)
        except Unsupported:
            return
        named = {self._name: argument} if self._name else {}
        for turned in _orders(argument, arguments):
            for below in _all(list(turned.items()), self._arguments, bound):
                found = Found({**below.bound, **named}, [*below.nodes, argument])
                if self._fact is None or self._fact(found):
                    yield found


class Either(Part):
    """The first of some that stands there; each as an argument of a tree."""

    def __init__(self, *wanted: Any) -> None:
        self._wanted, self.every = wanted, _every(wanted)

    def found(self, argument: Any, bound: dict[str, Any]) -> Iterator[Found]:
        for each in self._wanted:
            yield from _each(argument, each, bound)


class Steps(Part):
    """As many calls of a kind as stand there one behind the other, or none. Each binds what it is made of to `on`: the next of them, and in the
    end what is wanted there, as an argument of a tree. `into` is bound to all of them, the last call of the graph first."""

    def __init__(self, step: Part, end: Any, on: str = "input", into: str = "steps") -> None:
        self._step, self._end, self._on, self._into, self.every = step, end, on, into, _every((step, end))

    def found(self, argument: Any, bound: dict[str, Any]) -> Iterator[Found]:
        return self._found(argument, bound, set())

    def _found(self, argument: Any, bound: dict[str, Any], without: set[fx.Node]) -> Iterator[Found]:
        """without: nodes at which it does not stand, so that sums of sums of one tensor are looked at once."""
        stands = not isinstance(argument, fx.Node)
        if not stands and argument in without:
            return
        for step in self._step.found(argument, {}):
            for rest in self._found(step[self._on], bound, without):
                stands = True
                yield Found({**rest.bound, self._into: (step, *rest[self._into])}, _joined(rest.nodes, step.nodes))
        for end in _each(argument, self._end, bound):
            stands = True
            yield Found({**end.bound, self._into: ()}, end.nodes)
        if not stands:
            without.add(argument)


def _every(wanted: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(operation for each in wanted if isinstance(each, Part) for operation in each.every))


def _joined(some: list[fx.Node], others: list[fx.Node]) -> list[fx.Node]:
    return [*some, *(node for node in others if node not in some)]


def _orders(node: fx.Node, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield arguments
    if operation_of(node) in _COMMUTE and arguments.get("alpha", 1) == 1:
        yield {**arguments, "input": arguments["other"], "other": arguments["input"]}


def _all(arguments: list[tuple[str, Any]], wanted: dict[str, Any], bound: dict[str, Any]) -> Iterator[Found]:
    """Every way in which these arguments are what is wanted of them."""
    if not arguments:
        yield Found(bound, [])
        return
    (name, argument), *others = arguments
    for one in _each(argument, wanted.get(name, name), bound):
        for rest in _all(others, wanted, one.bound):
            yield Found(rest.bound, _joined(one.nodes, rest.nodes))


def _each(argument: Any, wanted: Any, bound: dict[str, Any]) -> Iterator[Found]:
    if isinstance(wanted, Part):
        yield from wanted.found(argument, bound)
    elif isinstance(wanted, str):
        if wanted not in bound or bound[wanted] is argument:
            yield Found({**bound, wanted: argument}, [])
    elif not isinstance(argument, _UNKNOWN) and argument == wanted:
        yield Found(bound, [])


#: A step that gives what it is given.
QUIET = Tree("dropout contiguous detach").where(lambda found: is_quiet(found.root))
