# python/vitune/_ops/linear.py -- Linear layers with what follows them on PyTorch's tensors: the operator vitune::linear.
# SPDX-License-Identifier: Apache-2.0
"""Plans as in _ops/norm.py; where k is split over CTAs a call needs scratch memory, as group norms do.

A norm before the layer costs no pass over its result: its weight and bias are folded into the layer's (fold_norm), and the
kernel takes mean and 1 / standard deviation of each row, or the moments that the layer before wrote beside its result: of each
so many columns the mean, and the sum of squared distances from it."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, List, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.counters import counters
from .._runtime.errors import InvalidArgument, Unsupported, VituneError, reason_of
from . import flops, norm as norm_ops, problem_text
from .scratch import launch

ACTIVATIONS = (None, "relu", "gelu", "gelu_tanh", "quick_gelu", "silu")
MOMENTS_COLUMNS = 32  #: of which moments are, or a multiple of them


class Norm(NamedTuple):
    """What a kernel is given of the norm before a layer, fp32 all: none; rstd alone (RMSNorm); mean, rstd and weight_sums
    (LayerNorm); or weight_sums and moments (LayerNorm too)."""

    mean: Optional[Tensor] = None  #: [...], x's shape without its last extent
    rstd: Optional[Tensor] = None  #: the same: 1 / sqrt(variance + eps), or 1 / sqrt(mean square + eps)
    weight_sums: Optional[Tensor] = None  #: [out_features]: the sums of weight's rows
    moments: Optional[Tensor] = None  #: [..., blocks of in_features, 2], as moments_of() gives them
    eps: float = 1e-5  #: with moments, as all below
    columns: int = MOMENTS_COLUMNS  #: of a block

    @property
    def tensors(self) -> tuple[Optional[Tensor], ...]:
        return self[:4]

    @property
    def kind(self) -> Optional[str]:
        """As a problem's text says it."""
        if self.moments is not None:
            return moments_kind(self.columns, self.eps)
        return None if self.rstd is None else "rms" if self.mean is None else "layer"


def moments_kind(columns: int, eps: float) -> str:
    """Of a norm by moments of so many columns each, as a problem's text says it."""
    return f"moments:{columns} eps={float(eps)!r}"


_plans = problem_text.Plans()


def _check(x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Optional[Tensor], residual: Optional[Tensor],
           activation: Optional[str], out_dtype: Optional[torch.dtype]) -> None:
    if x.dtype not in (torch.bfloat16, torch.float16):
        raise Unsupported(f"x of dtype {str(x.dtype).removeprefix('torch.')}: linear layers take bfloat16 and float16")
    if weight.dim() != 2 or x.dim() == 0 or weight.shape[1] != x.shape[-1]:
        raise InvalidArgument(f"weight of {tuple(weight.shape)} for x of {tuple(x.shape)}: it must be"
                              " [out_features, in_features], and x [..., in_features]")
    if weight.dtype != x.dtype:
        raise InvalidArgument(f"weight of {weight.dtype} and x of {x.dtype}: they must have one type")
    if activation not in ACTIVATIONS:
        raise InvalidArgument(f"activation '{activation}': use 'relu', 'gelu', 'gelu_tanh', 'quick_gelu', 'silu' or None")
    if out_dtype not in (None, x.dtype, torch.float32):
        raise Unsupported(f"out_dtype {out_dtype}: use {x.dtype}, that of x, or torch.float32")
    for name, tensor in (("bias", bias), ("scale", scale)):
        if tensor is not None and tuple(tensor.shape) != (weight.shape[0],):
            raise InvalidArgument(f"{name} of {tuple(tensor.shape)}: it must be ({weight.shape[0]},)")
    if bias is not None and scale is not None and bias.dtype != scale.dtype:
        raise Unsupported(f"bias of {bias.dtype} and scale of {scale.dtype}: they must have one type")
    for name, tensor in (("weight", weight), ("bias", bias), ("scale", scale), ("residual", residual)):
        if tensor is not None and tensor.device != x.device:
            raise InvalidArgument(f"{name} is on {tensor.device} and x on {x.device}: they must be on one GPU")
    if residual is not None:
        _check_residual(x, weight, residual, out_dtype or x.dtype)


