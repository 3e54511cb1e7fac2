# python/vitune/_ops/window_attention.py -- Attention in the windows of images, in place: the operator vitune::window_attention.
# SPDX-License-Identifier: Apache-2.0
"""Plans as in _ops/norm.py. A compiled model's call that no kernel serves is answered by PyTorch, with the copies spared here."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.counters import counters
from .._runtime.errors import InvalidArgument, Unsupported, VituneError, reason_of
from . import attention as attention_ops, flops, norm as norm_ops, problem_text

_TYPES = (torch.bfloat16, torch.float16)
_BIAS_TYPES = (*_TYPES, torch.float32)


class Plan(NamedTuple):
    """All of a call that does not depend on addresses."""

    problem: Optional[Problem]  # None: there is no pixel
    is_padded: bool


_plans = problem_text.Plans()


class Windows(NamedTuple):
    """How images are cut. Extents are (rows, columns)."""

    window: Sequence[int]
    shift: Sequence[int] = (0, 0)  #: images are rolled by as much up and to the left
    grid: bool = False  #: the pixels of a window are spread over the image
    pads_first: bool = False  #: images are padded, then rolled; else rolled, then padded

    def counts(self, image: Sequence[int]) -> tuple[int, int]:
        """Windows from top to bottom and from left to right."""
        return tuple(-(-extent // size) for extent, size in zip(image, self.window))


def _check_type(what: str, dtype: torch.dtype, types: Sequence[torch.dtype]) -> None:
    if dtype not in types:
        raise Unsupported(f"{what} of dtype {str(dtype).removeprefix('torch.')}: the kernels take {', '.join(map(str, types))}")


def check(qkv: Tensor, windows: Windows, bias: Optional[Tensor], padding: Optional[Tensor], interleaved: bool) -> None:
    """Refuses what contradicts itself or has a type that no kernel takes."""
    _check_type("qkv", qkv.dtype, _TYPES)
    check_shapes(qkv, windows, bias, padding, interleaved)


def check_shapes(qkv: Tensor, windows: Windows, bias: Optional[Tensor], padding: Optional[Tensor], interleaved: bool) -> None:
    """As check(), of a projection of any type."""
    if qkv.dim() != 6 or qkv.shape[4 if interleaved else 3] != 3:
        wanted = "[B, H, W, heads, 3, d]" if interleaved else "[B, H, W, 3, heads, d]"
        raise InvalidArgument(f"qkv of {tuple(qkv.shape)}: it must be {wanted}")
    for name, pair in (("window", windows.window), ("shift", windows.shift)):
        if len(pair) != 2:
            raise InvalidArgument(f"{name} of {len(pair)} numbers: give rows and columns")
    if min(windows.window) < 1:
        raise InvalidArgument(f"window {tuple(windows.window)}: 1 is the least")
    heads, d = qkv.shape[3 if interleaved else 4], qkv.shape[5]
    if bias is not None:
        _check_type("bias", bias.dtype, (*_BIAS_TYPES, qkv.dtype))
        down, across = windows.counts(qkv.shape[1:3])
        n = windows.window[0] * windows.window[1]
        if bias.dim() != 4 or bias.shape[0] not in (1, down * across) or bias.shape[1] not in (1, heads) or bias.shape[2:] != (n, n):
            raise InvalidArgument(f"bias of {tuple(bias.shape)}: it must be [1 or {down * across}, 1 or {heads}, {n}, {n}]")
    if padding is not None and (padding.dtype != qkv.dtype or tuple(padding.shape) != (3, heads, d)):
        raise InvalidArgument(f"padding of {tuple(padding.shape)}, {padding.dtype}: it must be {(3, heads, d)}, {qkv.dtype}")
    for name, tensor in (("bias", bias), ("padding", padding)):
        if tensor is not None and tensor.device != qkv.device:
            raise InvalidArgument(f"{name} is on {tensor.device} and qkv on {qkv.device}: they must be on one GPU")


def text_of(qkv: Tensor, windows: Windows, bias: Optional[Tensor], padding: Optional[Tensor], scale: Optional[float],
            interleaved: bool) -> str:
    """The problem that such a call asks (docs/problems.md), of tensors on any device, meta included. Raises as
    vitune.window_attention()."""
    check(qkv, windows, bias, padding, interleaved)
    return problem_text.window_attention(qkv, windows, bias, padding, scale, interleaved)


def _dense(tensor: Tensor) -> Tensor:
    """Without gaps, at a multiple of 16 bytes."""
    dense = tensor.contiguous()
    return dense.clone() if dense.data_ptr() % 16 else dense


def launch(problem: Problem, tensors: Sequence[Optional[Tensor]]) -> None:
    """Launches on q's device, on its current stream."""
    norm_ops.launch(problem, tensors)


def run(qkv: Tensor, windows: Windows, bias: Optional[Tensor], padding: Optional[Tensor], scale: Optional[float],
        interleaved: bool) -> Tensor:
    """The operator. Raises as vitune.window_attention()."""
    key = (qkv.shape, qkv.dtype, qkv.device, tuple(windows.window), tuple(windows.shift), windows[2:], scale, interleaved,
           *(None if t is None else (t.shape, t.dtype, t.device) for t in (bias, padding)))

    def make() -> Plan:
        text = text_of(qkv, windows, bias, padding, scale, interleaved)
        is_padded = any(extent % size for extent, size in zip(qkv.shape[1:3], windows.window))
        return Plan(Problem(text) if qkv.numel() else None, is_padded)
    plan = _plans.of(key, make)
    out = fake_output(qkv, interleaved)
    if plan.problem is None:
        return out
    padding = padding if plan.is_padded else None
    qkv, bias, padding = (None if t is None else _dense(t) for t in (qkv, bias, padding))
    q, k, v = qkv.unbind(4 if interleaved else 3)
    launch(plan.problem, (q, k, v, bias, padding, out))
    counters.serve()
    return out


