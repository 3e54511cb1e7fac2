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

PLAIN, PARAMETERS = attention_ops.PLAIN, attention_ops.PLAIN | {type(None)}
_SHAPES = frozenset((tuple, list, torch.Size))
_modes = torch._C._len_torch_function_stack
_is_autocast_enabled = torch.is_autocast_enabled


def trained(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: Any, rms: bool) -> Optional[Tensor]:
    """The norm, where grad mode is on and vitune serves it; else None."""
    if training.asked == training.NONE or training.asked == training.CAPTURED and not training.is_capturing():
        return None
    if type(x) not in PLAIN or type(weight) not in PARAMETERS or type(bias) not in PARAMETERS or type(eps) is not float:
        return None
    if type(shape) not in _SHAPES or not all(type(size) is int for size in shape):
        return None
    if not attention_ops.is_on_gpu(x) or x.is_nested or forward_ad._current_level >= 0 or _modes() and sdpa_dropin.is_overridden():
        return None
    if not attention_ops.may_launch_directly(x, x if weight is None else weight, x if bias is None else bias, None):
        return None
    try:
        return norm_autograd.norm(x, tuple(shape), weight, bias, eps, rms, not rms and _is_autocast_enabled("cuda"))
    except VituneError:
        return None
