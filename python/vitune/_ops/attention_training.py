# python/vitune/_ops/attention_training.py -- Attention that trains: operators of the forward pass, those of the backward pass, their formulas.
# SPDX-License-Identifier: Apache-2.0
"""The forward pass keeps its result and the log-sum-exp of each row of scores, with which the backward pass is one call of libvitune's
attention_backward. Where q, k and v are views of one projection [B, N, 3, H, D] there is an operator that takes the projection: its gradient
is written as it lies, where autograd would stack three.

An additive mask is a bias and may have a gradient, of the bias's own type: summed in fp32 over all that share an entry. Autocast casts nothing
here: q, k and v have the type that they are to have, and a bias of fp32 is read as it is.

What libvitune refuses PyTorch computes, by the formulas here: in fp32 at least, each result rounded once.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.errors import InvalidArgument, Unsupported
from . import attention as attention_ops, flops, order as result_order, problem_text
from .remembered import define, remembered
from .scratch import launch
from .training import _answer, _wide

_plans = problem_text.Plans()


def check(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool) -> None:
    """Raises InvalidArgument for operands that are not [B, H, N, D] of one batch, or that contradict each other."""
    if not q.dim() == k.dim() == v.dim() == 4:
        raise InvalidArgument(f"q, k and v have {q.dim()}, {k.dim()} and {v.dim()} dimensions: in training they must be [batch, heads, rows, d]")
    alike = k.shape == v.shape and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3] and k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0
    if not alike:
        raise InvalidArgument(f"q of {tuple(q.shape)}, k of {tuple(k.shape)}, v of {tuple(v.shape)}: they must have one batch and head size, and k"
                              " and v one shape, whose heads divide those of q")
    if mask is not None and is_causal:
        raise InvalidArgument("attn_mask and is_causal=True exclude each other, as in PyTorch")


# --- the formulas

def _every_head(tensor: Tensor, heads: int) -> Tensor:
    """k or v with as many heads as q."""
    return tensor if tensor.shape[1] == heads else tensor.repeat_interleave(heads // tensor.shape[1], 1)


def _scores(q: Tensor, k: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float]) -> Tensor:
    """Scaled, with the bias, -inf where nothing is attended; of fp32 at least."""
    wide = _wide(q.dtype)
    scores = q.to(wide) @ _every_head(k, q.shape[1]).to(wide).transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -torch.inf)
    if mask is None:
        return scores
    if result_order.repeats(mask, q):
        mask = mask.repeat(q.shape[0] // mask.shape[0], 1, 1, 1)
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


def _weights(scores: Tensor, lse: Tensor) -> Tensor:
    """Not exp(scores - lse): where all of a row is as good as infinite lse has lost the number of its keys."""
    return scores.softmax(-1).masked_fill((lse == -torch.inf).unsqueeze(-1), 0)


def attention_by_torch(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                       order: int) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, mask, is_causal, scale)
    lse = scores.logsumexp(-1)
    out, _ = _empty_results(q, v, order)
    return out.copy_(_weights(scores, lse) @ _every_head(v, q.shape[1]).to(scores.dtype)), lse


def gradients_by_torch(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], out: Tensor, lse: Tensor, is_causal: bool,
                       scale: Optional[float], dropped: Callable[[Tensor], Tensor] = lambda weights: weights) -> tuple[Tensor, ...]:
    """Of q, k, v and the scores, of fp32 at least. dropped: multiplies by the factors of dropout."""
    scores, heads = _scores(q, k, mask, is_causal, scale), q.shape[1]
    weights, wide = _weights(scores, lse), scores.dtype
    dout, factor = dout.to(wide), q.shape[-1] ** -0.5 if scale is None else scale
    delta = (dout * out.to(wide)).sum(-1, keepdim=True)
    dscores = weights * (dropped(dout @ _every_head(v, heads).to(wide).transpose(-2, -1)) - delta)
    dq = factor * (dscores @ _every_head(k, heads).to(wide))
    dk, dv = factor * (dscores.transpose(-2, -1) @ q.to(wide)), dropped(weights).transpose(-2, -1) @ dout
    dk, dv = (each.unflatten(1, (k.shape[1], heads // k.shape[1])).sum(2) for each in (dk, dv))
    return dq, dk, dv, dscores


def attention_backward_by_torch(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], out: Tensor, lse: Tensor,
                                is_causal: bool, scale: Optional[float], dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *grads, dscores = gradients_by_torch(dout, q, k, v, mask, out, lse, is_causal, scale)
    return *grads, _of_bias(dscores, mask, q) if dbias else dscores.new_empty(0)


def _of_bias(dscores: Tensor, bias: Tensor, q: Tensor) -> Tensor:
    """Summed over what shares an entry."""
    if result_order.repeats(bias, q):
        dscores = dscores.unflatten(0, (-1, bias.shape[0])).sum(0)
    return dscores.sum_to_size(bias.shape).to(bias.dtype)


# --- libvitune's side

class Gradients(NamedTuple):
    """Memory for what the backward pass writes."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Optional[Tensor]  # contiguous, of all query rows and keys; None: it is not asked for


