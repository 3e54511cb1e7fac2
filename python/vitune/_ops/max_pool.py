# python/vitune/_ops/max_pool.py -- max_pool2d of 3x3 windows, two pixels apart, that trains: operators that compilers take apart.
# SPDX-License-Identifier: Apache-2.0
"""As Inductor computes it, the forward pass keeps a byte of each window, the place of its largest pixel. Inductor's backward pass makes
indices of pixels of these, and compares four of them at each pixel; here a pixel knows by its parity which bytes would mean it, and the
image itself is not kept. Windows begin one pixel before the image; of equal pixels the first counts, and a NaN before all others."""
from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import inductor_prims

from .._runtime.errors import Unsupported
from . import flops

WINDOWS = KERNEL, STRIDE, PADDING = 3, 2, 1  #: in both dimensions
CAN_TRAIN = hasattr(inductor_prims, "_low_memory_max_pool_with_offsets")  #: of Inductor's, which had another one before


def max_pool_by_torch(x: Tensor) -> tuple[Tensor, Tensor]:
    """[images, channels, height, width] -> the largest pixel of each window, and its place in there, 3 * row + column, int8."""
    both = [[size] * 2 for size in (KERNEL, STRIDE, PADDING, 1)]
    return inductor_prims._low_memory_max_pool_with_offsets(x, *both, False)


def max_pool_backward_by_torch(gradient: Tensor, places: Tensor, height: int, width: int) -> Tensor:
    """Of the image, from that of the windows: with channels last."""
    gradient, places = (each.permute(0, 2, 3, 1) for each in (gradient, places))
    rows = torch.arange(2, device=gradient.device)[:, None, None, None]
    columns = torch.arange(2, device=gradient.device)[:, None]
    found = None
    for down, across in itertools.product(range(2), repeat=2):  # of the four windows that may hold a pixel
        here = KERNEL * (rows + PADDING - STRIDE * down) + columns + PADDING - STRIDE * across
        here = torch.where((rows >= down) & (columns >= across), here, -2).to(torch.int8)
        one = torch.where(_of_windows(places, down, across, -1) == here, _of_windows(gradient, down, across, 0), 0)
        found = one if found is None else found + one
    images, down, _, across, _, channels = found.shape
    return found.reshape(images, 2 * down, 2 * across, channels)[:, :height, :width].permute(0, 3, 1, 2)


def _of_windows(x: Tensor, down: int, across: int, beyond: int) -> Tensor:
    """[images, rows, columns, channels] of the windows so far ahead, for the two by two pixels of each."""
    return F.pad(x, (0, 0, 0, across, 0, down), value=beyond)[:, down:, across:][:, :, None, :, None]


@torch.library.custom_op("vitune::max_pool_train", mutates_args=())
def max_pool_train(x: Tensor) -> tuple[Tensor, Tensor]:
    """See max_pool_by_torch()."""
    return max_pool_by_torch(x)


@max_pool_train.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    values = F.max_pool2d(x, KERNEL, STRIDE, PADDING)
    return values, torch.empty_like(values, dtype=torch.int8)


@torch.library.custom_op("vitune::max_pool_backward", mutates_args=())
def max_pool_backward(gradient: Tensor, places: Tensor, height: int, width: int) -> Tensor:
    """See max_pool_backward_by_torch()."""
    return max_pool_backward_by_torch(gradient, places, height, width).clone(memory_format=torch.channels_last)


@max_pool_backward.register_fake
def _(gradient: Tensor, places: Tensor, height: int, width: int) -> Tensor:
    return gradient.new_empty(*gradient.shape[:2], height, width).contiguous(memory_format=torch.channels_last)


def _refuse(ctx: Any, *grads: Any) -> Any:
    raise Unsupported("vitune's max_pool2d that trains has no second derivative, and one is asked for (create_graph=True): use PyTorch's there,"
                      " or torch.compile")


max_pool_backward.register_autograd(_refuse)


def _keep(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    ctx.size = inputs[0].shape[2:]


def _gradient(ctx: Any, gradient: Any, _: Any) -> Any:
    return None if gradient is None else max_pool_backward(gradient, *ctx.saved_tensors, *ctx.size)


max_pool_train.register_autograd(_gradient, setup_context=_keep)

flops.know("max_pool_train", "max_pool_backward")
