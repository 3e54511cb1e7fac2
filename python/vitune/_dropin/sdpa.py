# python/vitune/_dropin/sdpa.py -- What stands in for PyTorch's scaled_dot_product_attention while vitune is installed.
# SPDX-License-Identifier: Apache-2.0
"""Decides by types and shapes, does what autocast would have done, and hands the rest to PyTorch, counted by reason."""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import has_torch_function
from torch.utils._device import DeviceContext

from .._ops import attention as attention_ops, attention_autograd, order as result_order, originals, refusals
from .._ops.order import TORCHS
from .._runtime.counters import counters
from .._runtime.errors import InvalidArgument, Unsupported, VituneError, reason_of
from . import lone_norms, training

original = originals.attention
#: True if the process wants to be served. What was made of `attention` meanwhile (a partial, a closure, an attribute of
#: a model) lives longer than that. Compilers guard it.
serving = False


COMPILED = "requires_grad in a model that is compiled or traced: vitune.compile(model, training=True) serves it"


@torch.compiler.assume_constant_result
def fall_back(reason: str) -> bool:
    # While a model is compiled this runs once, at that time: a graph has no place for warnings.
    counters.fall_back(reason)
    return True


def reason(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], dropout_p: float,
           trains: Optional[int] = None) -> Optional[str]:
    """Why types and shapes alone rule vitune out; None if they do not. trains: as of attend()."""
    return (refusals.of_tensors(q, k, v, mask, dropout_p) or _of_gradient(q, k, v, mask, trains) or refusals.of_types(q, k, v, mask))


def _of_gradient(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], trains: Optional[int]) -> Optional[str]:
    if not attention_ops.needs_gradient(q, k, v, mask):
        return None
    if attention_ops.has_tangent(q, k, v, mask):
        return "forward-mode AD: vitune has no derivative"
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return COMPILED
    rows = [tensor.shape[-2] if tensor.dim() > 1 else 0 for tensor in (q, k)]
    return training.reason(training.asked if trains is None else trains, *rows)


def _autocast(tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype("cuda"))


def cast(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor]) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
    """What autocast makes of them. A bias of fp32 stays as it is: the kernels read it."""
    if torch.is_autocast_enabled("cuda") and attention_ops.is_on_gpu(q):
        mask = mask if mask is None or mask.dtype is torch.float32 else _autocast(mask)
        return _autocast(q), _autocast(k), _autocast(v), mask
    return q, k, v, mask


_modes = torch._C._len_torch_function_stack
_mode_at = torch._C._get_function_stack_at


def is_overridden(*tensors: Any) -> bool:
    """Whether a torch_function mode of somebody's, or a subclass of Tensor, is to see this call as PyTorch's."""
    if torch.compiler.is_compiling():  # whose own modes these are
        return False
    # A default device is a mode too, which changes what makes tensors alone.
    if any(type(_mode_at(place)) is not DeviceContext for place in range(_modes())):
        return True
    return has_torch_function(tensors)


_SERVED = frozenset((torch.bfloat16, torch.float16))
_PLAIN = attention_ops.PLAIN
_is_tracing = torch.compiler.is_dynamo_compiling  # all other compilers bring tensors of other classes
_is_grad_enabled = torch.is_grad_enabled
_is_any_autocast_enabled = getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
_transforms = torch._C._functorch.peek_interpreter_stack
_efficient_allowed = torch._C._get_mem_efficient_sdp_enabled
_NUMBERS = frozenset((float, int, bool))
_MASKS = frozenset((torch.bool, torch.float32))
_call_attend_or_torch = getattr(attention_ops, "call_attend_or_torch", None)


def is_usual(q: Any) -> bool:
    """Whether neither what PyTorch does at the moment nor q, but for its shape, is a reason against vitune, nor for a cast:
    asked in as little time as can be."""
    return (serving and type(q) in _PLAIN and not _is_tracing() and q.dtype in _SERVED and not q.is_nested
            and (q.is_cuda or attention_ops.is_on_gpu(q)) and not _is_grad_enabled() and forward_ad._current_level < 0
            and not _is_any_autocast_enabled() and _transforms() is None and not attention_ops.math_alone())


