# python/vitune/_compile/patterns/group_norm.py -- The patterns of GroupNorm in Dynamo's graph.
# SPDX-License-Identifier: Apache-2.0
"""group_norm, with silu or mish where that is all that becomes of it. Put in where asked for, as _compile/patterns/norm.py's."""
from __future__ import annotations

import torch
from torch import fx

from ..._ops import group_norm as group_norm_ops
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from .distinct import once
from .match import FusionPattern, Match, NoMatch, as_compiled, constant, outside, selected, value_of
from .tree import Tree, only_user, operation_of

_GROUP_NORM = Tree("group_norm", input="x")
_ACTIVATED = Tree("silu mish", input=_GROUP_NORM)


class GroupNorm(FusionPattern):
    name = "group_norm"
    wins = False
    operations = ("group_norm",)

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        last = only_user(node)
        found = None if last is None else _ACTIVATED.find(last)
        activation = None if found is None else operation_of(last)
        call = "group_norm" if found is None else f"group_norm and {activation}"
        found = found or _GROUP_NORM.find(node)
        if found is None:
            return NoMatch(call, f"arguments that are not known: {node.format_node()}")
        x, weight, bias = (found[name] for name in ("x", "weight", "bias"))
        try:
            groups, eps = constant(found["num_groups"]), constant(found["eps"])
        except Unsupported as reason:
            return NoMatch(call, str(reason))
        autocast = "" if value_of(node).dtype == value_of(x).dtype else "autocast gives it another type than its input's"
        why_not = outside(value_of(x)) or autocast
        if why_not:
            return NoMatch(call, why_not)

        def build(graph: fx.Graph) -> list[fx.Node]:
            return [graph.call_function(torch.ops.vitune.group_norm.default, (x, groups, weight, bias, eps, activation))]

        def ask() -> Selection:
            tensors = [as_compiled(tensor) for tensor in (x, weight, bias)]
            return selected(group_norm_ops.text_of(*tensors, groups, eps, activation), value_of(x).device.index)
        return Match(call, [found.root], node, build, lambda: once(ask, GroupNorm, x, weight, bias, groups, eps, activation),
                     found.nodes[:-1])


group_norm = GroupNorm()
