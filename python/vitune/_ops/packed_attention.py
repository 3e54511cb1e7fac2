# python/vitune/_ops/packed_attention.py -- Attention of packed sequences of differing lengths: the operator vitune::packed_attention.
# SPDX-License-Identifier: Apache-2.0
"""Plans as in _ops/norm.py. Lengths stay on the device: a plan is of the number of tokens, of sequences, and of a bound of their lengths."""
from __future__ import annotations

import os
from typing import Any, List, NamedTuple, Optional

import torch
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.counters import counters
from .._runtime.errors import InvalidArgument, Unsupported
from . import flops, norm as norm_ops, problem_text

_TYPES = (torch.bfloat16, torch.float16)
_plans = problem_text.Plans()
#: Whether the host reads all offsets before each launch: VITUNE_CHECK=1 when PyTorch's operators are loaded (docs/environment.md).
checked = os.environ.get("VITUNE_CHECK") == "1"


class Packed(NamedTuple):
    """What a call says besides tensors; longest_q and longest_k are bounds that kernels are chosen by."""

    longest_q: int
    longest_k: int
    causal: bool
    scale: Optional[float]
    lse: bool


def bucket(number: int) -> int:
    """The least power of two, or one and a half of it, that is no less."""
    power = 1 << max(number - 1, 0).bit_length()
    return power // 4 * 3 if power >= 4 and number <= power // 4 * 3 else power


def _check_offsets(name: str, offsets: Tensor, device: torch.device) -> None:
    if offsets.dtype != torch.int32 or offsets.dim() != 1 or offsets.shape[0] < 2 or not offsets.is_contiguous():
        raise InvalidArgument(f"{name} of {tuple(offsets.shape)}, {offsets.dtype}: it must be int32 [sequences + 1], contiguous, of one"
                              " sequence at least")
    if offsets.device != device:
        raise InvalidArgument(f"{name} is on {offsets.device} and q on {device}: they must be on one GPU")


def check(q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor, offsets_k: Optional[Tensor], packed: Packed) -> None:
    """Refuses what contradicts itself or has a type that no kernel takes."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dtype not in _TYPES or tensor.dtype != q.dtype:
            raise Unsupported(f"{name} of dtype {str(tensor.dtype).removeprefix('torch.')}: q, k and v must all be bfloat16 or all float16")
        if tensor.dim() != 3 or tensor.shape[2] != q.shape[2]:
            raise InvalidArgument(f"{name} of {tuple(tensor.shape)}: it must be [tokens, heads, d], of one d")
        if tensor.device != q.device:
            raise InvalidArgument(f"{name} is on {tensor.device} and q on {q.device}: they must be on one GPU")
    if k.shape != v.shape:
        raise InvalidArgument(f"k of {tuple(k.shape)} and v of {tuple(v.shape)}: they must be alike")
    _check_offsets("cu_seqlens_q", offsets_q, q.device)
    if offsets_k is None:
        if k.shape[0] != q.shape[0]:
            raise InvalidArgument(f"q has {q.shape[0]} tokens and k {k.shape[0]}: give cu_seqlens_k")
    else:
        _check_offsets("cu_seqlens_k", offsets_k, q.device)
        if offsets_k.shape != offsets_q.shape:
            raise InvalidArgument(f"cu_seqlens_q has {offsets_q.shape[0]} offsets and cu_seqlens_k {offsets_k.shape[0]}: as many of each")
    for name, longest in (("max_seqlen_q", packed.longest_q), ("max_seqlen_k", packed.longest_k)):
        if longest < 1:
            raise InvalidArgument(f"{name} is {longest}: 1 is the least")


def check_lengths(name: str, offsets: Tensor, tokens: int, longest: int, bound: str) -> None:
    """Reads offsets back, unless a CUDA graph is captured, and refuses those of which kernels would make something else: clamped to the
    tokens and cut at the bound, without a word."""
    if offsets.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    numbers, what = offsets.tolist(), f"VITUNE_CHECK: {name}"
    if numbers[0] < 0:
        raise InvalidArgument(f"{what}[0] is {numbers[0]}: offsets begin at 0 or later")
    for place, (begin, end) in enumerate(zip(numbers, numbers[1:])):
        if end < begin:
            raise InvalidArgument(f"{what} falls from {begin} to {end} at [{place + 1}]: each offset is at least the one before it")
        if end > tokens:
            raise InvalidArgument(f"{what}[{place + 1}] is {end}, beyond the {tokens} tokens there are")
        if end - begin > longest:
            raise InvalidArgument(f"{what}: sequence {place} has {end - begin} tokens, and {bound} is {longest}: give the greatest length, or"
                                  " any bound above it")


def text_of(q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor, offsets_k: Optional[Tensor], packed: Packed) -> str:
    """The problem that such a call asks (docs/problems.md), of tensors on any device, meta included. Raises as
    vitune.attention_varlen()."""
    check(q, k, v, offsets_q, offsets_k, packed)
    sequences = offsets_q.shape[0] - 1
    # Rows may be of no sequence, as in memory that a graph is replayed with: the bounds have room for all rows of a problem.
    bounds = [min(max(bucket(longest), -(-tokens // sequences)), tokens)
              for longest, tokens in ((packed.longest_q, q.shape[0]), (packed.longest_k, k.shape[0]))]
    return problem_text.packed_attention(*map(_rows, (q, k, v)), sequences, bounds[0],
                                         None if offsets_k is None else bounds[1], packed)


def _rows(tensor: Tensor) -> Tensor:
    """As it is where kernels reach its rows, else a copy without gaps."""
    token, head, element = tensor.stride()
    one_head = tensor.shape[1] == 1
    fits = element == 1 and token % 8 == 0 and 0 <= token <= 1 << 24 and (one_head or head % 8 == 0 and head >= tensor.shape[2])
    if fits and (tensor.is_meta or tensor.data_ptr() % 16 == 0):
        return tensor
    return tensor.new_empty(tensor.shape).copy_(tensor)  # contiguous() leaves strides of what has one row


def launch(problem: Problem, tensors: Any) -> None:
    """Launches on q's device, on its current stream."""
    norm_ops.launch(problem, tensors)


