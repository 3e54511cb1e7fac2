# benchmarks/peers/linear/triton_linear.py -- A persistent matmul in Triton with all of the epilogue, tuned by its autotuner.
# SPDX-License-Identifier: Apache-2.0
"""What a user of Triton would write for Hopper: programs that stay on their SM and walk over tiles, operands
and result through tensor descriptors (TMA), the epilogue on the accumulator. A norm before the layer is
folded in as vitune does it, from the rows' statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from ..engine.peer import Call, Refused
from .operands import Operands
from .problem import Problem


@triton.jit
def _activated(y, ACT: tl.constexpr):
    if ACT == "relu":
        y = tl.maximum(y, 0.0)
    elif ACT == "gelu":
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    elif ACT == "gelu_tanh":
        # 0.5 (1 + tanh z) is the logistic function of 2 z.
        y = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    elif ACT == "quick_gelu":
        y = y * tl.sigmoid(1.702 * y)
    elif ACT == "silu":
        y = y * tl.sigmoid(y)
    return y


@triton.jit
def _persistent(x, w, y, Bias, Scale, Residual, Mean, Rstd, Sums, M, N, K, period,
                BIAS: tl.constexpr, SCALE: tl.constexpr, RESIDUAL: tl.constexpr,
                REPEATS: tl.constexpr, NORM: tl.constexpr, ACT: tl.constexpr,
                PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    """x, w, y: tensor descriptors of [M, K], [N, K] and [M, N]; what lies outside reads as 0."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=True):
        # Some rows of tiles at a time, column by column: what they read stays in the L2.
        first = tile // (GROUP * tiles_n) * GROUP
        rows_here = tl.minimum(tiles_m - first, GROUP)
        inside = tile % (GROUP * tiles_n)
        row = (first + inside % rows_here) * BLOCK_M
        column = inside // rows_here * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            a = x.load([row, step * BLOCK_K])
            b = w.load([column, step * BLOCK_K])
            acc = tl.dot(a, b.T, acc)
        rows = row + tl.arange(0, BLOCK_M)
        columns = column + tl.arange(0, BLOCK_N)
        column_ok = columns < N
        if NORM:
            mean = tl.load(Mean + rows, mask=rows < M, other=0.0)
            rstd = tl.load(Rstd + rows, mask=rows < M, other=0.0)
            sums = tl.load(Sums + columns, mask=column_ok, other=0.0)
            acc = (acc - mean[:, None] * sums[None, :]) * rstd[:, None]
        if BIAS:
            bias = tl.load(Bias + columns, mask=column_ok, other=0.0)
            acc += bias.to(tl.float32)[None, :]
        acc = _activated(acc, ACT)
        if SCALE:
            scale = tl.load(Scale + columns, mask=column_ok, other=0.0)
            acc *= scale.to(tl.float32)[None, :]
        if RESIDUAL:
            from_row = rows % period if REPEATS else rows
            at = Residual + from_row[:, None] * N + columns[None, :]
            ok = (rows[:, None] < M) & column_ok[None, :]
            acc += tl.load(at, mask=ok, other=0.0).to(tl.float32)
        y.store([row, column], acc.to(y.dtype))


def set_blocks(named: dict[str, Any]) -> None:
    """Gives the descriptors the boxes of a config; before each launch."""
    m, n, k = (named[f"BLOCK_{letter}"] for letter in "MNK")
    for name, box in (("x", [m, k]), ("w", [n, k]), ("y", [m, n])):
        named[name].block_shape = box


def _config(m: int, n: int, k: int, warps: int, stages: int) -> triton.Config:
    blocks = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8}
    return triton.Config(blocks, num_warps=warps, num_stages=stages, pre_hook=set_blocks)


CONFIGS = [_config(*numbers) for numbers in (
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 2), (256, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 64, 4, 4),
    (64, 256, 64, 4, 4), (128, 64, 64, 4, 5), (64, 128, 64, 4, 5), (64, 64, 64, 4, 6),
    (64, 64, 128, 4, 4), (64, 32, 128, 4, 4))]


def pruned(configs: list[triton.Config], named: dict[str, Any], **_: Any) -> list[triton.Config]:
    """Those whose tile is not more than twice what the problem fills."""
    rows, columns = (max(64, triton.next_power_of_2(named[name])) for name in "MN")
    return [config for config in configs
            if config.kwargs["BLOCK_M"] <= rows and config.kwargs["BLOCK_N"] <= columns]


