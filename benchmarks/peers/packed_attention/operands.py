# benchmarks/peers/packed_attention/operands.py -- The packed tensors of a problem, and the forms that other calls want of them.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses

import torch

from .problem import Problem


@dataclasses.dataclass
class Operands:
    """q, k, v: [tokens, heads, d]; offsets: int32 [sequences + 1]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    offsets: torch.Tensor
    lengths: list[int]

    @property
    def x(self) -> torch.Tensor:
        """Whose device is that of the call."""
        return self.q

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(self.lengths)

    def batch(self) -> list[torch.Tensor]:
        """q, k and v as views [sequences, heads, n, d], of equal lengths."""
        shape = (len(self.lengths), self.lengths[0])
        return [tensor.unflatten(0, shape).transpose(1, 2) for tensor in (self.q, self.k, self.v)]

    def each(self) -> list[tuple[torch.Tensor, ...]]:
        """Views [1, heads, n, d] of each sequence that has tokens."""
        parts = zip(*(tensor.split(self.lengths) for tensor in (self.q, self.k, self.v)))
        return [tuple(one.transpose(0, 1)[None] for one in three) for three in parts if len(three[0])]


def make_operands(problem: Problem, device: str = "cuda") -> Operands:
    """Normal data; seed PyTorch before."""
    lengths = problem.lengths
    made = {"dtype": getattr(torch, problem.dtype), "device": device}
    q, k, v = (torch.randn(sum(lengths), problem.number("h"), problem.number("d"), **made) for _ in range(3))
    offsets = torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)
    return Operands(q, k, v, offsets, lengths)
