# benchmarks/peers/linear_weight_grad/roster.py -- The weight gradients' side of the engine: their names, problems and peers.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import roster
from ..engine.peer import Peer, Settings
from ..engine.problems import ROOT

if TYPE_CHECKING:
    from .problem import Problem


class WeightGrads(roster.Roster):
    """The peers of dw = dy' x and db = the sums of dy's rows."""

    name = "linear_weight_grad"
    words = ("linear_weight_grad",)
    shipped = ROOT / "data" / "linear_weight_grad_problems.json"
    names = (
        *("vitune", "vitune_own", "vitune_default"),
        *("quack", "compiled", "autocast", "eager"),
    )
    usual = names
    compiled = ("compiled", "quack")
    ways = ("vitune_own", "vitune")
    objectives = ("warm", "cold")
    labels = {
        "quack": "quack's product and PyTorch's sum of the rows",
        "compiled": "`torch.compile`",
        "autocast": "PyTorch's product in 16 bits, its sum of the rows and casts",
        "eager": "PyTorch's product into the gradients' type and its sum of the rows",
    }
    groups = {
        "many": "`many`: 28e9 operations or more",
        "few": "`few`: fewer",
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
        """reference.py: all elements of both gradients."""
        from .reference import make_reference

        return make_reference(problem, operands)

    def output_bytes(self, problem: Problem, operands: Any) -> Sequence[int]:
        """[n, k], and [n] where a bias is there."""
        n, size = problem.number("n"), 4 if problem.out_dtype == "float32" else 2
        return [n * problem.number("k") * size] + [n * size] * problem.has_bias

    def peers(self, names: Sequence[str], settings: Settings) -> list[Peer]:
        """vitune, quack, PyTorch and its compiler."""
        from .torch_peers import Autocast, Compiled, Eager, Quack
        from .vitune_peers import Vitune, VituneDefault, VituneOwn

        found: list[Peer] = [Vitune(settings), VituneOwn(settings), VituneDefault(settings)]
        found += [Quack(), Compiled(), Autocast(), Eager()]
        return [peer for peer in found if peer.name in names]
