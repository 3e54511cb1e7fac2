# python/vitune/_ops/attention_dropout.py -- Attention with dropout that trains: operators of both passes, their formulas.
# SPDX-License-Identifier: Apache-2.0
"""The forward pass draws a seed by PyTorch's generator of the device, as PyTorch's own dropout does: torch.manual_seed repeats it, each replay
of a CUDA graph has another one, and activation checkpointing, which restores the generator, draws the same again. It is a tensor, which kernels
read where they run, and with which the backward pass makes the forward pass's choice once more (_ops/dropout_mask.py). Nothing of the scores'
size is kept.

What libvitune refuses PyTorch computes, by the formulas here: in fp32 at least, with the same choice.
"""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.counters import counters
from .._runtime.errors import Unsupported
from . import attention as attention_ops, attention_training as training, flops, problem_text
from .dropout_mask import drawn, dropped_of, kept
from .scratch import launch
from .training import _answer, _wide

_plans = problem_text.Plans()


# --- the formulas

class Choice(NamedTuple):
    """What of the weights is kept: by the numbers of their heads (batch entry * heads + head), [B, H]."""

    random: Tensor  # seed and offset
    dropped: int  # of 256
    heads: Tensor

    @staticmethod
    def of(q: Tensor, random: Tensor, dropout_p: float) -> "Choice":
        """Of all heads of a call."""
        batch, heads = q.shape[:2]
        return Choice(random, dropped_of(dropout_p), torch.arange(batch * heads, device=q.device).view(batch, heads))

    def factors(self, rows: int, keys: int, dtype: torch.dtype) -> Tensor:
        """0, or 1 / (1 - p): [B, H, rows, keys]."""
        found = kept(self.random, self.heads.flatten(), rows, keys, self.dropped)
        return (found.to(dtype) * (256 / (256 - self.dropped))).unflatten(0, self.heads.shape)


def forward_by_torch(q: Tensor, k: Tensor, v: Tensor, choice: Choice, is_causal: bool, scale: Optional[float]) -> tuple[Tensor, Tensor]:
    """The result, of fp32 at least, and the log-sum-exp."""
    scores = training._scores(q, k, None, is_causal, scale)
    lse = scores.logsumexp(-1)
    weights = training._weights(scores, lse) * choice.factors(*scores.shape[-2:], scores.dtype)
    return weights @ training._every_head(v, q.shape[1]).to(scores.dtype), lse


def backward_by_torch(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, choice: Choice, is_causal: bool,
                      scale: Optional[float]) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, of fp32 at least."""
    factors = choice.factors(q.shape[-2], k.shape[-2], _wide(q.dtype))
    return training.gradients_by_torch(dout, q, k, v, None, out, lse, is_causal, scale, factors.mul)[:3]


# --- libvitune's side

def _check(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: Optional[float]) -> None:
    training.check(q, k, v, None, is_causal)
    attention_ops._check_operands(q, k, v, None, is_causal, scale)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.stride(-1) != 1:
            raise Unsupported(f"the elements of a row of {name} are {tensor.stride(-1)} apart: kernels with dropout read rows without gaps")


def texts(q: Tensor, k: Tensor, v: Tensor, gradients: training.Gradients, dropout_p: float, is_causal: bool, scale: Optional[float],
          order: int) -> list[str]:
    """The problems of both passes, the result's gradient lying as the result, of tensors on any device, meta included."""
    _check(q, k, v, is_causal, scale)
    out, _ = training._empty_results(q, v, order)
    dropped = dropped_of(dropout_p)
    return [problem_text.attention(q, k, v, None, out, is_causal, scale, True, 16, dropped),
            problem_text.attention_backward(q, k, v, None, out, out, *gradients, is_causal, scale, 16, dropped)]


def _key(tensors: tuple[Tensor, ...], *words: Any) -> tuple[Any, ...]:
    return *[(t.shape, t.stride()) for t in tensors], tensors[0].dtype, *words


def _forward(q: Tensor, k: Tensor, v: Tensor, random: Tensor, dropout_p: float, is_causal: bool, scale: Optional[float],
             order: int) -> tuple[Tensor, Tensor]:
    if attention_ops.math_alone():
        raise Unsupported(attention_ops.MATH_ALONE)
    _check(q, k, v, is_causal, scale)
    dropped, (out, lse) = dropped_of(dropout_p), training._empty_results(q, v, order)
    alignment = problem_text.alignment_of((q, k, v, out))
    problem = _plans.of(_key((q, k, v, out), "forward", dropped, is_causal, scale, alignment), lambda: Problem(
        problem_text.attention(q, k, v, None, out, is_causal, scale, True, alignment, dropped)))
    launch(problem, (q, k, v, None, None, out, lse, random))
    counters.serve()
    return out, lse


