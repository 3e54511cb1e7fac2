# benchmarks/peers/map/vitune_peers.py -- vitune's maps: the database's winners, and untuned kernels.
# SPDX-License-Identifier: Apache-2.0
"""Through a context of one's own, so that winners for warm calls serve."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine import vitune_context
from ..engine.peer import Settings
from .operands import Operands, make_out
from .problem import Problem

_ORDER = ("out",)


def _inputs(t: Operands) -> dict[str, torch.Tensor | None]:
    return dict(t.by_letter)


def _outputs(problem: Problem, t: Operands, written: Sequence[str]) -> list[torch.Tensor]:
    return [make_out(problem, t.given[0].device) for _ in written]


class Vitune(vitune_context.Winner):
    """The winner of the database, else what the library serves in its place."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)


class VituneDefault(vitune_context.Default):
    """The kernel that serves a problem nobody tuned."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)
