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
    """x [m, k] and weight [n, k] or [k, n], whose rows may lie apart; the others contiguous, or None.

    pre [m, n] is what an activation was given whose derivative is taken, factor one number for every so many rows.
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
    pre: torch.Tensor | None = None
    factor: torch.Tensor | None = None

    @property
    def given(self) -> tuple[torch.Tensor, ...]:
        """In the order of the formula."""
        found = (self.x, self.weight, self.bias, self.pre, self.scale, self.factor, self.residual)
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
    sizes = (k, n, problem.stride("wt")) if problem.is_transposed else (n, k, problem.stride("w"))
    weight = _rows(*sizes, made)
    weight.mul_(k**-0.5)
    t = Operands(x, weight)
    if problem.has("bias"):
        t.bias = torch.randn(n, **made)
    if problem.has("scale"):
        t.scale = torch.randn(n, **made)
    if problem.has("residual"):
        wide = {**made, "dtype": getattr(torch, problem.out_dtype)}
        t.residual = torch.randn(problem.period, n, **wide)
    if problem.derivative:
        t.pre = torch.randn(m, n, **made)
    if problem.factor_rows:
        t.factor = torch.rand(m // problem.factor_rows, device=device) + 0.5
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


def slope_of(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """PyTorch's own backward of an activation, as autograd calls it: (gradient, what the activation was given)."""
    aten = torch.ops.aten

    def of_quick_gelu(y: torch.Tensor, pre: torch.Tensor) -> torch.Tensor:
        share = torch.sigmoid(1.702 * pre)
        return y * (share + 1.702 * pre * share * (1 - share))

    return {
        "relu": lambda y, pre: aten.threshold_backward(y, pre, 0),
        "gelu": lambda y, pre: aten.gelu_backward(y, pre),
        "gelu_tanh": lambda y, pre: aten.gelu_backward(y, pre, approximate="tanh"),
        "quick_gelu": of_quick_gelu,
        "silu": aten.silu_backward,
    }[name]


def formula(problem: Problem) -> Callable[..., torch.Tensor]:
    """What a model or autograd writes: (x, weight[, bias][, pre][, scale][, factor][, residual]) -> y."""
    act, k = activation_of(problem.activation), problem.number("k")
    m, n, period = problem.number("m"), problem.number("n"), problem.period
    norm, has_bias = problem.has_norm, problem.has("bias")
    has_scale, has_residual = problem.has("scale"), problem.has("residual")
    transposed, together = problem.is_transposed, problem.factor_rows
    slope = slope_of(problem.derivative) if problem.derivative else None
    out_dtype = getattr(torch, problem.out_dtype)

    def layer(x: torch.Tensor, weight: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        rest = list(more)
        bias = rest.pop(0) if has_bias else None
        rows = F.layer_norm(x, (k,), eps=EPS) if norm else x
        y = F.linear(rows, weight.t() if transposed else weight, bias)
        y = act(y) if slope is None else slope(y, rest.pop(0))
        if has_scale:
            y = y * rest.pop(0)
        if together:  # drop path: a number for each sample
            y = (y.view(-1, together, n) * rest.pop(0).to(y.dtype)[:, None, None]).view(m, n)
        if has_residual and period == m:
            y = rest.pop(0) + y
        elif has_residual:  # an image's positions, of all images
            y = (rest.pop(0) + y.view(-1, period, n)).view(m, n)
        return y.to(out_dtype)

    return layer
