# benchmarks/peers/linear/vitune_peers.py -- vitune's linear layers: the winner of all families, of its own, and untuned.
# SPDX-License-Identifier: Apache-2.0
"""Through a context of one's own, so that winners for warm calls serve and statistics can be handed in."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import vitune

from ..engine import vitune_context
from ..engine.peer import Call, Refused, Settings
from .operands import Operands
from .own_winners import family_of, is_own
from .problem import Problem

_ORDER = ("out",)


def _inputs(t: Operands) -> dict[str, torch.Tensor | None]:
    return {
        "x": t.x,
        "w": t.weight,
        "bias": t.bias,
        "scale": t.scale,
        "residual": t.residual,
        "mean": t.mean,
        "rstd": t.rstd,
        "weight_sums": t.sums,
        "pre": t.pre,
        "factor": t.factor,
    }


def _outputs(problem: Problem, t: Operands, written: Sequence[str]) -> list[torch.Tensor]:
    shape, dtype = (problem.number("m"), problem.number("n")), getattr(torch, problem.out_dtype)
    return [torch.empty(shape, dtype=dtype, device=t.x.device) for _ in written]


def _provided(call: Call) -> Call:
    """The call with its provider: vitune itself, or the family that calls a library."""
    call.provider = "vitune" if is_own(call.config) else f"vitune's {family_of(call.config)}"
    return call


class Vitune(vitune_context.Winner):
    """What users are served: the winner of all families, else what the library serves in its place."""

    def __init__(
        self,
        settings: Settings,
        inputs: vitune_context.Inputs = _inputs,
        outputs: vitune_context.Outputs = _outputs,
        order: Sequence[str] = _ORDER,
    ) -> None:
        super().__init__(settings, inputs, outputs, order)

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Refused where the library has no kernel."""
        return _provided(super().prepare(problem, operands))


class VituneOwn(Vitune):
    """The best of vitune's own kernels: where they win anyway, and of a database of what a library won."""

    name = "vitune_own"

    def __init__(self, settings: Settings, *tensors: Any) -> None:
        """tensors: as Vitune's, of another operator with such families."""
        above = settings.own_database
        served = settings if above is None else dataclasses.replace(settings, database=above)
        super().__init__(served, *tensors)
        if above is not None and settings.database is not None:
            self._options["shipped_database"] = settings.database.resolve()  # the layer below

    def _take(self, selection: vitune.Selection) -> None:
        if not is_own(selection.config):
            raise Refused(
                f"{family_of(selection.config)} serves this problem; --own-db names a database of "
                "what vitune's own kernels do in its place (linear/own_winners.py makes it)"
            )


class VituneDefault(vitune_context.Default):
    """The kernel that serves a problem nobody tuned."""

    def __init__(
        self,
        settings: Settings,
        inputs: vitune_context.Inputs = _inputs,
        outputs: vitune_context.Outputs = _outputs,
        order: Sequence[str] = _ORDER,
    ) -> None:
        super().__init__(settings, inputs, outputs, order)

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles the default kernel. Raises Refused where there is none."""
        return _provided(super().prepare(problem, operands))
