# benchmarks/peers/norm_backward/torch_peers.py -- Gradients of norms by PyTorch's own kernels, by its compiler, by Liger and quack.
# SPDX-License-Identifier: Apache-2.0
"""Each makes a call of one problem, or says why not (Refused, Absent). All are given the statistics that the forward pass kept."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.peer import Absent, Call, Refused, sentence
from ..norms import torch_peers as of_norms
from .operands import Operands, formula, sums
from .problem import Problem


class Eager(of_norms.Eager):
    """PyTorch's own kernels: the norm's gradients, then the sum, the factor and the cast."""

    formula = staticmethod(formula)


class Compiled(of_norms.Compiled):
    """The same formula under torch.compile, with all of its tuning."""

    formula = staticmethod(formula)


class Liger:
    """Liger-Kernel's Triton kernel for the norm's own gradients, and one compiled kernel for what follows them."""

    name = "liger"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Absent."""
        try:
            from liger_kernel.ops.layer_norm import layer_norm_backward as backward
        except Exception as error:  # a broken package is an absent one
            raise Absent(f"Liger-Kernel cannot be imported: {sentence(error)}") from None
        torch._dynamo.reset()  # else the tenth problem is one recompilation too many
        t = operands

        def add(dx: torch.Tensor, residual: torch.Tensor, *factor: torch.Tensor) -> Any:
            return sums(problem, dx, residual, *factor)

        added = torch.compile(add, fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs")
        factor = () if t.factor is None else (t.factor,)

        def run() -> Any:
            dx, dweight, dbias = backward(t.dy, t.x, t.weight, t.weight, t.mean, t.rstd)
            return (*added(dx, t.residual, *factor), dweight, dbias)

        run()
        return Call(run)


class Quack:
    """quack's CuTe DSL kernel, which adds the residual's gradient, and PyTorch's sums of what its CTAs leave."""

    name = "quack"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Absent, Refused."""
        try:
            from quack.rmsnorm import _rmsnorm_bwd as backward
            from quack.rmsnorm import get_sm_count
        except Exception as error:  # a broken package is an absent one
            raise Absent(f"quack cannot be imported: {sentence(error)}") from None
        if problem.has("factor="):
            raise Refused("has no factor of samples")
        t, columns = operands, problem.number("d")
        has_second = problem.has("second=")
        written = getattr(torch, problem.dtype_of("second" if has_second else "x"))
        if has_second and written == t.x.dtype:
            raise Refused("writes a second gradient in another type than x alone")

        # The operator below layernorm_bwd(), which has no residual.
        def run() -> Any:
            made = {"dtype": torch.float32, "device": t.x.device}
            parts = [torch.empty(get_sm_count(columns, t.x.device), columns, **made) for _ in range(2)]
            dx = torch.empty_like(t.x, dtype=written)
            total = torch.empty_like(t.x) if has_second else None
            backward(
                *(t.x, t.weight, t.dy, t.rstd, dx, *parts, t.residual, total),
                mean=t.mean,
                is_layernorm=True,
            )
            dweight, dbias = (part.sum(0).to(t.weight.dtype) for part in parts)
            return (total, dx, dweight, dbias) if has_second else (dx, dweight, dbias)

        run()
        return Call(run)
