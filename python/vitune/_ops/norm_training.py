# python/vitune/_ops/norm_training.py -- Norms that train: operators of the forward pass, that of the backward pass, their formulas.
# SPDX-License-Identifier: Apache-2.0
"""The forward pass is for compilers to take apart (vitune/_ops/decompositions.py): they make one kernel of a sum, its norm and the cast
behind it. The backward pass is one call of libvitune's norm_backward, for which the forward pass keeps x or the sum, and the statistics of
its rows. A gradient that the sum has from elsewhere is added in that call, and a summand of another type or with a factor of its own (drop
path) has its gradient from there too.

What libvitune refuses PyTorch computes, by the formulas here. All arithmetic is fp32 at least, and each result is rounded once.
"""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.errors import InvalidArgument, Unsupported
from . import flops, norm as norm_ops, problem_text
from .remembered import define, remembered
from .scratch import launch
from .training import _answer, _refuse, _wide

_plans = problem_text.Plans()


# --- the formulas

def sum_by_torch(x: Tensor, residual: Tensor, factor: Optional[Tensor]) -> Tensor:
    if x.shape != residual.shape or factor is not None and factor.numel() != x.shape[0]:
        raise InvalidArgument(f"x of {tuple(x.shape)}, residual of {tuple(residual.shape)}: they must have one shape, and a factor one"
                              " number for each sample")
    if factor is None:
        return (residual + x).contiguous()
    return (residual + x * _of_samples(factor, x)).to(_sum_type(x, residual)).contiguous()


def norm_by_torch(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool,
                  out_dtype: Optional[torch.dtype]) -> tuple[Tensor, Tensor, Tensor]:
    wide = x.to(_wide(x.dtype))
    if rms:
        mean, variance = None, wide.square().mean(-1, keepdim=True)
    else:
        variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    out = (wide if mean is None else wide - mean) * rstd
    out = out if weight is None else out * weight
    out = out if bias is None else out + bias
    return out.to(out_dtype or x.dtype).contiguous(), wide.new_empty(0) if mean is None else mean.squeeze(-1), rstd.squeeze(-1)


def sum_norm_by_torch(x: Tensor, residual: Tensor, factor: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor], eps: float,
                      rms: bool, out_dtype: Optional[torch.dtype]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = sum_by_torch(x, residual, factor)
    return (total, *norm_by_torch(total, weight, bias, eps, rms, out_dtype))


