# python/vitune/_compile/patterns/norm_train.py -- The pattern of norms that train, with the sum before them and the cast behind them.
# SPDX-License-Identifier: Apache-2.0
"""Inductor makes one kernel of a residual's sum, its norm and the cast to autocast's type, forward and backward. So a place has all of
these: its forward pass stays Inductor's, and the backward pass is one call, which is given the gradients of sum and norm, and gives those
of both summands. Drop path is a factor of each sample in there. A LayerScale before the sum is in the race, on both sides.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx

from ..._ops import attention as attention_ops, norm_training as norm_ops
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from . import subgraph
from .benchmark import Times
from .distinct import once
from .match import (FusionPattern, Match, NoMatch, as_compiled, foreign, hint, is_autocast, is_transformed, outside, selected, value_of,
                           wants_gradient)
from .mutations import is_changed_between, is_written_after, storages_of
from .tree import QUIET, Steps, Tree, arguments_of, is_cast, is_op, is_quiet, only_user, operation_of
from .norm import NORM, NORMS, epsilon

_OPS = torch.ops.vitune
_SIXTEEN_BITS = (torch.bfloat16, torch.float16)
#: Operations that give the numbers that they are given, some of them: a cast may as well come before.
_MOVES = ("contiguous", "flatten", "getitem", "pad", "permute", "reshape", "roll", "squeeze", "transpose", "unflatten", "unsqueeze", "view")
_MOST_BEFORE = 2  # products: LayerScale's, drop path's


class Sum(NamedTuple):
    """What is normalised, of two tensors."""

    node: fx.Node
    x: fx.Node
    residual: fx.Node
    factor: Optional[fx.Node]  # of each of x's samples
    steps: tuple[fx.Node, ...]  # from x up to the sum
    before: tuple[fx.Node, ...]  # products that x is the last of, in the race alone
    views: tuple[fx.Node, ...] = ()  # of the sum, up to what is normalised

    def of_other_types(self) -> bool:
        return self.factor is not None or value_of(self.x).dtype != value_of(self.node).dtype


class Place(NamedTuple):
    node: fx.Node
    x: fx.Node  # what is normalised
    weight: Optional[fx.Node]
    bias: Optional[fx.Node]
    eps: float
    rms: bool
    sum: Optional[Sum]
    narrowed: Optional[torch.dtype]  # the type that all take its result in

    @property
    def call(self) -> str:
        parts = [operation_of(self.node), "of a sum" if self.sum is not None else "",
                 "with drop path" if self.sum is not None and self.sum.factor is not None else "", "in training"]
        return " ".join(filter(None, parts))

    @property
    def returns_sum(self) -> bool:
        return self.sum is not None and len(self.x.users) > 1

    @property
    def nodes(self) -> list[fx.Node]:
        """In the order of the graph."""
        return [*((*self.sum.steps, self.sum.node, *self.sum.views) if self.sum is not None else ()), self.node]

    @property
    def operands(self) -> list[fx.Node]:
        """What the operator takes."""
        first = (self.x,) if self.sum is None else (self.sum.x, self.sum.residual, self.sum.factor)
        return list(dict.fromkeys(node for node in (*first, self.weight, self.bias) if node is not None))

    def _is_written_later(self) -> bool:
        """Whether the model writes to what the backward pass keeps, of which PyTorch's may keep a copy in fp32."""
        factor = None if self.sum is None else self.sum.factor
        return is_written_after(self.node, set().union(*(storages_of(node) for node in (self.x, self.weight, factor) if node is not None)))

    def why_not(self) -> str:
        values = [value_of(node) for node in self.operands]
        if any(not isinstance(value, Tensor) for value in values):
            return "its operands are no tensors that are known"
        kind = next(filter(None, map(foreign, values)), "")
        if kind:
            return kind
        if not value_of(self.node).dtype.is_floating_point:
            return f"its type is {value_of(self.node).dtype}"
        if any(value.dtype == torch.float64 for value in (*values, value_of(self.node))):
            return "its type is torch.float64, of which the kernels compute in fp32"
        if is_transformed(self.node):
            return "torch.func transforms it"
        if self._is_written_later():
            return "what its backward pass keeps is written to later"
        types = {value_of(node).dtype for node in (self.weight, self.bias) if node is not None}
        if len(types) > 1:
            return "its weight and bias have two types"
        if values[0].device.type == "cpu":
            return ""
        return outside(values[0])

    def build(self, graph: fx.Graph, of: Callable[[fx.Node], Any], given: Sequence[fx.Node] = ()) -> list[fx.Node]:
        """The norm, and the sum where that is used elsewhere."""
        parameters = tuple(None if node is None else of(node) for node in (self.weight, self.bias))
        words = (*parameters, self.eps, self.rms, self.narrowed or value_of(self.node).dtype)
        if self.sum is None:
            results = graph.call_function(_OPS.norm_train.default, (of(self.x), *words))
            return [graph.call_function(operator.getitem, (results, 0))]
        summands, factor = [of(self.sum.x), of(self.sum.residual)], None
        if self.sum.views:
            summands = [graph.call_method("reshape", (each, tuple(value_of(self.x).shape))) for each in summands]
        if self.sum.factor is not None:
            factor = graph.call_method("to", (of(self.sum.factor), torch.float32))
            if self.sum.views:
                factor = graph.call_method("reshape", (factor, self._factor_shape))
        results = graph.call_function(_OPS.sum_norm_train.default, (*summands, factor, *words))
        return [graph.call_function(operator.getitem, (results, i)) for i in (1, 0)[:1 + self.returns_sum]]

    @property
    def _factor_shape(self) -> tuple[int, ...]:
        shape = value_of(self.x).shape
        return (shape[0], *(1 for _ in shape[1:]))

    def put(self, graph: fx.Graph) -> list[fx.Node]:
        made = self.build(graph, lambda node: node)
        if self.narrowed is not None:  # what comes behind it sees the type that it has now
            value = value_of(self.node)
            made[0].meta["example_value"] = torch.empty_like(value, dtype=self.narrowed).requires_grad_(value.requires_grad)
        return made

    def text(self) -> str:
        """The problem of its backward pass, whose gradients lie row by row."""
        def dense(node: fx.Node, dtype: Optional[torch.dtype] = None) -> Tensor:
            value = value_of(node)
            return torch.empty([*map(hint, value.shape)], dtype=dtype or value.dtype, device="meta")
        x = as_compiled(self.x) if self.sum is None else dense(self.x)
        factor = second = None
        if self.sum is not None and self.sum.of_other_types() and wants_gradient(value_of(self.sum.x)):
            second = value_of(self.sum.x).dtype
            factor = None if self.sum.factor is None else as_compiled(self.sum.factor).reshape(self._factor_shape)
        parameter = self.weight if self.weight is not None else self.bias
        wants = [node is not None and wants_gradient(value_of(node)) for node in (self.weight, self.bias)]
        dtype = x.dtype if parameter is None else value_of(parameter).dtype
        return norm_ops.backward_text(dense(self.node, self.narrowed), x, as_compiled(self.weight),
                                      dense(self.x) if self.returns_sum else None, factor, second, dtype, *wants, self.rms)

    def match(self) -> Match:
        device = value_of(self.x).device
        is_on_gpu = attention_ops.is_on_gpu(value_of(self.x))

        def ask() -> Selection:
            text = once(self.text, Place, self)
            return once(lambda: selected(text, device.index), Place, text, device)
        replaced = [self.node, self.x][:1 + self.returns_sum]
        return Match(self.call, replaced, self.node, self.put, ask if is_on_gpu else None, self.nodes[:-1], self.race,
                     surroundings=self._surroundings(), unserved="" if is_on_gpu else f"device {device.type}")

    @property
    def region(self) -> subgraph.Subgraph:
        before = self.sum.before if self.sum is not None else ()
        is_cast = is_autocast(self.node, value_of(self.x).device.type)
        return subgraph.Subgraph(self.nodes, [self.node, self.x][:1 + self.returns_sum], before, [],
                                 (self.narrowed or torch.bfloat16) if is_cast else None, self.narrowed, self._also)

    @property
    def _also(self) -> list[fx.Node]:
        """What is normalised, where it has a gradient from elsewhere, which Inductor adds in the same kernel."""
        return [self.x] if self.sum is None and len(self.x.users) > 1 and wants_gradient(value_of(self.x)) else []

    def _inputs(self) -> list[fx.Node]:
        """What the region takes, with what is before it."""
        before = self.sum.before if self.sum is not None else ()
        return list(dict.fromkeys(taken for node in (*before, *self.nodes) for taken in node.all_input_nodes
                                  if taken not in before and taken not in self.nodes))

    def race(self) -> Optional[Times]:
        return subgraph.raced_in_training(self.region, self._inputs(), self.build)

    def _surroundings(self) -> str:
        kinds = [(value_of(node).dtype, tuple(value_of(node).shape), wants_gradient(value_of(node))) for node in self._inputs()]
        return f"{kinds} into {self.narrowed or value_of(self.node).dtype}, {self.returns_sum, len(self._also), len(self.region.before)}"


