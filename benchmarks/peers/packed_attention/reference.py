# benchmarks/peers/packed_attention/reference.py -- The judge: attention of each sequence in fp64, and how far the outputs are from it.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from ..engine.errors import errors_over
from ..engine.roster import Errors
from .operands import Operands
from .problem import Problem

_ROWS = 1024  # queries whose fp64 scores are there at a time, of one head


@dataclasses.dataclass
class Reference:
    """The fp64 answer, [tokens, heads, d]."""

    values: torch.Tensor
    remark: str = ""

    def errors(self, output: Any) -> dict[str, Errors]:
        """Raises ValueError for another shape."""
        if tuple(output.shape) != tuple(self.values.shape):
            raise ValueError(f"an output of {tuple(output.shape)} for {tuple(self.values.shape)}")
        return {"out": errors_over([(output, self.values)], self.values)}

    def instead(self, output: Any) -> str:
        """No other function looks like it."""
        return ""


def _blocks(lengths: list[int]) -> Iterator[tuple[slice, slice]]:
    """Some queries, and the tokens of their sequence."""
    start = 0
    for length in lengths:
        for first in range(start, start + length, _ROWS):
            yield slice(first, min(first + _ROWS, start + length)), slice(start, start + length)
        start += length


def make_reference(problem: Problem, t: Operands) -> Reference:
    """A head at a time."""
    values = torch.zeros(t.q.shape, dtype=torch.float64, device=t.q.device)
    scale = problem.number("d") ** -0.5
    for head in range(t.q.shape[1]):
        q, k, v = (tensor[:, head].double() for tensor in (t.q, t.k, t.v))
        for rows, sequence in _blocks(t.lengths):
            values[rows, head] = (q[rows] @ k[sequence].T * scale).softmax(-1) @ v[sequence]
    return Reference(values)
