# python/vitune/_dropin/padding.py -- A mask of padded images that knows where each one ends, so that packed attention answers in its place.
# SPDX-License-Identifier: Apache-2.0
"""NaFlex models pad images to one number of tokens and mask the rest. A batch [B, N] that is padded at the ends of its rows is one packed
sequence for each image and one for what follows it: no row is copied, and offsets take the place of a mask of N x N. Rows of padding then attend
to each other: what stands there is other garbage than by a mask."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .._ops import attention as attention_ops
from . import packed, sdpa as sdpa_dropin


class PaddingMask(Tensor):
    """An attention mask that hands its calls of scaled_dot_product_attention to packed attention. Whoever does anything else with it has a
    plain tensor, which may be written: from then on it is a plain mask for everybody."""

    offsets: Optional[packed.Offsets]
    plain: Tensor  #: the mask without what this one knows

    @classmethod
    def of(cls, mask: Tensor, valid: Tensor, longest: int) -> "PaddingMask":
        """mask: that of the batch, for anybody's use; valid: bool [B, N], each row True first; longest: at least the most of both kinds."""
        this = mask.as_subclass(cls)
        this.offsets, this.plain = offsets_of(valid, longest), mask
        return this

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        if function is sdpa_dropin.original:
            return _attend(*arguments, **keywords)
        replace = lambda given: _taken(given, function in _READS)  # noqa: E731
        return function(*map(replace, arguments), **{name: replace(given) for name, given in keywords.items()})


#: What tells of a mask and gives nothing by which it could be written.
_READS = frozenset((Tensor.dim, Tensor.size, Tensor.stride, Tensor.is_floating_point, Tensor.__len__, Tensor.numel,
                    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "layout", "is_cuda", "is_meta",
                                                                 "is_nested", "requires_grad"))))


def _taken(given: Any, only_read: bool) -> Any:
    """What stands for an argument of somebody's."""
    if type(given) in (tuple, list):
        return type(given)(_taken(part, only_read) for part in given)
    if not isinstance(given, PaddingMask):
        return given
    if not only_read:
        given.offsets = None
    return given.plain


def offsets_of(valid: Tensor, longest: int) -> packed.Offsets:
    """Of images and of what follows each, in a batch [B, N]. Reads nothing on the host."""
    batch, rows = valid.shape
    begins = torch.arange(batch, dtype=torch.int32, device=valid.device) * rows
    ends = begins + valid.sum(1, dtype=torch.int32)
    offsets = torch.cat([torch.stack([begins, ends], 1).flatten(), begins.new_full((1,), batch * rows)])
    return packed.Offsets(offsets, offsets, longest, longest)


class Padded(NamedTuple):
    """What a batch's padding looks like, read from the device at once."""

    at_ends: bool  # each row is valid first and padding then
    least: int  # valid tokens of a row
    most: int

    @classmethod
    def of(cls, valid: Tensor) -> "Padded":
        lengths = valid.sum(1)
        at_ends = (valid == (torch.arange(valid.shape[1], device=valid.device) < lengths[:, None])).all()
        least, most, at_ends = torch.stack([lengths.min(), lengths.max(), at_ends.long()]).tolist()
        return cls(bool(at_ends), least, most)


def masked(valid: Tensor, make: Callable[[], Tensor]) -> Optional[Tensor]:
    """make()'s mask of a batch of which `valid`, bool [B, N], is not padding: as a PaddingMask where padding is at the ends of rows, and none where
    nothing is padded."""
    if not valid.numel() or not may_look(valid):
        return make()
    padded, rows = Padded.of(valid), valid.shape[1]
    if padded.least == rows:
        return None
    return PaddingMask.of(make(), valid, max(padded.most, rows - padded.least)) if padded.at_ends else make()


def naflex_mask(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """timm.models.naflexvit.create_attention_mask() with what padding tells."""
    def create_attention_mask(patch_valid: Optional[Tensor], num_prefix_tokens: int = 0, *arguments: Any, **keywords: Any) -> Optional[Tensor]:
        of_others = len(arguments) > 1 or keywords.get("q_len") not in (None, 1)  # of queries that are no patches
        if patch_valid is None or of_others or torch.compiler.is_compiling():
            return theirs(patch_valid, num_prefix_tokens, *arguments, **keywords)
        valid = torch.nn.functional.pad(patch_valid.bool(), (num_prefix_tokens, 0), value=True)
        return masked(valid, lambda: theirs(patch_valid, num_prefix_tokens, *arguments, **keywords))
    return create_attention_mask


def may_look(valid: Tensor) -> bool:
    """Whether the host may read the device now: neither a compiler nor a CUDA graph is at work."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or valid.is_meta or type(valid) is not Tensor:
        return False
    return not (valid.is_cuda and torch.cuda.is_current_stream_capturing())


def _folded(tensor: Tensor) -> Optional[Tensor]:
    """[B, heads, N, d] as [B N, heads, d], where no row has to be copied."""
    batch, _, rows, _ = tensor.shape
    if batch > 1 and tensor.stride(0) != rows * tensor.stride(2):
        return None
    return tensor.transpose(1, 2).flatten(0, 1)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: PaddingMask, dropout: float, scale: Optional[float]) -> Optional[Tensor]:
    """The answer [B, heads, N, d] by packed attention; None where only the mask will do."""
    # The mask may be another one when a compiler's or a CUDA graph runs.
    if not may_look(query) or not query.dim() == key.dim() == value.dim() == 4:
        return None
    batch, heads, rows, d = query.shape
    offsets = mask.offsets
    if offsets is None or mask.shape[0] != batch or mask.shape[2] not in (1, rows) or mask.shape[3] != rows:
        return None
    if any((each.shape[0], each.shape[2]) != (batch, rows) for each in (key, value)):
        return None
    if attention_ops.needs_gradient(query, key, value, None) or sdpa_dropin.reason(query, key, value, None, dropout) is not None:
        return None
    folded = [_folded(tensor) for tensor in (query, key, value)]
    if any(tensor is None for tensor in folded):
        return None
    return packed.attend(*folded, offsets, dropout, False, scale).view(batch, rows, heads, d).transpose(1, 2)


def _attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
            scale: Optional[float] = None, enable_gqa: bool = False) -> Tensor:
    if isinstance(attn_mask, PaddingMask):
        out = attend(query, key, value, attn_mask, dropout_p, scale) if sdpa_dropin.serving and not is_causal else None
        if out is not None:
            return out
        attn_mask = attn_mask.plain
    attention = sdpa_dropin.attention if sdpa_dropin.serving else sdpa_dropin.original
    return attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
