# benchmarks/peers/norm_backward/roster.py -- The side of norms' gradients of the engine: their names, problems and peers.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import roster
from ..engine.peer import Peer, Settings
from ..engine.problems import ROOT

if TYPE_CHECKING:
    from .problem import Problem


class NormBackwards(roster.Roster):
    """The peers of a LayerNorm's gradients with that of the residual added, in 16 bits once more where the next product wants that."""

    name = "norm_backward"
    words = ("norm_backward",)
    shipped = ROOT / "data" / "norm_backward_problems.json"
    names = ("vitune", "vitune_default", "quack", "liger", "compiled", "eager")
    usual = names
    compiled = ("quack", "liger", "compiled")
    unfused = ("eager",)
    objectives = ("warm", "cold")
    labels = {
        "quack": "quack's kernel and PyTorch's sums of its parts",
        "liger": "Liger's kernel and a compiled sum",
        "compiled": "`torch.compile` with all of its tuning",
        "eager": "PyTorch's own kernels",
    }
    groups = {
        "stream16": "`stream16`: all of 16 bits",
        "stream32": "`stream32`: as autocast has it, x and its gradients in fp32, that of x in 16 bits too",
        "compiled": "`compiled`: as `vitune.compile` asks, the statistics of the forward pass given",
    }

    def problem(self, entry: Mapping[str, Any]) -> Problem:
        """As libvitune reads it, of the words that peers have a form of."""
        from .problem import Problem

        return Problem.of(entry)

    def operands(self, problem: Problem, device: str = "cuda") -> Any:
        """operands.py."""
        from .operands import make_operands

        return make_operands(problem, device)

    def reference(self, problem: Problem, operands: Any) -> Any:
        """reference.py: all elements of all gradients."""
        from .reference import make_reference

        return make_reference(problem, operands)

    def output_bytes(self, problem: Problem, operands: Any) -> Sequence[int]:
        """dx, second where it is asked for, dweight, dbias."""
        x, weight = operands.x, operands.weight
        sizes = [x.numel() * x.element_size()]
        if problem.has("second="):
            sizes.append(x.numel() * (4 if problem.dtype_of("second") == "float32" else 2))
        return sizes + [weight.numel() * weight.element_size()] * 2

    def peers(self, names: Sequence[str], settings: Settings) -> list[Peer]:
        """vitune, quack, Liger, PyTorch and its compiler."""
        from .torch_peers import Compiled, Eager, Liger, Quack
        from .vitune_peers import Vitune, VituneDefault

        found: list[Peer] = [Vitune(settings), VituneDefault(settings)]
        found += [Quack(), Liger(), Compiled(), Eager()]
        return [peer for peer in found if peer.name in names]

    def compile_ahead(
        self, peer: str, problem: Problem, operands: Any, settings: Settings
    ) -> None:
        """torch.compile chooses among its kernels in the measuring process, alone on the GPU."""
        if peer != "compiled":
            super().compile_ahead(peer, problem, operands, settings)
            return
        from .torch_peers import Compiled

        Compiled().compile_ahead(problem, operands)