class NormTrain(FusionPattern):
    name = "norm_train"
    wins = True
    only_if_timed = True
    races_defaults = True
    trains = True
    operations = NORMS

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        if not wants_gradient(value_of(node)):
            return None
        try:
            place = _place(node)
            why_not = place.why_not()
        except Unsupported as reason:
            why_not = str(reason)
        return NoMatch(f"{operation_of(node)} in training", why_not) if why_not else place.match()


def _place(node: fx.Node) -> Place:
    if not isinstance(shape := arguments_of(node)["normalized_shape"], (tuple, list)) or len(shape) != 1:
        raise Unsupported(f"a norm over {shape}: patterns are of one dimension")
    found = NORM.find(node)
    return Place(node, found["x"], found["weight"], found.get("bias"), epsilon(found), operation_of(node) == "rms_norm",
                 _sum(node, found["x"]), _narrowed(node))


def _narrowed(node: fx.Node) -> Optional[torch.dtype]:
    """The type of 16 bits that autocast casts a result to for all that use it, linear layers alone. None: there is none."""
    types, todo = set(), [node]
    while todo:
        at = todo.pop()
        for user in at.users:
            if is_op(user, "linear") and user.all_input_nodes.count(at) == 1 and arguments_of(user)["input"] is at:
                types.add(value_of(user).dtype)
            elif is_op(user, *_MOVES) or is_quiet(user):
                todo.append(user)
            else:
                return None
    dtype = types.pop() if len(types) == 1 else None
    return dtype if dtype in _SIXTEEN_BITS and dtype != value_of(node).dtype else None


