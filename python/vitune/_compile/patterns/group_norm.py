# python/vitune/_compile/patterns/group_norm.py -- The patterns of GroupNorm in Dynamo's graph.
# SPDX-License-Identifier: Apache-2.0
"""group_norm, with silu or mish where that is all that becomes of it. Put in where asked for, as _compile/patterns/norm.py's."""
from __future__ import annotations

from typing import Optional

import torch
from torch import fx

from ..._ops import attention as attention_ops, group_norm as group_norm_ops
from ..._runtime.context import Problem, Selection
from ..._runtime.errors import Unsupported
from ..graph.match import FusionPattern, Match, NoMatch, arguments, as_compiled, constant, is_call, outside, value_of

_CALLS = frozenset((torch.nn.functional.group_norm, torch.group_norm))
_ACTIVATIONS = {torch.nn.functional.silu: "silu", torch.nn.functional.mish: "mish"}


class GroupNorm(FusionPattern):
    name = "group_norm"
    wins = False

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        if not is_call(node, _CALLS):
            return None
        last = _activation(node)
        activation = None if last is None else _ACTIVATIONS[last.target]
        call = "group_norm" if last is None else f"group_norm and {activation}"
        try:
            x, groups, weight, bias, eps = arguments(node, input=None, num_groups=None, weight=None, bias=None, eps=1e-5,
                                                     cudnn_enabled=True)[:5]
            groups, eps = constant(groups), constant(eps)
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
            text = group_norm_ops.text_of(*tensors, groups, eps, activation)
            return attention_ops.context_of(value_of(x).device.index).query(Problem(text))
        return Match(call, [last or node], node, build, ask, [node] if last else [])


def _activation(node: fx.Node) -> Optional[fx.Node]:
    only = next(iter(node.users)) if len(node.users) == 1 else None
    return only if only is not None and is_call(only, frozenset(_ACTIVATIONS)) and only.args == (node,) else None


group_norm = GroupNorm()
