# benchmarks/peers/norm_backward/operands.py -- The tensors of a norm's gradients on the device, and what PyTorch computes of them.
# SPDX-License-Identifier: Apache-2.0
"""Fresh normal data each time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from .problem import Problem


@dataclasses.dataclass
class Operands:
    """dy, x and the gradient that x has from elsewhere [m, d]; what the forward pass kept of x, fp32 [m]; weight [d]; factor, fp32 [m / P]."""

    dy: torch.Tensor
    x: torch.Tensor
    residual: torch.Tensor
    mean: torch.Tensor
    rstd: torch.Tensor
    weight: torch.Tensor
    factor: torch.Tensor | None = None

    @property
    def given(self) -> tuple[torch.Tensor, ...]:
        """In the order of the formula."""
        found = (self.dy, self.x, self.residual, self.mean, self.rstd, self.weight, self.factor)
        return tuple(tensor for tensor in found if tensor is not None)


def statistics(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(mean, rstd) of the rows, fp64."""
    rows = x.double()
    return rows.mean(1), (rows.var(1, correction=0) + eps).rsqrt()


def make_operands(problem: Problem, device: str = "cuda") -> Operands:
    """Random operands of a problem; seed PyTorch before."""
    m, d = problem.number("m"), problem.number("d")

    def made(key: str, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=getattr(torch, problem.dtype_of(key)), device=device)

    dy, x, residual, weight = made("", m, d), made("x", m, d), made("x", m, d), made("params", d)
    _, mean, rstd = torch.native_layer_norm(x.float(), [d], None, None, problem.eps)  # as a forward pass keeps them
    factor = None
    if problem.has("factor="):
        # Drop path: a part of the samples is left out, the others are multiplied.
        kept = torch.rand(m // problem.number("factor"), device=device) >= 0.1
        factor = kept.float() / 0.9
    return Operands(dy, x, residual, mean.view(m), rstd.view(m), weight, factor)


def sums(
    problem: Problem, dx: torch.Tensor, residual: torch.Tensor, factor: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    """(total,) or (total, second) of a norm's own dx."""
    total = dx + residual
    if not problem.has("second="):
        return (total,)
    second = total
    if factor is not None:
        second = (total.view(len(factor), -1, total.shape[1]) * factor.view(-1, 1, 1)).view_as(total)
    return total, second.to(getattr(torch, problem.dtype_of("second")))


def formula(problem: Problem) -> Callable[..., Any]:
    """What autograd runs: (dy, x, residual, mean, rstd, weight[, factor]) -> (dx[, second], dweight, dbias)."""
    columns = [problem.number("d")]

    def gradients(
        dy: torch.Tensor,
        x: torch.Tensor,
        residual: torch.Tensor,
        mean: torch.Tensor,
        rstd: torch.Tensor,
        weight: torch.Tensor,
        factor: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        dx, dweight, dbias = torch.ops.aten.native_layer_norm_backward(
            dy.to(x.dtype), x, columns, mean[:, None], rstd[:, None], weight, weight, [True] * 3
        )
        return (*sums(problem, dx, residual, factor), dweight, dbias)

    return gradients