def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
              is_causal: bool = False, *, scale: Optional[float] = None, enable_gqa: bool = False) -> Tensor:
    """scaled_dot_product_attention, served by vitune where it can."""
    # The usual call, for which reason() would have nothing to say and cast() nothing to do but for shapes, at which the
    # operators' library looks. Each question costs a fiftieth of the call: none is asked twice, none by a function of ours.
    if (serving and type(query) is type(key) is type(value) is Tensor and (attn_mask is None or type(attn_mask) is Tensor)
            and _call_attend_or_torch is not None and not _is_tracing() and (query.is_cuda or attention_ops.is_on_gpu(query))
            and query.dtype in _SERVED and not _is_grad_enabled() and forward_ad._current_level < 0
            and type(dropout_p) in _NUMBERS and not dropout_p and not _is_any_autocast_enabled() and _transforms() is None
            and _efficient_allowed() and not query.is_nested  # else the order of the result has to be asked for
            and (not _modes() or not is_overridden())):
        if lone_norms.aside:
            lone_norms.look_for_attention()
        if attn_mask is None or attn_mask.dtype is query.dtype or attn_mask.dtype in _MASKS:
            try:
                if scale is None and is_causal is False and enable_gqa is False:
                    if attn_mask is None:
                        return _call_attend_or_torch(query, key, value)
                    return _call_attend_or_torch(query, key, value, attn_mask)
                if type(is_causal) is bool and type(enable_gqa) is bool and (scale is None or type(scale) is float):
                    return attention_ops.call_operator(query, key, value, attn_mask, is_causal, scale, enable_gqa, True)
            except RuntimeError:  # PyTorch says why in its own words
                return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if (not serving or not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor))  # proxies of torch.fx
            or is_overridden(query, key, value, attn_mask)):
        return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if not _is_tracing() and lone_norms.aside:
        lone_norms.look_for_attention()
    return attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: float, is_causal: bool,
           scale: Optional[float], enable_gqa: bool, order: int = TORCHS, trains: Optional[int] = None) -> Tensor:
    """The same, whether or not vitune is installed; what vitune serves lies in that order (_ops/order.py). trains: which calls that need a
    gradient are served (training.py); None: those that whoever installed vitune asked for."""
    why_not = attention_ops.odd_kind(attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if why_not is None:
        query, key, value, attn_mask = cast(query, key, value, attn_mask)
        why_not = reason(query, key, value, attn_mask, dropout_p, trains)
    if why_not is None and attention_ops.needs_gradient(query, key, value, attn_mask):
        try:
            return _attend_with_gradient(query, key, value, attn_mask, is_causal, scale, enable_gqa, order)
        except VituneError as error:
            why_not = reason_of(error)
    if why_not is not None:
        fall_back(why_not)
        return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if attention_ops.may_launch_directly(query, key, value, attn_mask):
        return attention_ops.run_or_fall_back(query, key, value, attn_mask, is_causal, scale, enable_gqa, order)
    if order == TORCHS and torch.compiler.is_compiling():
        order = result_order.while_compiling(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return attention_ops.attention_op(query, key, value, attn_mask, is_causal, scale, enable_gqa, True, order)


def _attend_with_gradient(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                          enable_gqa: bool, order: int) -> Tensor:
    if result_order.repeats(attn_mask, query):
        raise InvalidArgument(f"attn_mask of shape {list(attn_mask.shape)} does not broadcast to the batch of {query.shape[0]}")
    if not enable_gqa and query.dim() == key.dim() == 4 and query.shape[1] != key.shape[1]:
        raise Unsupported("heads that are broadcast, where a gradient is wanted")
    return attention_autograd.attend(query, key, value, attn_mask, is_causal, scale, order)[0]


# torch.jit.script compiles what it finds under a name: for it ours is the same operator.
torch.jit._builtins._register_builtin(attention, "aten::scaled_dot_product_attention")
