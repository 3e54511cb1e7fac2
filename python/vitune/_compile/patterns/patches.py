# python/vitune/_compile/patterns/patches.py -- The pattern of patch embeddings in Dynamo's graph: a convolution without overlap as a linear layer.
# SPDX-License-Identifier: Apache-2.0
"""conv2d whose kernel is its stride is x, patch by patch, times a matrix: with the position embedding after it, if that is
added to the patches alone. Patches are laid out as rows by a copy, which counts in the race; rows of a number of pixels that is no
multiple of 8 end in zeros, as kernels for the tensor cores copy rows by 16 bytes."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx

from ..._runtime.errors import Unsupported
from .match import FusionPattern, Match, NoMatch, outside, value_of, wants_gradient
from .tokens import is_turned
from .tree import Tree, arguments_of, is_op, only_user
from . import linear as linear_pattern
from .linear import End, Fusion, ends, largest_first


class _Patches(NamedTuple):
    """Extents of an image and its patches."""

    channels: int
    down: int  # patches
    across: int
    height: int  # of a patch
    width: int
    is_cut: bool  # the image has pixels behind the last patch

    def rows(self, x: Any) -> Any:
        """[images, channels, height, width] -> [images, patches, in_features]."""
        if self.is_cut:
            x = x.narrow(2, 0, self.down * self.height).narrow(3, 0, self.across * self.width)
        tiles = x.reshape(-1, self.channels, self.down, self.height, self.across, self.width).permute(0, 2, 4, 1, 3, 5)
        return _padded(tiles.reshape(-1, self.down * self.across, self.channels * self.height * self.width), self._spare)

    def matrix(self, weight: Any) -> Any:
        """[out_features, channels, height, width] -> [out_features, in_features]."""
        return _padded(weight.flatten(1), self._spare)

    @property
    def _spare(self) -> int:
        return -(self.channels * self.height * self.width) % 8

    def pixels(self, tokens: Any) -> Any:
        """[images, patches, out_features] -> as the convolution's result."""
        return tokens.unflatten(1, (self.down, self.across)).permute(0, 3, 1, 2)


def _padded(matrix: Any, columns: int) -> Any:
    return torch.nn.functional.pad(matrix, (0, columns)) if columns else matrix


class Patches(FusionPattern):
    name = "linear"
    wins = True
    only_if_timed = True
    operations = ("conv2d",)

    def places(self, node: fx.Node) -> Iterator[Match | NoMatch]:
        try:
            x, weight, bias, *rest = arguments_of(node).values()
        except Unsupported:
            return
        patches = patches_of(value_of(x), value_of(weight), *rest)
        if patches is None or wants_gradient(value_of(node)):  # a convolution as others are, or see patches_train.py
            return
        dtype = value_of(node).dtype
        fusion = Fusion(x, weight, bias, End((node,)), dtype, None, "patch embedding", patches.rows, patches.matrix)
        why_not = linear_pattern.why_not_type(dtype) or outside(value_of(x)) or outside(value_of(weight))
        if why_not:
            yield NoMatch("patch embedding", why_not)
            return
        tokens = as_tokens(node)
        if tokens:
            yield from largest_first(fusion, ends((node, *tokens)))
        else:
            yield from largest_first(fusion._replace(back=patches.pixels), [End((node,))])


def patches_of(x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Optional[_Patches]:
    """Those that a convolution takes one by one; None: it is none of such."""
    if not isinstance(x, Tensor) or x.dim() != 4 or groups != 1:
        return None
    _, channels, height, width = x.shape
    kernel = tuple(weight.shape[2:])
    if pair(stride) != kernel or pair(padding) != (0, 0) or pair(dilation) != (1, 1) or kernel == (1, 1):
        return None
    if not all(isinstance(extent, int) for extent in (channels, height, width)):
        return None
    is_cut = height % kernel[0] != 0 or width % kernel[1] != 0
    return _Patches(channels, height // kernel[0], width // kernel[1], *kernel, is_cut)


def pair(argument: Any) -> Optional[tuple[int, int]]:
    """A number of each dimension of a window; None: it is a word, is left out, or is known when the model runs."""
    found = tuple(argument) if isinstance(argument, (tuple, list)) else (argument,)
    found = found * 2 if len(found) == 1 else found
    return found if len(found) == 2 and all(isinstance(number, int) for number in found) else None


_FLAT = Tree("flatten", start_dim=2, end_dim=-1)


def as_tokens(node: fx.Node) -> tuple[fx.Node, ...]:
    """flatten(2) and transpose(1, 2), which make rows of the convolution's result, and the copy of these that may follow; ():
    something else follows."""
    flat = only_user(node)
    turned = only_user(flat) if _FLAT.find(flat) is not None else None
    if not is_turned(turned):
        return ()
    copy = only_user(turned)
    return (flat, turned, copy) if is_op(copy, "contiguous") else (flat, turned)


patches = Patches()
