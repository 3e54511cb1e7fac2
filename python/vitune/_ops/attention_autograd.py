# python/vitune/_ops/attention_autograd.py -- Attention that trains in eager mode: a node of autograd whose two passes are launches.
# SPDX-License-Identifier: Apache-2.0
"""The operators of attention_training.py without PyTorch's dispatch of Python operators, which costs several times as much as the launches.
What libvitune refuses is refused before anything is computed, the backward pass too: then a caller's attention is PyTorch's."""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.errors import InvalidArgument, Unsupported, VituneError
from . import attention as attention_ops, attention_training as training, order as result_order, problem_text, remembered


#: By what a call asks: None where both passes can be served, else why not.
_answers = problem_text.Plans()

#: The passes as the operators' library launches them; None without it.
_forward = None if attention_ops.library is None else attention_ops.attention_lse_op._op
_backward, _qkv_backward = remembered.directly("attention_backward"), remembered.directly("attention_qkv_backward")
_is_in_transform = torch._C._functorch.peek_interpreter_stack

_LSE = ("a gradient of the log-sum-exp is asked for, and vitune.attention has none: detach it (lse.detach()), or compute it from q and k by"
        " PyTorch")


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
           order: int) -> tuple[Tensor, Tensor]:
    """Attention of [B, H, N, D], of which a gradient is wanted, and its log-sum-exp; out in that order of _ops/order.py. Views of one
    projection have one gradient, the projection's. Raises VituneError where either pass is refused."""
    training.check(q, k, v, mask, is_causal)
    if order == result_order.TORCHS:  # switches and addresses decide it too: it is asked for each call
        order = result_order.asked(q, k, v, mask, is_causal, scale, k.shape[1] != q.shape[1])
    whole = _projection_of(q, k, v)
    if not attention_ops.may_launch_directly(q, k, v, mask):
        rest = mask, is_causal, scale, order
        return training.attention_train(q, k, v, *rest) if whole is None else training.attention_qkv_train(whole, *rest)
    device = q.get_device()
    of_mask = None if mask is None else (mask.shape, mask.stride(), mask.dtype, mask.device, mask.requires_grad)
    key = (q.shape, q.stride(), q.dtype, k.shape, k.stride(), k.dtype, k.device, v.shape, v.stride(), v.dtype, v.device, q.device, of_mask, is_causal,
           scale, order, whole is None, attention_ops.context_of(device).refreshes)
    refusal = _answers.of(key, lambda: (_refusal(q, k, v, mask, is_causal, scale, order, whole is not None),))[0]
    if refusal is not None:
        raise type(refusal)(str(refusal))
    if attention_ops.math_alone():
        raise Unsupported(attention_ops.MATH_ALONE)
    given = (q, k, v) if whole is None else (whole, None, None)
    return _Attention.apply(*given, mask, (q, k, v), is_causal, scale, order)


#: Nodes of autograd that hand each element's gradient to the same element in memory.
_VIEWS = frozenset(f"{name}Backward{number}" for number in (0, 1) for name in (
    "Unbind", "Select", "Permute", "Transpose", "T", "View", "UnsafeView", "ReshapeAlias", "Split", "SplitWithSizes", "Unsqueeze", "Squeeze",
    "Slice", "AsStrided", "Alias"))


def _projection_of(q: Tensor, k: Tensor, v: Tensor) -> Optional[Tensor]:
    """Their projection, if their gradients are on the way to it and nothing but views lies between: a module's hook is a node too."""
    whole = training.projection_of(q, k, v)
    if whole is None:
        return None
    of_q, of_k, of_v, end = q.grad_fn, k.grad_fn, v.grad_fn, q._base.grad_fn
    if of_q is None or of_k is None or of_v is None:
        return None  # leaves, which were views without a gradient before
    nodes = (of_q,) if of_q is of_k is of_v else (of_q, of_k, of_v)
    return whole if all(_reaches(node, end) for node in nodes) else None


def _reaches(node: Any, end: Any) -> bool:
    while node is not end:
        if node is None or node.name() not in _VIEWS:
            return False
        node = node.next_functions[0][0]
    return True


def _refusal(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float], order: int,
             is_whole: bool) -> Optional[VituneError]:
    """Why such calls are not served; else prepares both passes. Raises what a later call may not meet."""
    if q.numel() == 0 or k.numel() == 0:
        return Unsupported("there is no query or no key")
    try:
        context = attention_ops.context_of(q.get_device())
        context.prepare(attention_ops.described(q, k, v, mask, is_causal, scale, k.shape[1] != q.shape[1], True, order))
        like = [None if tensor is None else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
                for tensor in (q, k, v, mask)]
        dbias = mask is not None and mask.requires_grad
        gradients = training.gradients_of(*like, dbias)
        if is_whole:
            batch, heads, rows, d = q.shape
            gradients = training.packed_gradients_of(q.new_empty((batch, rows, 3, heads, d), device="meta"), like[3], dbias)[1]
        out = torch.empty_strided(q.shape, result_order.strides(order, q, q.shape, v), dtype=q.dtype, device="meta")
        text = training.backward_text(out, *like, out, gradients, is_causal, scale)
        context.workspace_bytes(Problem(text))  # prepares it, in a capture too
    except (InvalidArgument, Unsupported) as error:
        return type(error)(str(error))  # without its traceback, which would keep the tensors
    return None


class _Attention(torch.autograd.Function):
    """q, k and v, or a projection [B, N, 3, H, D] in q's place; `operands`: q, k and v all the same, which autograd does not see."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Optional[Tensor], v: Optional[Tensor], mask: Optional[Tensor], operands: tuple[Tensor, Tensor, Tensor],
                is_causal: bool, scale: Optional[float], order: int) -> tuple[Tensor, Tensor]:
        has_groups = operands[1].shape[1] != operands[0].shape[1]
        if _forward is None:
            out, lse = training._forward(*operands, mask, is_causal, scale, order)
        else:
            try:
                out, lse = _forward(*operands, mask, is_causal, scale, has_groups, order)
            except RuntimeError as error:
                raise error if isinstance(error, VituneError) else attention_ops.library.error(error) from None
        ctx.set_materialize_grads(False)
        ctx.words = is_causal, scale
        ctx.save_for_backward(q, k, v, mask, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Optional[Tensor], dlse: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
        if dlse is not None:
            raise Unsupported(_LSE)
        if dout is None:
            return (None,) * 8
        q, k, v, mask, out, lse = ctx.saved_tensors
        wants = ctx.needs_input_grad
        # Where somebody is to see an operator: a second derivative is refused there, by its formula.
        directly = type(dout) is Tensor and not torch.is_grad_enabled() and not attention_ops.is_batched(dout)
        by_library = directly and _backward is not None and _is_in_transform() is None
        by_python = (directly and not by_library and attention_ops.may_launch_directly(dout, out, lse, mask)
                     and attention_ops.may_launch_directly(q, q if k is None else k, q if v is None else v, None))
        if k is None:
            backward = _qkv_backward if by_library else training.qkv_backward if by_python else training.attention_qkv_backward
            dq, dbias = backward(dout, q, mask, out, lse, *ctx.words, wants[3])
            dk = dv = None
        else:
            backward = _backward if by_library else training.backward if by_python else training.attention_backward
            dq, dk, dv, dbias = backward(dout, q, k, v, mask, out, lse, *ctx.words, wants[3])
        return (dq if wants[0] else None, dk if wants[1] else None, dv if wants[2] else None, dbias if wants[3] else None,
                None, None, None, None)
