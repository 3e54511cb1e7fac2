# benchmarks/peers/norms/operands.py -- The tensors of a norm on the device, and what a model writes of them.
# SPDX-License-Identifier: Apache-2.0
"""Fresh normal data each time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .problem import Problem


@dataclasses.dataclass
class Operands:
    """x [m, d], or [n, c, l] (with nhwc in [n, l, c] memory); residual like x, or None."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    residual: torch.Tensor | None = None

    @property
    def given(self) -> tuple[torch.Tensor, ...]:
        """In the order of the formula."""
        found = (self.x, self.weight, self.bias, self.residual)
        return tuple(tensor for tensor in found if tensor is not None)


def make_operands(problem: Problem, device: str = "cuda") -> Operands:
    """Random operands of a problem; seed PyTorch before."""
    made: dict[str, Any] = {"dtype": getattr(torch, problem.dtype), "device": device}
    if problem.is_group:
        n, c, l = (problem.number(key) for key in "ncl")
        shape = (n, l, c) if problem.has("nhwc") else (n, c, l)
        x = torch.randn(*shape, **made)
        x = x.transpose(1, 2) if problem.has("nhwc") else x
        return Operands(x, torch.randn(c, **made), torch.randn(c, **made))
    m, d = problem.number("m"), problem.number("d")
    x, weight, bias = (torch.randn(*shape, **made) for shape in ((m, d), (d,), (d,)))
    residual = torch.randn(m, d, **made) if problem.has("residual") else None
    return Operands(x, weight, bias, residual)


def _activation(problem: Problem) -> Callable[[torch.Tensor], torch.Tensor]:
    return F.silu if problem.has("silu") else F.mish if problem.has("mish") else lambda y: y


def formula(problem: Problem) -> Callable[..., Any]:
    """What a model writes: (x, weight, bias[, residual]) -> out, or (out, sum)."""
    eps = problem.eps
    if problem.is_group:
        groups, act = problem.number("g"), _activation(problem)
        return lambda x, weight, bias: act(F.group_norm(x, groups, weight, bias, eps))
    if problem.has("residual"):

        def add_norm(
            x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            total = x + residual
            return F.layer_norm(total, x.shape[-1:], weight, bias, eps), total

        return add_norm
    return lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias, eps)
