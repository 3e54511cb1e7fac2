# python/vitune/_compile/patterns/space_to_depth.py -- A strided convolution of an image as one of stride 1, whose channels are squares of pixels.
# SPDX-License-Identifier: Apache-2.0
"""An image has three channels, and kernels for the tensor cores multiply eight or sixteen at a time. A convolution of stride s reads the
same squares of s x s pixels at every step. With the pixels of a square as channels its stride is 1 and its kernel smaller: 7x7 of 3
channels by steps of 2 is 4x4 of 12. Kernels and images are extended by zeros to whole squares, and channels to a multiple of 8."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch.nn.functional as F

_MOST_CHANNELS = 4  #: of an image: more fill the tensor cores by themselves


class _Axis(NamedTuple):
    """Extents along an image's height or width."""

    size: int
    kernel: int
    stride: int
    padding: int

    @property
    def front(self) -> int:
        """Zeros before the image, in whole squares."""
        return -(-self.padding // self.stride) * self.stride

    @property
    def offset(self) -> int:
        """Zeros before the kernel, which begins where the image's padding does."""
        return self.front - self.padding

    @property
    def taps(self) -> int:
        """The kernel's extent in squares."""
        return -(-(self.offset + self.kernel) // self.stride)

    @property
    def squares(self) -> int:
        """Those that the convolution reads."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + self.taps

    @property
    def around_image(self) -> tuple[int, int]:
        return self.front, self.stride * self.squares - self.front - self.size  # the second cuts where it is negative

    @property
    def around_kernel(self) -> tuple[int, int]:
        return self.offset, self.stride * self.taps - self.offset - self.kernel


class SpaceToDepth(NamedTuple):
    """Gives image and weight as a convolution of stride 1 without padding takes them: tensors, or nodes of a graph as proxies."""

    channels: int
    down: _Axis
    across: _Axis

    def image(self, x: Any) -> Any:
        """[images, channels, height, width] -> [images, pixels of a square, squares down, squares across], which lie with channels last."""
        return self.extended(self.image_tiles(self.padded_image(x)))

    def weight(self, weight: Any) -> Any:
        """[out_channels, channels, height, width] -> as the image."""
        return self.extended(self.weight_tiles(self.padded_weight(weight)))

    def padded_image(self, x: Any) -> Any:
        return F.pad(x, (*self.across.around_image, *self.down.around_image))

    def padded_weight(self, weight: Any) -> Any:
        return F.pad(weight, (*self.across.around_kernel, *self.down.around_kernel))

    def image_tiles(self, padded: Any) -> Any:
        return self._tiles(padded, self.down.squares, self.across.squares)

    def weight_tiles(self, padded: Any) -> Any:
        return self._tiles(padded, self.down.taps, self.across.taps)

    def _tiles(self, padded: Any, down: int, across: int) -> Any:
        """A view of [images, squares down, squares across, channels, height of a square, its width]."""
        return padded.reshape(-1, self.channels, down, self.down.stride, across, self.across.stride).permute(0, 2, 4, 1, 3, 5)

    def extended(self, tiles: Any) -> Any:
        """Tiles as channels, extended by zeros."""
        rows, missing = tiles.flatten(3), -self.pixels % 8
        return (F.pad(rows, (0, missing)) if missing else rows).permute(0, 3, 1, 2)

    @property
    def pixels(self) -> int:
        return self.channels * self.down.stride * self.across.stride


def space_to_depth(image: Any, kernel: Any, stride: tuple[int, int], padding: tuple[int, int]) -> Optional[SpaceToDepth]:
    """Of a convolution of images and a kernel of these shapes, without groups and dilation; None: it gains nothing by it."""
    _, channels, *sizes = image
    if channels > _MOST_CHANNELS or not all(1 < step < size for step, size in zip(stride, kernel[2:])):
        return None
    return SpaceToDepth(channels, *map(_Axis, sizes, kernel[2:], stride, padding))
