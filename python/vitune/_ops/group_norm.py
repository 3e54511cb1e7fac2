# python/vitune/_ops/group_norm.py -- GroupNorm with an activation on PyTorch's tensors: the operator vitune::group_norm.
# SPDX-License-Identifier: Apache-2.0
"""Plans as in _ops/norm.py; a large problem takes two kernels with scratch memory between them."""
from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.errors import InvalidArgument
from . import flops, norm as norm_ops, problem_text
from .scratch import launch

ACTIVATIONS = (None, "silu", "mish")

_plans = problem_text.Plans()


def _check(x: Tensor, num_groups: int, weight: Optional[Tensor], bias: Optional[Tensor], activation: Optional[str]) -> None:
    if x.dim() < 2:
        raise InvalidArgument(f"x of {tuple(x.shape)}: a group norm takes [N, C, ...]")
    if num_groups < 1 or x.shape[1] % num_groups != 0:
        raise InvalidArgument(f"{x.shape[1]} channels in {num_groups} groups: num_groups must divide the channels")
    if activation not in ACTIVATIONS:
        raise InvalidArgument(f"activation '{activation}': use 'silu', 'mish' or None")
    norm_ops.check_parameters(x, x.shape[1], weight, bias)


def text_of(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], num_groups: int, eps: float,
            activation: Optional[str]) -> str:
    """The problem that such a call asks, of tensors on any device, meta included. Raises as vitune.group_norm()."""
    _check(x, num_groups, weight, bias, activation)
    channels_last = _is_channels_last(x)
    dense = x if channels_last else x.contiguous()
    return problem_text.group_norm(dense, num_groups, weight, bias, eps, activation, channels_last, 16)


def _is_channels_last(x: Tensor) -> bool:
    return not x.is_contiguous() and x.movedim(1, -1).is_contiguous()


def run(x: Tensor, num_groups: int, weight: Optional[Tensor], bias: Optional[Tensor], eps: float,
        activation: Optional[str]) -> Tensor:
    """The operator. Raises as vitune.group_norm()."""
    _check(x, num_groups, weight, bias, activation)
    channels_last = _is_channels_last(x)
    dense = x if channels_last else x.contiguous()
    out = torch.empty_like(dense)
    if x.numel() == 0:
        return out
    weight, bias = (None if t is None else t.contiguous() for t in (weight, bias))
    alignment = problem_text.alignment_of((dense, weight, bias))
    key = (x.shape, x.dtype, num_groups, None if weight is None else weight.dtype, None if bias is None else bias.dtype, eps,
           activation, channels_last, alignment)
    problem = _plans.of(key, lambda: Problem(problem_text.group_norm(dense, num_groups, weight, bias, eps, activation, channels_last,
                                                                     alignment)))
    launch(problem, (dense, weight, bias, out))
    return out


@torch.library.custom_op("vitune::group_norm", mutates_args=(), device_types="cuda")
def group_norm_op(x: Tensor, num_groups: int, weight: Optional[Tensor], bias: Optional[Tensor], eps: float,
                  activation: Optional[str]) -> Tensor:
    return run(x, num_groups, weight, bias, eps, activation)


@torch.library.register_fake("vitune::group_norm")
def _(x, num_groups, weight, bias, eps, activation):
    return torch.empty_like(x if _is_channels_last(x) else x.contiguous())


flops.know("group_norm")


def group_norm(x: Tensor, num_groups: int, weight: Optional[Tensor], bias: Optional[Tensor], eps: float,
               activation: Optional[str]) -> Tensor:
    """See vitune.group_norm()."""
    norm_ops.check_call(x, weight, bias)
    if norm_ops.may_run_directly(x, weight, bias):
        return run(x, num_groups, weight, bias, eps, activation)
    return group_norm_op(x, num_groups, weight, bias, eps, activation)