def backward_text(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], out: Tensor, gradients: Gradients, is_causal: bool,
                  scale: Optional[float], alignment: int = 16) -> str:
    """The problem that such a call asks, of tensors on any device, meta included. Raises InvalidArgument, Unsupported."""
    check(q, k, v, mask, is_causal)
    attention_ops._check_operands(q, k, v, mask, is_causal, scale)
    return problem_text.attention_backward(q, k, v, _read(mask, gradients), out, dout, *gradients, is_causal, scale, alignment)


def texts(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], gradients: Gradients, is_causal: bool, scale: Optional[float],
          order: int) -> list[str]:
    """The problems of the forward and of the backward pass, the result's gradient lying as the result."""
    out, _ = _empty_results(q, v, order)
    backward = backward_text(out, q, k, v, mask, out, gradients, is_causal, scale)
    read = None if mask is None else mask[(None,) * (4 - mask.dim())]
    return [problem_text.attention(q, k, v, read, out, is_causal, scale, True, 16), backward]


def _read(mask: Optional[Tensor], gradients: Gradients) -> Optional[Tensor]:
    """A mask of four dimensions; of a bias whose gradient is asked for with an element for each of the gradient's."""
    if mask is None:
        return None
    if gradients.bias is not None:
        mask = mask.expand(gradients.bias.shape)
        if any(step == 0 and size > 1 for step, size in zip(mask.stride(), mask.shape)):
            mask = mask.contiguous()
    return mask[(None,) * (4 - mask.dim())]


def gradients_of(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], dbias: bool) -> Gradients:
    """Those of q, k and v lie as these do, without gaps."""
    return Gradients(*map(_like, (q, k, v)), _bias_gradient(q, k, mask) if dbias else None)


def packed_gradients_of(qkv: Tensor, mask: Optional[Tensor], dbias: bool) -> tuple[Tensor, Gradients]:
    """The gradient of a projection, and its views."""
    whole = torch.empty_like(qkv, memory_format=torch.contiguous_format)
    q, k, v = unpacked(qkv)
    return whole, Gradients(*unpacked(whole), _bias_gradient(q, k, mask) if dbias else None)