def _backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, random: Tensor, gradients: training.Gradients,
              dropout_p: float, is_causal: bool, scale: Optional[float]) -> None:
    _check(q, k, v, is_causal, scale)
    dout, dropped = training._readable(dout, out), dropped_of(dropout_p)
    aligned = (q, k, v, out, dout, *gradients[:3])
    alignment = problem_text.alignment_of(aligned)
    problem = _plans.of(_key(aligned, "backward", dropped, is_causal, scale, alignment), lambda: Problem(
        problem_text.attention_backward(q, k, v, None, out, dout, *gradients, is_causal, scale, alignment, dropped)))
    launch(problem, (q, k, v, None, None, out, lse, dout, *gradients, random))


# --- the operators of the backward pass

@torch.library.custom_op("vitune::attention_dropout_backward", mutates_args=())
def attention_dropout_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, random: Tensor, dropout_p: float,
                               is_causal: bool, scale: Optional[float]) -> tuple[Tensor, Tensor, Tensor]:
    """Of q, k and v, lying as these do."""
    def ours() -> tuple[Tensor, Tensor, Tensor]:
        gradients = training.gradients_of(q, k, v, None, False)
        _backward(dout, q, k, v, out, lse, random, gradients, dropout_p, is_causal, scale)
        return gradients[:3]

    def torchs() -> tuple[Tensor, Tensor, Tensor]:
        grads = backward_by_torch(dout, q, k, v, out, lse, Choice.of(q, random, dropout_p), is_causal, scale)
        return tuple(training._like(tensor).copy_(grad) for tensor, grad in zip((q, k, v), grads))
    return _answer(training._of_keys(q, k), ours, torchs)


@attention_dropout_backward.register_fake
def _(dout, q, k, v, out, lse, random, dropout_p, is_causal, scale):
    return tuple(map(training._like, (q, k, v)))


@torch.library.custom_op("vitune::attention_qkv_dropout_backward", mutates_args=())
def attention_qkv_dropout_backward(dout: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, random: Tensor, dropout_p: float, is_causal: bool,
                                   scale: Optional[float]) -> Tensor:
    """Of the projection [B, N, 3, H, D], contiguous."""
    q, k, v = training.unpacked(qkv)

    def ours() -> Tensor:
        whole, gradients = training.packed_gradients_of(qkv, None, False)
        _backward(dout, q, k, v, out, lse, random, gradients, dropout_p, is_causal, scale)
        return whole

    def torchs() -> Tensor:
        grads = backward_by_torch(dout, q, k, v, out, lse, Choice.of(q, random, dropout_p), is_causal, scale)
        return torch.stack(grads).permute(1, 3, 0, 2, 4).to(qkv.dtype).contiguous()
    return _answer(training._of_keys(q, k), ours, torchs)


@attention_qkv_dropout_backward.register_fake
def _(dout, qkv, out, lse, random, dropout_p, is_causal, scale):
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


for _op in (attention_dropout_backward, attention_qkv_dropout_backward):
    _op.register_autograd(training._refuse)


# --- those of the forward pass

_RANDOM = (torch.Tag.nondeterministic_seeded,)


def _answered(q: Tensor, k: Tensor, v: Tensor, dropout_p: float, is_causal: bool, scale: Optional[float],
              order: int) -> tuple[Tensor, Tensor, Tensor]:
    training.check(q, k, v, None, is_causal)
    dropped_of(dropout_p)
    random = drawn(q)

    def torchs() -> tuple[Tensor, Tensor]:
        found, lse = forward_by_torch(q, k, v, Choice.of(q, random, dropout_p), is_causal, scale)
        return training._empty_results(q, v, order)[0].copy_(found), lse
    ours = lambda: _forward(q, k, v, random, dropout_p, is_causal, scale, order)  # noqa: E731
    return *_answer(training._of_keys(q, k), ours, torchs), random


