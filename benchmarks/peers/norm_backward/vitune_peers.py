# benchmarks/peers/norm_backward/vitune_peers.py -- vitune's gradients of norms: the database's winners, and untuned kernels.
# SPDX-License-Identifier: Apache-2.0
"""Through a context of one's own, so that winners for warm calls serve. Without the word stats a call computes the statistics anew."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine import vitune_context
from ..engine.peer import Settings
from .operands import Operands
from .problem import Problem

_ORDER = ("dx", "second", "dweight", "dbias")


def _inputs(t: Operands) -> dict[str, torch.Tensor | None]:
    return {name: getattr(t, name) for name in ("dy", "x", "mean", "rstd", "weight", "residual", "factor")}


def _outputs(problem: Problem, t: Operands, written: Sequence[str]) -> list[torch.Tensor]:
    columns = {"dweight": t.weight, "dbias": t.weight}
    second = {"second": getattr(torch, problem.dtype_of("second"))} if "second" in written else {}
    return [torch.empty_like(columns.get(name, t.x), dtype=second.get(name)) for name in written]


class Vitune(vitune_context.Winner):
    """The winner of the database, else what the library serves in its place."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)


class VituneDefault(vitune_context.Default):
    """The kernel that serves a problem nobody tuned."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)
