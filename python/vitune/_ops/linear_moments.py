# python/vitune/_ops/linear_moments.py -- Two linear layers with a layer norm between them in compiled models: operators.
# SPDX-License-Identifier: Apache-2.0
"""The first writes the moments of its result beside it, and the second takes them in the place of the norm's statistics, which
then cost no kernel. Both answer by PyTorch's operators where they meet a call without a kernel."""
from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from .._runtime.counters import counters
from .._runtime.errors import VituneError, reason_of
from . import flops, linear as linear_ops
from .linear import Norm


@torch.library.custom_op("vitune::linear_with_moments_or_torch", mutates_args=(), device_types="cuda")
def linear_with_moments_or_torch_op(x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Optional[Tensor],
                                    residual: Optional[Tensor], activation: Optional[str], columns: int) -> tuple[Tensor, Tensor]:
    if linear_ops.current.reaches is not None:
        linear_ops.current.reaches(weight)
    try:
        out, moments = linear_ops.run(x, weight, bias, scale, residual, activation, False, None, moments_columns=columns)
        return out, moments
    except VituneError as error:
        counters.fall_back(reason_of(error))
    out = linear_ops.by_torch(x, weight, bias, scale, residual, activation, None, Norm())
    return out, linear_ops.moments_of(out, columns)


@torch.library.register_fake("vitune::linear_with_moments_or_torch")
def _(x, weight, bias, scale, residual, activation, columns):
    return tuple(linear_ops.empty_results(x, weight, False, None, columns))


@torch.library.custom_op("vitune::linear_by_moments_or_torch", mutates_args=(), device_types="cuda")
def linear_by_moments_or_torch_op(x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Optional[Tensor],
                                  residual: Optional[Tensor], activation: Optional[str], out_dtype: Optional[torch.dtype],
                                  moments: Tensor, columns: int, eps: float, weight_sums: Tensor) -> Tensor:
    if linear_ops.current.reaches is not None:
        linear_ops.current.reaches(weight)
    norm = Norm(weight_sums=weight_sums, moments=moments, eps=eps, columns=columns)
    try:
        return linear_ops.run(x, weight, bias, scale, residual, activation, False, out_dtype, norm)[0]
    except VituneError as error:
        counters.fall_back(reason_of(error))
    return linear_ops.by_torch(x, weight, bias, scale, residual, activation, out_dtype, norm)


@torch.library.register_fake("vitune::linear_by_moments_or_torch")
def _(x, weight, bias, scale, residual, activation, out_dtype, moments, columns, eps, weight_sums):
    return linear_ops.empty_results(x, weight, False, out_dtype)[0]


flops.know("linear_with_moments_or_torch", "linear_by_moments_or_torch")
