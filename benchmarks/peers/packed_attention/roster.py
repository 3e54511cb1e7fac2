# benchmarks/peers/packed_attention/roster.py -- Packed attention's side of the engine: its names, problems and peers.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import roster
from ..engine.peer import Peer, Settings
from ..engine.problems import ROOT

if TYPE_CHECKING:
    from .problem import Problem


class PackedAttention(roster.Roster):
    """The peers of attention of packed sequences."""

    name = "packed_attention"
    words = ("packed_attention",)
    shipped = ROOT / "data" / "varlen_problems.json"
    names = (
        *("vitune", "vitune_default", "vitune_fixed"),
        *("varlen_flash", "fa4", "cudnn_batch", "cudnn_padded", "cudnn_each"),
    )
    usual = names
    objectives = ("warm", "cold")
    labels = {
        "vitune_fixed": "vitune's kernel for a batch, where lengths are equal",
        "varlen_flash": "PyTorch's `varlen_attn`",
        "fa4": "FlashAttention-4",
        "cudnn_batch": "cuDNN on a batch, where lengths are equal",
        "cudnn_padded": "cuDNN, padded, with a mask",
        "cudnn_each": "cuDNN, a call for each sequence",
    }
    groups = {
        "equal": "`equal`: sequences of one length",
        "mixed": "`mixed`: of differing lengths",
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
        """reference.py: all sequences."""
        from .reference import make_reference

        return make_reference(problem, operands)

    def output_bytes(self, problem: Problem, operands: Any) -> Sequence[int]:
        """[tokens, heads, d]."""
        return [operands.q.numel() * operands.q.element_size()]

    def peers(self, names: Sequence[str], settings: Settings) -> list[Peer]:
        """vitune, PyTorch, FlashAttention-4 and cuDNN."""
        from .torch_peers import CudnnBatch, CudnnEach, CudnnPadded, Flash4, VarlenAttn
        from .vitune_peers import Vitune, VituneDefault, VituneFixed

        found: list[Peer] = [Vitune(settings), VituneDefault(settings), VituneFixed()]
        found += [VarlenAttn(), Flash4(), CudnnBatch(), CudnnPadded(), CudnnEach()]
        return [peer for peer in found if peer.name in names]
