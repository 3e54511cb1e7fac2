# benchmarks/peers/attention/roster.py -- Attention's side of the engine: its names, problems and peers.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import roster
from ..engine.peer import Missing, Peer, Settings
from ..engine.problems import ROOT

if TYPE_CHECKING:
    from .problem import Problem


class Attention(roster.Roster):
    """The peers of softmax(scale q k^T + bias) v."""

    name = "attention"
    words = ("attention",)
    shipped = ROOT / "data" / "bench_problems.json"
    names = (
        *("vitune", "vitune_default", "cudnn", "flash", "effic", "fa3", "fa4"),
        *("flex", "triton", "compiled", "eager"),
    )
    #: Compiling the plain formula for 40 problems takes long.
    usual = tuple(name for name in names if name != "compiled")
    compiled = ("flex", "triton", "fa4", "compiled")
    unfused = ("eager",)
    labels = {
        "cudnn": "cuDNN",
        "flash": "FlashAttention-2",
        "effic": "memory-efficient attention",
        "flex": "FlexAttention",
        "triton": "FlashAttention-2's loop in Triton, tuned per problem",
        "fa3": "FlashAttention-3",
        "fa4": "FlashAttention-4",
        "compiled": "`torch.compile`",
    }
    groups = {
        "vit": "`vit`: plain, windowed and pooled attention",
        "bias": "`bias`: with an additive bias",
        "long": "`long`: 4,096 and 16,384 tokens",
    }
    first_calls = roster.FirstCalls(
        ("vitune", "cudnn", "flash", "effic", "eager"),
        ("bf16 b=32 h=12 n=197 d=64", "bf16 b=32 h=12 n=577 d=64"),
    )

    def problem(self, entry: Mapping[str, Any]) -> Problem:
        """As libvitune reads it, without lse."""
        from .problem import Problem

        return Problem.of(entry)

    def operands(self, problem: Problem, device: str = "cuda") -> Any:
        """operands.py; raises ValueError for two masks."""
        from .operands import make_operands

        return make_operands(problem, device)

    def reference(self, problem: Problem, operands: Any) -> Any:
        """reference.py; of large problems some heads."""
        from .reference import make_reference

        return make_reference(problem, operands)

    def output_bytes(self, problem: Problem, operands: Any) -> Sequence[int]:
        """[b, h, nq, d] of the type of q."""
        return [operands.q.numel() * operands.q.element_size()]

    def peers(self, names: Sequence[str], settings: Settings) -> list[Peer]:
        """PyTorch's backends, packages, Triton, vitune."""
        from .torch_peers import torch_peers
        from .vitune_peers import Vitune, VituneDefault, use_database

        use_database(settings.database)
        found = {peer.name: peer for peer in (Vitune(), VituneDefault(), *torch_peers())}
        if "triton" in names:
            try:
                from .triton_attention import TritonPeer

                found["triton"] = TritonPeer()
            except ImportError as error:
                found["triton"] = Missing("triton", f"Triton cannot be imported: {error}")
        return [found[name] for name in self.names if name in names and name in found]

    def shares(self, peer: str, problem: Problem) -> tuple[Any, ...]:
        """Triton compiles per head size, mask and divisibility; FlexAttention per problem."""
        if peer != "triton":
            return (problem.text,)
        desc = problem.desc
        return (
            *(desc.dtype, desc.d, desc.causal, desc.bias_type, desc.mask_type),
            *(desc.nk % 16 == 0, desc.nq == 1),
        )

    def compile_ahead(
        self, peer: str, problem: Problem, operands: Any, settings: Settings
    ) -> None:
        """Triton's configs are compiled and not timed: other processes are at work on the GPU."""
        if peer != "triton":
            super().compile_ahead(peer, problem, operands, settings)
            return
        from . import triton_attention

        triton_attention.compile_all(problem, operands)

    def broken(self, names: Sequence[str]) -> Mapping[str, str]:
        """Triton's kernel, if it fails its self-check."""
        if "triton" not in names:
            return {}
        from .selfcheck import broken_triton

        reason = broken_triton()
        return {"triton": reason} if reason else {}
