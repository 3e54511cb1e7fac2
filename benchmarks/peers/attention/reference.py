# benchmarks/peers/attention/reference.py -- The judge: attention in fp64, and how far an output is from it.
# SPDX-License-Identifier: Apache-2.0
"""Chunked, so that the scores of one chunk fit; every head of a problem, or evenly spaced ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import torch

from ..engine.errors import errors_over
from ..engine.roster import Errors
from .operands import Operands
from .problem import Problem

#: Above this many scores only some heads are judged (the 16k problems have 4.3e9).
MOST_SCORES = 12_000_000_000
CHUNK_SCORES = 1 << 28


@dataclasses.dataclass
class Reference:
    """fp64 outputs [heads judged, nq, d] and which (batch * heads) entries they are."""

    entries: list[int]
    of: int
    values: torch.Tensor

    @property
    def remark(self) -> str:
        """Where not all heads are judged."""
        few = len(self.entries) < self.of
        return f"judged on {len(self.entries)} of {self.of} heads" if few else ""

    def _pieces(self, out: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        heads, index = out.shape[1], torch.tensor(self.entries, device=out.device)
        step = max(1, (1 << 27) // self.values[0].numel())
        for first in range(0, len(self.entries), step):
            chunk = index[first : first + step]
            yield out[chunk // heads, chunk % heads], self.values[first : first + step]

    def errors(self, output: torch.Tensor) -> dict[str, Errors]:
        """Of [b, h, nq, d]."""
        return {"out": errors_over(self._pieces(output), self.values)}


def judged_entries(problem: Problem, most_scores: int = MOST_SCORES) -> list[int]:
    """Which of the batch * heads entries are judged: all that fit into `most_scores`."""
    entries = problem.desc.batch * problem.desc.heads
    each = problem.desc.nq * problem.desc.nk
    count = max(1, min(entries, most_scores // each))
    return [i * entries // count for i in range(count)]


def _scores(
    problem: Problem, t: Operands, batches: torch.Tensor, heads: torch.Tensor, rows: slice
) -> torch.Tensor:
    """fp64 scores [entries, rows, nk], -inf where a key is not seen."""
    group = problem.desc.heads // problem.kv_heads
    q = t.q[batches, heads, rows].double()
    k = t.k[batches, heads // group].double()
    scores = torch.bmm(q, k.transpose(1, 2)).mul_(problem.scale)
    nq, nk = problem.desc.nq, problem.desc.nk
    if t.mask is not None:
        entry = batches % t.mask.shape[0]
        wide = t.mask.expand(-1, problem.desc.heads, nq, nk)[entry, heads, rows]
        scores = (
            scores.masked_fill_(~wide, -math.inf) if wide.dtype is torch.bool else scores.add_(wide)
        )
    if problem.desc.causal:
        row = torch.arange(rows.start, rows.stop, device=q.device)[:, None]
        scores.masked_fill_(torch.arange(nk, device=q.device)[None] > row, -math.inf)
    return scores


def make_reference(problem: Problem, t: Operands, most_scores: int = MOST_SCORES) -> Reference:
    """The fp64 outputs of the judged entries, on the operands' device."""
    desc, entries = problem.desc, judged_entries(problem, most_scores)
    values = torch.empty(len(entries), desc.nq, desc.d, dtype=torch.float64, device=t.q.device)
    index = torch.tensor(entries, device=t.q.device)
    group = desc.heads // problem.kv_heads
    step_rows = max(1, min(desc.nq, CHUNK_SCORES // desc.nk))
    step = max(1, CHUNK_SCORES // (step_rows * desc.nk))
    for first in range(0, len(entries), step):
        chunk = index[first : first + step]
        batches, heads = chunk // desc.heads, chunk % desc.heads
        v = t.v[batches, heads // group].double()
        for row in range(0, desc.nq, step_rows):
            rows = slice(row, min(row + step_rows, desc.nq))
            weights = torch.softmax(_scores(problem, t, batches, heads, rows), -1)
            values[first : first + step, rows] = torch.bmm(weights, v)
    return Reference(entries, desc.batch * desc.heads, values)
