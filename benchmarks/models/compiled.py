# benchmarks/models/compiled.py -- A model by torch.compile in its modes, and by vitune.compile.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import functools
import math
import time
from typing import Any

import torch
from torch import Tensor, nn

from .row import Candidate, Prepared

MODES = {"compile_default": "default", "compile_reduce": "reduce-overhead", "compile_max": "max-autotune"}
PEERS = tuple(MODES)  # what vitune is compared with: the best of these
_GRAPHS = ("compile_reduce", "compile_max")  # modes that record CUDA graphs
OURS = "vitune_compile"
WAYS = (*PEERS, OURS)


class Compiler:
    """The ways to compile one model for one batch. vitune's comes last, recorded in a graph, in that mode of the two
    that do so in which PyTorch was faster: without, a pass may take as long as the host needs to launch it."""

    def __init__(self, model: nn.Module, images: Tensor, clock: Any) -> None:
        self._model, self._images, self._clock = model, images, clock
        self._ms: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._ours: Any = None
        self._mode = ""

    def candidates(self) -> dict[str, Candidate]:
        found = {name: functools.partial(self._by_torch, name) for name in MODES} | {OURS: self._by_vitune}
        return {name: Candidate(contextlib.nullcontext, prepare) for name, prepare in found.items()}

    def _by_torch(self, name: str) -> Prepared:
        return self._prepared(name, torch.compile(self._model, mode=MODES[name], dynamic=False))

    def _by_vitune(self) -> Prepared:
        import vitune

        self._mode = MODES[min(_GRAPHS, key=lambda name: self._ms.get(name, math.inf))]
        self._ours = vitune.compile(self._model, mode=self._mode, dynamic=False)
        return self._prepared(OURS, self._ours)

    def _prepared(self, name: str, compiled: Any) -> Prepared:
        def run() -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()  # what the pass before gave is not wanted any more
            return compiled(self._images)

        began = time.monotonic()
        run()
        self._clock.synchronize()
        self._seconds[name] = round(time.monotonic() - began, 1)
        memory, answer = self._clock.peak(lambda: run().clone())  # the pass that is recorded, where a graph is
        answer = run().clone()
        self._ms[name] = min(self._clock.passes(run, 3) for _ in range(3))
        return Prepared(run, answer, memory)

    def says(self) -> dict[str, Any]:
        """What the row tells beside times."""
        more: dict[str, Any] = {"compile_s": self._seconds}
        if OURS in self._seconds:
            import vitune

            report = vitune.report(self._ours)
            more["vitune_mode"] = self._mode
            more["replaced"] = {"replaced": sum(call.replaced for call in report.calls), "known": len(report.calls),
                                "untuned": list(report.untuned)}  # fmt: skip
        return more

    @staticmethod
    def forget() -> None:
        """Gives back what compiled models hold, their graphs' memory too."""
        torch._dynamo.reset()
