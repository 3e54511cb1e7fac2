# python/vitune/_ops/norm_autograd.py -- Norms that train in eager mode: a node of autograd whose two passes are launches.
# SPDX-License-Identifier: Apache-2.0
"""The operators of norm_training.py without PyTorch's dispatch of Python operators, which costs several times as much as the launches.
What libvitune refuses is refused before anything is computed, the backward pass too: then a caller's own norm is PyTorch's."""
from __future__ import annotations

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.counters import counters
from .._runtime.errors import InvalidArgument, Unsupported, VituneError
from . import attention as attention_ops, norm as norm_ops, norm_training, problem_text, remembered

_layer_norm, _rms_norm = F.layer_norm, F.rms_norm  # not what vitune.torch.enabled() puts in their place

#: By what a call asks: the result's type, why not both passes can be served, or None where PyTorch's norm is another.
_answers = problem_text.Plans()
#: The two passes as the operators' library launches them; None without it.
_train, _backward = remembered.directly("norm_train"), remembered.directly("norm_backward")
_is_in_transform = torch._C._functorch.peek_interpreter_stack

DTYPES = frozenset((torch.bfloat16, torch.float16, torch.float32))


def norm(x: Tensor, shape: tuple[int, ...], weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool,
         autocast: bool) -> Optional[Tensor]:
    """The norm of a strided tensor over those last dimensions, contiguous and of PyTorch's type; None where no gradient is wanted or vitune has
    none of the kind. Raises VituneError where either pass is refused."""
    device = x.get_device()
    key = (x.shape, x.stride(), x.dtype, x.requires_grad, device, shape, None if weight is None else (weight.shape, weight.dtype, weight.requires_grad),
           None if bias is None else (bias.shape, bias.dtype, bias.requires_grad), eps, rms, autocast, attention_ops.context_of(device).refreshes)
    answer = _answers.of(key, lambda: (_answer(x, shape, weight, bias, eps, rms, autocast),))[0]
    if answer is None:
        return None
    if isinstance(answer, VituneError):
        raise type(answer)(str(answer))
    return _Norm.apply(x, weight, bias, eps, rms, answer)


def _answer(x: Tensor, shape: tuple[int, ...], weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool,
            autocast: bool) -> torch.dtype | VituneError | None:
    given = [tensor for tensor in (weight, bias) if tensor is not None]
    types = {tensor.dtype for tensor in given}
    if x.dtype not in DTYPES or shape != tuple(x.shape[-1:]) or not any(tensor.requires_grad for tensor in (x, *given)):
        return None
    if len(types) > 1 or not types <= ({x.dtype} if rms else {x.dtype, torch.float32}):
        return None
    out_dtype = torch.float32 if autocast else x.dtype
    return _refusal(x, weight, bias, eps, rms, out_dtype) or out_dtype


def _refusal(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool,
             out_dtype: torch.dtype) -> Optional[VituneError]:
    """Why such calls are not served; else prepares both passes. Raises what a later call may not meet."""
    try:
        norm_ops.check(x, None, weight, bias)
        if x.numel() == 0:
            return Unsupported("there is no row")
        dweight, dbias = (tensor is not None and tensor.requires_grad for tensor in (weight, bias))
        forward = norm_ops._plan_of((norm_ops.rows(x), None, weight, bias), eps, rms, False, True, out_dtype).problem
        dy = torch.empty(x.shape, dtype=out_dtype, device="meta")
        backward = Problem(norm_training.backward_text(dy, x, weight, None, None, None, _parameters_type(x, weight, bias), dweight, dbias, rms))
        for problem in (forward, backward):
            attention_ops.context_of(x.get_device()).workspace_bytes(problem)  # prepares it, in a capture too
    except (InvalidArgument, Unsupported) as error:
        return type(error)(str(error))  # without its traceback, which would keep the tensors
    return None


def _parameters_type(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor]) -> torch.dtype:
    parameter = weight if weight is not None else bias
    return x.dtype if parameter is None else parameter.dtype


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool, out_dtype: torch.dtype) -> Tensor:
        out, mean, rstd = (_train or norm_training._norm)(x, weight, bias, eps, rms, out_dtype)
        counters.serve_norm()
        ctx.set_materialize_grads(False)
        ctx.words = eps, rms, out_dtype
        ctx.save_for_backward(x, weight, bias, None if rms else mean, rstd)
        return out

    @staticmethod
    def backward(ctx: Any, dy: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
        if dy is None:
            return (None,) * 6
        x, weight, bias, mean, rstd = ctx.saved_tensors
        wants, dweight, dbias, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled():  # create_graph: PyTorch's norms have second derivatives
            return *_by_pytorch(dy, (x, weight, bias), ctx.needs_input_grad, *ctx.words), None, None, None
        # Where several gradients come as one, or a compiler, a transform or a subclass is to see an operator, it does.
        backward = norm_training.norm_backward
        if type(dy) is Tensor and not attention_ops.is_batched(dy):
            if _backward is not None and _is_in_transform() is None:
                backward = _backward
            elif attention_ops.may_launch_directly(dy, x, rstd, weight):
                backward = norm_training.backward
        dx, _, dw, db = backward(dy, x, mean, rstd, weight, None, None, None, _parameters_type(x, weight, bias), dweight, dbias)
        return dx if wants else None, dw if dweight else None, db if dbias else None, None, None, None


def _by_pytorch(dy: Tensor, given: tuple[Optional[Tensor], ...], wants: tuple[bool, ...], eps: float, rms: bool,
                out_dtype: torch.dtype) -> tuple[Optional[Tensor], ...]:
    """The gradients as PyTorch computes them, with a graph of their own."""
    # Views: what these tensors are made of, another call's weight, say, gets its gradient from the graph outside.
    given = tuple(None if tensor is None else tensor.view_as(tensor) for tensor in given)
    asked = [tensor for tensor, wanted in zip(given, wants) if wanted]
    with torch.autocast(dy.device.type, enabled=False):
        x, weight, bias = (None if tensor is None else tensor.to(out_dtype) for tensor in given)
        out = _rms_norm(x, x.shape[-1:], weight, eps) if rms else _layer_norm(x, x.shape[-1:], weight, bias, eps)
        found = iter(torch.autograd.grad(out, asked, dy, create_graph=True))
    return tuple(next(found) if wanted else None for wanted in wants[:3])
