# python/vitune/_export/windows.py -- Convolutions, pools and pads: windows are views of an image that lies in a border.
# SPDX-License-Identifier: Apache-2.0
"""A window overlaps its neighbours by the view's strides alone, so nothing is gathered: a dense convolution is a layer whose rows are
windows, a depthwise one and a pool are sums over them."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from .._compile.patterns.match import value_of
from .._runtime.errors import Unsupported
from .arguments import bound, number, plain_name
from .graph import View
from .lower import Lowering, maybe
from .products import emit_layer

_MOST_GROUPS = 64  # each is a layer of its own


def _pad(at: Lowering, node: fx.Node) -> None:
    x, pads, mode, value = bound(node, "input pad mode=constant value")
    if mode != "constant" or not all(isinstance(each, int) for each in pads):
        raise Unsupported(f"padding by mode {mode}")
    rank = value_of(x).dim()
    sides = [(0, 0)] * rank
    for place in range(len(pads) // 2):
        sides[rank - 1 - place] = (pads[2 * place], pads[2 * place + 1])
    _put_in_border(at, at.view(x), at.new(node), sides, number(value or 0))


def _put_in_border(at: Lowering, view: View, out: View, sides: Sequence[tuple[int, int]], value: str) -> None:
    """Copies a view into the middle of `out`; what lies around is a number. sides: of each dimension how much before and behind;
    negative: so much less."""
    for dim, (low, high) in enumerate(sides):
        if low < 0 or high < 0:
            view = view.narrowed(dim, max(-low, 0), view.extents[dim] + min(low, 0) + min(high, 0))
        low, high = max(low, 0), max(high, 0)
        for start, count in ((0, low), (low + view.extents[dim], high)):
            if count:
                at.map(value, [], out.narrowed(dim, start, count))
        out = out.narrowed(dim, low, view.extents[dim])
    at.copied(view, out)


class _Windows(NamedTuple):
    """How windows lie over the last dimensions of an image."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def of(self, at: Lowering, x: fx.Node, result: Tensor, border: str) -> View:
        """[B, C, *places, *kernel], of an image in a border of a number. Raises Unsupported where a window reaches beyond that."""
        image, view = value_of(x), at.view(x)
        if any(self.padding):
            shape = (*image.shape[:2], *(extent + 2 * pad for extent, pad in zip(image.shape[2:], self.padding)))
            wide = at.scratch(image.dtype, shape, view.strides)
            _put_in_border(at, view, wide, [(0, 0), (0, 0), *((pad, pad) for pad in self.padding)], border)
            view = wide
        places = result.shape[2:]
        for extent, count, kernel, stride, dilation in zip(view.extents[2:], places, self.kernel, self.stride, self.dilation):
            if (count - 1) * stride + (kernel - 1) * dilation >= extent:
                raise Unsupported("windows that reach beyond the image and its border")
        steps = tuple(step * stride for step, stride in zip(view.strides[2:], self.stride))
        inside = tuple(step * dilation for step, dilation in zip(view.strides[2:], self.dilation))
        return View(view.of, view.offset, (*view.extents[:2], *places, *self.kernel), (*view.strides[:2], *steps, *inside))


def _each(value: Any, rank: int) -> tuple[int, ...]:
    """An argument that is a number for all dimensions, or one for each."""
    values = (value,) * rank if isinstance(value, int) else tuple(value)
    values = values * rank if len(values) == 1 else values
    if len(values) != rank or not all(isinstance(each, int) for each in values):
        raise Unsupported(f"windows with the argument {value}")
    return values


