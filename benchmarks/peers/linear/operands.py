# benchmarks/peers/linear/operands.py -- The tensors of a linear layer on the device, and what a model writes of them.
# SPDX-License-Identifier: Apache-2.0
"""Fresh normal data each time; weights so that results are about as large as x."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .problem import Problem

EPS = 1e-6  # of the norm, as in most vision transformers


@dataclasses.dataclass
class Operands:
    """x [m, k] and weight [n, k], whose rows may lie apart; the others contiguous, or None.

    mean, rstd [m] and sums [n] are what vitune is given where a norm comes before: the statistics of the
    rows of x, and the sums of the weight's rows, all fp32. The peers compute the norm from x.
    """

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None = None
    scale: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    mean: torch.Tensor | None = None
    rstd: torch.Tensor | None = None
    sums: torch.Tensor | None = None

    @property
    def given(self) -> tuple[torch.Tensor, ...]:
        """In the order of the formula."""
        found = (self.x, self.weight, self.bias, self.scale, self.residual)
        return tuple(tensor for tensor in found if tensor is not None)


def _rows(rows: int, columns: int, stride: int, made: dict[str, Any]) -> torch.Tensor:
    """A [rows, columns] view; what lies between its rows is zero, as a model pads."""
    whole = torch.zeros(rows, stride, **made)
    whole[:, :columns].normal_()
    return whole[:, :columns]


def make_operands(problem: Problem, device: str = "cuda") -> Operands:
    """Random operands of a problem; seed PyTorch before."""
    made: dict[str, Any] = {"dtype": getattr(torch, problem.dtype), "device": device}
    m, n, k = (problem.number(key) for key in "mnk")
    x = _rows(m, k, problem.stride("x"), made)
    weight = _rows(n, k, problem.stride("w"), made)
    weight.mul_(k**-0.5)
    t = Operands(x, weight)
    if problem.has("bias"):
        t.bias = torch.randn(n, **made)
    if problem.has("scale"):
        t.scale = torch.randn(n, **made)
    if problem.has("residual"):
        t.residual = torch.randn(problem.period, n, **made)
    if problem.has_norm:
        x.add_(torch.randn(m, 1, **made))  # else the means are nothing to subtract
        exact = x.double()
        t.mean = exact.mean(1).float()
        t.rstd = (exact.var(1, unbiased=False) + EPS).rsqrt().float()
        t.sums = weight.double().sum(1).float()
    return t


def activation_of(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """PyTorch's own, of any type."""
    return {
        "": lambda y: y,
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
        "quick_gelu": lambda y: y * torch.sigmoid(1.702 * y),
        "silu": F.silu,
    }[name]


def formula(problem: Problem) -> Callable[..., torch.Tensor]:
    """What a model writes: (x, weight[, bias][, scale][, residual]) -> y."""
    act, k = activation_of(problem.activation), problem.number("k")
    m, n, period = problem.number("m"), problem.number("n"), problem.period
    norm, has_bias = problem.has_norm, problem.has("bias")
    has_scale, has_residual = problem.has("scale"), problem.has("residual")

    def layer(x: torch.Tensor, weight: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        rest = list(more)
        bias = rest.pop(0) if has_bias else None
        y = act(F.linear(F.layer_norm(x, (k,), eps=EPS) if norm else x, weight, bias))
        if has_scale:
            y = y * rest.pop(0)
        if has_residual and period == m:
            y = rest.pop(0) + y
        elif has_residual:  # an image's positions, of all images
            y = (rest.pop(0) + y.view(-1, period, n)).view(m, n)
        return y

    return layer