def _sum(node: fx.Node, x: Any) -> Optional[Sum]:
    """That which is normalised, if it is one of two tensors alike, or a view of one with the same rows, and nothing uses it before the norm."""
    views, total = _views(x)
    if not is_op(total, "add") or total.graph is not node.graph:
        return None
    found = arguments_of(total)
    summands = [found["other"], found["input"]]
    if found["alpha"] != 1 or summands[0] is summands[1] or not all(_is_like(each, total) for each in summands):
        return None
    at = x.next
    while at is not node:
        if at in x.users:
            return None
        at = at.next
    ways = [way for each, residual in (summands, summands[::-1]) for way in _ways(total, each, residual)]
    if value_of(total).shape[0] != value_of(x).shape[0]:
        ways = [way for way in ways if way.factor is None]
    ways.sort(key=lambda way: (way.factor is None, not way.of_other_types()))  # the first of those alike
    found = next((way for way in ways if not _is_changed((*way.steps, total, *views, node))), None)
    return None if found is None else found._replace(views=views)


def _is_changed(nodes: Sequence[fx.Node]) -> bool:
    """Whether what they read is written in between; of casts _narrow() knows."""
    steps = [node for node in nodes if not is_cast(node)]
    return is_changed_between(steps[0], steps[-1], steps)


