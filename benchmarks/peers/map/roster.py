# benchmarks/peers/map/roster.py -- The maps' side of the engine: their names, problems and peers.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import roster
from ..engine.peer import Peer, Settings
from ..engine.problems import ROOT

if TYPE_CHECKING:
    from .problem import Problem


class Maps(roster.Roster):
    """The peers of an expression of operands, element by element or reduced."""

    name = "map"
    words = ("map",)
    shipped = ROOT / "data" / "map_problems.json"
    names = ("vitune", "vitune_default", "compiled", "compiled_default", "eager")
    usual = names
    compiled = ("compiled", "compiled_default")
    unfused = ("eager",)
    objectives = ("warm", "cold")
    labels = {
        "compiled": "`torch.compile` with all of its tuning",
        "compiled_default": "`torch.compile` with default options",
        "eager": "PyTorch's own kernels",
    }
    groups = {
        "points": "`points`: element by element",
        "reduced": "`reduced`: over a dimension",
    }

    def problem(self, entry: Mapping[str, Any]) -> Problem:
        """Whatever libvitune reads."""
        from .problem import Problem

        return Problem.of(entry)

    def operands(self, problem: Problem, device: str = "cuda") -> Any:
        """operands.py."""
        from .operands import make_operands

        return make_operands(problem, device)

    def reference(self, problem: Problem, operands: Any) -> Any:
        """reference.py: all elements."""
        from .reference import make_reference

        return make_reference(problem, operands)

    def output_bytes(self, problem: Problem, operands: Any) -> Sequence[int]:
        """From the first element of the result to the last one."""
        from .operands import span

        size = 4 if problem.out.dtype == "float32" else 2
        return [size * span(problem.out_extents, problem.out.strides)]

    def peers(self, names: Sequence[str], settings: Settings) -> list[Peer]:
        """vitune, PyTorch's compiler, PyTorch."""
        from .torch_peers import Compiled, CompiledDefault, Eager
        from .vitune_peers import Vitune, VituneDefault

        found: list[Peer] = [Vitune(settings), VituneDefault(settings)]
        found += [Compiled(), CompiledDefault(), Eager()]
        return [peer for peer in found if peer.name in names]

    def compile_ahead(
        self, peer: str, problem: Problem, operands: Any, settings: Settings
    ) -> None:
        """torch.compile chooses among its kernels in the measuring process, alone on the GPU."""
        found: Any = self.peers([peer], settings)[0]
        found.compile_ahead(problem, operands)