def unpacked(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, [B, H, N, D], of a projection [B, N, 3, H, D]."""
    return qkv.permute(2, 0, 3, 1, 4).unbind(0)


def _with_rows(tensor: Tensor) -> Tensor:
    """Itself, or a copy whose last dimension is contiguous, as kernels read it."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _like(tensor: Tensor) -> Tensor:
    made = torch.empty_like(tensor)
    return made if made.stride(-1) == 1 else torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _bias_gradient(q: Tensor, k: Tensor, bias: Tensor) -> Tensor:
    """Of fp32 where it is summed further: libvitune sums over batch entries and heads alone."""
    rows = (q.shape[2], k.shape[2])
    dtype = bias.dtype if tuple(bias.shape[-2:]) == rows else torch.float32
    return bias.new_empty((*bias.shape[:-2], *rows), dtype=dtype)


def _readable(dout: Tensor, out: Tensor) -> Tensor:
    """The result's gradient as it is where kernels read it well, else a copy that lies as the result."""
    well = dout.stride(-1) == 1 and all(step and step % 8 == 0 for step, size in zip(dout.stride()[:-1], dout.shape) if size > 1)
    return dout if well and dout.dtype == out.dtype and dout.data_ptr() % 16 == 0 else torch.empty_like(out).copy_(dout)


def _forward(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
             order: int) -> tuple[Tensor, Tensor]:
    if attention_ops.math_alone():
        raise Unsupported(attention_ops.MATH_ALONE)
    q, k, v = map(_with_rows, (q, k, v))
    return attention_ops.run(q, k, v, mask, is_causal, scale, k.shape[1] != q.shape[1], True, True, order)


def _backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], out: Tensor, lse: Tensor, gradients: Gradients,
              is_causal: bool, scale: Optional[float]) -> None:
    # Whoever hooks saved tensors may give them back otherwise.
    q, k, v, out = map(_with_rows, (q, k, v, out))
    dout, lse = _readable(dout, out), lse.contiguous()
    read = _read(mask, gradients)
    aligned = (q, k, v, out, dout, *gradients[:3])
    alignment = problem_text.alignment_of(aligned)
    key = (*[(t.shape, t.stride()) for t in aligned], q.dtype, None if read is None else (read.shape, read.stride(), read.dtype), is_causal, scale,
           None if gradients.bias is None else gradients.bias.dtype, alignment)
    problem = _plans.of(key, lambda: Problem(backward_text(dout, q, k, v, mask, out, gradients, is_causal, scale, alignment)))
    bias_and_mask = (None, read) if read is None or read.dtype == torch.bool else (read, None)
    launch(problem, (q, k, v, *bias_and_mask, out, lse, dout, *gradients))


def _dbias(gradients: Gradients, bias: Optional[Tensor], like: Tensor) -> Tensor:
    if gradients.bias is None:
        return like.new_empty(0)
    whole = gradients.bias
    return whole if whole.shape == bias.shape and whole.dtype == bias.dtype else whole.sum_to_size(bias.shape).to(bias.dtype, copy=True)


def _of_keys(q: Tensor, k: Tensor) -> Tensor:
    """What has no element where there is nothing to compute."""
    return q if k.numel() else k


# --- the operators of the backward pass

_NO_SECOND = ("vitune's attention that trains has no second derivative, and one is asked for (create_graph=True): use PyTorch's"
              " scaled_dot_product_attention there, under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)")


def _refuse(ctx: Any, *grads: Any) -> Any:
    raise Unsupported(_NO_SECOND)


def backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], out: Tensor, lse: Tensor, is_causal: bool,
             scale: Optional[float], dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """attention_backward without PyTorch's dispatch of it."""
    def ours() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        gradients = gradients_of(q, k, v, attn_mask, dbias)
        _backward(dout, q, k, v, attn_mask, out, lse, gradients, is_causal, scale)
        return *gradients[:3], _dbias(gradients, attn_mask, q)

    def torchs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        *grads, db = attention_backward_by_torch(dout, q, k, v, attn_mask, out, lse, is_causal, scale, dbias)
        return *(_like(tensor).copy_(grad) for tensor, grad in zip((q, k, v), grads)), db if dbias else q.new_empty(0)
    return _answer(_of_keys(q, k), ours, torchs)


