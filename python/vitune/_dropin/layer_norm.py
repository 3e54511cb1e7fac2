# python/vitune/_dropin/layer_norm.py -- What stands in for PyTorch's layer_norm while vitune is installed.
# SPDX-License-Identifier: Apache-2.0
"""In inference only where the operators' library is loaded: by ctypes a call would cost more than PyTorch's. What is not served is
PyTorch's, uncounted: whoever installs vitune asks for attention, and a norm is a gain on the way (lone_norms.py: without attention it may be none). Training:
norms.py."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._ops import attention as attention_ops, flops, norm_autograd, originals
from . import lone_norms, norms, sdpa as sdpa_dropin

original = originals.layer_norm
#: See sdpa_dropin.serving.
serving = False

_SERVED, _PARAMETERS = norm_autograd.DTYPES, norms.PARAMETERS
_is_tracing = torch.compiler.is_dynamo_compiling
_is_grad_enabled = torch.is_grad_enabled
_is_any_autocast_enabled = getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
_modes = torch._C._len_torch_function_stack
_transforms = torch._C._functorch.peek_interpreter_stack
#: True if the operators' library is there, which inference needs.
can_serve = attention_ops.library is not None
_call = None if attention_ops.library is None else torch.ops.vitune.layer_norm_or_torch.default._op


def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5) -> Tensor:
    """layer_norm, served by vitune where it can: over the last dimension; in inference outside of autocast (which has fp32 results)."""
    if _is_grad_enabled():
        if norms.serving and not _is_tracing():
            out = norms.trained(input, normalized_shape, weight, bias, eps, False)
            if out is not None:
                return out
    elif (serving and type(input) is Tensor and not _is_tracing() and type(normalized_shape) is tuple
            and (input.is_cuda or attention_ops.is_on_gpu(input)) and input.dtype in _SERVED
            and forward_ad._current_level < 0 and type(weight) in _PARAMETERS and type(bias) in _PARAMETERS
            and not _is_any_autocast_enabled() and _transforms() is None and not input.is_nested
            and input.shape[-1:] == normalized_shape and type(normalized_shape[-1]) is int and (not _modes() or not sdpa_dropin.is_overridden())):
        lone_norms.left -= 1
        if lone_norms.left <= 0:
            lone_norms.look(input)
        try:
            return _call(input, weight, bias, eps)
        except RuntimeError:
            pass  # PyTorch refused: below it says why in its own words
    return original(input, normalized_shape, weight, bias, eps)


if can_serve:
    @torch.library.register_fake("vitune::layer_norm_or_torch")
    def _(x, weight=None, bias=None, eps=1e-5):
        return x.new_empty(x.shape)

    flops.know("layer_norm_or_torch")

# torch.jit.script compiles what it finds under a name: for it ours is the same operator.
torch.jit._builtins._register_builtin(layer_norm, "aten::layer_norm")