# --- by PyTorch

def partitioned(x: Tensor, windows: Windows, beyond: Optional[Tensor]) -> Tensor:
    """[B, H, W, ...] as [B * windows, pixels of a window, ...]; `beyond`: what is there beyond an image, 0 if None."""
    image, rest = x.shape[1:3], x.shape[3:]
    counts = windows.counts(image)
    whole = tuple(count * size for count, size in zip(counts, windows.window))

    def roll(x: Tensor) -> Tensor:
        return x.roll((-windows.shift[0], -windows.shift[1]), (1, 2)) if any(windows.shift) else x
    if whole == tuple(image):
        x = roll(x)
    else:
        x = x if windows.pads_first else roll(x)
        padded = x.new_zeros(x.shape[0], *whole, *rest) if beyond is None else beyond.expand(x.shape[0], *whole, *rest).clone()
        padded[:, :image[0], :image[1]] = x
        x = roll(padded) if windows.pads_first else padded
    if windows.grid:
        x = x.unflatten(2, (windows.window[1], counts[1])).unflatten(1, (windows.window[0], counts[0]))
        x = x.movedim((2, 4), (1, 2))
    else:
        x = x.unflatten(2, (counts[1], windows.window[1])).unflatten(1, (counts[0], windows.window[0])).transpose(2, 3)
    return x.flatten(3, 4).flatten(0, 2)


def reversed_(x: Tensor, windows: Windows, image: Sequence[int]) -> Tensor:
    """The other way: [B * windows, pixels of a window, ...] as [B, H, W, ...]."""
    counts = windows.counts(image)
    x = x.unflatten(1, tuple(windows.window)).unflatten(0, (-1, *counts))
    x = x.permute(0, 3, 1, 4, 2, *range(5, x.dim())) if windows.grid else x.transpose(2, 3)
    x = x.flatten(3, 4).flatten(1, 2)
    if windows.pads_first and any(windows.shift):
        return x.roll(tuple(windows.shift), (1, 2))[:, :image[0], :image[1]]
    x = x[:, :image[0], :image[1]]
    return x.roll(tuple(windows.shift), (1, 2)) if any(windows.shift) else x


def torch_windows(qkv: Tensor, windows: Windows, bias: Optional[Tensor], padding: Optional[Tensor], scale: Optional[float],
                  interleaved: bool) -> Tensor:
    """PyTorch's own answer."""
    qkv = qkv.transpose(3, 4) if interleaved else qkv
    q, k, v = partitioned(qkv, windows, padding).permute(2, 0, 3, 1, 4).unbind(0)
    if bias is not None:
        bias = bias.to(q.dtype)
        bias = bias.repeat(q.shape[0] // bias.shape[0], 1, 1, 1) if bias.shape[0] > 1 else bias
    out = attention_ops.torch_attention(q, k, v, bias, False, scale, False)
    return reversed_(out.transpose(1, 2), windows, qkv.shape[1:3])


# --- the operator

@torch.library.custom_op("vitune::window_attention", mutates_args=(), device_types="cuda")
def window_attention_op(qkv: Tensor, window: Sequence[int], shift: Sequence[int], bias: Optional[Tensor], padding: Optional[Tensor],
                        scale: Optional[float], interleaved: bool, grid: bool, pads_first: bool, fall_back: bool) -> Tensor:
    arguments = (qkv, Windows(window, shift, grid, pads_first), bias, padding, scale, interleaved)
    if not fall_back:
        return run(*arguments)
    try:
        if not attention_ops.math_alone():
            return run(*arguments)
        counters.fall_back(attention_ops.MATH_ALONE)
    except VituneError as error:
        counters.fall_back(reason_of(error))
    return fake_output(qkv, interleaved).copy_(torch_windows(*arguments))


def fake_output(qkv: Tensor, interleaved: bool) -> Tensor:
    """A tensor as the result will be, [B, H, W, heads, d], with nothing in it yet."""
    return qkv.new_empty(*qkv.shape[:3], qkv.shape[3 if interleaved else 4], qkv.shape[5])


@torch.library.register_fake("vitune::window_attention")
def _(qkv, window, shift, bias, padding, scale, interleaved, grid, pads_first, fall_back):
    return fake_output(qkv, interleaved)


flops.know("window_attention")


def _pair(number: Any) -> tuple[int, int]:
    return (number, number) if isinstance(number, int) else tuple(number)


def window_attention(qkv: Tensor, window: Any, shift: Any, bias: Optional[Tensor], padding: Optional[Tensor],
                     scale: Optional[float], interleaved: bool, grid: bool, pads_first: bool) -> Tensor:
    """See vitune.window_attention()."""
    norm_ops.check_call(qkv, bias, padding, what="window attention")
    windows = Windows(_pair(window), _pair(shift), grid, pads_first)
    if norm_ops.may_run_directly(qkv, bias, padding):
        return run(qkv, windows, bias, padding, scale, interleaved)
    return window_attention_op(qkv, *windows[:2], bias, padding, scale, interleaved, grid, pads_first, False)
