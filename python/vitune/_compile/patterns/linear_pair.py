# python/vitune/_compile/patterns/linear_pair.py -- The pattern of two linear layers with a layer norm between them in Dynamo's graph.
# SPDX-License-Identifier: Apache-2.0
"""linear -> what follows it -> layer_norm -> linear -> what follows that: a projection with the residual, and the MLP behind.
The first call writes moments of its result, so that the norm is folded into the second and its statistics cost no kernel."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx

from ..._ops import linear as linear_ops, linear_moments as moments_ops  # noqa: F401  (the operators)
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported, VituneError
from . import linear as linear_pattern, subgraph
from .benchmark import Times
from .distinct import once_of_kind
from .match import FusionPattern, Match, ConstantFold, as_compiled, value_of
from .mutations import is_changed_between
from .tree import is_op
from .linear import Fusion, ends, norm_before, norms_after

_COLUMNS = linear_ops.MOMENTS_COLUMNS  # of a block of moments: tiles of few columns are the fastest where norms are folded


class Pair(NamedTuple):
    """Two calls: of the layer whose result is normalised, and of the one that takes what the norm gives."""

    first: Fusion
    second: Fusion

    @property
    def between(self) -> fx.Node:
        """The first layer's result."""
        return self.first.end.last

    @property
    def call(self) -> str:
        return f"{self.first.call}; {self.second.call}"

    @property
    def nodes(self) -> list[fx.Node]:
        return [*self.first.nodes, *self.second.nodes]

    @property
    def results(self) -> list[fx.Node]:
        return [self.between, self.second.end.last]

    @property
    def operands(self) -> list[fx.Node]:
        return [node for node in dict.fromkeys((*self.first.operands, *self.second.operands)) if node is not self.between]

    @property
    def recipes(self) -> tuple[ConstantFold, ...]:
        return self.second.recipes

    def _fakes(self) -> list[Tensor]:
        return [fake for recipe in self.recipes for fake in recipe.fakes()]

    def build(self, graph: fx.Graph, of: Callable[[fx.Node], fx.Node], given: Sequence[fx.Node]) -> list[fx.Node]:
        ops, tracer = torch.ops.vitune, fx.proxy.GraphAppendingTracer(graph)

        def called(op: Any, *arguments: Any) -> fx.Node:
            return graph.call_function(op, tuple(part.node if isinstance(part, fx.Proxy) else part for part in arguments))
        *first, _, _ = self.first.without_statistics(lambda node: fx.Proxy(of(node), tracer), [])
        made = called(ops.linear_with_moments_or_torch.default, *first, _COLUMNS)
        out, moments = (graph.call_function(operator.getitem, (made, i)) for i in range(2))
        of_second = lambda node: fx.Proxy(out if node is self.between else of(node), tracer)  # noqa: E731
        *second, sums = self.second.without_statistics(of_second, [fx.Proxy(node, tracer) for node in given])
        norm = moments, _COLUMNS, float(self.second.norm.eps), sums
        return [out, called(ops.linear_by_moments_or_torch.default, *second, *norm)]

    def build_apart(self, graph: fx.Graph, of: Callable[[fx.Node], fx.Node], given: Sequence[fx.Node]) -> list[fx.Node]:
        """The same by each layer's own call, between which Inductor computes the norm's statistics."""
        out = self.first.build(graph, of, [])
        return [out, self.second.build(graph, lambda node: out if node is self.between else of(node), given)]

    def are_tuned_apart(self) -> bool:
        try:
            return all(layer.ask().outcome != "default" for layer in (self.first, self.second))
        except VituneError:
            return False

    def first_problem(self) -> str:
        *before, out_dtype, _ = self.first.without_statistics(as_compiled, [])
        return linear_ops.text_of(*before, False, out_dtype, moments_columns=_COLUMNS)

    def second_problem(self) -> str:
        # The first layer's result lies as the operator makes it.
        of = lambda node: as_compiled(node).contiguous() if node is self.between else as_compiled(node)  # noqa: E731
        *before, out_dtype, _ = self.second.without_statistics(of, [as_compiled(fake) for fake in self._fakes()])
        return linear_ops.text_of(*before, False, out_dtype, linear_ops.moments_kind(_COLUMNS, self.second.norm.eps))

    @once_of_kind
    def ask_first(self) -> Selection:
        return linear_pattern.selected(self.first_problem(), value_of(self.between).device.index)

    @once_of_kind
    def ask_second(self) -> Selection:
        return linear_pattern.selected(self.second_problem(), value_of(self.between).device.index)

    def has_kernels(self) -> bool:
        """Whether this GPU has any, tuned or not: few write moments and take them."""
        try:
            self.ask_first(), self.ask_second()
        except VituneError:  # whatever else it is, the layers' own calls tell it
            return False
        return True

    def place(self) -> Match:
        region = subgraph.Subgraph(self.nodes, self.results, [], norms_after(self.results[1]), None)

        def race() -> Optional[Times]:
            """Beside Inductor's; and where that is won beside the layers' own calls, which would be put in otherwise."""
            times = subgraph.raced(region, self.operands, self._fakes(), self.build)
            if times is None or not times.won or not self.are_tuned_apart():
                return times
            apart = subgraph.raced(region, self.operands, self._fakes(), self.build, self.build_apart)
            if apart is None or apart.ours_us > apart.theirs_us:
                return None if apart is None else apart._replace(rival="a call for each layer")
            return times
        return Match(self.call, self.results, self.results[1],
                     lambda graph, *given: self.build(graph, lambda node: node, given), self.ask_first,
                     [node for node in self.nodes if node not in self.results], race, self.recipes, region.surroundings(),
                     [self.ask_second])

    def fits(self) -> bool:
        """Whether moments are of its types and sizes, and both calls may stand where the second layer's result does."""
        first, second, columns = self.first, self.second, value_of(self.between).shape[-1]
        if not isinstance(columns, int) or columns % _COLUMNS:
            return False
        if first.autocast or second.autocast or not value_of(self.between).dtype == first.dtype == second.dtype:
            return False
        return not self._is_seen_between() and not is_changed_between(self.nodes[0], self.results[1], self.nodes)

    def _is_seen_between(self) -> bool:
        """Whether something else uses the first layer's result before the second one's is there."""
        inside, at = set(self.nodes), self.between
        while at is not self.results[1] and (at in inside or self.between not in at.all_input_nodes):
            at = at.next
        return at is not self.results[1]


