# python/vitune/_compile_forms.py -- The second forms of weights that compiled graphs are given: with the norm's in them, or of autocast's type.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from . import _torch_linear

TYPES = (torch.bfloat16, torch.float16, torch.float32)  #: of sources


class Form(NamedTuple):
    """A prepared matrix and what it is made of: rows of `weight` times `norm_weight`, as `matrix`, which is contiguous; `bias` plus the
    products of rows with `norm_bias`, as `total`, and sums of the matrix' rows as `sums`, both fp32. Sources may be strided."""

    weight: Tensor
    norm_weight: Optional[Tensor]
    norm_bias: Optional[Tensor]
    bias: Optional[Tensor]
    matrix: Tensor
    total: Optional[Tensor] = None
    sums: Optional[Tensor] = None

    @property
    def types(self) -> tuple[torch.dtype, ...]:
        """Of the sources and the matrix; a source that is not there has the weight's."""
        return (*(self.weight.dtype if each is None else each.dtype for each in self[:4]), self.matrix.dtype)


class Folded(NamedTuple):
    """A linear layer's weight with the norm's before it, of (weight, bias, the norm's weight, the norm's bias)."""

    dtype: torch.dtype
    rms: bool
    matrix: Callable[[Any], Any]  #: a view of the weight as [out_features, in_features]

    def make(self, weight: Tensor, bias: Optional[Tensor], norm_weight: Optional[Tensor], norm_bias: Optional[Tensor]) -> tuple[Tensor, ...]:
        made = _torch_linear.fold_norm(self.matrix(weight).contiguous(), bias, norm_weight, norm_bias, self.dtype)
        return made[:2] if self.rms else made

    def form(self, sources: Sequence[Optional[Tensor]], made: Sequence[Tensor]) -> Form:
        weight, bias, norm_weight, norm_bias = sources
        return Form(self.matrix(weight), norm_weight, norm_bias, bias, *made)


class Cast(NamedTuple):
    """A weight in another type, of (weight,)."""

    dtype: torch.dtype

    def make(self, weight: Tensor) -> tuple[Tensor, ...]:
        return (weight.to(self.dtype, memory_format=torch.contiguous_format),)

    def form(self, sources: Sequence[Optional[Tensor]], made: Sequence[Tensor]) -> Form:
        return Form(sources[0].flatten(1), None, None, None, made[0].flatten(1))
