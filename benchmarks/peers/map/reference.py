# benchmarks/peers/map/reference.py -- The judge: a map in fp64, and how far the outputs are from it.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses

import torch

from ..engine.errors import errors_over
from ..engine.roster import Errors
from .operands import Operands, formula
from .problem import Problem


@dataclasses.dataclass
class Reference:
    """The fp64 result."""

    values: torch.Tensor
    remark: str = ""

    def errors(self, output: torch.Tensor) -> dict[str, Errors]:
        """Of out. Raises ValueError for another shape."""
        if output.shape != self.values.shape:
            raise ValueError(f"outputs of {tuple(output.shape)} for {tuple(self.values.shape)}")
        return {"out": errors_over([(output, self.values)], self.values)}

    def instead(self, output: torch.Tensor) -> str:
        """No other function looks like it."""
        return ""


def make_reference(problem: Problem, operands: Operands) -> Reference:
    """The same expression of the same operands, each step in fp64."""
    device = operands.given[0].device
    values = torch.empty(problem.out_extents, dtype=torch.float64, device=device)
    formula(problem, torch.float64)(values, *operands.given)
    return Reference(values)
