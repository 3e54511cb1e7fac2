# python/vitune/_ops/window_attention_training.py -- Attention in the windows of images that trains: operators of both passes, their formulas.
# SPDX-License-Identifier: Apache-2.0
"""Both passes leave the image as it is. The backward pass makes the softmax again, so that the forward pass keeps what it was given and
nothing else.

What is added to the scores is mostly the sum of a parameter and of masks that are constants. The operator takes the sum, which has no
gradient, and beside it the parameter, which has that of the sum: a bias that all windows share or that each has, or the table that such a
bias was taken from by an index. So a table's gradient is one more sum of the same kernels, where autograd would add up to rows of a table by
atomics. Padding is given twice too: as the parameter, whose gradient is summed in fp32, and in the type of the products.

What libvitune refuses PyTorch computes, by the formulas here: in fp32 at least, each result rounded once.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.errors import InvalidArgument, Unsupported
from . import attention as attention_ops, flops, problem_text, window_attention as window_attention_ops
from .scratch import launch
from .training import _answer, _wide
from .window_attention import Windows, fake_output, partitioned, reversed_

_plans = problem_text.Plans()


class Call(NamedTuple):
    """The arguments that both passes are told."""

    windows: Windows
    scale: Optional[float]
    interleaved: bool

    @classmethod
    def of(cls, window: Sequence[int], shift: Sequence[int], scale: Optional[float], interleaved: bool, grid: bool, pads_first: bool) -> "Call":
        return cls(Windows(tuple(window), tuple(shift), grid, pads_first), scale, interleaved)


class Wanted(NamedTuple):
    """The kind of the bias's gradient: nothing, that of a bias of so many windows, or that of a table of so many rows."""

    dbias_windows: int = 0
    table_rows: int = 0

    @classmethod
    def of(cls, parameter: Optional[Tensor], index: Optional[Tensor]) -> "Wanted":
        if parameter is None:
            return cls()
        return cls(parameter.shape[0]) if index is None else cls(0, parameter.shape[0])

    def shape(self, bias: Optional[Tensor]) -> tuple[int, ...]:
        if self.table_rows:
            return self.table_rows, bias.shape[1]
        return (self.dbias_windows, *bias.shape[1:]) if self.dbias_windows else (0,)


def check(qkv: Tensor, call: Call, bias: Optional[Tensor], parameter: Optional[Tensor], index: Optional[Tensor], padding: Optional[Tensor],
          padding16: Optional[Tensor]) -> None:
    """Raises InvalidArgument for operands that contradict each other."""
    window_attention_ops.check_shapes(qkv, call.windows, bias, padding16, call.interleaved)
    if (padding is None) != (padding16 is None) or padding is not None and padding.shape != padding16.shape:
        raise InvalidArgument("padding is given twice, as a parameter and in the type of qkv: both must have one shape")
    if parameter is None:
        return
    if bias is None:
        raise InvalidArgument("a parameter of the bias is given, and no bias")
    if index is None:
        if tuple(parameter.shape) not in [(windows, *bias.shape[1:]) for windows in (1, bias.shape[0])]:
            raise InvalidArgument(f"a bias's parameter of {tuple(parameter.shape)}: it must be [1 or {bias.shape[0]}, ...] of {tuple(bias.shape)}")
    elif parameter.dim() != 2 or parameter.shape[1] != bias.shape[1] or index.shape != bias.shape[2:] or index.dtype != torch.int32:
        raise InvalidArgument(f"a table of {tuple(parameter.shape)} and an index of {tuple(index.shape)}, {index.dtype}: they must be"
                              f" [rows, {bias.shape[1]}] and int32 {tuple(bias.shape[2:])}")


# --- the formulas

def _apart(qkv: Tensor, call: Call, padding16: Optional[Tensor]) -> tuple[Tensor, ...]:
    """q, k and v as [B * windows, heads, n, d], of fp32 at least."""
    wide = _wide(qkv.dtype)
    qkv = qkv.transpose(3, 4) if call.interleaved else qkv
    beyond = None if padding16 is None else padding16.to(wide)
    return partitioned(qkv.to(wide), call.windows, beyond).permute(2, 0, 3, 1, 4).unbind(0)


def _weights(q: Tensor, k: Tensor, bias: Optional[Tensor], scale: float) -> Tensor:
    scores = scale * (q @ k.transpose(-2, -1))
    if bias is not None:
        scores = (_each_image(scores, bias.shape[0]) + bias.to(scores.dtype)).flatten(0, 1)
    return scores.softmax(-1)


def _scale(qkv: Tensor, call: Call) -> float:
    return qkv.shape[5] ** -0.5 if call.scale is None else call.scale


def forward_by_torch(qkv: Tensor, bias: Optional[Tensor], padding16: Optional[Tensor], call: Call) -> Tensor:
    q, k, v = _apart(qkv, call, padding16)
    out = _weights(q, k, bias, _scale(qkv, call)) @ v
    return fake_output(qkv, call.interleaved).copy_(reversed_(out.transpose(1, 2), call.windows, qkv.shape[1:3]))