def run(q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor, offsets_k: Optional[Tensor], packed: Packed) -> list[Tensor]:
    """The operator: out, then the log-sum-exp where it is asked for. Raises as vitune.attention_varlen()."""
    check(q, k, v, offsets_q, offsets_k, packed)
    key = (*((t.shape, t.stride(), t.data_ptr() % 16) for t in (q, k, v)), q.dtype, q.device, offsets_q.shape[0], offsets_k is None,
           bucket(packed.longest_q), bucket(packed.longest_k), *packed[2:])
    if checked:
        check_lengths("cu_seqlens_q", offsets_q, q.shape[0], packed.longest_q, "max_seqlen_q")
        check_lengths("cu_seqlens_k", offsets_q if offsets_k is None else offsets_k, k.shape[0], packed.longest_k, "max_seqlen_k")
    results = fake_results(q, packed.lse)
    if not q.numel():
        return results
    if not k.numel():  # no query has a key
        results[0].zero_()
        return results[:1] + [lse.fill_(-torch.inf) for lse in results[1:]]
    problem = _plans.of(key, lambda: Problem(text_of(q, k, v, offsets_q, offsets_k, packed)))
    launch(problem, (_rows(q), _rows(k), _rows(v), offsets_q, offsets_k, results[0], results[1] if packed.lse else None))
    counters.serve()
    return results


@torch.library.custom_op("vitune::packed_attention", mutates_args=(), device_types="cuda")
def packed_attention_op(q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor, offsets_k: Optional[Tensor], longest_q: int, longest_k: int,
                        causal: bool, scale: Optional[float], lse: bool) -> List[Tensor]:
    return run(q, k, v, offsets_q, offsets_k, Packed(longest_q, longest_k, causal, scale, lse))


def fake_results(q: Tensor, lse: bool) -> list[Tensor]:
    """Tensors as the results will be, with nothing in them yet."""
    out = q.new_empty(q.shape)
    return [out, q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32)] if lse else [out]


@torch.library.register_fake("vitune::packed_attention")
def _(q, k, v, offsets_q, offsets_k, longest_q, longest_k, causal, scale, lse):
    return fake_results(q, lse)


flops.know("packed_attention")


def attention_varlen(q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor, offsets_k: Optional[Tensor], longest_q: Optional[int],
                     longest_k: Optional[int], scale: Optional[float], causal: bool, lse: bool) -> Any:
    """See vitune.attention_varlen()."""
    norm_ops.check_call(q, k, v, what="kernels of packed sequences", first="q")
    if offsets_k is offsets_q and k.shape[0] == q.shape[0]:
        offsets_k = None
    longest_q = q.shape[0] if longest_q is None else int(longest_q)
    longest_k = (longest_q if offsets_k is None else k.shape[0]) if longest_k is None else int(longest_k)
    # Without rows, the longest sequence has none either.
    longest_q, longest_k = max(longest_q, not q.shape[0]), max(longest_k, not k.shape[0])
    scale = None if scale is None else float(scale)
    if norm_ops.may_run_directly(q, k, v, offsets_q, offsets_k):
        results = run(q, k, v, offsets_q, offsets_k, Packed(longest_q, longest_k, causal, scale, lse))
    else:
        results = packed_attention_op(q, k, v, offsets_q, offsets_k, longest_q, longest_k, causal, scale, lse)
    return tuple(results) if lse else results[0]


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: Any,
                           max_seqlen_k: Any, dropout_p: float, softmax_scale: Optional[float], causal: bool, window_size: Any,
                           softcap: float, alibi_slopes: Any, return_attn_probs: bool, block_table: Any) -> Tensor:
    """See vitune.flash_attn_varlen_func()."""
    for name, given, what in (("dropout_p", dropout_p, "dropout"), ("softcap", softcap, "cap of scores"),
                              ("alibi_slopes", alibi_slopes is not None, "slopes"), ("block_table", block_table is not None, "pages"),
                              ("return_attn_probs", return_attn_probs, "probabilities to return")):
        if given:
            raise Unsupported(f"{name} is given: packed attention has no {what}")
    if any(side is not None and side >= 0 for side in window_size or ()):
        raise Unsupported(f"window_size is {tuple(window_size)}: packed attention has no sliding window; give (-1, -1)")
    return attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal, False)
