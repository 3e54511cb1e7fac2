# benchmarks/peers/norms/roster.py -- The norms' side of the engine: their names, problems and peers.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import roster
from ..engine.peer import Peer, Settings
from ..engine.problems import ROOT

if TYPE_CHECKING:
    from .problem import Problem


class Norms(roster.Roster):
    """The peers of LayerNorm, with and without a residual, and of GroupNorm with an activation."""

    name = "norms"
    words = ("norm", "group_norm")
    shipped = ROOT / "data" / "norm_problems.json"
    names = ("vitune", "vitune_default", "quack", "liger", "compiled", "eager")
    usual = names
    compiled = ("quack", "liger", "compiled")
    unfused = ("eager",)
    #: PyTorch's own LayerNorm is a single kernel.
    counts_unfused = True
    objectives = ("warm", "cold")
    labels = {"liger": "Liger", "compiled": "`torch.compile`", "eager": "PyTorch's own kernels"}
    groups = {
        "norm": "`norm`: LayerNorm",
        "add_norm": "`add_norm`: LayerNorm of a sum, which is written too",
        "group_norm": "`group_norm`: GroupNorm with SiLU or Mish",
    }

    def problem(self, entry: Mapping[str, Any]) -> Problem:
        """As libvitune reads it, of the words that all peers have a form of."""
        from .problem import Problem

        return Problem.of(entry)

    def operands(self, problem: Problem, device: str = "cuda") -> Any:
        """operands.py."""
        from .operands import make_operands

        return make_operands(problem, device)

    def reference(self, problem: Problem, operands: Any) -> Any:
        """reference.py: all elements, of the written sum too."""
        from .reference import make_reference

        return make_reference(problem, operands)

    def output_bytes(self, problem: Problem, operands: Any) -> Sequence[int]:
        """As many as x for each output."""
        size = operands.x.numel() * operands.x.element_size()
        return [size] * (2 if problem.has("sum") else 1)

    def peers(self, names: Sequence[str], settings: Settings) -> list[Peer]:
        """PyTorch, its compiler, Liger, quack, vitune."""
        from .torch_peers import Compiled, Eager, Liger, Quack
        from .vitune_peers import Vitune, VituneDefault

        found: list[Peer] = [Vitune(settings), VituneDefault(settings)]
        found += [Quack(), Liger(), Compiled(), Eager()]
        return [peer for peer in found if peer.name in names]

    def shares(self, peer: str, problem: Problem) -> tuple[Any, ...]:
        """Liger and quack compile per type, columns and residual; torch.compile per problem."""
        if peer == "compiled" or problem.is_group:
            return (problem.text,)
        return (problem.dtype, problem.number("d"), problem.has("residual"))

    def compile_ahead(
        self, peer: str, problem: Problem, operands: Any, settings: Settings
    ) -> None:
        """torch.compile chooses among its kernels in the measuring process, alone on the GPU."""
        if peer != "compiled":
            super().compile_ahead(peer, problem, operands, settings)
            return
        from .torch_peers import Compiled

        Compiled().compile_ahead(problem, operands)
