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
from . import attention as attention_ops, norm as norm_ops, norm_training, problem_text

_layer_norm, _rms_norm = F.layer_norm, F.rms_norm  # not what vitune.torch.enabled() puts in their place

#: By what a call asks: None where both passes can be served, else why not.
_answers = problem_text.Plans()


def norm(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool, out_dtype: torch.dtype) -> Tensor:
    """The norm over the last dimension, of which a gradient is wanted; contiguous. Raises VituneError where either pass is refused."""
    parameters = tuple(None if tensor is None else (tensor.dtype, tensor.requires_grad) for tensor in (weight, bias))
    device = x.get_device()
    key = x.shape, x.stride(), x.dtype, device, parameters, eps, rms, out_dtype, attention_ops.context_of(device).refreshes
    refusal = _answers.of(key, lambda: (_refusal(x, weight, bias, eps, rms, out_dtype),))[0]
    if refusal is not None:
        raise type(refusal)(str(refusal))
    return _Norm.apply(x, weight, bias, eps, rms, out_dtype)


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
        out, *statistics = norm_ops.run(x, None, weight, bias, eps, rms, False, True, out_dtype)
        counters.serve_norm()
        ctx.set_materialize_grads(False)
        ctx.words = eps, rms, out_dtype
        ctx.save_for_backward(x, weight, bias, *statistics)
        return out

    @staticmethod
    def backward(ctx: Any, dy: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
        if dy is None:
            return (None,) * 6
        x, weight, bias, *mean, rstd = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: PyTorch's norms have second derivatives
            return *_by_pytorch(dy, (x, weight, bias), ctx.needs_input_grad, *ctx.words), None, None, None
        wants, dweight, dbias = ctx.needs_input_grad[:3]
        given = (dy, x, mean[0] if mean else None, rstd, weight, None, None, None, _parameters_type(x, weight, bias), dweight, dbias)
        directly = not attention_ops.is_batched(dy) and attention_ops.may_launch_directly(dy, x, rstd, weight)
        backward = norm_training.backward if directly else norm_training.norm_backward
        dx, _, dw, db = backward(*given)
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