def _check_residual(x: Tensor, weight: Tensor, residual: Tensor, dtype: torch.dtype) -> None:
    shape, given = (*x.shape[:-1], weight.shape[0]), tuple(residual.shape)
    if not given or given != shape[-len(given):]:
        raise InvalidArgument(f"residual of {given}: its shape must be the result's, {shape}, or the end of that")
    if residual.dtype != dtype:
        raise InvalidArgument(f"residual of {residual.dtype}: it must be of the result's type, {dtype}")


def _check_norm(x: Tensor, weight: Tensor, norm: Norm) -> None:
    given = tuple(tensor is not None for tensor in norm.tensors)
    if given not in ((False,) * 4, (False, True, False, False), (True, True, True, False), (False, False, True, True)):
        raise InvalidArgument("a norm before the layer is rstd (RMSNorm), or mean, rstd and weight_sums (LayerNorm)")
    for name, tensor, shape in (("mean", norm.mean, x.shape[:-1]), ("rstd", norm.rstd, x.shape[:-1]),
                                ("weight_sums", norm.weight_sums, weight.shape[:1]),
                                ("moments", norm.moments, (*x.shape[:-1], x.shape[-1] // norm.columns, 2))):
        if tensor is None:
            continue
        if tensor.shape != shape or tensor.dtype != torch.float32:
            raise InvalidArgument(f"{name} of {tuple(tensor.shape)}, {tensor.dtype}: it must be {tuple(shape)} of torch.float32")
        if tensor.device != x.device:
            raise InvalidArgument(f"{name} is on {tensor.device} and x on {x.device}: they must be on one GPU")
    if norm.moments is not None:
        _check_moments("x", x.shape[-1], norm.columns)


def _check_moments(name: str, columns: int, of_each: int) -> None:
    if of_each % MOMENTS_COLUMNS or columns % of_each:
        raise InvalidArgument(f"{name} of {columns} columns, moments of {of_each} each: blocks are multiples of {MOMENTS_COLUMNS} "
                              "that divide a row")


def _rows(tensor: Tensor) -> Tensor:
    """[m, columns] with contiguous rows that do not overlap: a view where strides allow one."""
    flat = norm_ops.rows(tensor)
    return flat if flat.shape[0] < 2 or flat.stride(0) >= flat.shape[1] else flat.contiguous()


def _weight(weight: Tensor) -> tuple[Tensor, bool]:
    """The weight as it lies in memory, and whether that is [in_features, out_features]."""
    across = weight.t()
    if not (weight.stride(1) == 1 or weight.shape[1] == 1) and (across.stride(1) == 1 or across.shape[1] == 1):
        return _rows(across), True
    return _rows(weight), False


def empty_results(x: Tensor, weight: Tensor, return_preactivation: bool, out_dtype: Optional[torch.dtype],
                  moments_columns: int = 0) -> list[Tensor]:
    """The result, then what it was before the activation and its moments where these are asked for, of so many
    columns each."""
    shape = (*x.shape[:-1], weight.shape[0])
    results = [torch.empty(shape, dtype=out_dtype or x.dtype, device=x.device)]
    if return_preactivation:
        results.append(torch.empty(shape, dtype=x.dtype, device=x.device))
    if moments_columns:
        moments = (*shape[:-1], shape[-1] // moments_columns, 2)
        results.append(torch.empty(moments, dtype=torch.float32, device=x.device))
    return results


def _problem_of(tensors: tuple[Optional[Tensor], ...], transposed: bool, activation: Optional[str],
                return_preactivation: bool, out_dtype: torch.dtype, norm: Norm, moments_columns: int) -> Problem:
    alignment = problem_text.alignment_of((*tensors, *norm.tensors))
    key = (*[None if t is None else (t.shape, t.stride(), t.dtype) for t in tensors], transposed, activation,
           return_preactivation, out_dtype, alignment, norm.kind, moments_columns)
    x, weight, *others = tensors
    return _plans.of(key, lambda: Problem(problem_text.linear(
        x, weight, transposed, *others, activation, return_preactivation, out_dtype, alignment, norm.kind, moments_columns)))


def run(x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Optional[Tensor], residual: Optional[Tensor],
        activation: Optional[str], return_preactivation: bool, out_dtype: Optional[torch.dtype], norm: Norm = Norm(),
        moments_columns: int = 0) -> list[Tensor]:
    """The operator. Raises as vitune.linear()."""
    _check(x, weight, bias, scale, residual, activation, out_dtype)
    _check_norm(x, weight, norm)
    if moments_columns:
        _check_moments("the result", weight.shape[0], moments_columns)
    results = empty_results(x, weight, return_preactivation, out_dtype, moments_columns)
    if results[0].numel() == 0:
        return results
    matrix, transposed = _weight(weight)
    bias, scale = (None if t is None else t.contiguous() for t in (bias, scale))
    norm = Norm(*(None if t is None else t.contiguous() for t in norm.tensors), norm.eps, norm.columns)
    tensors = (_rows(x), matrix, bias, scale, None if residual is None else _rows(residual))
    problem = _problem_of(tensors, transposed, activation, return_preactivation, out_dtype or x.dtype, norm, moments_columns)
    launch(problem, (*tensors, results[0], results[1] if return_preactivation else None, *norm.tensors,
                     results[-1] if moments_columns else None))
    return results


ACTIVATE = {None: lambda y: y, "relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
            "quick_gelu": lambda y: y * torch.sigmoid(1.702 * y), "silu": F.silu}


def by_torch(x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Optional[Tensor], residual: Optional[Tensor],
             activation: Optional[str], out_dtype: Optional[torch.dtype], norm: Norm) -> Tensor:
    """What the operator computes, by PyTorch's operators: for a compiled model that meets a call without a kernel."""
    rows = x
    mean, rstd = (norm.mean, norm.rstd) if norm.moments is None else _statistics(norm.moments, norm.columns, norm.eps)
    if rstd is not None:
        centred = x.float() if mean is None else x.float() - mean.unsqueeze(-1)
        rows = (centred * rstd.unsqueeze(-1)).to(x.dtype)
    y = F.linear(rows, weight).float()
    y = ACTIVATE[activation](y if bias is None else y + bias)
    y = y if scale is None else y * scale
    return (y if residual is None else y + residual).to(out_dtype or x.dtype)


def moments_of(y: Tensor, columns: int) -> Tensor:
    """[..., blocks, 2], fp32: of each so many columns of a result's rows, as stored, the mean and the sum of squared distances
    from it."""
    blocks = y.float().unflatten(-1, (-1, columns))
    mean = blocks.mean(-1)
    return torch.stack((mean, (blocks - mean.unsqueeze(-1)).square().sum(-1)), -1)


def _statistics(moments: Tensor, columns: int, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation of rows, by their moments."""
    means, distances = moments.unbind(-1)
    mean = means.mean(-1)
    distance = distances.sum(-1) + columns * (means - mean.unsqueeze(-1)).square().sum(-1)
    return mean, torch.rsqrt(distance / (columns * means.shape[-1]) + eps)


class Pass(threading.local):
    """What a pass of a compiled model has to do beside its calls, in this thread: see _compile/patterns/renewal.py."""

    #: Told of the weight of each call of a linear layer before it is launched.
    reaches: Optional[Callable[[Tensor], None]] = None


current = Pass()


@torch.library.custom_op("vitune::linear", mutates_args=(), device_types="cuda")
def linear_op(x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Optional[Tensor], residual: Optional[Tensor],
              activation: Optional[str], return_preactivation: bool, out_dtype: Optional[torch.dtype],
              mean: Optional[Tensor] = None, rstd: Optional[Tensor] = None, weight_sums: Optional[Tensor] = None) -> List[Tensor]:
    return run(x, weight, bias, scale, residual, activation, return_preactivation, out_dtype, Norm(mean, rstd, weight_sums))


@torch.library.register_fake("vitune::linear")
def _(x, weight, bias, scale, residual, activation, return_preactivation, out_dtype, mean=None, rstd=None, weight_sums=None):
    return empty_results(x, weight, return_preactivation, out_dtype)


@torch.library.custom_op("vitune::linear_or_torch", mutates_args=(), device_types="cuda")
def linear_or_torch_op(x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Optional[Tensor], residual: Optional[Tensor],
                       activation: Optional[str], out_dtype: Optional[torch.dtype], mean: Optional[Tensor],
                       rstd: Optional[Tensor], weight_sums: Optional[Tensor]) -> Tensor:
    if current.reaches is not None:
        current.reaches(weight)
    norm = Norm(mean, rstd, weight_sums)
    try:
        return run(x, weight, bias, scale, residual, activation, False, out_dtype, norm)[0]
    except VituneError as error:
        counters.fall_back(reason_of(error))
    return by_torch(x, weight, bias, scale, residual, activation, out_dtype, norm)


@torch.library.register_fake("vitune::linear_or_torch")
def _(x, weight, bias, scale, residual, activation, out_dtype, mean, rstd, weight_sums):
    return empty_results(x, weight, False, out_dtype)[0]


flops.know("linear", "linear_or_torch")


def text_of(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, scale: Optional[Tensor] = None,
            residual: Optional[Tensor] = None, activation: Optional[str] = None, return_preactivation: bool = False,
            out_dtype: Optional[torch.dtype] = None, norm: Optional[str] = None, moments_columns: int = 0) -> str:
    """The problem that such a call asks, of tensors on any device, meta included. norm: "layer", "rms", moments_kind(columns, eps)
    or None, of which kind the norm before it is; moments_columns: of the moments that are written. Raises as vitune.linear()."""
    _check(x, weight, bias, scale, residual, activation, out_dtype)
    matrix, transposed = _weight(weight)
    return problem_text.linear(_rows(x), matrix, transposed, bias, scale, None if residual is None else _rows(residual), activation,
                               return_preactivation, out_dtype or x.dtype, 16, norm, moments_columns)


def fold_norm(weight: Tensor, bias: Optional[Tensor], norm_weight: Optional[Tensor], norm_bias: Optional[Tensor],
              dtype: Optional[torch.dtype] = None) -> tuple[Tensor, Tensor, Tensor]:
    """See vitune.fold_norm()."""
    if weight.dim() != 2:
        raise InvalidArgument(f"weight of {tuple(weight.shape)}: it must be [out_features, in_features]")
    norm_ops.check_parameters(weight, weight.shape[1], norm_weight, norm_bias)
    wide = weight.double()
    folded = (wide if norm_weight is None else wide * norm_weight.double()).to(dtype or weight.dtype)
    total = wide.new_zeros(weight.shape[0]) if bias is None else bias.double()
    if norm_bias is not None:
        total = total + wide @ norm_bias.double()
    # The mean is of the weights that the kernel multiplies by, rounded as they are: only then the mean goes out exactly.
    return folded, total.float(), folded.double().sum(1).float()


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor], activation: Optional[str], scale: Optional[Tensor],
           residual: Optional[Tensor], return_preactivation: bool, out_dtype: Optional[torch.dtype], norm: Norm) -> Any:
    """See vitune.linear()."""
    given = (x, weight, bias, scale, residual, *norm.tensors)
    norm_ops.check_call(*given, what="linear layers")
    arguments = (x, weight, bias, scale, residual, activation, return_preactivation, out_dtype)
    results = run(*arguments, norm) if norm_ops.may_run_directly(*given) else linear_op(*arguments, *norm[:3])
    return results[0] if len(results) == 1 else tuple(results)
