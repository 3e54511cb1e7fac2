# python/vitune/_ops/norm.py -- Norms on PyTorch's tensors: the operator vitune::norm, its plans and launches.
# SPDX-License-Identifier: Apache-2.0
"""A plan is a problem of libvitune with what does not depend on addresses; one per combination of shapes, strides, types."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List, NamedTuple, Optional

import torch
from torch import Tensor

from .._runtime.context import Context, Problem
from .._runtime.errors import InvalidArgument, Unsupported
from . import attention as attention_ops, flops, problem_text
from .remembered import note

#: PyTorch's eps where rms_norm is given none, of 16-bit types too.
RMS_EPS = 2.0 ** -23


class Plan(NamedTuple):
    """All of a call that does not depend on addresses."""

    problem: Optional[Problem]  # None: there is no row


_plans = problem_text.Plans()


def check(x: Tensor, residual: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor]) -> None:
    """Refuses what contradicts itself or has a type that no kernel takes."""
    problem_text.type_name("x", x.dtype)
    if x.dim() == 0:
        raise InvalidArgument("x has no dimension: a norm is over the last one")
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise InvalidArgument(f"residual of {tuple(residual.shape)}, {residual.dtype}: it must be as x, {tuple(x.shape)},"
                              f" {x.dtype}")
    check_parameters(x, x.shape[-1], weight, bias)
    if residual is not None and residual.device != x.device:
        raise InvalidArgument(f"residual is on {residual.device} and x on {x.device}: they must be on one GPU")


def check_parameters(x: Tensor, count: int, weight: Optional[Tensor], bias: Optional[Tensor]) -> None:
    """Refuses parameters that do not fit `count` columns or channels of x."""
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is None:
            continue
        if tuple(tensor.shape) != (count,):
            raise InvalidArgument(f"{name} of {tuple(tensor.shape)}: it must be ({count},)")
        if tensor.device != x.device:
            raise InvalidArgument(f"{name} is on {tensor.device} and x on {x.device}: they must be on one GPU")
    if weight is not None and bias is not None and weight.dtype != bias.dtype:
        raise Unsupported(f"weight of {weight.dtype} and bias of {bias.dtype}: they must have one type")


def rows(tensor: Tensor) -> Tensor:
    """[m, d] with contiguous rows: a view where strides allow one."""
    flat = tensor.reshape(-1, tensor.shape[-1])
    return flat if flat.shape[1] == 1 or flat.stride(1) == 1 else flat.contiguous()


def text_of(x: Tensor, residual: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool,
            return_sum: bool = False, return_statistics: bool = False, out_dtype: Optional[torch.dtype] = None) -> str:
    """The problem that such a call asks, of tensors on any device, meta included. Raises as vitune.layer_norm()."""
    check(x, residual, weight, bias)
    added = None if residual is None else rows(residual)
    return problem_text.norm(rows(x), added, weight, bias, eps, rms, return_sum, return_statistics, out_dtype, 16)


def _plan_of(tensors: Sequence[Optional[Tensor]], eps: float, rms: bool, return_sum: bool, return_statistics: bool,
             out_dtype: Optional[torch.dtype]) -> Plan:
    alignment = problem_text.alignment_of(tensors)
    key = (*[None if t is None else (t.shape, t.stride(), t.dtype) for t in tensors], eps, rms, return_sum, return_statistics,
           out_dtype, alignment)

    def make() -> Plan:
        text = problem_text.norm(*tensors, eps, rms, return_sum, return_statistics, out_dtype, alignment)
        return Plan(Problem(text) if tensors[0].shape[0] > 0 else None)
    return _plans.of(key, make)


def launch_pointers(context: Context, problem: Problem, pointers: Sequence[int], stream: int) -> None:
    """One launch at device addresses in the order of the problem's tensors. Norms need no scratch memory."""
    context.run(problem, pointers, stream=stream)


def launch(problem: Problem, tensors: Sequence[Optional[Tensor]]) -> None:
    """Launches on x's device, on its current stream."""
    device = tensors[0].get_device()
    launch_pointers(attention_ops.context_of(device), problem, [0 if t is None else t.data_ptr() for t in tensors],
                    attention_ops._stream(device))


