# python/vitune/_compile/patterns/mutations.py -- Which tensors a node of Dynamo's graph writes to, and whether that comes between what ours reads.
# SPDX-License-Identifier: Apache-2.0
"""Dynamo's graph is not functional yet: `x += 1` and what reads x stand in it in the model's order. Tensors are told apart by the
storages of their fake ones, which views share."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from .match import value_of


def storage_of(node: fx.Node) -> Any:
    value = value_of(node)
    return _unwrapped(value).untyped_storage()._cdata if isinstance(value, Tensor) else node


def storages_in(value: Any) -> set[Any]:
    """Those of the tensors of a value, which may be several. Sparse ones have none that others share."""
    tensors = (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.layout is torch.strided)
    return {_unwrapped(tensor).untyped_storage()._cdata for tensor in tensors}


def _unwrapped(tensor: Tensor) -> Tensor:
    """What torch.func put a tensor of its own around, which has no storage."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def storages_of(node: fx.Node) -> set[Any]:
    return storages_in(value_of(node))


def storages_written_by(node: fx.Node) -> set[Any]:
    return {storage for tensor in written_by(node) for storage in storages_of(tensor)}


def is_changed_between(first: fx.Node, last: fx.Node, steps: Sequence[fx.Node]) -> bool:
    """Whether a tensor that the steps read is written before the last one: ours reads all of them there."""
    inside, at = set(steps), first
    read = {storage for step in steps for tensor in step.all_input_nodes if tensor not in inside for storage in storages_of(tensor)}
    while at is not last and read.isdisjoint(storages_written_by(at)):
        at = at.next
    return at is not last


def is_written_after(node: fx.Node, storages: set[Any]) -> bool:
    """Whether one of these is written behind a node."""
    at = node.next
    while at.op != "output" and storages.isdisjoint(storages_written_by(at)):
        at = at.next
    return at.op != "output"


#: Operators whose first operand is changed, by their names in Python: operator.iadd, Tensor.__iadd__ ...
_IN_PLACE = frozenset(f"i{name}" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
                                              "lshift", "rshift")) | {"setitem"}
#: Functions that change tensors after their first where an argument says so, which no version counts: (its name, its place, its default).
#: Statistics of the batches; weights of a greatest norm.
_CHANGES_LATER_ONES = {F.batch_norm: ("training", 5, False), torch.batch_norm: ("training", 5, False),
                       F.instance_norm: ("use_input_stats", 5, True), torch.instance_norm: ("use_input_stats", 5, True),
                       F.embedding: ("max_norm", 3, None), F.embedding_bag: ("max_norm", 4, None)}
#: Modules of functions that change nothing but what their names, arguments or schemas say.
_PURE = frozenset(("torch", "_operator", "operator", "math", "builtins", "einops", "vitune"))


def written_by(node: fx.Node) -> list[fx.Node]:
    """Which of its arguments it may change."""
    if node.op not in ("call_function", "call_method"):
        return list(node.all_input_nodes) if node.op == "call_module" else []
    if node.op == "call_method":
        return _first_of(node) if _is_in_place(node.target) else []
    if isinstance(node.target, torch._ops.OpOverload):
        return _written_by_schema(node)
    if may_write(node.target):
        return list(node.all_input_nodes)
    said = _CHANGES_LATER_ONES.get(node.target)
    if said is not None and _is_said(_argument(node, *said)):
        first = _first_of(node)
        return [tensor for tensor in node.all_input_nodes if tensor not in first]
    in_place = _is_said(_argument(node, "inplace", _place_of_inplace(node.target), False)) or _is_in_place(node.target)
    return (_nodes_in(node.kwargs["out"]) if "out" in node.kwargs else []) + (_first_of(node) if in_place else [])


def _first_of(node: fx.Node) -> list[fx.Node]:
    """Of its first argument; of all where that is none."""
    return _nodes_in(node.args[:1]) or list(node.all_input_nodes)


def _is_said(value: Any) -> bool:
    return value is not None and value is not False  # 0.0 is a greatest norm


def _nodes_in(argument: Any) -> list[fx.Node]:
    return [leaf for leaf in tree_leaves(argument) if isinstance(leaf, fx.Node)]


def _argument(node: fx.Node, name: str, place: Optional[int], default: Any) -> Any:
    return node.args[place] if place is not None and len(node.args) > place else node.kwargs.get(name, default)


@functools.cache
def _is_in_place(target: Any) -> bool:
    """Whether a function, or the method of that name, changes its first argument: x.add_(y), x.__iadd__(y), operator.iadd(x, y)."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    plain = name[2:-2] if name.startswith("__") and name.endswith("__") else name
    ends_so = plain.endswith("_") and getattr(target, "__module__", "") != "_operator"  # whose and_, or_ and not_ are words of Python
    return plain in _IN_PLACE or ends_so


def _written_by_schema(node: fx.Node) -> list[fx.Node]:
    written: list[fx.Node] = []
    for place, argument in enumerate(node.target._schema.arguments if node.target._schema.is_mutable else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += _nodes_in(_argument(node, argument.name, place, None))
    return written


def may_write(target: Any) -> bool:
    """Of operators with a schema what that says; operators of higher order (Triton kernels, loops) and functions that Dynamo was told not
    to look into may do anything."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return any(getattr(target, name)._schema.is_mutable for name in target.overloads())
    if isinstance(target, torch._ops.HigherOrderOperator):
        return True
    return inspect.isfunction(target) and (target.__module__ or "").partition(".")[0] not in _PURE


@functools.cache
def _place_of_inplace(function: Any) -> Optional[int]:
    """Which argument of F.relu, F.dropout ... it is."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin, which says nothing
        return None
    return names.index("inplace") if "inplace" in names else None
