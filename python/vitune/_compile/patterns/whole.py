# python/vitune/_compile/patterns/whole.py -- All that the patterns find in a recorded pass, put in without asking a GPU: what an exported model is.
# SPDX-License-Identifier: Apache-2.0
"""The only way in for what writes models down. A graph has torch.ops.vitune's operators afterwards where they can stand, each in its
largest place; rows that nothing reads are left out; nothing is timed, and no weight has a second form."""
from __future__ import annotations

from collections.abc import Container
from typing import Optional

from torch import fx

from ..._ops import attention as attention_ops
from . import dead_rows, every, tokens
from .layouts import Misfits, leave_misfits
from .match import FusionPattern, Match, Rewrite
from .tree import beginning_at


def put_all(module: fx.GraphModule, besides: Container[str]) -> None:
    """Of a graph of tensors on the meta device, which are taken for a GPU's. besides: names of nodes that stay as they are."""
    with attention_ops.meta_as_gpu():
        dead_rows.leave_out(module)
        tokens.lay_out(module)
        for spans in (True, False):
            _put([pattern for pattern in every.PATTERNS if pattern.spans == spans], module, besides)


def _put(patterns: list[FusionPattern], module: fx.GraphModule, besides: Container[str]) -> None:
    rewrite = Rewrite(module.graph, lambda recipe: ())
    for node in rewrite.left():
        if node.name in besides:
            continue
        place = _largest(patterns, node)
        if place is not None:
            rewrite.put(place)
    try:
        leave_misfits(module, rewrite)
    except Misfits:
        rewrite.undo()
    rewrite.finish()
    module.recompile()


def _largest(patterns: list[FusionPattern], node: fx.Node) -> Optional[Match]:
    for pattern in beginning_at(node, patterns):
        for place in pattern.places(node):
            if isinstance(place, Match) and not place.recipes:
                return place
    return None