def _empty_results(x: Tensor, return_sum: bool, return_statistics: bool, rms: bool,
                   out_dtype: Optional[torch.dtype]) -> list[Tensor]:
    """out, then sum, mean and rstd where they are asked for."""
    results = [torch.empty(x.shape, dtype=out_dtype or x.dtype, device=x.device)]
    if return_sum:
        results.append(torch.empty(x.shape, dtype=x.dtype, device=x.device))
    if return_statistics:
        count = 1 if rms else 2
        results += [torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device) for _ in range(count)]
    return results


def run(x: Tensor, residual: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool,
        return_sum: bool, return_statistics: bool, out_dtype: Optional[torch.dtype]) -> list[Tensor]:
    """The operator. Raises as vitune.layer_norm()."""
    check(x, residual, weight, bias)
    if return_sum and residual is None:
        raise InvalidArgument("return_sum without a residual: the sum would be x")
    flat = rows(x)
    added = None if residual is None else rows(residual)
    weight, bias = (None if t is None else t.contiguous() for t in (weight, bias))
    plan = _plan_of((flat, added, weight, bias), eps, rms, return_sum, return_statistics, out_dtype)
    results = _empty_results(x, return_sum, return_statistics, rms, out_dtype)
    if plan.problem is None:
        return results
    rest = iter(results)
    out = next(rest)
    total = next(rest) if return_sum else None
    mean = next(rest) if return_statistics and not rms else None
    rstd = next(rest) if return_statistics else None
    given = flat, added, weight, bias, out, total, None, mean, rstd
    launch(plan.problem, given)
    note(plan.problem.text, given, 0)
    return results


@torch.library.custom_op("vitune::norm", mutates_args=(), device_types="cuda")
def norm_op(x: Tensor, residual: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool,
            return_sum: bool, return_statistics: bool, out_dtype: Optional[torch.dtype]) -> List[Tensor]:
    return run(x, residual, weight, bias, eps, rms, return_sum, return_statistics, out_dtype)


@torch.library.register_fake("vitune::norm")
def _(x, residual, weight, bias, eps, rms, return_sum, return_statistics, out_dtype):
    return _empty_results(x, return_sum, return_statistics, rms, out_dtype)


flops.know("norm")


def check_call(*tensors: Optional[Tensor], what: str = "norms", first: str = "x") -> None:
    """Refuses what the kernels cannot reach, by the name of the first tensor, and calls of which a derivative is wanted."""
    x, given = tensors[0], [tensor for tensor in tensors if tensor is not None]
    if not attention_ops.is_on_gpu(x):
        raise Unsupported(f"{first} is on {x.device.type}: vitune's kernels run on CUDA devices")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given) or attention_ops.has_tangent(*given):
        raise Unsupported(f"vitune's {what} have no derivative, and an input asks for one: call them under torch.no_grad() or"
                          " torch.inference_mode(), or use PyTorch's")


def may_run_directly(*tensors: Optional[Tensor]) -> bool:
    """Whether nothing must see the call as an operator."""
    return all(attention_ops.may_launch_directly(tensor, tensor, tensor, None) for tensor in tensors if tensor is not None)


def norm(x: Tensor, shape: Sequence[int], weight: Optional[Tensor], bias: Optional[Tensor], eps: float,
         residual: Optional[Tensor], rms: bool, return_sum: bool, return_statistics: bool,
         out_dtype: Optional[torch.dtype]) -> Any:
    """See vitune.layer_norm() and vitune.rms_norm()."""
    check_call(x, residual, weight, bias)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or tuple(x.shape[-len(shape):]) != shape:
        raise InvalidArgument(f"normalized_shape {shape} is not how the shape of x ends, {tuple(x.shape)}")
    leading = x.shape[: x.dim() - len(shape)]
    if len(shape) > 1:  # as one dimension
        fold = lambda tensor, lead: None if tensor is None else tensor.reshape(*lead, -1)  # noqa: E731
        x, residual = fold(x, leading), fold(residual, leading)
        weight, bias = fold(weight, ()), fold(bias, ())
    arguments = (x, residual, weight, bias, eps, rms, return_sum, return_statistics, out_dtype)
    results = run(*arguments) if may_run_directly(x, residual, weight, bias) else norm_op(*arguments)
    if len(shape) > 1:
        results = [tensor.reshape(*leading, *shape) if tensor.dim() > len(leading) else tensor for tensor in results]
    return results[0] if len(results) == 1 else tuple(results)