def _fakes(q: Tensor, k: Tensor, v: Tensor, dropout_p: float, is_causal: bool, order: int) -> tuple[Tensor, Tensor, Tensor]:
    training.check(q, k, v, None, is_causal)
    dropped_of(dropout_p)
    return *training._empty_results(q, v, order), q.new_empty(2, dtype=torch.int64)


@torch.library.custom_op("vitune::attention_dropout_train", mutates_args=(), tags=_RANDOM)
def attention_dropout_train(q: Tensor, k: Tensor, v: Tensor, dropout_p: float, is_causal: bool, scale: Optional[float],
                            order: int) -> tuple[Tensor, Tensor, Tensor]:
    """scaled_dot_product_attention of [B, H, N, D] with dropout of its weights; the natural log-sum-exp of each row of scores, [B, H, N] of
    fp32; and what was drawn for it, [2] of int64, with which the backward pass drops the same: these two have no gradient. dropout_p is rounded to
    256ths. k and v may have fewer heads. order: as attention_train has it."""
    return _answered(q, k, v, dropout_p, is_causal, scale, order)


@attention_dropout_train.register_fake
def _(q, k, v, dropout_p, is_causal, scale, order):
    return _fakes(q, k, v, dropout_p, is_causal, order)


@torch.library.custom_op("vitune::attention_qkv_dropout_train", mutates_args=(), tags=_RANDOM)
def attention_qkv_dropout_train(qkv: Tensor, dropout_p: float, is_causal: bool, scale: Optional[float],
                                order: int) -> tuple[Tensor, Tensor, Tensor]:
    """As attention_dropout_train, of the q, k and v of a projection [B, N, 3, H, D]."""
    return _answered(*training.unpacked(qkv), dropout_p, is_causal, scale, order)


@attention_qkv_dropout_train.register_fake
def _(qkv, dropout_p, is_causal, scale, order):
    return _fakes(*training.unpacked(qkv), dropout_p, is_causal, order)


# --- their gradients

def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, dropout_p, is_causal, scale, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    ctx.words = dropout_p, is_causal, scale
    ctx.save_for_backward(*tensors, *output)


def _grads(ctx: Any, dout: Optional[Tensor], *_: Any) -> tuple[Optional[Tensor], ...]:
    if dout is None:
        return (None,) * 7
    found = attention_dropout_backward(dout, *ctx.saved_tensors, *ctx.words)
    return *(grad if wanted else None for grad, wanted in zip(found, ctx.needs_input_grad)), *(None,) * 4


def _qkv_grads(ctx: Any, dout: Optional[Tensor], *_: Any) -> tuple[Optional[Tensor], ...]:
    grad = None if dout is None else attention_qkv_dropout_backward(dout, *ctx.saved_tensors, *ctx.words)
    return grad, None, None, None, None


attention_dropout_train.register_autograd(_grads, setup_context=_keep)
attention_qkv_dropout_train.register_autograd(_qkv_grads, setup_context=_keep)

flops.know("attention_dropout_train", "attention_qkv_dropout_train", "attention_dropout_backward", "attention_qkv_dropout_backward")


# --- whether a kernel is right, where its answers cannot be PyTorch's

def on_some_heads(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, found: tuple[Tensor, ...], random: Tensor, dropout_p: float,
                  is_causal: bool, scale: Optional[float]) -> tuple[list[Tensor], list[Tensor]]:
    """A call's (out, lse, dq, dk, dv) and the formulas' answers, both of the first and the last head of k and v alone: all scores of a
    model's batch may take gigabytes."""
    group, ends = q.shape[1] // k.shape[1], sorted({(0, 0), (q.shape[0] - 1, k.shape[1] - 1)})
    every = Choice.of(q, random, dropout_p)
    ours, theirs = [], []
    for batch, head in ends:
        def of_queries(tensor: Tensor) -> Tensor:
            return tensor[batch:batch + 1, head * group:(head + 1) * group]

        def of_keys(tensor: Tensor) -> Tensor:
            return tensor[batch:batch + 1, head:head + 1]
        choice = every._replace(heads=of_queries(every.heads))
        few = of_queries(q), of_keys(k), of_keys(v)
        out, lse = forward_by_torch(*few, choice, is_causal, scale)
        grads = backward_by_torch(of_queries(dout), *few, of_queries(found[0]), lse, choice, is_causal, scale)
        ours += [*map(of_queries, found[:3]), *map(of_keys, found[3:])]
        theirs += [out, lse, *grads]
    return ours, theirs
