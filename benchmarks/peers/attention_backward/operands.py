# benchmarks/peers/attention_backward/operands.py -- The tensors of attention's gradients on the device.
# SPDX-License-Identifier: Apache-2.0
"""Fresh normal data each time; out and its log-sum-exp are those of fp64, rounded."""

from __future__ import annotations

import dataclasses

import torch

from ..attention import operands as attention_operands
from .chunks import chunks, scores
from .problem import Problem


@dataclasses.dataclass
class Operands:
    """Forward's tensors, its results, and the gradient of out: [b, h, nq, d], lying [b, nq, h, d]."""

    forward: attention_operands.Operands
    out: torch.Tensor
    lse: torch.Tensor  #: fp32 [b, h, nq]
    dout: torch.Tensor

    @property
    def x(self) -> torch.Tensor:
        """A tensor of the device that all are on."""
        return self.forward.q

    @property
    def bias(self) -> torch.Tensor | None:
        """What is added to the scores."""
        mask = self.forward.mask
        return None if mask is None or mask.dtype is torch.bool else mask


def make_operands(problem: Problem, device: str = "cuda") -> Operands:
    """Random operands of a problem; seed PyTorch before. Raises ValueError for a bias beside a mask."""
    desc, t = problem.desc, attention_operands.make_operands(problem.forward, device)
    shape = (desc.batch, desc.nq, desc.heads, desc.d)
    out = torch.empty(shape, dtype=t.q.dtype, device=device).transpose(1, 2)
    lse = torch.empty(shape[0], desc.heads, desc.nq, device=device)
    for part in chunks(problem):
        s = scores(problem, t, part)
        lse[part] = torch.logsumexp(s, -1).float()
        v = t.v[part].double().repeat_interleave(desc.heads // problem.forward.kv_heads, 1)
        out[part] = (torch.softmax(s, -1) @ v).to(out.dtype)
    dout = torch.randn(shape, dtype=t.q.dtype, device=device).transpose(1, 2)
    return Operands(t, out, lse, dout)
