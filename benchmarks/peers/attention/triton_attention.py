# benchmarks/peers/attention/triton_attention.py -- Fused attention in Triton, tuned by its autotuner.
# SPDX-License-Identifier: Apache-2.0
"""What a user of Triton would write: FlashAttention-2's loop over keys with an online softmax.

One program per block of query rows and head. Blocks of keys that every row sees whole run without
masks, the rest with. Head sizes that are no power of two are padded with zeros in registers, and so
are rows and keys behind the end. Strides are free but for the last dimension.
"""
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..engine.peer import Call, Refused
from .operands import Operands
from .problem import Problem

LOG2E = tl.constexpr(1.4426950408889634)
NO_BIAS, ADDED, BOOL = 0, 1, 2


@triton.jit
def _blocks(acc, total, top, q, k_at, v_at, bias_at, stride_kn, stride_vn, stride_bm, stride_bn,
            scale, first, last, nk, rows, row_ok, columns, D: tl.constexpr, BLOCK_D: tl.constexpr,
            BLOCK_N: tl.constexpr, BIAS: tl.constexpr, CAUSAL: tl.constexpr, EDGE: tl.constexpr):
    """Keys first..last, in steps of BLOCK_N; EDGE: some may not be seen."""
    for start in tl.range(first, last, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        key_ok = keys < nk
        at = k_at + keys[None, :] * stride_kn
        if EDGE:
            k = tl.load(at, mask=key_ok[None, :] & (columns[:, None] < D), other=0.0)
        elif D != BLOCK_D:
            k = tl.load(at, mask=columns[:, None] < D, other=0.0)
        else:
            k = tl.load(at)
        # In units of log2, so that the exponential is one instruction.
        s = tl.dot(q, k) * scale
        if BIAS != 0:
            at = bias_at + (rows[:, None] * stride_bm + keys[None, :] * stride_bn)
            if EDGE:
                b = tl.load(at, mask=row_ok[:, None] & key_ok[None, :], other=0)
            else:
                b = tl.load(at, mask=row_ok[:, None], other=0)
            if BIAS == 1:
                s += b.to(tl.float32) * LOG2E
            else:
                s = tl.where(b != 0, s, float("-inf"))
        if EDGE:
            s = tl.where(key_ok[None, :], s, float("-inf"))
            if CAUSAL:
                s = tl.where(rows[:, None] >= keys[None, :], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        # A row that has seen no key yet: -inf - -inf would be NaN.
        base = tl.where(higher == float("-inf"), 0.0, higher) if BIAS != 0 else higher
        p = tl.exp2(s - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(p, 1)
        at = v_at + keys[:, None] * stride_vn
        if EDGE:
            v = tl.load(at, mask=key_ok[:, None] & (columns[None, :] < D), other=0.0)
        elif D != BLOCK_D:
            v = tl.load(at, mask=columns[None, :] < D, other=0.0)
        else:
            v = tl.load(at)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    return acc, total, top


@triton.jit
def _forward(Q, K, V, Bias, Out, scale, sq_b, sq_h, sq_n, sk_b, sk_h, sk_n, sv_b, sv_h, sv_n,
             so_b, so_h, so_n, sb_b, sb_h, sb_m, sb_n, heads, group, bias_batches, entries, nq, nk,
             D: tl.constexpr, BLOCK_D: tl.constexpr, UNIT: tl.constexpr, BIAS: tl.constexpr,
             CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Strides of q, k, v and out count UNIT elements: so Triton knows that 16-byte loads are right
    where a stride is a multiple of 8 elements and not of 16, as the heads' is for d = 72."""
    tiles = tl.cdiv(nq, BLOCK_M)
    # One dimension of programs: a grid's second one ends at 65,535, which windows exceed.
    tile = tl.program_id(0) % tiles
    entry = tl.program_id(0) // tiles
    if CAUSAL:
        tile = tiles - 1 - tile  # the longest first
    batch = (entry // heads).to(tl.int64)
    head = (entry % heads).to(tl.int64)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    row_ok = rows < nq
    inside = row_ok[:, None] & (columns[None, :] < D)
    row_at = rows[:, None]
    q = tl.load(Q + (batch * sq_b + head * sq_h + row_at * sq_n) * UNIT + columns[None, :],
                mask=inside, other=0.0)
    kv_head = head // group
    k_at = K + (batch * sk_b + kv_head * sk_h) * UNIT + columns[:, None]
    v_at = V + (batch * sv_b + kv_head * sv_h) * UNIT + columns[None, :]
    bias_at = Bias
    if BIAS != 0:
        bias_at = Bias + (batch % bias_batches) * sb_b + head * sb_h
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    whole = nk // BLOCK_N * BLOCK_N
    end = nk
    if CAUSAL:
        whole = tl.minimum(whole, (tile * BLOCK_M + 1) // BLOCK_N * BLOCK_N)
        end = tl.minimum(nk, (tile + 1) * BLOCK_M)
    acc, total, top = _blocks(acc, total, top, q, k_at, v_at, bias_at, sk_n * UNIT, sv_n * UNIT,
                              sb_m, sb_n, scale * LOG2E, 0, whole, nk, rows, row_ok, columns, D,
                              BLOCK_D, BLOCK_N, BIAS, CAUSAL, False)
    acc, total, top = _blocks(acc, total, top, q, k_at, v_at, bias_at, sk_n * UNIT, sv_n * UNIT,
                              sb_m, sb_n, scale * LOG2E, whole, end, nk, rows, row_ok, columns, D,
                              BLOCK_D, BLOCK_N, BIAS, CAUSAL, True)
    acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    out_at = Out + (batch * so_b + head * so_h + row_at * so_n) * UNIT + columns[None, :]
    tl.store(out_at, acc.to(Out.dtype.element_ty), mask=inside)


def _config(block_m: int, block_n: int, warps: int, stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_warps=warps,
                         num_stages=stages)


CONFIGS = [_config(*numbers) for numbers in (
    (128, 128, 8, 2), (128, 128, 8, 3), (128, 64, 8, 3), (128, 64, 4, 3), (128, 64, 4, 2),
    (128, 32, 4, 3), (64, 128, 4, 2), (64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 3),
    (64, 64, 2, 2), (32, 64, 4, 2), (16, 64, 4, 3), (16, 128, 4, 3))]


def pruned(configs: list[triton.Config], named: dict[str, Any], **_: Any) -> list[triton.Config]:
    """Those whose blocks are not more than twice what the problem fills, and fit registers."""
    rows, keys = (max(16, triton.next_power_of_2(named[name])) for name in ("nq", "nk"))
    few = rows < 32
    kept = [config for config in configs
            if config.kwargs["BLOCK_M"] <= rows and config.kwargs["BLOCK_N"] <= max(32, keys)
            and (config.kwargs["BLOCK_M"] > 16 or few)]
    return kept or configs[-2:]


def _bench(call: Any, quantiles: Any) -> Any:
    # Triton's default of 125 ms per config would make minutes of forty problems.
    return triton.testing.do_bench(call, warmup=4, rep=16, quantiles=quantiles)


_KEY = ["entries", "nq", "nk", "D", "BIAS", "CAUSAL", "sq_n", "sb_m"]
_tuned = triton.autotune(CONFIGS, key=_KEY, prune_configs_by={"early_config_prune": pruned},
                         do_bench=_bench)(_forward)
kernel = _forward  # without the autotuner


def arguments(problem: Problem, t: Operands, out: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of the kernel, all but the config's. Strides in elements."""
    desc, mask, batches = problem.desc, t.mask, 1
    strides: tuple[int, ...] = (0, 0, 0, 0)
    kind = NO_BIAS
    if mask is not None:
        kind = BOOL if mask.dtype is torch.bool else ADDED
        batches = mask.shape[0]
        strides = tuple(s if e > 1 else 0 for e, s in zip(mask.shape, mask.stride()))
        mask = mask.view(torch.uint8) if kind == BOOL else mask
    group = desc.heads // problem.kv_heads
    views = [stride for x in (t.q, t.k, t.v, out) for stride in x.stride()[:3]]
    # Offsets inside a head are 32-bit, as in most Triton programs: it halves their registers.
    if max(desc.nq, desc.nk) * max(*views[2::3], strides[2]) >= 2 ** 31:
        raise Refused("a head spans more than 2^31 elements, beyond this kernel's offsets")
    unit = 8 if all(stride % 8 == 0 for stride in views) else 1
    return ([t.q, t.k, t.v, mask if mask is not None else t.q, out, problem.scale,
             *(stride // unit for stride in views), *strides, desc.heads, group, batches,
             desc.batch * desc.heads, desc.nq, desc.nk],
            {"D": desc.d, "BLOCK_D": max(16, triton.next_power_of_2(desc.d)), "UNIT": unit,
             "BIAS": kind, "CAUSAL": bool(desc.causal)})


def new_output(problem: Problem, t: Operands) -> torch.Tensor:
    """[b, h, nq, d] over [b, nq, h, d] memory, as models want it."""
    desc = problem.desc
    return torch.empty(desc.batch, desc.nq, desc.heads, desc.d, dtype=t.q.dtype,
                       device=t.q.device).transpose(1, 2)


def attention(problem: Problem, t: Operands, kernel: Any = _tuned, **config: int) -> torch.Tensor:
    """The output; `kernel` and `config` let tests run one config without the autotuner."""
    out = new_output(problem, t)
    positional, named = arguments(problem, t, out)
    _launch(problem, kernel, positional, {**named, **config})
    return out


def _launch(problem: Problem, kernel: Any, positional: list[Any], named: dict[str, Any]) -> None:
    rows, entries = problem.desc.nq, problem.desc.batch * problem.desc.heads
    kernel[lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]) * entries,)](*positional, **named)


def compile_all(problem: Problem, t: Operands) -> None:
    """Compiles every config into Triton's cache on disk; launches nothing."""
    positional, named = arguments(problem, t, new_output(problem, t))
    for config in pruned(CONFIGS, {"nq": problem.desc.nq, "nk": problem.desc.nk}):
        try:
            kernel.warmup(*positional, **named, **config.all_kwargs(), grid=(1,))
        except (triton.runtime.errors.OutOfResources, triton.runtime.errors.PTXASError):
            pass  # the autotuner passes over such a config too


class TritonPeer:
    """The kernel above behind Triton's autotuner."""

    name = "triton"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Tunes at its first call of a problem."""
        attention(problem, operands)
        best = _tuned.best_config
        config = (f"BLOCK_M={best.kwargs['BLOCK_M']} BLOCK_N={best.kwargs['BLOCK_N']} "
                  f"num_warps={best.num_warps} num_stages={best.num_stages}")
        positional, named = arguments(problem, operands, new_output(problem, operands))

        def run() -> torch.Tensor:
            # Reading the strides again would be this program's cost and not the peer's.
            positional[4] = out = new_output(problem, operands)
            _launch(problem, _tuned, positional, named)
            return out
        return Call(run, config)
