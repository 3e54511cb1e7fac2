# benchmarks/peers/linear_weight_grad/torch_peers.py -- Weight gradients by PyTorch's products, by its compiler, by quack.
# SPDX-License-Identifier: Apache-2.0
"""Each makes a call of one problem, or says why not (Refused, Absent)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from ..engine.peer import Absent, Call, Refused, sentence
from .operands import Operands, formula
from .problem import Problem


def _is_wide(problem: Problem) -> bool:
    """Whether the gradients are of a wider type than the operands."""
    return problem.out_dtype != problem.dtype


def _product(problem: Problem) -> Callable[..., torch.Tensor]:
    """cuBLAS' product, which writes the type that is asked for."""
    if _is_wide(problem):
        return lambda dy, x: torch.mm(dy.t(), x, out_dtype=torch.float32)
    return lambda dy, x: torch.mm(dy.t(), x)


class Eager:
    """cuBLAS' product in the type of the gradients, then PyTorch's sum of the rows."""

    name = "eager"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Refused where PyTorch is too old for such a product."""
        function, t = formula(problem, _product(problem)), operands
        try:
            function(t.dy, t.x)
        except (TypeError, NotImplementedError) as error:
            raise Refused(f"has no product into fp32 here: {sentence(error)}") from None
        return Call(lambda: function(t.dy, t.x), provider="PyTorch")


class Autocast:
    """What autocast leaves to a linear layer: the product in 16 bits, then a cast for the parameter."""

    name = "autocast"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Refused where no cast is asked for."""
        if not _is_wide(problem):
            raise Refused("is eager where gradients have the type of x")
        dtype, t = getattr(torch, problem.out_dtype), operands
        bias = problem.has_bias

        def run() -> Any:
            dw = torch.mm(t.dy.t(), t.x).to(dtype)
            return (dw, t.dy.sum(0).to(dtype)) if bias else dw

        run()
        return Call(run, provider="PyTorch")


class Compiled:
    """eager's formula under torch.compile, compiled for each problem."""

    name = "compiled"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles."""
        torch._dynamo.reset()  # else the tenth problem is one recompilation too many
        t = operands
        compiled = torch.compile(formula(problem, _product(problem)), fullgraph=True, dynamic=False)
        compiled(t.dy, t.x)
        return Call(lambda: compiled(t.dy, t.x), provider="Inductor")


class Quack:
    """quack's CuTe DSL product, tuned by quack for each shape, then PyTorch's sum of the rows."""

    name = "quack"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles and tunes at its first call. Raises Absent."""
        try:
            from quack.gemm_interface import gemm
        except Exception as error:  # a broken package is an absent one
            raise Absent(f"quack cannot be imported: {sentence(error)}") from None
        # A choice on disk may be one that was made while other processes were at work on the GPU.
        os.environ["QUACK_FORCE_CACHE_UPDATE"] = "1"
        dtype, t = getattr(torch, problem.out_dtype), operands
        function = formula(problem, lambda dy, x: gemm(dy.t(), x, out_dtype=dtype))
        function(t.dy, t.x)
        return Call(lambda: function(t.dy, t.x), provider="quack")
