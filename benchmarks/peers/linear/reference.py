# benchmarks/peers/linear/reference.py -- The judge: a linear layer in fp64, how far outputs are, and which GELU they are of.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from ..engine.errors import errors_over
from ..engine.roster import Errors
from .operands import Operands, activation_of, slope_of
from .problem import Problem

_PIECE = 1 << 25  # elements whose fp64 values are compared at a time
ENOUGH = 1 << 19  # elements from which it is told which GELU an output is of

#: The form that passes for another: 2e-4 of the output away, a ninth of what rounding to bf16 costs.
_TAKEN_FOR = {"gelu": ("gelu_tanh", "GELU's tanh form"), "gelu_tanh": ("gelu", "GELU by erf")}


@dataclasses.dataclass
class Reference:
    """The fp64 output; of the other GELU, how far it is from that one, element by element."""

    values: torch.Tensor
    other: torch.Tensor | None = None
    named: str = ""
    remark: str = ""

    def _pieces(self, output: Any) -> Iterator[slice]:
        if tuple(output.shape) != tuple(self.values.shape):
            raise ValueError(f"output of {tuple(output.shape)} for {tuple(self.values.shape)}")
        rows = max(1, _PIECE // self.values.shape[1])
        for first in range(0, self.values.shape[0], rows):
            yield slice(first, first + rows)

    def errors(self, output: Any) -> dict[str, Errors]:
        """Of the output. Raises ValueError for another shape."""
        pieces = ((output[rows], self.values[rows]) for rows in self._pieces(output))
        return {"out": errors_over(pieces, self.values)}

    def instead(self, output: Any) -> str:
        """The other GELU, if the output's differences point to it: no norm of them tells the two apart.

        The share of (other - asked) in (output - asked), by least squares: 0 for the function that was
        asked, up to 0.25 where the sums are rounded before it, and 1 or more for the other. Rounding
        drowns that in small outputs, of which nothing is said.
        """
        if self.other is None or self.values.numel() < ENOUGH:
            return ""
        along, length = 0.0, 0.0
        for rows in self._pieces(output):
            other = self.other[rows].double()
            along += ((output[rows].double() - self.values[rows]) * other).sum().item()
            length += other.square().sum().item()
        return self.named if length and along / length > 0.6 else ""


def make_reference(problem: Problem, t: Operands) -> Reference:
    """The formula of docs/problems.md in fp64, with the statistics that vitune is given."""
    x = t.x.double()
    if t.mean is not None and t.rstd is not None:
        x = (x - t.mean.double()[:, None]) * t.rstd.double()[:, None]
    sums = x @ (t.weight.double() if problem.is_transposed else t.weight.double().T)
    del x
    if t.bias is not None:
        sums += t.bias.double()
    values, other, named = activation_of(problem.activation)(sums), None, ""
    if t.pre is not None:
        values = slope_of(problem.derivative)(sums, t.pre.double())
    if problem.derivative in _TAKEN_FOR:
        instead, named = _TAKEN_FOR[problem.derivative]
        other = slope_of(instead)(sums, t.pre.double()) - values
    if problem.activation in _TAKEN_FOR:
        instead, named = _TAKEN_FOR[problem.activation]
        other = activation_of(instead)(sums) - values
    del sums
    if t.scale is not None:
        scale = t.scale.double()
        values, other = values * scale, None if other is None else other * scale
    if t.factor is not None:
        factor = t.factor.double().repeat_interleave(problem.factor_rows)[:, None]
        values, other = values * factor, None if other is None else other * factor
    if t.residual is not None:
        m, n = values.shape
        values = (values.view(-1, problem.period, n) + t.residual.double()).view(m, n)
    remark = "vitune and Triton are given the rows' statistics, the others compute them" if problem.has_norm else ""
    return Reference(values, None if other is None else other.float(), named, remark)
