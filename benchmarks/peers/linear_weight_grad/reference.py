# benchmarks/peers/linear_weight_grad/reference.py -- The judge: a weight gradient in fp64, and how far the outputs are from it.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ..engine.errors import errors_over
from ..engine.roster import Errors
from .operands import Operands
from .problem import Problem

_ROWS = 1 << 13  # of dy and x whose fp64 values are there at a time


@dataclasses.dataclass
class Reference:
    """The fp64 gradients by name."""

    values: dict[str, torch.Tensor]
    remark: str = ""

    def errors(self, output: Any) -> dict[str, Errors]:
        """Of dw, or of (dw, db). Raises ValueError for another number of outputs or another shape."""
        found = output if isinstance(output, tuple) else (output,)
        wanted = [tuple(values.shape) for values in self.values.values()]
        if [tuple(tensor.shape) for tensor in found] != wanted:
            raise ValueError(f"outputs of {[tuple(tensor.shape) for tensor in found]} for {wanted}")
        return {
            name: errors_over([(tensor, values)], values)
            for tensor, (name, values) in zip(found, self.values.items())
        }

    def instead(self, output: Any) -> str:
        """No other function looks like it."""
        return ""


def make_reference(problem: Problem, t: Operands) -> Reference:
    """The sums over the rows in fp64."""
    n, k = problem.number("n"), problem.number("k")
    dw = torch.zeros(n, k, dtype=torch.float64, device=t.x.device)
    db = torch.zeros(n, dtype=torch.float64, device=t.x.device)
    for first in range(0, problem.number("m"), _ROWS):
        rows = slice(first, first + _ROWS)
        dy = t.dy[rows].double()
        dw += dy.T @ t.x[rows].double()
        db += dy.sum(0)
    return Reference({"dw": dw, "db": db} if problem.has_bias else {"dw": dw})
