# python/vitune/transformers.py -- attn_implementation="vitune" for models of the transformers library.
# SPDX-License-Identifier: Apache-2.0
"""A model's own choice, without changing PyTorch for others::

    vitune.transformers.register()
    model = AutoModel.from_pretrained(name, attn_implementation="vitune")

Calls that vitune cannot serve go to PyTorch's implementation, counted in vitune.torch.stats().
"""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ._dropin import sdpa as sdpa_dropin
from ._ops import order as result_order

__all__ = ["NAME", "attention", "register"]

NAME = "vitune"


def register() -> None:
    """Makes "vitune" a value of attn_implementation, with the masks of "sdpa". May be called again."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)


def mask(*sizes: Any, attention_mask: Optional[Tensor] = None, local_size: Optional[int] = None,
         allow_is_bidirectional_skip: bool = False, **others: Any) -> Optional[Tensor]:
    """sdpa_mask, but none at all where everybody sees everybody: some versions make one of True while a CUDA graph is captured."""
    if allow_is_bidirectional_skip and attention_mask is None and local_size is None:
        return None
    return sdpa_mask(*sizes, attention_mask=attention_mask, local_size=local_size,
                     allow_is_bidirectional_skip=allow_is_bidirectional_skip, **others)


def attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor],
              dropout: float = 0.0, scaling: Optional[float] = None, is_causal: Optional[bool] = None,
              **others: Any) -> tuple[Tensor, None]:
    """What transformers calls: query [B, heads, nq, d], key and value [B, kv heads, nk, d]; returns ([B, nq, heads, d], None)."""
    if torch.jit.is_tracing() or any(others.get(name) is not None for name in ("softcap", "position_bias", "cache")):
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                      is_causal=is_causal, **others)
    wanted = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    causal = bool(query.shape[2] > 1 and attention_mask is None and wanted)
    out = sdpa_dropin.attend(query, key, value, attention_mask, dropout, causal, scaling, query.shape[1] != key.shape[1],
                             result_order.ROWS)  # its transpose is contiguous
    return out.transpose(1, 2).contiguous(), None
