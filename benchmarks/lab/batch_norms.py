# benchmarks/lab/batch_norms.py -- Batch norm in training with what follows it, by Inductor, and with its sums in two steps.
# SPDX-License-Identifier: Apache-2.0
"""Needs a GPU. Forward and backward pass of gelu(batch_norm(x)) as one CUDA graph, microseconds, for the shapes of MaxViT-T at batch 64:

    python benchmarks/lab/batch_norms.py [--first] [--kernels]

Inductor adds up a column in one kernel, whose rows lie far apart; here the first step adds up parts: of so many rows each ("parts 256"), of
a row of pixels ("row"), of an image ("image"). --first: channels lie first, else last. --kernels: what each kernel takes."""
from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SHAPES = ((64, 64, 112, 112), (64, 256, 112, 112), (64, 256, 56, 56), (64, 512, 28, 28), (64, 1024, 14, 14), (64, 2048, 7, 7))
WAYS = ("inductor", "parts 256", "parts 1024", "row", "image")
_EPS, _MOMENTUM, _BYTES_PER_S = 1e-3, 0.1, 4.2e12
_PASSES = 8  #: reads and writes of a tensor: x, x and y forward; x, dy, x, dy and dx backward


def _sum(values: Tensor, way: str) -> Tensor:
    """[images, channels, height, width] of fp32 -> [channels]."""
    if way == "row":
        return values.sum(3).sum((0, 2))
    if way == "image":
        return values.sum((2, 3)).sum(0)
    rows = values.permute(0, 2, 3, 1)
    return rows.reshape(int(way.split()[1]), -1, values.shape[1]).sum(1).sum(0)


class BatchNorm(torch.autograd.Function):
    """x, weight, bias -> the norm, the mean, the variance."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, way: str) -> tuple[Tensor, Tensor, Tensor]:
        count, column = x.numel() // x.shape[1], (-1, 1, 1)
        shift = x[0, :, 0, 0].float()  # near the mean, so that squares lose nothing
        values = x.float() - shift.view(column)
        mean = _sum(values, way) / count
        variance = _sum(values * values, way) / count - mean * mean
        mean, rstd = mean + shift, torch.rsqrt(variance + _EPS)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.way = way
        return ((x.float() - mean.view(column)) * (rstd * weight).view(column) + bias.view(column)).to(x.dtype), mean, variance

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Any, ...]:
        x, weight, mean, rstd = ctx.saved_tensors
        count, column = x.numel() // x.shape[1], (-1, 1, 1)
        centred, wide = x.float() - mean.view(column), gradient.float()
        of_bias, of_weight = _sum(wide, ctx.way), _sum(wide * centred, ctx.way) * rstd
        result = (wide - (of_bias / count).view(column) - centred * (rstd * of_weight / count).view(column)) * (weight * rstd).view(column)
        return result.to(x.dtype), of_weight, of_bias, None


def _forward(way: str) -> Callable[..., Tensor]:
    def theirs(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return F.gelu(F.batch_norm(x, mean, variance, weight, bias, True, _MOMENTUM, _EPS), approximate="tanh")

    def ours(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        y, found_mean, found_variance = BatchNorm.apply(x, weight, bias, way)
        mean.lerp_(found_mean.detach(), _MOMENTUM)
        variance.lerp_(found_variance.detach(), _MOMENTUM)
        return F.gelu(y, approximate="tanh")
    return theirs if way == "inductor" else ours


def _graph(run: Callable[[], Sequence[Tensor]]) -> tuple[Any, Sequence[Tensor]]:
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        results = run()
    return graph, results


def _microseconds(graph: Any) -> float:
    times = []
    for _ in range(12):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 200)
    return statistics.median(times)


def _kernels(graph: Any) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        graph.replay()
        torch.cuda.synchronize()
    for event in profile.events():
        print(f"      {event.device_time:7.0f} us  {event.name[:100]}")


def main() -> None:
    """The command."""
    lies = torch.contiguous_format if "--first" in sys.argv else torch.channels_last
    torch.cuda.set_stream(torch.cuda.Stream())  # captures want none of the default stream's
    for shape in SHAPES:
        x, gradient = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(memory_format=lies) for _ in range(2))
        weight, bias = torch.rand(shape[1], device="cuda").requires_grad_(), torch.randn(shape[1], device="cuda").requires_grad_()
        x.requires_grad_()
        line, want = [], None
        for way in WAYS:
            torch._dynamo.reset()
            if way.startswith("parts") and x.numel() // shape[1] % int(way.split()[1]):
                continue
            called, buffers = torch.compile(_forward(way)), (torch.zeros_like(weight), torch.ones_like(weight))

            def run(called: Any = called, buffers: Any = buffers) -> Sequence[Tensor]:
                y = called(x, weight, bias, *(each.detach() for each in buffers))
                return [y.detach(), *torch.autograd.grad(y, (x, weight, bias), gradient)]
            graph, results = _graph(run)
            want = want or [each.float() for each in results]
            wrong = max(float((each.float() - right).norm() / right.norm()) for each, right in zip(results, want))
            line.append(f"{way} {_microseconds(graph):.0f} ({wrong:.0e})")
            if "--kernels" in sys.argv:
                print(f"   {way}")
                _kernels(graph)
        print(f"{list(shape)}: {', '.join(line)}, floor {1e6 * _PASSES * 2 * x.numel() / _BYTES_PER_S:.0f}", flush=True)


if __name__ == "__main__":
    main()
