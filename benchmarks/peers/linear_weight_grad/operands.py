# benchmarks/peers/linear_weight_grad/operands.py -- The tensors of a weight gradient on the device, and what PyTorch computes of them.
# SPDX-License-Identifier: Apache-2.0
"""Fresh normal data each time; dy so that gradients are about as large as x."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from .problem import Problem


@dataclasses.dataclass
class Operands:
    """dy [m, n] and x [m, k], whose rows may lie apart."""

    dy: torch.Tensor
    x: torch.Tensor


def _rows(rows: int, columns: int, stride: int, made: dict[str, Any]) -> torch.Tensor:
    """A [rows, columns] view; what lies between its rows is zero, as a model pads."""
    whole = torch.zeros(rows, stride, **made)
    whole[:, :columns].normal_()
    return whole[:, :columns]


def make_operands(problem: Problem, device: str = "cuda") -> Operands:
    """Random operands of a problem; seed PyTorch before."""
    made: dict[str, Any] = {"dtype": getattr(torch, problem.dtype), "device": device}
    m, n, k = (problem.number(key) for key in "mnk")
    dy = _rows(m, n, problem.stride("dy"), made)
    dy.mul_(m**-0.5)
    return Operands(dy, _rows(m, k, problem.stride("x"), made))


def formula(problem: Problem, product: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """(dy, x) -> dw, or (dw, db): the product as given, and the sums of dy's rows."""
    dtype, has_bias = getattr(torch, problem.out_dtype), problem.has_bias

    def gradients(dy: torch.Tensor, x: torch.Tensor) -> Any:
        dw = product(dy, x)
        return (dw, dy.sum(0, dtype=dtype)) if has_bias else dw

    return gradients
