# benchmarks/peers/norms/torch_peers.py -- Norms by PyTorch's own kernels, by its compiler, by Liger and quack.
# SPDX-License-Identifier: Apache-2.0
"""Each makes a call of one problem, or says why not (Refused, Absent)."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.peer import Absent, Call, Refused, sentence
from .operands import Operands, formula
from .problem import Problem


class Eager:
    """PyTorch's own kernels, one for each operation of the formula."""

    name = "eager"
    formula = staticmethod(formula)

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Never refuses."""
        function, given = self.formula(problem), operands.given
        function(*given)
        return Call(lambda: function(*given))


class Compiled:
    """The same formula under torch.compile, with all of its tuning."""

    name = "compiled"
    formula = staticmethod(formula)

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles."""
        torch._dynamo.reset()  # else the tenth problem is one recompilation too many
        given = operands.given
        compiled = torch.compile(
            self.formula(problem), fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs"
        )
        compiled(*given)
        return Call(lambda: compiled(*given))

    def compile_ahead(self, problem: Problem, operands: Operands) -> None:
        """Compiles all that is tried, and keeps no choice: other processes are at work on the GPU."""
        from torch._inductor import config

        with config.patch(autotune_local_cache=False):
            self.prepare(problem, operands)


class Liger:
    """Liger-Kernel's Triton kernels: forward only, as under no_grad."""

    name = "liger"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Absent, Refused."""
        try:
            from liger_kernel.ops.layer_norm import layer_norm_forward as forward
        except Exception as error:  # a broken package is an absent one
            raise Absent(f"Liger-Kernel cannot be imported: {sentence(error)}") from None
        if problem.is_group or operands.residual is not None:
            raise Refused(
                "has no forward of this form: its fused add is for RMSNorm, its GroupNorm has no "
                "activation"
            )
        t, eps = operands, problem.eps

        def run() -> torch.Tensor:
            return forward(t.x, t.weight, t.bias, eps)[0]

        run()
        return Call(run)


class Quack:
    """quack's CuTe DSL kernels."""

    name = "quack"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Absent, Refused."""
        try:
            from quack.rmsnorm import _rmsnorm_fwd as forward
        except Exception as error:  # a broken package is an absent one
            raise Absent(f"quack cannot be imported: {sentence(error)}") from None
        if problem.is_group:
            raise Refused("has no GroupNorm")
        t, eps = operands, problem.eps

        # The operator below layernorm_fwd(), which takes a residual too.
        def run() -> Any:
            out = torch.empty_like(t.x)
            total = None if t.residual is None else torch.empty_like(t.x)
            forward(t.x, t.weight, out, t.bias, None, None, t.residual, total, eps, True)
            return out if total is None else (out, total)

        run()
        return Call(run)
