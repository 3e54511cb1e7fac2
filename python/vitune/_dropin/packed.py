# python/vitune/_dropin/packed.py -- Attention of packed sequences for models that hand over offsets: by vitune, else a sequence at a time by PyTorch.
# SPDX-License-Identifier: Apache-2.0
"""Programs that hand over offsets want no masks: where vitune cannot serve the call, its sequences are split as the offsets say,
which the host then has to read."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .._ops import attention as attention_ops, flops, packed_attention as packed_ops
from .._runtime.errors import InvalidArgument, VituneError, reason_of
from . import sdpa as sdpa_dropin


TRAINS = "requires_grad: packed attention has no backward pass"


class Offsets(NamedTuple):
    """Where sequences begin in q and in k, int32 [sequences + 1] each, and bounds of their lengths (None: none is known)."""

    of_q: Tensor
    of_k: Tensor
    longest_q: Optional[int]
    longest_k: Optional[int]

    @classmethod
    def handed_over(cls, of_q: Tensor, of_k: Optional[Tensor], longest_q: Any, longest_k: Any) -> "Offsets":
        """As programs name them: a bound that lies on a device counts as unknown, since reading it would stop the host."""
        of_k = of_q if of_k is None else of_k
        number = lambda longest: longest if isinstance(longest, int) else None  # noqa: E731
        return cls(_int32(of_q), _int32(of_q) if of_k is of_q else _int32(of_k), number(longest_q), number(longest_k))


def _int32(offsets: Tensor) -> Tensor:
    return offsets if offsets.dtype is torch.int32 else offsets.int()


def attend(query: Tensor, key: Tensor, value: Tensor, offsets: Offsets, dropout: float, is_causal: bool,
           scale: Optional[float]) -> Tensor:
    """query [tokens, heads, d], key and value [tokens, kv heads, d]: the result is [tokens, heads, d]. What vitune cannot serve is
    counted by reason, as for scaled_dot_product_attention."""
    query, key, value, _ = sdpa_dropin.cast(query, key, value, None)
    wants_gradient = attention_ops.needs_gradient(query, key, value, None)
    why_not = TRAINS if wants_gradient else sdpa_dropin.reason(query, key, value, None, dropout)
    if why_not is None:
        if torch.compiler.is_compiling():
            of_k = None if offsets.of_k is offsets.of_q else offsets.of_k
            return packed_attention_or_torch(query, key, value, offsets.of_q, of_k, offsets.longest_q, offsets.longest_k, is_causal, scale)
        return _served(query, key, value, offsets, is_causal, scale)
    sdpa_dropin.fall_back(why_not)
    return one_by_one(query, key, value, offsets, dropout, is_causal, scale)


def _served(query: Tensor, key: Tensor, value: Tensor, offsets: Offsets, is_causal: bool, scale: Optional[float]) -> Tensor:
    """By vitune; by PyTorch where it refuses the call."""
    of_k = None if offsets.of_k is offsets.of_q else offsets.of_k
    if packed_ops.checked:
        _check_cover("cu_seqlens_q", offsets.of_q, query)
        _check_cover("cu_seqlens_k", offsets.of_k, key)
    try:
        return packed_ops.attention_varlen(query, key, value, offsets.of_q, of_k, offsets.longest_q, offsets.longest_k, scale, is_causal,
                                           False)
    except VituneError as error:
        if packed_ops.checked and isinstance(error, InvalidArgument):
            raise
        sdpa_dropin.fall_back(reason_of(error))
    return one_by_one(query, key, value, offsets, 0.0, is_causal, scale)


def _check_cover(name: str, offsets: Tensor, tokens: Tensor) -> None:
    """Refuses offsets that leave rows out, unless a CUDA graph is captured: PyTorch's split would, and a kernel leaves them unwritten."""
    if offsets.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    first, last = offsets[0].item(), offsets[-1].item()
    if first != 0 or last < tokens.shape[0]:
        raise InvalidArgument(f"VITUNE_CHECK: {name} goes from {first} to {last}, and there are {tokens.shape[0]} tokens: what is of no sequence"
                              " has no answer; let offsets begin at 0 and end with the last token")


@torch.library.custom_op("vitune::packed_attention_or_torch", mutates_args=(), device_types="cuda")
def packed_attention_or_torch(q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor, offsets_k: Optional[Tensor], longest_q: Optional[int],
                              longest_k: Optional[int], causal: bool, scale: Optional[float]) -> Tensor:
    return _served(q, k, v, Offsets(offsets_q, offsets_q if offsets_k is None else offsets_k, longest_q, longest_k), causal, scale)


@torch.library.register_fake("vitune::packed_attention_or_torch")
def _(q, k, v, offsets_q, offsets_k, longest_q, longest_k, causal, scale):
    return q.new_empty(q.shape)


flops.know("packed_attention_or_torch")


def one_by_one(query: Tensor, key: Tensor, value: Tensor, offsets: Offsets, dropout: float, is_causal: bool,
               scale: Optional[float]) -> Tensor:
    """The same by PyTorch, a call for each sequence."""
    def split(tensor: Tensor, of: Tensor) -> Any:
        return tensor.transpose(0, 1).split(of.diff().tolist(), dim=1)

    outs = []
    for q, k, v in zip(split(query, offsets.of_q), split(key, offsets.of_k), split(value, offsets.of_k)):
        rows, keys = q.shape[1], k.shape[1]
        level = is_causal and rows != keys  # PyTorch's causal mask is level at the first row
        mask = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows) if level else None
        out = sdpa_dropin.original(q[None], k[None], v[None], mask, dropout, is_causal and not level, scale=scale,
                                   enable_gqa=q.shape[0] != k.shape[0])
        outs.append(out[0].transpose(0, 1))
    return torch.cat(outs)
