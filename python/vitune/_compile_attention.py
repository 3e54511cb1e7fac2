# python/vitune/_compile_attention.py -- The patterns of attention in Dynamo's graph.
# SPDX-License-Identifier: Apache-2.0
"""scaled_dot_product_attention, whose arguments are already views of what the projections gave."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import fx

from . import _torch_op, _torch_sdpa
from ._compile_graph import Operator, Place, Refusal, arguments, as_compiled, constant, is_call, value_of
from ._context import Selection
from ._errors import Unsupported

_CALLS = frozenset((_torch_sdpa.original, torch.ops.aten.scaled_dot_product_attention.default))


class Attention(Operator):
    name = "attention"
    wins = True  # docs/results.md

    def place(self, node: fx.Node) -> Place | Refusal | None:
        if not is_call(node, _CALLS):
            return None
        call = "scaled_dot_product_attention"
        try:
            given = arguments(node, query=None, key=None, value=None, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                              enable_gqa=False)
            tensors, (dropout_p, *rest) = given[:4], map(constant, given[4:])
        except Unsupported as reason:
            return Refusal(call, str(reason))
        values = [value_of(tensor) for tensor in tensors]
        why_not = _torch_sdpa.reason(*(_cast(node, value) for value in values[:3]), values[3], dropout_p)
        if why_not is not None:
            return Refusal(call, why_not)
        return Place(call, [node], node, lambda graph: [_call(graph, node, tensors, rest)], lambda: ask(node, tensors, rest))


def _cast(node: fx.Node, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(value_of(node).dtype)  # autocast's, where it is on


def ask(node: fx.Node, tensors: Sequence[Optional[fx.Node]], rest: Sequence[Any]) -> Selection:
    """Which kernel would serve a call of these tensors, of the sizes that were compiled for."""
    q, k, v, mask = (as_compiled(tensor) for tensor in tensors)
    desc = _torch_op.described(*(_cast(node, tensor) for tensor in (q, k, v)), mask, *rest, False)
    return _torch_op.context_of(value_of(tensors[0]).device.index).query(desc)


def _call(graph: fx.Graph, node: fx.Node, tensors: Sequence[Optional[fx.Node]], rest: Sequence[Any]) -> fx.Node:
    dtype = value_of(node).dtype
    q, k, v = (tensor if value_of(tensor).dtype == dtype else graph.call_method("to", (tensor, dtype)) for tensor in tensors[:3])
    return graph.call_function(torch.ops.vitune.attention.default, (q, k, v, tensors[3], *rest, True))


attention = Attention()
