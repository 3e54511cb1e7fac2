# python/vitune/_compile/patterns/own.py -- A pattern that is one tree and one operator: all that most patterns of one's own have to say.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import abc
import operator
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from . import subgraph
from .benchmark import Times
from .distinct import kind_of, once
from .match import FusionPattern, Match, NoMatch, as_compiled, outside, selected, value_of
from .mutations import is_changed_between
from .tree import Found, Tree


class TreePattern(FusionPattern):
    """What a tree computes is what an operator gives, or the first of its results. Put in where it was timed and is faster."""

    wins = True
    only_if_timed = True
    tree: Tree
    operator: Any  #: torch.ops.<library>.<name>.<overload>, which changes nothing that it is given

    @abc.abstractmethod
    def arguments(self, found: Found) -> Sequence[Any]:
        """Those of the operator, of what the tree has bound. Raises Unsupported where it cannot take these."""

    def problem(self, *arguments: Any) -> Optional[str]:
        """The problem that the call asks of libvitune (docs/problems.md), of the operator's arguments with tensors on the meta device; None:
        the operator is none of vitune's. Raises VituneError."""
        return None

    @property
    def operations(self) -> tuple[str, ...]:
        return self.tree.operations

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        found = self.tree.find(node)
        if found is None:
            return None
        try:
            return self._match(found, self.arguments(found))
        except Unsupported as reason:
            return NoMatch(self.name, str(reason))

    def _match(self, found: Found, arguments: Sequence[Any]) -> Match:
        taken = list(dict.fromkeys(each for each in arguments if isinstance(each, fx.Node)))
        nodes = [each for each in found.root.graph.nodes if each in found.nodes]
        self._check(found, arguments, taken, nodes)
        region = subgraph.Subgraph(nodes, [found.root], [], [], None)
        device = value_of(found.root).device.index

        def build(graph: fx.Graph, of: Callable[[fx.Node], fx.Node] = lambda node: node, given: Sequence[fx.Node] = ()) -> list[fx.Node]:
            made = graph.call_function(self.operator, tuple(of(each) if isinstance(each, fx.Node) else each for each in arguments))
            return [made if isinstance(self._result(arguments), Tensor) else graph.call_function(operator.getitem, (made, 0))]

        def ask() -> Selection:
            return once(lambda: selected(self.problem(*map(_without_device, arguments)), device), self, arguments)

        def race() -> Optional[Times]:
            return subgraph.raced(region, taken, [], build)
        is_asked = type(self).problem is not TreePattern.problem
        return Match(self.name, [found.root], found.root, build, ask if is_asked else None, nodes[:-1], race,
                     surroundings=str(kind_of((arguments, nodes))))

    def _check(self, found: Found, arguments: Sequence[Any], taken: Sequence[fx.Node], nodes: Sequence[fx.Node]) -> None:
        why_not = next(filter(None, (outside(value_of(node)) for node in taken if isinstance(value_of(node), Tensor))), "")
        if why_not:
            raise Unsupported(why_not)
        if not found.is_whole:
            raise Unsupported("what is computed on the way is used elsewhere")
        if is_changed_between(nodes[0], found.root, nodes):
            raise Unsupported("something on the way changes a tensor that is read")
        made, wanted = self._result(arguments), value_of(found.root)
        made = made if isinstance(made, Tensor) else made[0]
        if made.shape != wanted.shape or made.dtype != wanted.dtype:
            raise Unsupported(f"the operator gives {made.dtype} {list(made.shape)}, and the model {wanted.dtype} {list(wanted.shape)}")

    def _result(self, arguments: Sequence[Any]) -> Any:
        """As a compiler sees it."""
        def make() -> Any:
            with torch.no_grad():
                return self.operator(*tree_map(value_of, list(arguments)))
        return once(make, self.operator, arguments)


def _without_device(argument: Any) -> Any:
    return as_compiled(argument) if isinstance(argument, fx.Node) and isinstance(value_of(argument), Tensor) else argument
