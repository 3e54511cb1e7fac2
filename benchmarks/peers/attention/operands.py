# benchmarks/peers/attention/operands.py -- The tensors of a problem on the device, with the strides it asks.
# SPDX-License-Identifier: Apache-2.0
"""Fresh normal data each time; `packed` operands are views of one tensor, as models have them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .problem import DTYPES, Problem


@dataclasses.dataclass
class Operands:
    """q [b, h, nq, d]; k, v [b, hkv, nk, d]; mask broadcastable to [b, h, nq, nk], or None."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    #: As the problem has it: its batch entries may be a divisor of b. bool, or added to the scores.
    mask: torch.Tensor | None
    #: The same with 1 or b batch entries, which is what PyTorch understands.
    wide_mask: torch.Tensor | None

    @property
    def bytes(self) -> int:
        """Size of q, k and v, each element once."""
        return sum(x.numel() * x.element_size() for x in (self.q, self.k, self.v))


def _strided(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    storage: torch.Tensor | None = None,
    offset: int = 0,
) -> torch.Tensor:
    """Random values, in `storage` or in memory that just spans the view."""
    if storage is None:
        span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides))
        storage = torch.randn(span + offset, dtype=dtype, device=device)
    return storage.as_strided(shape, strides, offset)


def _packed_storage(problem: Problem, dtype: torch.dtype, device: str) -> torch.Tensor | None:
    """The [b, n, h + 2 hkv, d] that q, k and v are views of, None if they are not."""
    desc, every = problem.desc, problem.desc.heads + 2 * problem.kv_heads
    wanted = (desc.nq * every * desc.d, desc.d, every * desc.d)
    for view in (desc.q, desc.k, desc.v):
        if (view.batch, view.head, view.row) != wanted:
            return None
    return torch.randn(desc.batch * wanted[0], dtype=dtype, device=device)


def _mask(problem: Problem, device: str) -> torch.Tensor | None:
    desc = problem.desc
    kind = "bias" if desc.bias_type else "mask" if desc.mask_type else None
    if kind is None:
        return None
    if desc.bias_type and desc.mask_type:
        raise ValueError("a bias and a mask at once: PyTorch's attention takes one of them")
    batches = getattr(desc, f"{kind}_batches") or desc.batch
    strides = tuple(getattr(desc, f"{kind}_strides"))
    full = (batches, desc.heads, desc.nq, desc.nk)
    # A broadcast dimension has an extent of 1, as the caller's tensor has.
    shape = tuple(extent if stride else 1 for extent, stride in zip(full, strides))
    if kind == "bias":
        return _strided(shape, strides, getattr(torch, DTYPES[desc.bias_type]), device)
    mask = _strided(shape, strides, torch.float32, device) > -0.5
    mask[..., 0] = True  # peers differ on rows without any key
    return mask


def make_operands(problem: Problem, device: str = "cuda") -> Operands:
    """Random operands of a problem; seed PyTorch before. Raises ValueError for two masks."""
    desc, dtype = problem.desc, getattr(torch, DTYPES[problem.desc.dtype])
    storage = _packed_storage(problem, dtype, device)

    def operand(view: Any, heads: int, rows: int, offset: int) -> torch.Tensor:
        shape, strides = (desc.batch, heads, rows, desc.d), (view.batch, view.head, view.row, 1)
        first = 0 if storage is None else offset
        return _strided(shape, strides, dtype, device, storage, first)

    kv_heads = problem.kv_heads
    q = operand(desc.q, desc.heads, desc.nq, 0)
    k = operand(desc.k, kv_heads, desc.nk, desc.heads * desc.d)
    v = operand(desc.v, kv_heads, desc.nk, (desc.heads + kv_heads) * desc.d)
    mask = _mask(problem, device)
    wide = mask
    if mask is not None and mask.shape[0] not in (1, desc.batch):
        wide = mask.repeat(desc.batch // mask.shape[0], 1, 1, 1)
    return Operands(q, k, v, mask, wide)
