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

from . import _torch_sdpa

__all__ = ["NAME", "attention", "register"]

NAME = "vitune"


def register() -> None:
    """Makes "vitune" a value of attn_implementation, with the masks of "sdpa". May be called again."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor],
              dropout: float = 0.0, scaling: Optional[float] = None, is_causal: Optional[bool] = None,
              **others: Any) -> tuple[Tensor, None]:
    """What transformers calls: query [B, heads, nq, d], key and value [B, kv heads, nk, d]; returns ([B, nq, heads, d], None)."""
    if torch.jit.is_tracing() or any(others.get(name) is not None for name in ("softcap", "position_bias", "cache")):
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                      is_causal=is_causal, **others)
    wanted = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    causal = bool(query.shape[2] > 1 and attention_mask is None and wanted)
    out = _torch_sdpa.attend(query, key, value, attention_mask, dropout, causal, scaling, query.shape[1] != key.shape[1])
    return out.transpose(1, 2).contiguous(), None
