# benchmarks/peers/reference.py -- The judge: attention in fp64, and how far an output is from it.
# SPDX-License-Identifier: Apache-2.0
"""Chunked, so that the scores of one chunk fit; every head of a problem, or evenly spaced ones."""

from __future__ import annotations

import dataclasses
import math

import torch

from .operands import Operands
from .problems import Problem

#: Above this many scores only some heads are judged (the 16k problems have 4.3e9).
MOST_SCORES = 12_000_000_000
CHUNK_SCORES = 1 << 28


@dataclasses.dataclass(frozen=True)
class Errors:
    """Difference from fp64: largest, root mean square, and norm over the norm of the outputs."""

    max: float
    rms: float
    relative: float


@dataclasses.dataclass
class Reference:
    """fp64 outputs [heads judged, nq, d] and which (batch * heads) entries they are."""

    entries: list[int]
    of: int
    values: torch.Tensor


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


def errors_of(reference: Reference, out: torch.Tensor) -> Errors:
    """Of an output [b, h, nq, d]. Anything not finite gives infinite errors."""
    total, largest = 0.0, 0.0
    heads = out.shape[1]
    index = torch.tensor(reference.entries, device=out.device)
    step = max(1, (1 << 27) // reference.values[0].numel())
    for first in range(0, len(reference.entries), step):
        chunk = index[first : first + step]
        mine = out[chunk // heads, chunk % heads].double()
        difference = (mine - reference.values[first : first + step]).abs_()
        largest = max(largest, difference.max().nan_to_num(math.inf, math.inf).item())
        total += difference.square_().sum().nan_to_num(math.inf, math.inf).item()
    norm = reference.values.norm().item() or 1.0
    return Errors(largest, math.sqrt(total / reference.values.numel()), math.sqrt(total) / norm)