def _conv(at: Lowering, node: fx.Node) -> None:
    x, weight, bias, stride, padding, dilation, groups = bound(node, "input weight bias stride=1 padding=0 dilation=1 groups=1")
    image, w, result = value_of(x), value_of(weight), value_of(node)
    rank = 2 if "2d" in plain_name(node.target) else 1
    if at.constant(weight) is None or image.dim() != rank + 2:
        raise Unsupported("a convolution of other than batches of images, or with a filter that depends on the input")
    if groups != 1 and w.shape[1] != 1 and groups > _MOST_GROUPS:
        raise Unsupported(f"a convolution in {groups} groups")
    padding = 0 if padding == "valid" else padding
    if padding == "same":
        spans = [each * (size - 1) for each, size in zip(_each(dilation, rank), w.shape[2:])]
        if any(span % 2 for span in spans):
            raise Unsupported("padding that is not the same on both sides")
        padding = [span // 2 for span in spans]
    over = _Windows(tuple(w.shape[2:]), _each(stride, rank), _each(padding, rank), _each(dilation, rank))
    windows, filters, out = over.of(at, x, result, "0"), at.view(weight), at.new(node)
    channels_last = (0, *range(2, rank + 2), 1)
    rows = windows.ordered((*channels_last, *range(rank + 2, 2 * rank + 2)))
    out = out.ordered(channels_last)
    if groups != 1 and w.shape[1] == 1:
        return _depthwise(at, rows, filters, maybe(at, bias), out, rank)
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for group in range(groups):
        emit_layer(at, image.dtype, rows.narrowed(rank + 1, group * inputs, inputs), filters.narrowed(0, group * outputs, outputs),
                   result.dtype, out.narrowed(rank + 1, group * outputs, outputs),
                   bias=None if bias is None else at.view(bias).narrowed(0, group * outputs, outputs))


def _depthwise(at: Lowering, rows: View, filters: View, bias: Optional[View], out: View, rank: int) -> None:
    """rows: [B, *places, C, *kernel]; filters: [C * times, 1, *kernel]; out: [B, *places, C * times]."""
    channels = rows.extents[rank + 1]
    times = filters.extents[0] // channels
    if times > _MOST_GROUPS:
        raise Unsupported(f"a convolution of {times} filters a channel")
    for place in range(times):  # every so many of the results
        def every(view: View, dim: int, place: int = place) -> View:
            return View(view.of, view.offset + place * view.strides[dim], (*view.extents[:dim], channels, *view.extents[dim + 1:]),
                        (*view.strides[:dim], view.strides[dim] * times, *view.strides[dim + 1:]))
        kernel, made = every(filters, 0), every(out, rank + 1)
        kernel = kernel.ordered((0, *range(2, rank + 2))).expanded(rows.extents)
        total = made if bias is None else at.scratch(torch.float32, made.extents)
        at.map("mul(a,b)", [rows, kernel], total, "sum", rank)
        if bias is not None:
            at.map("add(a,b)", [total, every(bias, 0).expanded(made.extents)], made)


def _max_pool(at: Lowering, node: fx.Node) -> None:
    x, kernel, stride, padding, dilation, _, indices = bound(
        node, "input kernel_size stride padding=0 dilation=1 ceil_mode=False return_indices=False")
    if indices or not isinstance(value_of(node), Tensor):
        raise Unsupported("places of the greatest are no tensor of a file")
    rank = _rank_of_pool(node, x)
    over = _Windows(_each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank), _each(dilation, rank))
    windows = over.of(at, x, value_of(node), number(float("-inf")))
    at.map("a", [windows], at.new(node), "max", rank)


def _avg_pool(at: Lowering, node: fx.Node) -> None:
    x, kernel, stride, padding, _, counts_border, divisor = bound(
        node, "input kernel_size stride padding=0 ceil_mode=False count_include_pad=True divisor_override")
    rank, result = _rank_of_pool(node, x), value_of(node)
    over = _Windows(_each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank), (1,) * rank)
    if divisor is not None:
        raise Unsupported("a pool with a divisor of its own")
    windows, out = over.of(at, x, result, "0"), at.new(node)
    if counts_border or not any(over.padding):
        return at.map("a", [windows], out, "mean", rank)
    total = at.scratch(torch.float32, out.extents)
    at.map("a", [windows], total, "sum", rank)
    factors = at.constants.exact(_one_over_inside(over, value_of(x), result), (node.name, "factors"))
    at.map("mul(a,b)", [total, factors.expanded(out.extents)], out)


