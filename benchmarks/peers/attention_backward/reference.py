# benchmarks/peers/attention_backward/reference.py -- The judge: attention's gradients in fp64, and how far the outputs are from them.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ..engine.errors import errors_over
from ..engine.roster import Errors
from .chunks import chunks, scores
from .operands import Operands
from .problem import Problem


@dataclasses.dataclass
class Reference:
    """The fp64 gradients by name."""

    values: dict[str, torch.Tensor]
    remark: str = ""

    def errors(self, output: Any) -> dict[str, Errors]:
        """Of (dq, dk, dv) or (dq, dk, dv, dbias). Raises ValueError for others, or another shape."""
        wanted = [tuple(values.shape) for values in self.values.values()]
        found = [tuple(tensor.shape) for tensor in output]
        if found != wanted:
            raise ValueError(f"outputs of {found} for {wanted}")
        return {
            name: errors_over([(tensor, values)], values)
            for tensor, (name, values) in zip(output, self.values.items())
        }

    def instead(self, output: Any) -> str:
        """No other function looks like it."""
        return ""


def make_reference(problem: Problem, t: Operands) -> Reference:
    """The derivatives of softmax' formula, some batch entries at a time."""
    desc, forward = problem.desc, t.forward
    kv_heads, scale = problem.forward.kv_heads, problem.forward.scale
    made = {"dtype": torch.float64, "device": forward.q.device}
    dq = torch.empty(desc.batch, desc.heads, desc.nq, desc.d, **made)
    dk, dv = (torch.empty(desc.batch, kv_heads, desc.nk, desc.d, **made) for _ in range(2))
    dbias = torch.zeros(t.bias.shape, **made) if problem.has_dbias else None
    for part in chunks(problem):
        q, k, v, dout = (x[part].double() for x in (forward.q, forward.k, forward.v, t.dout))
        group = desc.heads // kv_heads
        wide_k, wide_v = (x.repeat_interleave(group, 1) for x in (k, v))
        # Of a row without keys softmax gives what is not a number; its weights are 0.
        weights = torch.softmax(scores(problem, forward, part), -1).nan_to_num_(0.0)
        ds = dout @ wide_v.transpose(-2, -1)
        ds -= (ds * weights).sum(-1, keepdim=True)
        ds *= weights
        dq[part] = (ds @ wide_k) * scale

        def shared(gradient: torch.Tensor) -> torch.Tensor:
            return gradient.unflatten(1, (kv_heads, group)).sum(2)

        dk[part] = shared(ds.transpose(-2, -1) @ q) * scale
        dv[part] = shared(weights.transpose(-2, -1) @ dout)
        if dbias is not None:
            for i, entry in enumerate(range(part.start, part.stop)):
                of = entry % dbias.shape[0]
                dbias[of] += ds[i].sum_to_size(dbias.shape[1:])
    values = {"dq": dq, "dk": dk, "dv": dv}
    return Reference(values if dbias is None else {**values, "dbias": dbias})
