# python/vitune/_dropin/rms_norm.py -- What stands in for PyTorch's rms_norm while vitune is installed: in training alone.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch
from torch import Tensor

from .._ops import norm as norm_ops, originals
from . import norms

original = originals.rms_norm

_is_tracing = torch.compiler.is_dynamo_compiling
_is_grad_enabled = torch.is_grad_enabled


def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Optional[Tensor] = None, eps: Optional[float] = None) -> Tensor:
    """rms_norm, served by vitune where a gradient is wanted and it can: over the last dimension."""
    if norms.serving and _is_grad_enabled() and not _is_tracing():
        out = norms.trained(input, normalized_shape, weight, None, norm_ops.RMS_EPS if eps is None else eps, True)
        if out is not None:
            return out
    return original(input, normalized_shape, weight, eps)


# torch.jit.script compiles what it finds under a name: for it ours is the same operator.
torch.jit._builtins._register_builtin(rms_norm, "aten::rms_norm")
