# benchmarks/peers/norms/reference.py -- The judge: a norm in fp64, and how far the outputs are from it.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ..engine.errors import errors_over
from ..engine.roster import Errors
from .operands import Operands, formula
from .problem import Problem


@dataclasses.dataclass
class Reference:
    """The fp64 outputs by name: the norm, and the sum that it is of where that is written too."""

    values: dict[str, torch.Tensor]
    remark: str = ""

    def errors(self, output: Any) -> dict[str, Errors]:
        """Of out, or of (out, sum). Raises ValueError for another number of outputs or another shape."""
        found = output if isinstance(output, tuple) else (output,)
        wanted = [tuple(values.shape) for values in self.values.values()]
        if [tuple(tensor.shape) for tensor in found] != wanted:
            raise ValueError(f"outputs of {[tuple(tensor.shape) for tensor in found]} for {wanted}")
        return {
            name: errors_over([(tensor, values)], values)
            for tensor, (name, values) in zip(found, self.values.items())
        }


def make_reference(problem: Problem, operands: Operands) -> Reference:
    """The same formula of the same inputs in fp64: the sum is not rounded before it is normalised."""
    output = formula(problem)(*(tensor.double() for tensor in operands.given))
    return Reference(dict(zip(("out", "sum"), output if isinstance(output, tuple) else (output,))))
