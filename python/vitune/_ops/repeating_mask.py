# python/vitune/_ops/repeating_mask.py -- Attention whose mask repeats over the batch: the operator vitune::attention_repeating_mask.
# SPDX-License-Identifier: Apache-2.0
"""What vitune.compile() puts where a model repeats the masks of its windows for every image, and the windows lie there already:
entry i % w of the mask belongs to batch entry i."""
from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from .._runtime.counters import counters
from .._runtime.errors import VituneError, reason_of
from . import attention as attention_ops, flops
from .order import ROWS, empty_result


@torch.library.custom_op("vitune::attention_repeating_mask", mutates_args=(), device_types="cuda")
def attention_repeating_mask_op(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, scale: Optional[float]) -> Tensor:
    try:
        if not attention_ops.math_alone():
            return attention_ops.run(q, k, v, attn_mask, False, scale, False, False, True, ROWS)[0]
        counters.fall_back(attention_ops.MATH_ALONE)
    except VituneError as error:
        counters.fall_back(reason_of(error))
    every = attn_mask.repeat(q.shape[0] // attn_mask.shape[0], 1, 1, 1)
    out = attention_ops.torch_attention(q, k, v, every, False, scale, False)
    return attention_ops.as_promised(out, ROWS, q, k, v)


@torch.library.register_fake("vitune::attention_repeating_mask")
def _(q, k, v, attn_mask, scale):
    return empty_result(q, k, v, attn_mask, False, scale, False, ROWS)


flops.know("attention_repeating_mask")