def norm_backward_by_torch(dy: Tensor, x: Tensor, mean: Optional[Tensor], rstd: Tensor, weight: Optional[Tensor], residual: Optional[Tensor],
                           factor: Optional[Tensor], second: Optional[torch.dtype], parameters: torch.dtype, dweight: bool,
                           dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad, normal, rstd = dy.to(_wide(x.dtype)), x.to(_wide(x.dtype)), rstd.unsqueeze(-1)
    normal = (normal if mean is None else normal - mean.unsqueeze(-1)) * rstd
    scaled = grad if weight is None else grad * weight
    dx = scaled - normal * (scaled * normal).mean(-1, keepdim=True)
    dx = rstd * (dx if mean is None else dx - scaled.mean(-1, keepdim=True))
    dx = dx if residual is None else residual + dx
    _, of_samples, dw, db = _empty_gradients(x, None, parameters, False, False)
    if second is not None:
        of_samples = (dx if factor is None else dx * _of_samples(factor, dx)).to(second, copy=True).contiguous()
    dw = (grad * normal).reshape(-1, x.shape[-1]).sum(0).to(parameters) if dweight else dw
    db = grad.reshape(-1, x.shape[-1]).sum(0).to(parameters) if dbias else db
    return dx.to(x.dtype).contiguous(), of_samples, dw, db


def _of_samples(factor: Tensor, x: Tensor) -> Tensor:
    """A factor of each of x's samples, to be multiplied by it."""
    return factor.reshape(-1, *(1 for _ in x.shape[1:]))


def _sum_type(x: Tensor, residual: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, residual.dtype)


# --- libvitune's side

def backward_text(dy: Tensor, x: Tensor, weight: Optional[Tensor], residual: Optional[Tensor], factor: Optional[Tensor],
                  second: Optional[torch.dtype], parameters: Optional[torch.dtype], dweight: bool, dbias: bool, rms: bool,
                  alignment: int = 16) -> str:
    """The problem that such a call asks, of tensors on any device, meta included. Raises Unsupported."""
    return problem_text.norm_backward(norm_ops.rows(dy), norm_ops.rows(x), weight is not None,
                                      None if residual is None else norm_ops.rows(residual),
                                      0 if factor is None else x.shape[:-1].numel() // factor.numel(), second, parameters, dweight, dbias,
                                      rms, alignment)


def _norm_backward(dy: Tensor, x: Tensor, mean: Optional[Tensor], rstd: Tensor, weight: Optional[Tensor], residual: Optional[Tensor],
                   factor: Optional[Tensor], second: Optional[torch.dtype], parameters: torch.dtype, dweight: bool,
                   dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    given = [None if t is None else t.contiguous() for t in (mean, rstd, weight)]
    whole = [None if t is None else norm_ops.rows(t) for t in (dy, x, residual)]
    factor = None if factor is None else factor.contiguous()
    alignment = problem_text.alignment_of([t for t in (*whole, given[2])])
    key = (*[None if t is None else (t.shape, t.stride(), t.dtype) for t in (*whole, given[2], factor)], mean is None, second, parameters,
           dweight, dbias, alignment)
    problem = _plans.of(key, lambda: Problem(backward_text(whole[0], whole[1], given[2], whole[2], factor, second, parameters, dweight, dbias,
                                                           mean is None, alignment)))
    results = _empty_gradients(x, second, parameters, dweight, dbias)
    launch(problem, (whole[0], whole[1], *given, whole[2], factor, *(each if each.numel() else None for each in results)))
    return results


def _empty_gradients(x: Tensor, second: Optional[torch.dtype], parameters: torch.dtype, dweight: bool,
                     dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    columns = x.shape[-1:]
    return (x.new_empty(x.shape), x.new_empty(0 if second is None else x.shape, dtype=second or x.dtype),
            x.new_empty(columns if dweight else 0, dtype=parameters), x.new_empty(columns if dbias else 0, dtype=parameters))


def _norm(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool,
          out_dtype: Optional[torch.dtype]) -> tuple[Tensor, Tensor, Tensor]:
    out, *statistics = norm_ops.run(x, None, weight, bias, eps, rms, False, True, out_dtype)
    return (out, x.new_empty(0, dtype=torch.float32), *statistics) if rms else (out, *statistics)


# --- the operator of the backward pass

def backward(*given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """norm_backward without PyTorch's dispatch of it."""
    return _answer(given[1], lambda: _norm_backward(*given), lambda: norm_backward_by_torch(*given))


@torch.library.custom_op("vitune::norm_backward", mutates_args=())
@remembered("norm_backward")
def norm_backward(dy: Tensor, x: Tensor, mean: Optional[Tensor], rstd: Tensor, weight: Optional[Tensor], residual: Optional[Tensor],
                  factor: Optional[Tensor], second: Optional[torch.dtype], parameters: torch.dtype, dweight: bool,
                  dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dx, with the residual's gradient added; dx times the factor of its sample, of type `second`; of type `parameters` dweight and dbias.
    What is not asked for has no element. mean: None: of RMSNorm."""
    return backward(dy, x, mean, rstd, weight, residual, factor, second, parameters, dweight, dbias)


@norm_backward.register_fake
def _(dy, x, mean, rstd, weight, residual, factor, second, parameters, dweight, dbias):
    return _empty_gradients(x, second, parameters, dweight, dbias)


norm_backward.register_autograd(_refuse)


# --- those of the forward pass

@torch.library.custom_op("vitune::norm_train", mutates_args=())
@remembered("norm_train")
def norm_train(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool,
               out_dtype: Optional[torch.dtype]) -> tuple[Tensor, Tensor, Tensor]:
    """The norm over the last dimension; mean and 1 / sqrt(variance + eps) of its rows, of fp32. The mean of rms has no element."""
    given = (x, weight, bias, eps, rms, out_dtype)
    return _answer(x, lambda: _norm(*given), lambda: norm_by_torch(*given))


@norm_train.register_fake
def _(x, weight, bias, eps, rms, out_dtype):
    return _empty_norm(x, x.dtype, rms, out_dtype)


@torch.library.custom_op("vitune::sum_norm_train", mutates_args=())
def sum_norm_train(x: Tensor, residual: Tensor, factor: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor], eps: float,
                   rms: bool, out_dtype: Optional[torch.dtype]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """residual + factor x, and what norm_train gives of it. factor: of each of x's samples, without a gradient."""
    def ours() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        total = sum_by_torch(x, residual, factor)
        return (total, *_norm(total, weight, bias, eps, rms, out_dtype))
    return _answer(x, ours, lambda: sum_norm_by_torch(x, residual, factor, weight, bias, eps, rms, out_dtype))


@sum_norm_train.register_fake
def _(x, residual, factor, weight, bias, eps, rms, out_dtype):
    dtype = _sum_type(x, residual)
    return (x.new_empty(x.shape, dtype=dtype), *_empty_norm(x, dtype, rms, out_dtype))


def _empty_norm(x: Tensor, dtype: torch.dtype, rms: bool, out_dtype: Optional[torch.dtype]) -> tuple[Tensor, Tensor, Tensor]:
    statistics = _wide(dtype)
    return (x.new_empty(x.shape, dtype=out_dtype or dtype), x.new_empty(0 if rms else x.shape[:-1], dtype=statistics),
            x.new_empty(x.shape[:-1], dtype=statistics))


# --- their gradients

def _keep(ctx: Any, x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], rms: bool, mean: Tensor, rstd: Tensor,
          factor: Optional[Tensor] = None) -> None:
    """x: what is normalised."""
    if weight is not None and bias is not None and weight.dtype != bias.dtype:
        raise Unsupported(f"weight of {weight.dtype} and bias of {bias.dtype}: they must have one type")
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(mean, rstd)
    parameter = weight if weight is not None else bias
    ctx.parameters = x.dtype if parameter is None else parameter.dtype
    ctx.save_for_backward(x, None if rms else mean, rstd, weight, factor)


def _keep_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, bias, _, rms, _ = inputs
    _keep(ctx, x, weight, bias, rms, *output[1:])


def _norm_grads(ctx: Any, dy: Optional[Tensor], *_: Any) -> tuple[Optional[Tensor], ...]:
    if dy is None:
        return (None,) * 6
    x, mean, rstd, weight, _ = ctx.saved_tensors
    wants, (dweight, dbias) = ctx.needs_input_grad[0], ctx.needs_input_grad[1:3]
    dx, _, dw, db = norm_backward(dy, x, mean, rstd, weight, None, None, None, ctx.parameters, dweight, dbias)
    return dx if wants else None, dw if dweight else None, db if dbias else None, None, None, None


def _keep_sum_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, residual, factor, weight, bias, _, rms, _ = inputs
    if factor is not None and factor.requires_grad:
        raise Unsupported("a gradient of the factor is asked for: it has none")
    ctx.types = x.dtype, residual.dtype
    _keep(ctx, output[0], weight, bias, rms, *output[2:], factor)


def _sum_norm_grads(ctx: Any, dsum: Optional[Tensor], dy: Optional[Tensor], *_: Any) -> tuple[Optional[Tensor], ...]:
    if dy is None and dsum is None:
        return (None,) * 8
    total, mean, rstd, weight, factor = ctx.saved_tensors
    (of_x, of_residual), (wants_x, wants_residual), (dweight, dbias) = ctx.types, ctx.needs_input_grad[:2], ctx.needs_input_grad[3:5]
    apart = of_x if wants_x and (factor is not None or of_x != total.dtype) else None
    if dy is None:
        dx = dsum
        dsecond = None if apart is None else (dsum if factor is None else dsum * _of_samples(factor, dsum)).to(apart)
        dweight = dbias = False
    else:
        dx, dsecond, dw, db = norm_backward(dy, total, mean, rstd, weight, dsum, factor if apart is not None else None, apart, ctx.parameters,
                                            dweight, dbias)
    return (dx if apart is None else dsecond) if wants_x else None, dx.to(of_residual) if wants_residual else None, None, \
        dw if dweight else None, db if dbias else None, None, None, None


norm_train.register_autograd(_norm_grads, setup_context=_keep_norm)
sum_norm_train.register_autograd(_sum_norm_grads, setup_context=_keep_sum_norm)

flops.know("norm_train", "sum_norm_train", "norm_backward")
define("norm_train", "norm_backward")