@torch.library.custom_op("vitune::attention_backward", mutates_args=())
@remembered("attention_backward")
def attention_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], out: Tensor, lse: Tensor, is_causal: bool,
                       scale: Optional[float], dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of q, k and v, lying as these do; and of the bias, with its shape and type: without an element if it is not asked for."""
    return backward(dout, q, k, v, attn_mask, out, lse, is_causal, scale, dbias)


@attention_backward.register_fake
def _(dout, q, k, v, attn_mask, out, lse, is_causal, scale, dbias):
    return *map(_like, (q, k, v)), attn_mask.new_empty(attn_mask.shape) if dbias else q.new_empty(0)


def qkv_backward(dout: Tensor, qkv: Tensor, attn_mask: Optional[Tensor], out: Tensor, lse: Tensor, is_causal: bool, scale: Optional[float],
                 dbias: bool) -> tuple[Tensor, Tensor]:
    """attention_qkv_backward without PyTorch's dispatch of it."""
    qkv = qkv.contiguous()
    q, k, v = unpacked(qkv)

    def ours() -> tuple[Tensor, Tensor]:
        whole, gradients = packed_gradients_of(qkv, attn_mask, dbias)
        _backward(dout, q, k, v, attn_mask, out, lse, gradients, is_causal, scale)
        return whole, _dbias(gradients, attn_mask, qkv)

    def torchs() -> tuple[Tensor, Tensor]:
        *grads, db = attention_backward_by_torch(dout, q, k, v, attn_mask, out, lse, is_causal, scale, dbias)
        return torch.stack(grads).permute(1, 3, 0, 2, 4).to(qkv.dtype).contiguous(), db if dbias else qkv.new_empty(0)
    return _answer(_of_keys(q, k), ours, torchs)


@torch.library.custom_op("vitune::attention_qkv_backward", mutates_args=())
@remembered("attention_qkv_backward")
def attention_qkv_backward(dout: Tensor, qkv: Tensor, attn_mask: Optional[Tensor], out: Tensor, lse: Tensor, is_causal: bool,
                           scale: Optional[float], dbias: bool) -> tuple[Tensor, Tensor]:
    """Of the projection [B, N, 3, H, D], contiguous; and of the bias, as attention_backward has it."""
    return qkv_backward(dout, qkv, attn_mask, out, lse, is_causal, scale, dbias)


@attention_qkv_backward.register_fake
def _(dout, qkv, attn_mask, out, lse, is_causal, scale, dbias):
    return (torch.empty_like(qkv, memory_format=torch.contiguous_format),
            attn_mask.new_empty(attn_mask.shape) if dbias else qkv.new_empty(0))


for _op in (attention_backward, attention_qkv_backward):
    _op.register_autograd(_refuse)


# --- those of the forward pass

def _empty_results(q: Tensor, v: Tensor, order: int) -> tuple[Tensor, Tensor]:
    return (q.new_empty_strided(q.shape, result_order.strides(order, q, q.shape, v)),
            q.new_empty(q.shape[:-1], dtype=_wide(q.dtype)))


@torch.library.custom_op("vitune::attention_train", mutates_args=())
def attention_train(q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                    order: int) -> tuple[Tensor, Tensor]:
    """scaled_dot_product_attention of [B, H, N, D], and the natural log-sum-exp of each row of scores, [B, H, N] of fp32, which has no
    gradient. k and v may have fewer heads. attn_mask: as PyTorch's; its batch may be a divisor w of B too, and entry i % w belongs to i.
    order: where the result lies (_ops/order.py), but for that of PyTorch's."""
    check(q, k, v, attn_mask, is_causal)
    return _answer(_of_keys(q, k), lambda: _forward(q, k, v, attn_mask, is_causal, scale, order),
                   lambda: attention_by_torch(q, k, v, attn_mask, is_causal, scale, order))


@attention_train.register_fake
def _(q, k, v, attn_mask, is_causal, scale, order):
    check(q, k, v, attn_mask, is_causal)
    return _empty_results(q, v, order)


@torch.library.custom_op("vitune::attention_qkv_train", mutates_args=())
def attention_qkv_train(qkv: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: Optional[float], order: int) -> tuple[Tensor, Tensor]:
    """As attention_train, of the q, k and v of a projection [B, N, 3, H, D]."""
    q, k, v = unpacked(qkv)
    check(q, k, v, attn_mask, is_causal)
    return _answer(_of_keys(q, k), lambda: _forward(q, k, v, attn_mask, is_causal, scale, order),
                   lambda: attention_by_torch(q, k, v, attn_mask, is_causal, scale, order))