def _one_over_inside(over: _Windows, image: Tensor, result: Tensor) -> Tensor:
    """For each place of a result, of the number of pixels of the image in its window."""
    counts = torch.ones(())
    for extent, places, kernel, stride, padding in zip(image.shape[2:], result.shape[2:], over.kernel, over.stride, over.padding):
        begin = torch.arange(places) * stride - padding
        counts = counts.unsqueeze(-1) * ((begin + kernel).clamp(max=extent) - begin.clamp(min=0))
    return 1 / counts


def _adaptive_avg_pool(at: Lowering, node: fx.Node) -> None:
    x, size = bound(node, "input output_size")
    rank, image = _rank_of_pool(node, x), value_of(x)
    places = tuple(value_of(node).shape[2:])
    if any(extent % count for extent, count in zip(image.shape[2:], places)):
        raise Unsupported(f"pooling of {list(image.shape[2:])} in {list(places)} windows of different sizes")
    kernel = tuple(extent // count for extent, count in zip(image.shape[2:], places))
    windows = _Windows(kernel, kernel, (0,) * rank, (1,) * rank).of(at, x, value_of(node), "0")
    at.map("a", [windows], at.new(node), "mean", rank)


def _interpolate(at: Lowering, node: fx.Node) -> None:
    """Of both dimensions one after the other, each a layer whose weights are constants: what PyTorch makes of every pixel alone."""
    x, size, factor, mode, align, recompute, antialias = bound(
        node, "input size scale_factor mode=nearest align_corners recompute_scale_factor antialias=False")
    image, result = value_of(x), value_of(node)
    if image.dim() != 4:
        raise Unsupported("an interpolation of other than images")
    view, out = at.view(x), at.new(node)
    for dim in (3, 2):
        # A channel for each pixel, in two columns: with one alone PyTorch takes channels for the innermost dimension.
        single = torch.eye(image.shape[dim])[None, :, :, None].repeat(1, 1, 1, 2)
        given = {"size": (result.shape[dim], 2)} if size is not None else {"scale_factor": (_each_factor(factor)[dim - 2], 1.0)}
        weights = F.interpolate(single, **given, mode=mode, align_corners=align, recompute_scale_factor=recompute, antialias=antialias)
        w = at.constants.view(weights[0, :, :, 0].T.contiguous(), (node.name, dim))
        extents = (*image.shape[:2], image.shape[2] if dim == 3 else result.shape[2], result.shape[3])
        made = at.scratch(image.dtype, extents) if dim == 3 else out
        order = (0, 1, 2, 3) if dim == 3 else (0, 1, 3, 2)
        emit_layer(at, image.dtype, view.ordered(order), w, image.dtype, made.ordered(order))
        view = made


def _each_factor(factor: Any) -> tuple[float, float]:
    return tuple(map(float, factor)) if isinstance(factor, (tuple, list)) else (float(factor),) * 2


def _rank_of_pool(node: fx.Node, x: fx.Node) -> int:
    rank = 2 if "2d" in plain_name(node.target) else 1
    if value_of(x).dim() != rank + 2:
        raise Unsupported("a pool of other than batches of images")
    return rank


WINDOWS: dict[str, Callable[[Lowering, fx.Node], None]] = {
    "pad": _pad, "conv2d": _conv, "conv1d": _conv, "max_pool2d": _max_pool, "max_pool1d": _max_pool,
    "max_pool2d_with_indices": _max_pool, "max_pool1d_with_indices": _max_pool, "avg_pool2d": _avg_pool,
    "avg_pool1d": _avg_pool, "adaptive_avg_pool2d": _adaptive_avg_pool, "adaptive_avg_pool1d": _adaptive_avg_pool,
    "interpolate": _interpolate}