class LinearPair(FusionPattern):
    name = "linear"
    wins = True
    only_if_timed = True
    operations = ("linear",)

    def places(self, node: fx.Node) -> Iterator[Match]:
        """None where it is no pair or has no kernels: the layers are looked at one by one."""
        try:
            pairs = list(_pairs(node))
        except Unsupported:
            return
        yield from (pair.place() for pair in pairs if pair.has_kernels())


def _pairs(node: fx.Node) -> Iterator[Pair]:
    first = _fusion_of(node)
    if first is None:
        return
    first = first._replace(end=ends((node,))[-1])  # of shorter ones nothing but the next step uses the result
    for user in first.end.last.users:
        norm = norm_before(user) if is_op(user, "layer_norm") else None
        layer = None if norm is None else next(iter(user.users))
        second = None if layer is None or norm.x is not first.end.last else _fusion_of(layer)
        if second is None or second.x is not user or not second.may_fold(norm):
            continue
        for end in reversed(ends((layer,))):
            pair = Pair(first, second._replace(end=end, norm=norm))
            if pair.fits():
                yield pair


def _fusion_of(node: fx.Node) -> Optional[Fusion]:
    """That of a layer without what is around it; None: it is none that kernels take."""
    fusion = linear_pattern.fusion_of(node) if is_op(node, "linear") else None
    return None if fusion is None or linear_pattern.why_no_kernel(fusion) else fusion


linear_pair = LinearPair()
