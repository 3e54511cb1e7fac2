# python/vitune/_compile/patterns/forms.py -- The second form of weights that compiled graphs are given: with the norm's in them.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from ..._ops import linear as linear_ops

_MATRICES, _VECTORS = (torch.bfloat16, torch.float16), (torch.bfloat16, torch.float16, torch.float32)
_CHUNK = 8  # elements, which are read at once


class Form(NamedTuple):
    """A prepared matrix and what it is made of: rows of `weight` times `norm_weight`, as `matrix`; `bias` plus the products of rows
    with `norm_bias`, as `total`, and sums of the matrix' rows as `sums`, both fp32. All are contiguous."""

    weight: Tensor
    norm_weight: Optional[Tensor]
    norm_bias: Optional[Tensor]
    bias: Optional[Tensor]
    matrix: Tensor
    total: Tensor
    sums: Optional[Tensor] = None

    @property
    def types(self) -> tuple[torch.dtype, ...]:
        """Of the vectors and the matrix; a vector that is not there has the weight's."""
        return (*(self.weight.dtype if each is None else each.dtype for each in self[1:4]), self.matrix.dtype)


class Folded(NamedTuple):
    """How a linear layer's weight gets the norm's before it, of (weight, bias, the norm's weight, the norm's bias)."""

    dtype: torch.dtype
    rms: bool

    def make(self, weight: Tensor, bias: Optional[Tensor], norm_weight: Optional[Tensor], norm_bias: Optional[Tensor]) -> tuple[Tensor, ...]:
        made = linear_ops.fold_norm(weight.contiguous(), bias, norm_weight, norm_bias, self.dtype)
        return made[:2] if self.rms else made

    def form(self, sources: Sequence[Optional[Tensor]], made: Sequence[Tensor]) -> Form:
        weight, bias, norm_weight, norm_bias = sources
        return Form(weight, norm_weight, norm_bias, bias, *made)

    def why_not(self, weight: Tensor, *vectors: Optional[Tensor]) -> str:
        """Why what compares weights on a GPU cannot read these; "": it can."""
        if weight.dtype is not self.dtype or weight.dtype not in _MATRICES or any(
                each is not None and each.dtype not in _VECTORS for each in vectors):
            return "its weights are of other types than it computes in"
        if not weight.is_contiguous() or weight.shape[1] % _CHUNK or any(each is not None and not each.is_contiguous() for each in vectors):
            return "its weights do not lie row by row, at multiples of 16 bytes"
        return ""
