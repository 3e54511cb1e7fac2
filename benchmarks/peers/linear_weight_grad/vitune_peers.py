# benchmarks/peers/linear_weight_grad/vitune_peers.py -- vitune's weight gradients: the winner of all families, of its own, and untuned.
# SPDX-License-Identifier: Apache-2.0
"""Through a context of one's own, so that winners for warm calls serve."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine.peer import Settings
from ..linear import vitune_peers
from .operands import Operands
from .problem import Problem

_ORDER = ("dw", "db")


def _inputs(t: Operands) -> dict[str, torch.Tensor | None]:
    return {"dy": t.dy, "x": t.x}


def _outputs(problem: Problem, t: Operands, written: Sequence[str]) -> list[torch.Tensor]:
    n, k = problem.number("n"), problem.number("k")
    shapes = {"dw": (n, k), "db": (n,)}
    dtype = getattr(torch, problem.out_dtype)
    return [torch.empty(shapes[name], dtype=dtype, device=t.x.device) for name in written]


class Vitune(vitune_peers.Vitune):
    """What users are served: the winner of all families, else what the library serves in its place."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)


class VituneOwn(vitune_peers.VituneOwn):
    """The best of vitune's own kernels, as of linear layers."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)


class VituneDefault(vitune_peers.VituneDefault):
    """The kernel that serves a problem nobody tuned."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)