def _views(x: Any) -> tuple[tuple[fx.Node, ...], Any]:
    """Views of other extents and the same rows, and what the first is of, which nothing else uses."""
    views: list[fx.Node] = []
    at = x
    while is_op(at, "reshape", "view", "flatten", "unflatten") and isinstance(value_of(at), Tensor):
        of = arguments_of(at)["input"]
        extents = [*getattr(value_of(of), "shape", ()), *value_of(at).shape]
        if not extents or not all(isinstance(extent, int) for extent in extents) or not value_of(of).is_contiguous() or only_user(of) is not at \
                or value_of(of).shape[-1] != value_of(at).shape[-1]:
            break
        views.insert(0, at)
        at = of
    return tuple(views), at


def _is_like(node: Any, total: fx.Node) -> bool:
    value = value_of(node)
    return isinstance(node, fx.Node) and isinstance(value, Tensor) and value.shape == value_of(total).shape


def _ways(total: fx.Node, x: fx.Node, residual: fx.Node) -> Iterator[Sum]:
    dtype = value_of(total).dtype
    if value_of(residual).dtype != dtype:
        return
    dropped = _drop_path(x)
    if dropped is not None and torch.promote_types(value_of(dropped[0]).dtype, dtype) == dtype and not _scales(dropped[0]):
        of, factor, steps = dropped
        of, casts = _narrow(of)
        yield Sum(total, of, residual, factor, (*casts, *steps), ())
    of, casts = _narrow(x)
    yield Sum(total, of, residual, None, casts, _scales(x))


def _narrow(x: fx.Node) -> tuple[fx.Node, tuple[fx.Node, ...]]:
    """What an fp32 tensor is a cast of, if that has 16 bits, and the cast: the sum takes it as it is, and has its gradient in its type."""
    if is_cast(x) and value_of(x).dtype == torch.float32:
        of = arguments_of(x)["input"]
        narrow = value_of(of)
        if isinstance(narrow, Tensor) and narrow.dtype in _SIXTEEN_BITS and narrow.device == value_of(x).device and \
                not is_written_after(x, storages_of(x) | storages_of(of)):
            return of, (x,)
    return x, ()


def _drop_path(branch: fx.Node) -> Optional[tuple[fx.Node, fx.Node, tuple[fx.Node, ...]]]:
    """What was multiplied by a factor for each sample, the factors, and the nodes from there on, which nothing else uses."""
    found = _DROPPED.find(branch)
    is_found = found is not None and all(only_user(node) is not None for node in found.nodes)
    return (found["x"], found["factor"], tuple(found.nodes)) if is_found else None


def _is_of_samples(factor: Any, x: fx.Node) -> bool:
    value, like = value_of(factor), value_of(x)
    if not isinstance(factor, fx.Node) or not isinstance(value, Tensor) or wants_gradient(value) or like.dim() < 2:
        return False
    return value.shape == (like.shape[0], *(1 for _ in like.shape[1:])) and value.dtype.is_floating_point


def _scales(x: fx.Node) -> tuple[fx.Node, ...]:
    """Products with a LayerScale, or behind one with factors of samples, of which x is the last one: one kernel of Inductor's backward pass
    multiplies by all of them."""
    return tuple(step.root for step in reversed(_SCALED.find(x)["steps"][:_MOST_BEFORE]))


def _is_row(factor: Any) -> bool:
    return isinstance(factor, fx.Node) and isinstance(value_of(factor), Tensor) and value_of(factor).dim() == 1


_PRODUCT = Tree("mul", input="x", other="factor")
_DROPPED = Steps(QUIET, _PRODUCT.where(lambda found: _is_like(found["x"], found.root) and _is_of_samples(found["factor"], found["x"])))
_SCALED = Steps(_PRODUCT.where(lambda found: _is_like(found["x"], found.root) and (
    _is_row(found["factor"]) or _is_of_samples(found["factor"], found["x"]))), "scaled", on="x")

norm_train = NormTrain()
