# python/vitune/_dropin/layers.py -- PyTorch's fused layers (nn.MultiheadAttention, nn.TransformerEncoderLayer), with vitune's attention.
# SPDX-License-Identifier: Apache-2.0
"""In inference these two run one C++ function each, which attends by itself. What stands in for it here does the same steps
with vitune's attention, and hands over to PyTorch's where that would not be served: a mask, weights wanted, types or shapes."""
from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .._ops import originals
from . import sdpa as sdpa_dropin

#: True if coverage() looks: it is to see every place that attends, served or not.
watched = False


def _is_served(x: Tensor, embed_dim: int, num_heads: int, plain: bool) -> bool:
    if not sdpa_dropin.serving or x.is_nested or x.dim() != 3:
        return False
    if plain and watched:
        return True
    d = embed_dim // num_heads
    if plain and d <= 128 and d % 8 == 0 and sdpa_dropin.is_usual(x):
        return True
    why_not = sdpa_dropin.reason(*[x[..., :d]] * 3, None, 0.0) if plain else "PyTorch's fused layer, with a mask or weights wanted"
    if why_not is not None:
        sdpa_dropin.fall_back(why_not)
    return why_not is None


def _attend(x: Tensor, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor) -> Tensor:
    batch, rows, width = x.shape
    packed = F.linear(x, qkv_weight, qkv_bias).view(batch, rows, 3, num_heads, width // num_heads)
    q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
    out = F.scaled_dot_product_attention(q, k, v)
    return F.linear(out.transpose(1, 2).reshape(batch, rows, width), proj_weight, proj_bias)


def heads(query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor, qkv_bias: Tensor,
          proj_weight: Tensor, proj_bias: Tensor, mask: Optional[Tensor] = None, need_weights: bool = True,
          average_attn_weights: bool = True, mask_type: Optional[int] = None) -> tuple[Tensor, Optional[Tensor]]:
    """torch._native_multi_head_attention."""
    plain = mask is None and not need_weights and query is key and key is value
    if not _is_served(query, embed_dim, num_head, plain):
        return originals.heads(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
                           need_weights, average_attn_weights, mask_type)
    return _attend(query, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias), None


def _feed_forward(x: Tensor, use_gelu: bool, weight_1: Tensor, bias_1: Tensor, weight_2: Tensor, bias_2: Tensor) -> Tensor:
    inner = torch._addmm_activation(bias_1, x.flatten(0, 1), weight_1.t(), use_gelu=use_gelu)
    return torch.addmm(bias_2, inner, weight_2.t()).view_as(x)


def layer(src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
          proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor, norm_bias_1: Tensor,
          norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor,
          ffn_bias_2: Tensor, mask: Optional[Tensor] = None, mask_type: Optional[int] = None) -> Tensor:
    """torch._transformer_encoder_layer_fwd."""
    heads_of = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    norm_1, norm_2 = (norm_weight_1, norm_bias_1, eps), (norm_weight_2, norm_bias_2, eps)
    feed = (use_gelu, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2)
    if not _is_served(src, embed_dim, num_heads, mask is None):
        return originals.encoder_layer(src, embed_dim, num_heads, *heads_of, use_gelu, norm_first, eps, norm_weight_1, norm_bias_1,
                           norm_weight_2, norm_bias_2, *feed[1:], mask, mask_type)
    width = (embed_dim,)
    if norm_first:
        x = src + _attend(F.layer_norm(src, width, *norm_1), num_heads, *heads_of)
        return x + _feed_forward(F.layer_norm(x, width, *norm_2), *feed)
    x = F.layer_norm(src + _attend(src, num_heads, *heads_of), width, *norm_1)
    return F.layer_norm(x + _feed_forward(x, *feed), width, *norm_2)