def _bench(call: Any, quantiles: Any) -> Any:
    # Triton's default of 125 ms per config would make minutes of fifty problems.
    return triton.testing.do_bench(call, warmup=5, rep=20, quantiles=quantiles)


_KEY = ["M", "N", "K", "BIAS", "SCALE", "RESIDUAL", "REPEATS", "NORM", "ACT"]
_tuned = triton.autotune(CONFIGS, key=_KEY, prune_configs_by={"early_config_prune": pruned},
                         do_bench=_bench)(_persistent)
kernel = _persistent  # without the autotuner


def _described(tensor: torch.Tensor) -> TensorDescriptor:
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), [1, 16])


def _programs(device: torch.device) -> int:
    if device.type != "cuda":
        return 4
    return torch.cuda.get_device_properties(device).multi_processor_count


def new_output(t: Operands) -> torch.Tensor:
    """[m, n] of x's type."""
    return torch.empty(t.x.shape[0], t.weight.shape[0], dtype=t.x.dtype, device=t.x.device)


def arguments(problem: Problem, t: Operands, out: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of the kernel, all but the config's. Raises Refused."""
    if problem.is_of_training:
        raise Refused("is called with W as [n, k] and a result of x's type here")
    m, n, k = (problem.number(key) for key in "mnk")
    if any(stride * t.x.element_size() % 16 for stride in (t.x.stride(0), t.weight.stride(0), n)):
        raise Refused("needs rows that begin at multiples of 16 bytes, for tensor descriptors")
    if m * n >= 2**31:
        raise Refused("the result has 2^31 elements or more, beyond this kernel's offsets")
    flags = {
        "BIAS": t.bias is not None,
        "SCALE": t.scale is not None,
        "RESIDUAL": t.residual is not None,
        "REPEATS": problem.period != m,
        "NORM": problem.has_norm,
        "ACT": problem.activation,
        "PROGRAMS": _programs(t.x.device),
    }
    extra = (t.bias, t.scale, t.residual, t.mean, t.rstd, t.sums)
    tensors = [t.x if tensor is None else tensor for tensor in extra]
    described = [_described(tensor) for tensor in (t.x, t.weight, out)]
    return [*described, *tensors, m, n, k, problem.period], flags


def _launcher(
    problem: Problem, t: Operands, kernel: Any, config: dict[str, int]
) -> Callable[[], torch.Tensor]:
    positional, named = arguments(problem, t, new_output(t))
    m, n = problem.number("m"), problem.number("n")

    def grid(meta: dict[str, Any]) -> tuple[int]:
        tiles = triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"])
        return (min(named["PROGRAMS"], tiles),)

    def run() -> torch.Tensor:
        out = new_output(t)
        positional[2] = _described(out)
        if config:
            set_blocks({**dict(zip("xwy", positional)), **config})
        kernel[grid](*positional, **named, **config)
        return out

    return run


def linear(problem: Problem, t: Operands, kernel: Any = _tuned, **config: int) -> torch.Tensor:
    """The output; `kernel` and `config` let tests run one config without the autotuner."""
    return _launcher(problem, t, kernel, config)()


def compile_all(problem: Problem, t: Operands) -> None:
    """Compiles every config into Triton's cache on disk; launches nothing."""
    positional, named = arguments(problem, t, new_output(t))
    sizes = {"M": problem.number("m"), "N": problem.number("n")}
    for config in pruned(CONFIGS, sizes):
        set_blocks({**dict(zip("xwy", positional)), **config.kwargs})
        try:
            kernel.warmup(*positional, **named, **config.all_kwargs(), grid=(1,))
        except (triton.runtime.errors.OutOfResources, triton.runtime.errors.PTXASError):
            pass  # the autotuner passes over such a config too


class TritonPeer:
    """The kernel above behind Triton's autotuner."""

    name = "triton"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Tunes at its first call of a problem."""
        run = _launcher(problem, operands, _tuned, {})
        run()
        best = _tuned.best_config
        m, n, k = (best.kwargs[f"BLOCK_{letter}"] for letter in "MNK")
        words = f"{m}x{n}x{k} num_warps={best.num_warps} num_stages={best.num_stages}"
        return Call(run, words, provider="Triton")
