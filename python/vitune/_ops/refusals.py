# python/vitune/_ops/refusals.py -- Why types and shapes alone rule vitune's attention out.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import attention as attention_ops


def reason(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], dropout_p: float) -> Optional[str]:
    """Of a call whose result needs no gradient; None: nothing rules it out."""
    return of_tensors(q, k, v, mask, dropout_p) or of_types(q, k, v, mask)


def of_tensors(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], dropout_p: float) -> Optional[str]:
    """What no question about gradients comes before: tensors of other classes or devices, dropout."""
    for tensor in (q, k, v, mask):
        if tensor is not None and (tensor.is_nested or (type(tensor) is not Tensor and is_traceable_wrapper_subclass(tensor))):
            return f"a tensor of class {type(tensor).__name__}"
    if not attention_ops.is_on_gpu(q):
        return f"device {q.device.type}"
    return "dropout" if dropout_p != 0 else None


def of_types(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor]) -> Optional[str]:
    """What comes after it."""
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        return "inside torch.func (vmap and others)"
    if attention_ops.math_alone():
        return attention_ops.MATH_ALONE
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, q.dtype):
        return f"attn_mask of dtype {str(mask.dtype).removeprefix('torch.')}"
    if q.dtype not in (torch.bfloat16, torch.float16):
        return f"dtype {str(q.dtype).removeprefix('torch.')}: the kernels take bfloat16 and float16"
    if not q.dim() == k.dim() == v.dim():
        return f"q, k and v have the ranks {q.dim()}, {k.dim()} and {v.dim()}: they must agree"
    d = q.shape[-1]
    if v.shape[-1] != d:  # PyTorch's result has v's, which is not what a compiler would be told
        return f"v has head size {v.shape[-1]} and q {d}: the kernels need one head size"
    if d > 128:
        return f"head size {d} is above 128"
    if d % 8:
        return f"head size {d} is no multiple of 8"
    return None
