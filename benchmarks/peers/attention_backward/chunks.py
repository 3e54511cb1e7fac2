# benchmarks/peers/attention_backward/chunks.py -- Scores in fp64, some batch entries at a time.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ..attention.operands import Operands
from .problem import Problem

_CHUNK_SCORES = 1 << 27


def chunks(problem: Problem) -> Iterator[slice]:
    """Batch entries whose scores are there at once: one at least."""
    desc = problem.desc
    step = max(1, _CHUNK_SCORES // (desc.heads * desc.nq * desc.nk))
    for first in range(0, desc.batch, step):
        yield slice(first, min(first + step, desc.batch))


def scores(problem: Problem, t: Operands, part: slice) -> torch.Tensor:
    """fp64 scores [entries, h, nq, nk], -inf where a key is not seen."""
    desc = problem.desc
    group = desc.heads // problem.forward.kv_heads
    k = t.k[part].double().repeat_interleave(group, 1)
    s = (t.q[part].double() @ k.transpose(-2, -1)).mul_(problem.forward.scale)
    if t.wide_mask is not None:
        mask = t.wide_mask if t.wide_mask.shape[0] == 1 else t.wide_mask[part]
        s = s.masked_fill_(~mask, -math.inf) if mask.dtype is torch.bool else s.add_(mask)
    if desc.causal:
        above = torch.ones(desc.nq, desc.nk, dtype=torch.bool, device=s.device).triu_(1)
        s.masked_fill_(above, -math.inf)
    return s
