# benchmarks/peers/norm_backward/reference.py -- The judge: the gradients of a norm in fp64, and how far the outputs are from them.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ..engine.errors import errors_over
from ..engine.roster import Errors
from .operands import Operands, statistics
from .problem import Problem


@dataclasses.dataclass
class Reference:
    """The fp64 gradients by name."""

    values: dict[str, torch.Tensor]
    remark: str = ""

    def errors(self, output: Any) -> dict[str, Errors]:
        """Of (dx[, second], dweight, dbias). Raises ValueError for another number of outputs or another shape."""
        wanted = [tuple(values.shape) for values in self.values.values()]
        if [tuple(tensor.shape) for tensor in output] != wanted:
            raise ValueError(f"outputs of {[tuple(tensor.shape) for tensor in output]} for {wanted}")
        return {
            name: errors_over([(tensor, values)], values)
            for tensor, (name, values) in zip(output, self.values.items())
        }


def make_reference(problem: Problem, t: Operands) -> Reference:
    """By the formula of docs/problems.md, with statistics of x in fp64 whether the call is given fp32 ones or not."""
    dy, x, residual, weight = (tensor.double() for tensor in (t.dy, t.x, t.residual, t.weight))
    mean, rstd = (tensor[:, None] for tensor in statistics(x, problem.eps))
    normed, g = (x - mean) * rstd, dy * weight
    dx = residual + rstd * (g - g.mean(1, True) - normed * (g * normed).mean(1, True))
    values = {"dx": dx}
    if problem.has("second="):
        rows = 1 if t.factor is None else problem.number("factor")
        values["second"] = dx if t.factor is None else dx * t.factor.double().repeat_interleave(rows)[:, None]
    return Reference(values | {"dweight": (dy * normed).sum(0), "dbias": dy.sum(0)})