def backward_by_torch(dout: Tensor, qkv: Tensor, bias: Optional[Tensor], index: Optional[Tensor], padding16: Optional[Tensor], call: Call,
                      wanted: Wanted) -> tuple[Tensor, Tensor, Tensor]:
    (q, k, v), scale = _apart(qkv, call, padding16), _scale(qkv, call)
    weights = _weights(q, k, bias, scale)
    dout = partitioned(dout.to(q.dtype), call.windows, None).transpose(1, 2)
    dweights = dout @ v.transpose(-2, -1)
    dscores = weights * (dweights - (weights * dweights).sum(-1, keepdim=True))
    grads = torch.stack((scale * (dscores @ k), scale * (dscores.transpose(-2, -1) @ q), weights.transpose(-2, -1) @ dout))
    grads = grads.permute(1, 3, 0, 2, 4)  # [B * windows, n, 3, heads, d]
    dqkv = reversed_(grads, call.windows, qkv.shape[1:3])
    dqkv = (dqkv.transpose(3, 4) if call.interleaved else dqkv).to(qkv.dtype).contiguous()
    dpadding = q.new_empty(0) if padding16 is None else _of_padding(grads, qkv.shape[1:3], call.windows)
    return dqkv, _of_bias(dscores, bias, index, wanted), dpadding


