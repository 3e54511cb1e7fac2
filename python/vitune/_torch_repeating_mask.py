# python/vitune/_torch_repeating_mask.py -- Attention whose mask repeats over the batch: the operator vitune::attention_repeating_mask.
# SPDX-License-Identifier: Apache-2.0
"""What vitune.compile() puts where a model repeats the masks of its windows for every image, and the windows lie there already:
entry i % w of the mask belongs to batch entry i."""
from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from . import _torch_flops, _torch_op
from ._counters import counters
from ._errors import VituneError


@torch.library.custom_op("vitune::attention_repeating_mask", mutates_args=(), device_types="cuda")
def attention_repeating_mask_op(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, scale: Optional[float]) -> Tensor:
    try:
        if not _torch_op.math_alone():
            return _torch_op.run(q, k, v, attn_mask, False, scale, False, False, True, _torch_op.ROWS)[0]
        counters.fall_back(_torch_op.MATH_ALONE)
    except VituneError as error:
        counters.fall_back(_torch_op.reason_of(error))
    every = attn_mask.repeat(q.shape[0] // attn_mask.shape[0], 1, 1, 1)
    out = _torch_op.torch_attention(q, k, v, every, False, scale, False)
    return _torch_op.as_promised(out, _torch_op.ROWS, q, k, v)


@torch.library.register_fake("vitune::attention_repeating_mask")
def _(q, k, v, attn_mask, scale):
    return _torch_op.empty_result(q, k, v, attn_mask, False, scale, False, _torch_op.ROWS)


_torch_flops.know("attention_repeating_mask")
