# benchmarks/peers/packed_attention/vitune_peers.py -- vitune's packed attention, tuned and not, and its kernel for rows of one length.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch
import vitune

from ..engine import vitune_context
from ..engine.peer import Call, Refused, Settings
from .operands import Operands
from .problem import Problem

_ORDER = ("out",)


def _inputs(t: Operands) -> dict[str, torch.Tensor | None]:
    return {"q": t.q, "k": t.k, "v": t.v, "cu_seqlens_q": t.offsets}


def _outputs(problem: Problem, t: Operands, written: Sequence[str]) -> list[torch.Tensor]:
    return [torch.empty_like(t.q) for _ in written]


class Vitune(vitune_context.Winner):
    """The winner of the database, else what the library serves in its place."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)


class VituneDefault(vitune_context.Default):
    """The kernel that serves a problem nobody tuned."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)


class VituneFixed:
    """vitune.attention() on a batch, which sequences of one length are."""

    name = "vitune_fixed"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Refused for lengths that differ."""
        if len(set(operands.lengths)) != 1:
            raise Refused("lengths differ")
        q, k, v = operands.batch()
        call = Call(lambda: vitune.attention(q, k, v).transpose(1, 2).flatten(0, 1))
        call.run()
        return call