@attention_qkv_train.register_fake
def _(qkv, attn_mask, is_causal, scale, order):
    q, k, v = unpacked(qkv)
    check(q, k, v, attn_mask, is_causal)
    return _empty_results(q, v, order)


# --- their gradients

def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, is_causal, scale, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    ctx.words = is_causal, scale
    ctx.save_for_backward(*tensors, *output)


def _grads(ctx: Any, dout: Optional[Tensor], *_: Any) -> tuple[Optional[Tensor], ...]:
    if dout is None:
        return (None,) * 7
    wants = ctx.needs_input_grad[:4]
    found = attention_backward(dout, *ctx.saved_tensors, *ctx.words, wants[3])
    return *(grad if wanted else None for grad, wanted in zip(found, wants)), None, None, None


def _qkv_grads(ctx: Any, dout: Optional[Tensor], *_: Any) -> tuple[Optional[Tensor], ...]:
    if dout is None:
        return (None,) * 5
    wants = ctx.needs_input_grad[:2]
    found = attention_qkv_backward(dout, *ctx.saved_tensors, *ctx.words, wants[1])
    return *(grad if wanted else None for grad, wanted in zip(found, wants)), None, None, None


attention_train.register_autograd(_grads, setup_context=_keep)
attention_qkv_train.register_autograd(_qkv_grads, setup_context=_keep)

flops.know("attention_train", "attention_qkv_train", "attention_backward", "attention_qkv_backward")


# --- views of one projection

def holds(whole: Tensor, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether a tensor is, in its order, the projection [B, N, 3, H, D] that q, k and v, [B, H, N, D], are views of, and nothing else."""
    if not q.dim() == k.dim() == v.dim() == 4 or any(each.untyped_storage()._cdata != whole.untyped_storage()._cdata or each.dtype != whole.dtype
                                                     for each in (q, k, v)):
        return False
    _, heads, rows, d = q.shape
    row, offset = 3 * heads * d, whole.storage_offset()
    steps = (rows * row, d, row, 1)
    return is_same(whole.numel(), 3 * q.numel()) and whole.is_contiguous() and all(
        is_same(each.storage_offset(), offset + place * heads * d) and all(map(is_same, each.shape, q.shape))
        and all(is_same(have, step) or is_same(size, 1) for have, step, size in zip(each.stride(), steps, each.shape))
        for place, each in enumerate((q, k, v)))


def is_same(a: Any, b: Any) -> bool:
    """Whether two sizes are the same, whatever a size is that is only known when a model runs."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    from torch.fx.experimental.symbolic_shapes import statically_known_true
    return statically_known_true(a == b)


def as_projection(whole: Tensor, q: Tensor) -> Tensor:
    """That tensor as [B, N, 3, H, D]."""
    batch, heads, rows, d = q.shape
    return whole.view(batch, rows, 3, heads, d)


_projections = problem_text.Plans()


def projection_of(q: Tensor, k: Tensor, v: Tensor) -> Optional[Tensor]:
    """The tensor that autograd knows them as views of, if it is their projection and nobody waits for a gradient of one of them."""
    whole = q._base
    if whole is None or k._base is not whole or v._base is not whole or not whole.requires_grad:
        return None
    for each in (q, k, v):
        if not each.requires_grad or each.retains_grad or each._backward_hooks:
            return None
    key = *((each.shape, each.stride(), each.storage_offset(), each.dtype) for each in (q, k, v)), whole.shape, whole.stride(), \
        whole.storage_offset(), whole.dtype
    if not _projections.of(key, lambda: (holds(whole, q, k, v),))[0]:
        return None
    begins, size = whole.data_ptr() - whole.storage_offset() * whole.element_size(), whole.element_size()
    for each in (q, k, v):  # .data = ... gives a view, or what it was made of, other memory
        if each.data_ptr() != begins + each.storage_offset() * size:
            return None
    return as_projection(whole, q)


define("attention_backward", "attention_qkv_backward")
