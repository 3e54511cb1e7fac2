# benchmarks/peers/rosters.py -- THE list of operators whose peers are measured: a folder and a line each.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from .attention.roster import Attention
from .attention_backward.roster import AttentionBackward
from .engine.roster import Roster
from .linear.roster import Linears
from .linear_weight_grad.roster import WeightGrads
from .map.roster import Maps
from .norm_backward.roster import NormBackwards
from .norms.roster import Norms
from .packed_attention.roster import PackedAttention

#: A text whose first word names no operator is one of the first's.
ROSTERS: tuple[Roster, ...] = (
    Attention(),
    Norms(),
    Linears(),
    WeightGrads(),
    PackedAttention(),
    AttentionBackward(),
    Maps(),
    NormBackwards(),
)


def roster_of(text: str) -> Roster:
    """The roster of a problem, told by the first word of its text."""
    word = text.split(maxsplit=1)[0] if text.split() else ""
    return next((roster for roster in ROSTERS if word in roster.words), ROSTERS[0])
