# python/vitune/transformers.py -- attn_implementation="vitune" for models of the transformers library.
# SPDX-License-Identifier: Apache-2.0
"""A model's own choice, without changing PyTorch for others::

    vitune.transformers.register()
    model = AutoModel.from_pretrained(name, attn_implementation="vitune")

Calls that vitune cannot serve go to PyTorch's implementation, counted in vitune.torch.stats(). Vision towers of OFFSETS hand their
images over side by side, with offsets, as they do to flash attention; those of PADDED attend without a mask of N x N.
"""
from __future__ import annotations

import inspect
from typing import Any, Optional

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.utils import generic

from ._dropin import packed, padding, sdpa as sdpa_dropin, training as training_dropin
from ._dropin.install import Names
from ._ops import order as result_order, packed_attention as packed_ops
from ._runtime.counters import counters

__all__ = ["NAME", "OFFSETS", "PADDED", "attention", "register"]

NAME = "vitune"
#: model_type of the vision towers that hand over offsets (cu_seqlens) to "vitune".
OFFSETS = frozenset(("qwen2_vl_vision", "qwen2_5_vl_vision", "qwen3_vl_vision", "qwen3_vl_moe_vision", "glm4v_vision", "glm4v_moe_vision"))
#: model_type of those that pad images to one number of tokens.
PADDED = frozenset(("siglip2_vision_model",))

_is_flash = getattr(generic, "is_flash_attention_requested", None)
_max_seqlen = getattr(generic, "get_max_seqlen", None)


_AS_BEFORE = object()
_asked = training_dropin.CAPTURED


def register(*, training: Any = _AS_BEFORE) -> None:
    """Makes "vitune" a value of attn_implementation, with the masks of "sdpa". May be called again.

    training: which calls that need a gradient are served, as of vitune.torch.install(): None, those that a CUDA graph captures, which is
    what holds at first; True, all; False, none. Without it the last one's holds.
    """
    global _asked
    if training is not _AS_BEFORE:
        _asked = training_dropin.asked_by(training)
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    for names in _names:
        names.bind()


def _takes_offsets(config: Any) -> bool:
    return getattr(config, "_attn_implementation", None) == NAME and getattr(config, "model_type", None) in OFFSETS


def is_flash_attention_requested(config: Any = None, *arguments: Any, **keywords: Any) -> bool:
    """transformers' question whether offsets may be handed over; "vitune" is no flash attention elsewhere."""
    return _takes_offsets(config) or _is_flash(config, *arguments, **keywords)


def get_max_seqlen(cu_seqlens: Tensor, config: Any, kwargs: Optional[dict[str, Any]] = None, kwarg_name: str = "max_seqlen") -> Optional[int]:
    """transformers' greatest length, as a bound that is the same for many lengths: one read of the device for each pass, and none where a caller
    gives max_seqlen, a compiler is at work or a CUDA graph is captured: there it is None, any length."""
    if not _takes_offsets(config):
        return _max_seqlen(cu_seqlens, config, kwargs, kwarg_name)
    if (kwargs is None or kwargs.get(kwarg_name) is None) and not padding.may_look(cu_seqlens):
        return None
    longest = _max_seqlen(cu_seqlens, config, kwargs, kwarg_name)
    return packed_ops.bucket(longest) if isinstance(longest, int) else None


#: Models import both functions by name; those that are loaded later find ours where they import them from.
_names = [Names(theirs, ours) for theirs, ours in ((_is_flash, is_flash_attention_requested), (_max_seqlen, get_max_seqlen))
          if _is_flash is not None and _max_seqlen is not None]


def mask(*sizes: Any, attention_mask: Optional[Tensor] = None, local_size: Optional[int] = None,
         allow_is_bidirectional_skip: bool = False, **others: Any) -> Optional[Tensor]:
    """sdpa_mask, but none at all where everybody sees everybody: some versions make one of True while a CUDA graph is captured."""
    if allow_is_bidirectional_skip and attention_mask is None and local_size is None:
        return None

    def make(skip: bool = False) -> Any:
        return sdpa_mask(*sizes, attention_mask=attention_mask, local_size=local_size, allow_is_bidirectional_skip=skip, **others)

    is_padded = attention_mask is not None and getattr(others.get("config"), "model_type", None) in PADDED
    if is_padded and allow_is_bidirectional_skip and attention_mask.dim() == 2 and others.get("q_length") == attention_mask.shape[1]:
        return padding.masked(attention_mask.bool(), make)
    return make(allow_is_bidirectional_skip)


def attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor],
              dropout: float = 0.0, scaling: Optional[float] = None, is_causal: Optional[bool] = None,
              **others: Any) -> tuple[Tensor, None]:
    """What transformers calls: query [B, heads, nq, d], key and value [B, kv heads, nk, d]; returns ([B, nq, heads, d], None). With offsets
    (cu_seq_lens_q) and without a mask B is 1, and each sequence attends to itself."""
    wanted = bool(is_causal if is_causal is not None else getattr(module, "is_causal", True))
    odd = any(others.get(name) is not None for name in ("softcap", "position_bias", "cache"))
    if attention_mask is None and others.get("cu_seq_lens_q") is not None and query.shape[0] == 1 and not odd:
        return _packed(query, key, value, dropout, scaling, wanted, **others)[None], None
    if type(attention_mask) is padding.PaddingMask:
        out = padding.attend(query, key, value, attention_mask, dropout, scaling)
        if out is not None:
            return out.transpose(1, 2), None
        attention_mask = attention_mask.plain
    if odd or torch.jit.is_tracing():
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                      is_causal=is_causal, **others)
    if not torch.compiler.is_compiling():
        _say_if_split(type(module))
    causal = bool(query.shape[2] > 1 and attention_mask is None and wanted)
    out = sdpa_dropin.attend(query, key, value, attention_mask, dropout, causal, scaling, query.shape[1] != key.shape[1],
                             result_order.ROWS, _asked)  # its transpose is contiguous
    return out.transpose(1, 2).contiguous(), None


def _packed(query: Tensor, key: Tensor, value: Tensor, dropout: float, scaling: Optional[float], is_causal: bool, *, cu_seq_lens_q: Tensor,
            cu_seq_lens_k: Optional[Tensor] = None, max_length_q: Any = None, max_length_k: Any = None, **_: Any) -> Tensor:
    tokens = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
    offsets = packed.Offsets.handed_over(cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
    attend = packed.one_by_one if torch.jit.is_tracing() else packed.attend
    return attend(*tokens, offsets, dropout, is_causal, scaling)


_looked_at: set[type] = set()


def _say_if_split(kind: type) -> None:
    """Warns once of each class that has offsets and keeps them to itself."""
    if kind in _looked_at:
        return
    _looked_at.add(kind)
    if "cu_seqlens" in inspect.signature(kind.forward).parameters:
        counters.warn_once(f"{kind.__module__}.{kind.__qualname__} hands no offsets over to attn_implementation=\"vitune\": each of its sequences"
                           " is a call of its own, and the host waits for their lengths. vitune.transformers.OFFSETS names the towers that do")
