# benchmarks/peers/attention_backward/roster.py -- The side of attention's gradients of the engine: their names, problems and peers.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import roster
from ..engine.peer import Peer, Settings
from ..engine.problems import ROOT

if TYPE_CHECKING:
    from .problem import Problem


class AttentionBackward(roster.Roster):
    """The peers of dQ, dK, dV and a bias' gradient."""

    name = "attention_backward"
    words = ("attention_backward",)
    shipped = ROOT / "data" / "attention_backward_problems.json"
    names = ("vitune", "vitune_default", "cudnn", "flash", "effic", "flex", "eager")
    usual = names
    compiled = ("flex",)
    unfused = ("eager",)
    objectives = ("warm", "cold")
    labels = {
        "cudnn": "cuDNN",
        "flash": "FlashAttention-2",
        "effic": "memory-efficient attention",
        "flex": "FlexAttention",
    }
    groups = {
        "vit": "`vit`: plain attention",
        "window": "`window`: short rows of many heads",
        "bias": "`bias`: with the gradient of a bias",
        "long": "`long`: 4,096 tokens",
    }

    def problem(self, entry: Mapping[str, Any]) -> Problem:
        """As libvitune reads it, without words about where gradients lie."""
        from .problem import Problem

        return Problem.of(entry)

    def operands(self, problem: Problem, device: str = "cuda") -> Any:
        """operands.py; raises ValueError for a bias beside a mask."""
        from .operands import make_operands

        return make_operands(problem, device)

    def reference(self, problem: Problem, operands: Any) -> Any:
        """reference.py: all elements of all gradients."""
        from .reference import make_reference

        return make_reference(problem, operands)

    def output_bytes(self, problem: Problem, operands: Any) -> Sequence[int]:
        """Those of q, k and v, and of a bias."""
        t = operands.forward
        tensors = [t.q, t.k, t.v] + [operands.bias] * problem.has_dbias
        return [tensor.numel() * tensor.element_size() for tensor in tensors]

    def peers(self, names: Sequence[str], settings: Settings) -> list[Peer]:
        """vitune, PyTorch's backends, FlexAttention."""
        from .torch_peers import torch_peers
        from .vitune_peers import Vitune, VituneDefault

        found: list[Peer] = [Vitune(settings), VituneDefault(settings), *torch_peers()]
        return [peer for peer in found if peer.name in names]
