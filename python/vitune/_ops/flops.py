# python/vitune/_ops/flops.py -- How many operations calls of vitune's operators are, for torch.utils.flop_counter.
# SPDX-License-Identifier: Apache-2.0
"""Counted as PyTorch counts its own: two for each product of a matrix multiplication, none for norms, activations and sums, and
causal attention as if it were not. Whoever answers a call, vitune or PyTorch, it counts once. PyTorch's analysis of profiles uses the
same formulas."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from .layout import output_shape


def _attention(q: Sequence[int], k: Sequence[int], v: Sequence[int], *_: Any, **__: Any) -> int:
    heads = math.prod(output_shape(q, k, v)[:-2])
    return 2 * heads * q[-2] * k[-2] * (q[-1] + v[-1])


def _attention_backward(_: Any, q: Sequence[int], k: Sequence[int], v: Sequence[int], *__: Any, **___: Any) -> int:
    # Scores once more, and the gradients of weights, values, queries and keys.
    return math.prod(q[:-1]) * k[-2] * (6 * q[-1] + 4 * v[-1])


def _qkv(qkv: Sequence[int], *_: Any, **__: Any) -> int:
    batch, rows, _, heads, d = qkv
    return 4 * batch * heads * rows * rows * d


def _qkv_backward(_: Any, qkv: Sequence[int], *__: Any, **___: Any) -> int:
    return _qkv(qkv) * 5 // 2


def _windows(qkv: Sequence[int], window: Sequence[int], *_: Any, **__: Any) -> int:
    images, channels, pixels = qkv[0], math.prod(qkv[3:]) // 3, math.prod(window)
    windows = math.prod(-(-extent // size) for extent, size in zip(qkv[1:3], window))
    return 4 * images * windows * pixels * pixels * channels


def _windows_backward(_: Any, qkv: Sequence[int], window: Sequence[int], *__: Any, **___: Any) -> int:
    return _windows(qkv, window) * 5 // 2


def _packed(q: Sequence[int], k: Sequence[int], v: Sequence[int], offsets: Sequence[int], *_: Any, **__: Any) -> int:
    # Lengths are on the device: as if sequences had equal ones.
    return 4 * q[0] * q[1] * q[2] * k[0] // max(offsets[0] - 1, 1)


def _linear(x: Sequence[int], weight: Sequence[int], *_: Any, **__: Any) -> int:
    return 2 * math.prod(x) * weight[0]


def _act_linear(pre: Sequence[int], *layer: Any, **__: Any) -> int:
    return _linear(*layer[:2])


def _input_grad(dy: Sequence[int], weight: Sequence[int], *_: Any, **__: Any) -> int:
    return 2 * math.prod(dy) * weight[1]


def _weight_grad(dy: Sequence[int], x: Sequence[int], *_: Any, **__: Any) -> int:
    return 2 * math.prod(dy) * x[-1]


def _nothing(*_: Any, **__: Any) -> int:
    return 0


#: By operator: one that is not here is counted by what PyTorch's own operators in it are, of which there are none.
FORMULAS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("attention", "attention_lse", "attend", "attend_or_torch", "attention_repeating_mask"), _attention),
    **dict.fromkeys(("attention_train", "attention_dropout_train"), _attention),
    **dict.fromkeys(("attention_qkv_train", "attention_qkv_dropout_train"), _qkv),
    **dict.fromkeys(("attention_backward", "attention_dropout_backward"), _attention_backward),
    **dict.fromkeys(("attention_qkv_backward", "attention_qkv_dropout_backward"), _qkv_backward),
    **dict.fromkeys(("window_attention", "window_attention_train"), _windows),
    "window_attention_backward": _windows_backward,
    **dict.fromkeys(("packed_attention", "packed_attention_or_torch"), _packed),
    **dict.fromkeys(("linear", "linear_or_torch", "linear_with_moments_or_torch", "linear_by_moments_or_torch", "linear_train",
                     "linear_act_train"), _linear),
    "act_linear_train": _act_linear,
    **dict.fromkeys(("linear_input_grad", "linear_act_input_grad"), _input_grad),
    **dict.fromkeys(("linear_weight_grad", "linear_scale_weight_grad"), _weight_grad),
    **dict.fromkeys(("norm", "norm_train", "sum_norm_train", "norm_backward", "group_norm", "layer_norm_or_torch", "empty_as_torchs",
                     "max_pool_train", "max_pool_backward"), _nothing),
}


def know(*names: str, of: Any = torch.ops.vitune) -> None:
    """Registers the formulas of these operators of vitune's, which exist by now. of: their namespace."""
    for name in names:
        register_flop_formula(getattr(of, name))(FORMULAS[name])
