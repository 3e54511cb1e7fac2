# python/vitune/_compile/patterns/heads.py -- The patterns of nn.MultiheadAttention in Dynamo's graph, where it is one call.
# SPDX-License-Identifier: Apache-2.0
"""The projections become calls of their own, which are Inductor's, and attention between them vitune's."""
from __future__ import annotations

from typing import NamedTuple, Optional

import torch.nn.functional as F
from torch import fx

from ..._runtime.errors import Unsupported
from .match import FusionPattern, Match, NoMatch, value_of
from .tree import Tree, arguments_of, is_op, only_user
from .attention import Attend, Operand


_FIRST = Tree("getitem", index=0)


class _Heads(NamedTuple):
    x: fx.Node  # [N, B, E]
    heads: int
    qkv_weight: fx.Node
    qkv_bias: Optional[fx.Node]
    proj_weight: fx.Node
    proj_bias: Optional[fx.Node]


class Heads(FusionPattern):
    name = "attention"
    wins = True
    operations = ("heads", "encoder_layer")

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        if is_op(node, "encoder_layer"):
            return NoMatch("a fused encoder layer", "torch.backends.mha.set_fastpath_enabled(False), before it is compiled, opens it")
        call = "multi-head attention"
        try:
            found = _heads(node)
            out = _only_output(node)
        except Unsupported as reason:
            return NoMatch(call, str(reason))
        x, weight, bias = (None if part is None else Operand.of(part) for part in (found.x, found.qkv_weight, found.qkv_bias))
        packed = x.called(F.linear, weight, bias).called("unflatten", -1, (3, found.heads, -1))
        attend = Attend(out, *(packed.called("select", 2, i).called("permute", (1, 2, 0, 3)) for i in range(3)), None)
        why_not = attend.why_not(0.0)
        if why_not is not None:
            return NoMatch(call, why_not)

        def build(graph: fx.Graph) -> list[fx.Node]:
            joined = graph.call_method("flatten", (graph.call_method("permute", (attend.build(graph)[0], (2, 0, 1, 3))), 2))
            return [graph.call_function(F.linear, (joined, found.proj_weight, found.proj_bias))]
        return Match(call, [out], node, build, attend.ask, [node], attend.race)


def _heads(node: fx.Node) -> _Heads:
    (q, k, v, _, heads, qkv_w, qkv_b, bias_k, bias_v, zero, dropout_p, proj_w, proj_b, training, padding, weights, mask, separate, _, _,
     _, static_k, static_v, _, causal) = arguments_of(node).values()
    extra = any(part is not None for part in (bias_k, bias_v, padding, mask, static_k, static_v)) or zero or separate or causal
    if not q is k is v or value_of(q).dim() != 3:
        raise Unsupported("not of one tensor [batch, rows, width] with itself")
    if weights or extra or (training and dropout_p):
        raise Unsupported("a mask, dropout, other keys or weights are asked for")
    return _Heads(q, heads, qkv_w, qkv_b, proj_w, proj_b)


def _only_output(node: fx.Node) -> fx.Node:
    """The use of the call's first result; of the second, the weights, there is none."""
    out = only_user(node)
    if _FIRST.find(out) is None:
        raise Unsupported("its weights are used")
    return out


heads = Heads()
