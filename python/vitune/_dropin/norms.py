# python/vitune/_dropin/norms.py -- Norms that need a gradient while vitune is installed: which are served.
# SPDX-License-Identifier: Apache-2.0
"""What is not served is PyTorch's, uncounted, as in inference."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._ops import attention as attention_ops, norm_autograd
from .._runtime.errors import VituneError
from . import sdpa as sdpa_dropin, training

#: See sdpa_dropin.serving.
serving = False

DTYPES = frozenset((torch.bfloat16, torch.float16, torch.float32))
PARAMETERS = frozenset((Tensor, torch.nn.Parameter, type(None)))


def trained(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: Any, rms: bool) -> Optional[Tensor]:
    """The norm, where grad mode is on and vitune serves it; else None."""
    if not serving or training.asked == training.NONE or training.asked == training.CAPTURED and not training.is_capturing():
        return None
    out_dtype = _result_type(x, shape, weight, bias, eps, rms)
    if out_dtype is None:
        return None
    try:
        return norm_autograd.norm(x, weight, bias, eps, rms, out_dtype)
    except VituneError:
        return None


def _result_type(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: Any, rms: bool) -> Optional[torch.dtype]:
    """PyTorch's type of the result; None where it is to make it."""
    if type(x) not in attention_ops.PLAIN or type(weight) not in PARAMETERS or type(bias) not in PARAMETERS or type(eps) is not float:
        return None
    needs = x.requires_grad or weight is not None and weight.requires_grad or bias is not None and bias.requires_grad
    if not needs or not attention_ops.is_on_gpu(x) or x.is_nested or x.dtype not in DTYPES or tuple(shape) != tuple(x.shape[-1:]):
        return None
    types = {tensor.dtype for tensor in (weight, bias) if tensor is not None}
    if len(types) > 1 or not types <= ({x.dtype} if rms else {x.dtype, torch.float32}):
        return None
    if forward_ad._current_level >= 0 or sdpa_dropin.is_overridden() or not _is_plain(x, weight, bias):
        return None
    return torch.float32 if not rms and torch.is_autocast_enabled("cuda") else x.dtype


def _is_plain(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor]) -> bool:
    parameters = [tensor for tensor in (weight, bias) if tensor is not None]
    return attention_ops.may_launch_directly(x, x, x, None) and not any(tensor.is_neg() for tensor in parameters)
