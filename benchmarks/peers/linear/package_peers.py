# benchmarks/peers/linear/package_peers.py -- Linear layers by quack and DeepGEMM, where they can be imported.
# SPDX-License-Identifier: Apache-2.0
"""Each makes a call of one problem, or says why not (Refused, Absent)."""

from __future__ import annotations

import os
from typing import Any

import torch

from ..engine.peer import Absent, Call, Refused, sentence
from .operands import Operands
from .problem import Problem

#: quack's names; "gelu_erf" is not among those that its types list, and its epilogues know it.
_QUACK_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu_erf",
    "gelu_tanh": "gelu_tanh_approx",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
}


class Quack:
    """quack's CuTe DSL kernels, tuned by quack for each shape."""

    name = "quack"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles and tunes at its first call. Raises Absent, Refused."""
        try:
            from quack.gemm_interface import gemm, gemm_act, gemm_add
        except Exception as error:  # a broken package is an absent one
            raise Absent(f"quack cannot be imported: {sentence(error)}") from None
        if problem.is_of_training:
            raise Refused("is called with W as [n, k] and a result of x's type here")
        repeats = problem.period != problem.number("m")
        if problem.has_norm or problem.has("scale") or repeats:
            raise Refused("has no norm, no LayerScale and no residual that repeats in these calls")
        # A choice on disk may be one that was made while other processes were at work on the GPU.
        os.environ["QUACK_FORCE_CACHE_UPDATE"] = "1"
        t, weight = operands, operands.weight.t()
        residual, activation = t.residual, problem.activation
        if activation and residual is not None:
            raise Refused("adds the residual before the activation")

        def run() -> torch.Tensor:
            if activation:
                name = _QUACK_ACTIVATIONS[activation]
                return gemm_act(t.x, weight, bias=t.bias, activation=name, store_preact=False)[1]
            if residual is not None:
                return gemm_add(t.x, weight, residual, bias=t.bias)
            return gemm(t.x, weight, bias=t.bias)

        run()
        return Call(run, provider="quack")


class DeepGemm:
    """DeepGEMM's bf16 product, which has no epilogue."""

    name = "deepgemm"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Absent, Refused."""
        try:
            from deep_gemm import bf16_gemm_nt as product
        except Exception as error:  # a broken package is an absent one, and so are those for fp8 alone
            raise Absent(f"DeepGEMM's bf16_gemm_nt cannot be imported: {sentence(error)}") from None
        if problem.is_of_training:
            raise Refused("is called with W as [n, k] and a result of x's type here")
        if len(operands.given) > 2 or problem.activation or problem.has_norm:
            raise Refused("has no epilogue and no norm: the bare product alone")
        if operands.x.dtype is not torch.bfloat16:
            raise Refused("takes bf16 alone")
        t, shape = operands, (operands.x.shape[0], operands.weight.shape[0])

        def run() -> Any:
            out = torch.empty(shape, dtype=t.x.dtype, device=t.x.device)
            product(t.x, t.weight, out)
            return out

        run()
        return Call(run, provider="DeepGEMM")
