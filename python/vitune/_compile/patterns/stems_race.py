# python/vitune/_compile/patterns/stems_race.py -- Convolutions with channels last, and by space to depth, beside themselves as they lie.
# SPDX-License-Identifier: Apache-2.0
"""cuDNN's kernels are the same in a compiled model, so they are timed as they are. Copies of images and weights, with their cast, are one
kernel each, as Inductor makes them. Where a gradient is wanted, those of image and weight are computed too."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx

from . import benchmark
from .benchmark import Run, Times
from .distinct import kind_of
from .match import as_compiled, value_of, wants_gradient
from .space_to_depth import SpaceToDepth, space_to_depth


class Convolution(NamedTuple):
    """A call of conv2d without groups and dilation."""

    node: fx.Node
    x: fx.Node
    weight: fx.Node
    bias: Optional[fx.Node]
    stride: tuple[int, int]
    padding: tuple[int, int]
    is_first: bool = True  #: no other one of its chain makes its image

    @property
    def dtype(self) -> torch.dtype:
        return value_of(self.node).dtype

    @property
    def device(self) -> torch.device:
        return value_of(self.node).device

    @property
    def trains(self) -> tuple[bool, bool]:
        """Whether gradients of image and weight are wanted."""
        return tuple(wants_gradient(value_of(self.node)) and wants_gradient(value_of(node)) for node in (self.x, self.weight))

    @property
    def by_depth(self) -> Optional[SpaceToDepth]:
        if not self.is_first or self.trains[0]:
            return None
        return space_to_depth(value_of(self.x).shape, value_of(self.weight).shape, self.stride, self.padding)


def raced(convolutions: Sequence[Convolution]) -> Optional[tuple[list[Optional[SpaceToDepth]], Times]]:
    """How each is computed, None: as it is but for its layout; and the times of all. None: they are not faster, or nobody can tell."""
    forms: list[Optional[SpaceToDepth]] = []
    ours_us = theirs_us = 0.0
    for found in convolutions:
        plain = _times_of(found, _last, _as_it_lies)
        if plain is None:
            return None
        depth = None if found.by_depth is None else _times_of(found, _deep, _last)
        wins = depth is not None and depth.won
        forms.append(found.by_depth if wins else None)
        ours_us, theirs_us = ours_us + (depth.ours_us if wins else plain.ours_us), theirs_us + plain.theirs_us
    times = Times(ours_us, theirs_us)
    return (forms, times) if times.won else None


_times: dict[Any, Times] = {}  # of this process, for all models

#: Image and weight as a convolution takes them, made in each call; its stride and padding.
_Given = tuple[Callable[[], Tensor], Callable[[], Tensor], tuple[int, int], tuple[int, int]]
_Form = Callable[[Convolution], _Given]


def _times_of(found: Convolution, ours: _Form, theirs: _Form) -> Optional[Times]:
    """Once for each kind of convolution."""
    library = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    key = (ours, theirs, kind_of((value_of(found.x), value_of(found.weight), value_of(found.node))), found.trains, found.stride, found.padding,
           found.is_first, library)
    if key not in _times:
        times = benchmark.measured(lambda: (_run(found, ours), _run(found, theirs)), found.device)
        if times is None:
            return None  # what failed may not fail again
        _times[key] = times
    return _times[key]


def _run(found: Convolution, form: _Form) -> Run:
    image, weight, stride, padding = form(found)
    grads: list[Tensor] = []

    def run() -> Sequence[Tensor]:
        x, w = image(), weight()
        result = torch.ops.aten.convolution(x, w, None, stride, padding, (1, 1), False, (0, 0), 1)
        if not any(found.trains):
            return [result]
        if not grads:
            grads.append(benchmark.sample(result, result.device, benchmark.GRADIENT_SEED))
        mask = [*found.trains, False]
        gradients = torch.ops.aten.convolution_backward(grads[0], x, w, None, stride, padding, (1, 1), False, (0, 0), 1, mask)
        return [result, *(each for each in gradients if each is not None)]
    return run


def _as_it_lies(found: Convolution) -> _Given:
    x, weight = (benchmark.sample(as_compiled(node), found.device) for node in (found.x, found.weight))
    return lambda: x.to(found.dtype), lambda: weight.to(found.dtype), found.stride, found.padding


def _last(found: Convolution) -> _Given:
    like = as_compiled(found.x)
    # What the convolution before it gives lies so by itself.
    x = benchmark.sample(like if found.is_first else like.contiguous(memory_format=torch.channels_last), found.device)
    weight = benchmark.sample(as_compiled(found.weight), found.device)
    return (lambda: x.to(found.dtype, memory_format=torch.channels_last),
            lambda: weight.to(found.dtype, memory_format=torch.channels_last), found.stride, found.padding)


def _deep(found: Convolution) -> _Given:
    form = found.by_depth
    image = _copy_of(form.padded_image(as_compiled(found.x)), form.image_tiles, form, found)
    weight = _copy_of(form.padded_weight(as_compiled(found.weight)), form.weight_tiles, form, found)
    return image, weight, (1, 1), (0, 0)


def _copy_of(padded: Tensor, tiles: Callable[[Tensor], Tensor], form: SpaceToDepth, found: Convolution) -> Callable[[], Tensor]:
    """By one kernel, of numbers that are extended by zeros already: Inductor reads zeros where there are none."""
    of = tiles(benchmark.sample(padded, found.device))
    into = form.extended(torch.zeros(of.shape, dtype=found.dtype, device=found.device))
    inside = into.permute(0, 2, 3, 1)[..., :form.pixels].unflatten(3, of.shape[3:])

    def copy() -> Tensor:
        inside.copy_(of)
        return into
    return copy
