# benchmarks/peers/linear/roster.py -- The linear layers' side of the engine: their names, problems and peers.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import roster
from ..engine.peer import Missing, Peer, Settings
from ..engine.problems import ROOT

if TYPE_CHECKING:
    from .problem import Problem


class Linears(roster.Roster):
    """The peers of residual + factor * scale * act(norm(x) W^T + bias), and of gradients."""

    name = "linear"
    words = ("linear",)
    shipped = ROOT / "data" / "linear_problems.json"
    names = (
        *("vitune", "vitune_own", "vitune_default", "cublaslt", "quack", "triton", "cudnn"),
        *("deepgemm", "compiled", "compile_default", "eager"),
    )
    #: The default kernel is one that NVRTC compiles for each problem, and few of them are fast.
    usual = tuple(name for name in names if name != "vitune_default")
    compiled = ("compiled", "compile_default", "triton", "quack", "cudnn", "deepgemm")
    ways = ("vitune_own", "vitune")
    objectives = ("warm", "cold")
    labels = {
        "cublaslt": "cuBLASLt, tuned",
        "triton": "a persistent kernel in Triton, tuned per problem",
        "cudnn": "cuDNN's graphs",
        "deepgemm": "DeepGEMM",
        "compiled": "`torch.compile` with all of its tuning",
        "compile_default": "`torch.compile`",
        "eager": "PyTorch's own kernels",
    }
    groups = {
        "fused": "`fused`: more than a bias in the epilogue, or a norm before",
        "plain": "`plain`: a bias at most",
        "small": "`small`: 1,600 rows at most",
        "gradients": "`gradients`: of a layer's input, the product alone",
        "slopes": "`slopes`: of an activation's argument",
        "stream": "`stream`: into an fp32 stream, with drop path",
    }

    def __init__(self) -> None:
        self._compiled_forms: set[tuple[Any, ...]] = set()  # by quack, in this process

    def problem(self, entry: Mapping[str, Any]) -> Problem:
        """As libvitune reads it, of the words that peers have a form of."""
        from .problem import Problem

        return Problem.of(entry)

    def operands(self, problem: Problem, device: str = "cuda") -> Any:
        """operands.py."""
        from .operands import make_operands

        return make_operands(problem, device)

    def reference(self, problem: Problem, operands: Any) -> Any:
        """reference.py: all elements, and which GELU they are of."""
        from .reference import make_reference

        return make_reference(problem, operands)

    def output_bytes(self, problem: Problem, operands: Any) -> Sequence[int]:
        """[m, n] of the type of x, or fp32."""
        size = 4 if problem.out_dtype == "float32" else operands.x.element_size()
        return [problem.number("m") * problem.number("n") * size]

    def peers(self, names: Sequence[str], settings: Settings) -> list[Peer]:
        """vitune, libraries, packages, Triton, PyTorch and its compiler."""
        from .cublaslt import CublasLt
        from .cudnn_peer import Cudnn
        from .package_peers import DeepGemm, Quack
        from .torch_peers import Eager, compilers
        from .vitune_peers import Vitune, VituneDefault, VituneOwn

        made: list[Peer] = [Vitune(settings), VituneOwn(settings), VituneDefault(settings)]
        made += [CublasLt(), Quack(), Cudnn(), DeepGemm(), *compilers(), Eager()]
        found = {peer.name: peer for peer in made}
        if "triton" in names:
            try:
                from .triton_linear import TritonPeer

                found["triton"] = TritonPeer()
            except ImportError as error:
                found["triton"] = Missing("triton", f"Triton cannot be imported: {error}")
        return [found[name] for name in self.names if name in names and name in found]

    def shares(self, peer: str, problem: Problem) -> tuple[Any, ...]:
        """Triton and quack compile per form and divisibility; the others per problem."""
        if peer not in ("triton", "quack"):
            return (problem.text,)
        flags = [problem.has(word) for word in ("bias", "scale", "residual")]
        repeats = problem.period != problem.number("m")
        sizes = [problem.number(key) % 16 == 0 for key in "mnk"] if peer == "triton" else []
        return (problem.dtype, problem.activation, problem.has_norm, repeats, *flags, *sizes)

    def compile_ahead(
        self, peer: str, problem: Problem, operands: Any, settings: Settings
    ) -> None:
        """What is timed is chosen in the measuring process, alone on the GPU; here it is compiled."""
        if peer == "cudnn":
            return  # it keeps nothing on disk
        if peer == "quack":
            form = self.shares(peer, problem)
            if form in self._compiled_forms:
                return
            self._compiled_forms.add(form)
        if peer == "triton":
            from . import triton_linear

            triton_linear.compile_all(problem, operands)
        elif peer in ("compiled", "compile_default"):
            from .torch_peers import compilers

            next(one for one in compilers() if one.name == peer).compile_ahead(problem, operands)
        else:
            super().compile_ahead(peer, problem, operands, settings)

    def broken(self, names: Sequence[str]) -> Mapping[str, str]:
        """Triton's kernel, if it fails its self-check."""
        if "triton" not in names:
            return {}
        from .selfcheck import broken_triton

        reason = broken_triton()
        return {"triton": reason} if reason else {}