def _each_image(tensor: Tensor, windows: int) -> Tensor:
    """[B * windows, ...] as [B, windows, ...]."""
    return tensor.unflatten(0, (tensor.shape[0] // windows, windows))


def _of_bias(dscores: Tensor, bias: Optional[Tensor], index: Optional[Tensor], wanted: Wanted) -> Tensor:
    if wanted == Wanted():
        return dscores.new_empty(0)
    dbias = _each_image(dscores, bias.shape[0]).sum(0).sum_to_size((wanted.dbias_windows or 1, *bias.shape[1:])).contiguous()
    if not wanted.table_rows:
        return dbias
    rows = index.flatten().long()
    known = ((rows >= 0) & (rows < wanted.table_rows)).unsqueeze(1)  # others count nowhere
    each = torch.where(known, dbias[0].flatten(1).t(), 0.0)
    # In a fixed order on a GPU too, unlike index_add_.
    return dscores.new_zeros(wanted.shape(bias)).index_put_((rows.clamp(0, wanted.table_rows - 1),), each, accumulate=True)


def _of_padding(grads: Tensor, image: Sequence[int], windows: Windows) -> Tensor:
    """The sum over all rows of windows that lie beyond an image; as [3, heads, d]."""
    beyond = 1 - partitioned(grads.new_ones(1, *image), windows, None)  # [windows, n]
    return (_each_image(grads, beyond.shape[0]) * beyond[..., None, None, None]).sum((0, 1, 2))


# --- libvitune's side

def backward_text(qkv: Tensor, bias: Optional[Tensor], padding16: Optional[Tensor], call: Call, wanted: Wanted) -> str:
    """The problem that such a call asks, of tensors on any device, meta included. Raises InvalidArgument, Unsupported."""
    window_attention_ops.check(qkv, call.windows, bias, padding16, call.interleaved)
    return problem_text.window_attention_backward(qkv, call.windows, bias, padding16, call.scale, call.interleaved, *wanted)


def texts(qkv: Tensor, bias: Optional[Tensor], padding16: Optional[Tensor], call: Call, wanted: Wanted) -> list[str]:
    """The problems of the forward and of the backward pass."""
    forward = window_attention_ops.text_of(qkv, call.windows, bias, padding16, call.scale, call.interleaved)
    return [forward, backward_text(qkv, bias, padding16, call, wanted)]


def _forward(qkv: Tensor, bias: Optional[Tensor], padding16: Optional[Tensor], call: Call) -> Tensor:
    if attention_ops.math_alone():
        raise Unsupported(attention_ops.MATH_ALONE)
    return window_attention_ops.run(qkv, call.windows, bias, padding16, call.scale, call.interleaved)


def _empty_gradients(qkv: Tensor, bias: Optional[Tensor], padding16: Optional[Tensor], wanted: Wanted) -> tuple[Tensor, Tensor, Tensor]:
    wide = _wide(qkv.dtype)
    return (torch.empty_like(qkv, memory_format=torch.contiguous_format), qkv.new_empty(wanted.shape(bias), dtype=wide),
            qkv.new_empty(0 if padding16 is None else padding16.shape, dtype=wide))


def _backward(dout: Tensor, qkv: Tensor, bias: Optional[Tensor], index: Optional[Tensor], padding16: Optional[Tensor], call: Call,
              wanted: Wanted) -> tuple[Tensor, Tensor, Tensor]:
    is_padded = any(extent % size for extent, size in zip(qkv.shape[1:3], call.windows.window))
    filler = padding16 if is_padded else None
    key = (qkv.shape, qkv.dtype, None if bias is None else (bias.shape, bias.dtype), filler is None, call, wanted)
    problem = _plans.of(key, lambda: Problem(backward_text(qkv, bias, filler, call, wanted)))
    found = dqkv, dsums, dpadding = _empty_gradients(qkv, bias, padding16, wanted)
    if filler is None:
        dpadding.zero_()  # there is no padding
    dout, qkv, bias, index, filler = (None if t is None else window_attention_ops._dense(t) for t in (
        dout.to(qkv.dtype), qkv, bias, index if wanted.table_rows else None, filler))
    q, k, v, dq, dk, dv = (t for whole in (qkv, dqkv) for t in whole.unbind(4 if call.interleaved else 3))
    launch(problem, (q, k, v, bias, filler, index, dout, dq, dk, dv, dsums if wanted.dbias_windows else None,
                     dsums if wanted.table_rows else None, None if filler is None else dpadding))
    return found


# --- the operator of the backward pass

_NO_SECOND = ("vitune's attention in windows that trains has no second derivative, and one is asked for (create_graph=True): use PyTorch's"
              " layers there, or torch.compile")


def _refuse(ctx: Any, *grads: Any) -> Any:
    raise Unsupported(_NO_SECOND)


@torch.library.custom_op("vitune::window_attention_backward", mutates_args=())
def window_attention_backward(dout: Tensor, qkv: Tensor, window: Sequence[int], shift: Sequence[int], bias: Optional[Tensor],
                              index: Optional[Tensor], padding16: Optional[Tensor], scale: Optional[float], interleaved: bool, grid: bool,
                              pads_first: bool, dbias_windows: int, table_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the projection, without gaps, of the bias or its table, and of padding, [3, heads, d]; the last two of fp32, without an
    element where they are not asked for."""
    call, wanted = Call.of(window, shift, scale, interleaved, grid, pads_first), Wanted(dbias_windows, table_rows)
    return _answer(qkv, lambda: _backward(dout, qkv, bias, index, padding16, call, wanted),
                   lambda: backward_by_torch(dout, qkv, bias, index, padding16, call, wanted))


@window_attention_backward.register_fake
def _(dout, qkv, window, shift, bias, index, padding16, scale, interleaved, grid, pads_first, dbias_windows, table_rows):
    return _empty_gradients(qkv, bias, padding16, Wanted(dbias_windows, table_rows))


window_attention_backward.register_autograd(_refuse)


# --- that of the forward pass

@torch.library.custom_op("vitune::window_attention_train", mutates_args=())
def window_attention_train(qkv: Tensor, window: Sequence[int], shift: Sequence[int], bias: Optional[Tensor], parameter: Optional[Tensor],
                           index: Optional[Tensor], padding: Optional[Tensor], padding16: Optional[Tensor], scale: Optional[float],
                           interleaved: bool, grid: bool, pads_first: bool) -> Tensor:
    """As vitune::window_attention, [B, H, W, heads, d]. bias, padding16: of which no gradient is wanted. parameter: whose gradient the
    bias's is, [1 or windows, 1 or heads, n, n]; with an index, int32 [n, n], a table [rows, 1 or heads]. padding: whose gradient that of
    padding16 is."""
    call = Call.of(window, shift, scale, interleaved, grid, pads_first)
    check(qkv, call, bias, parameter, index, padding, padding16)
    return _answer(qkv, lambda: _forward(qkv, bias, padding16, call), lambda: forward_by_torch(qkv, bias, padding16, call))


@window_attention_train.register_fake
def _(qkv, window, shift, bias, parameter, index, padding, padding16, scale, interleaved, grid, pads_first):
    check(qkv, Call.of(window, shift, scale, interleaved, grid, pads_first), bias, parameter, index, padding, padding16)
    return fake_output(qkv, interleaved)


# --- its gradient

def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    qkv, window, shift, bias, parameter, index, padding, padding16, *words = inputs
    ctx.set_materialize_grads(False)
    ctx.windows, ctx.words = (window, shift), words
    ctx.wanted = Wanted.of(parameter, index) if ctx.needs_input_grad[4] else Wanted()
    ctx.types = [None if each is None else each.dtype for each in (parameter, padding)]
    ctx.save_for_backward(qkv, bias, index if ctx.wanted.table_rows else None, padding16)


def _grads(ctx: Any, dout: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
    if dout is None:
        return (None,) * 12
    qkv, *rest = ctx.saved_tensors
    found = window_attention_backward(dout, qkv, *ctx.windows, *rest, *ctx.words, *ctx.wanted)
    needs = (ctx.needs_input_grad[place] for place in (0, 4, 6))
    dqkv, dparameter, dpadding = ((grad if dtype is None else grad.to(dtype)) if needed else None
                                  for grad, dtype, needed in zip(found, (None, *ctx.types), needs))
    return dqkv, None, None, None, dparameter, None, dpadding, *(None,) * 5


window_attention_train.register_autograd(_grads, setup_context=_keep)

flops.know("window_attention_train", "window_attention_backward")
