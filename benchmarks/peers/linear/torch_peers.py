# benchmarks/peers/linear/torch_peers.py -- Linear layers by PyTorch's own kernels and by its compiler.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch

from ..engine.peer import Call
from .operands import Operands, formula
from .problem import Problem

#: Milliseconds that Inductor times each of its kernels: its 25 and 100 would be most of a run.
WARMUP, REP = 5, 20
_TIMES = {"inductor_default_autotune_warmup": WARMUP, "inductor_default_autotune_rep": REP}


class Eager:
    """PyTorch's own kernels as a model calls them: addmm, whose bias is cuBLASLt's, then one for each operation."""

    name = "eager"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Never refuses."""
        function, given = formula(problem), operands.given
        function(*given)
        return Call(lambda: function(*given), provider="PyTorch")


class Compiled:
    """The same formula under torch.compile, compiled for each problem."""

    def __init__(self, name: str, mode: str | None) -> None:
        """mode: torch.compile's; None is its default."""
        self.name, self._mode = name, mode

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles; with max-autotune, cuBLASLt and the kernels of Triton's templates are timed."""
        from torch._inductor import config

        torch._dynamo.reset()  # else the tenth problem is one recompilation too many
        given = operands.given
        compiled = torch.compile(formula(problem), fullgraph=True, dynamic=False, mode=self._mode)
        known = {name: value for name, value in _TIMES.items() if hasattr(config, name)}
        with config.patch(known):
            compiled(*given)
        return Call(lambda: compiled(*given), provider="Inductor")

    def compile_ahead(self, problem: Problem, operands: Operands) -> None:
        """Compiles all that is tried, and keeps no choice: other processes are at work on the GPU.

        A graph in Inductor's cache would hold the kernel that was chosen; Triton's cache holds all of them.
        """
        from torch._inductor import config

        with config.patch(autotune_local_cache=False, fx_graph_cache=False):
            self.prepare(problem, operands)


def compilers() -> list[Compiled]:
    """With all of its tuning, and as torch.compile() comes: either can be the faster one."""
    return [
        Compiled("compiled", "max-autotune-no-cudagraphs"),
        Compiled("compile_default", None),
    ]
