# python/vitune/_ops/problem_text.py -- The texts of problems of tensors, as docs/problems.md has them. All of Python's but inference's attention's are here.
# SPDX-License-Identifier: Apache-2.0
"""Tensors may be on any device, meta included; each function is given what its operator has checked. In inference attention's text is
libvitune's, of a description."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional, TypeVar

import torch
from torch import Tensor

from .._runtime.errors import Unsupported

if TYPE_CHECKING:
    from .packed_attention import Packed
    from .window_attention import Windows

Plan = TypeVar("Plan")

TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
MAX_PLANS = 4096


class Plans(dict[Any, Any]):
    """What calls of an operator have in common whose tensors are alike, made once for each kind. A child process makes its own."""

    def __init__(self) -> None:
        super().__init__()
        os.register_at_fork(after_in_child=self.clear)

    def of(self, key: Any, make: Callable[[], Plan]) -> Plan:
        plan = self.get(key)
        if plan is None:
            plan = make()
            if len(self) >= MAX_PLANS:
                self.clear()
            self[key] = plan
        return plan


def type_name(what: str, dtype: torch.dtype) -> str:
    if dtype not in TYPES:
        raise Unsupported(f"{what} of dtype {str(dtype).removeprefix('torch.')}: norms take bfloat16, float16 and float32")
    return TYPES[dtype]


def alignment_of(tensors: Sequence[Optional[Tensor]]) -> int:
    """The least alignment of their pointers in bytes, 16 at most."""
    bits = 16
    for tensor in tensors:
        if tensor is not None:
            bits |= tensor.data_ptr()
    return bits & -bits


def norm(x: Tensor, residual: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor], eps: float, rms: bool, return_sum: bool,
         return_statistics: bool, out_dtype: Optional[torch.dtype], alignment: int) -> str:
    """x and residual: [m, d], the last stride 1."""
    parameter = weight if weight is not None else bias
    return _text(f"norm {type_name('x', x.dtype)} m={x.shape[0]} d={x.shape[1]}", rms and "rms", weight is not None and "weight",
                 bias is not None and "bias", return_sum and "sum", return_statistics and "stats",
                 parameter is not None and f"params={type_name('weight', parameter.dtype)}", f"x=@{x.stride(0)}",
                 residual is not None and f"residual=@{residual.stride(0)}", out_dtype is not None and f"out={type_name('out', out_dtype)}",
                 f"eps={eps!r}", _align(alignment))


def norm_backward(dy: Tensor, x: Tensor, weight: bool, residual: Optional[Tensor], factor_rows: int, second: Optional[torch.dtype],
                  parameters: torch.dtype, dweight: bool, dbias: bool, rms: bool, alignment: int) -> str:
    """dy, x, residual: [m, d], the last stride 1. mean and rstd are given."""
    return _text(f"norm_backward {type_name('dy', dy.dtype)} m={x.shape[0]} d={x.shape[1]}", rms and "rms", weight and "weight",
                 weight and not dweight and "frozen", dbias and "bias", (weight or dbias) and f"params={type_name('weight', parameters)}",
                 _rows("dy", dy), f"x={type_name('x', x.dtype)}@{x.stride(0)}",
                 residual is not None and (_rows("residual", residual) or "residual"),
                 second is not None and f"second={type_name('second', second)}", factor_rows and f"factor={factor_rows}", "stats",
                 _align(alignment))


def group_norm(x: Tensor, num_groups: int, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, activation: Optional[str],
               channels_last: bool, alignment: int) -> str:
    """x: dense, [N, C, ...] in its own or in channels-last memory."""
    n, c = x.shape[:2]
    parameter = weight if weight is not None else bias
    return _text(f"group_norm {type_name('x', x.dtype)} n={n} c={c} l={x.numel() // (n * c)} g={num_groups}", channels_last and "nhwc",
                 weight is not None and "weight", bias is not None and "bias",
                 parameter is not None and f"params={type_name('weight', parameter.dtype)}", activation, f"eps={eps!r}", _align(alignment))


def linear(x: Tensor, weight: Tensor, transposed: bool, bias: Optional[Tensor], scale: Optional[Tensor], residual: Optional[Tensor],
           activation: Optional[str], return_preactivation: bool, out_dtype: torch.dtype, alignment: int, norm: Optional[str] = None,
           moments_columns: int = 0) -> str:
    """x, weight, residual: matrices, the last stride 1; weight is [in_features, out_features] where it is transposed."""
    m, k = x.shape
    n = weight.shape[1 if transposed else 0]
    parameter = bias if bias is not None else scale
    return _text(f"linear {TYPES[x.dtype]} m={m} n={n} k={k}", norm and f"norm={norm}", bias is not None and "bias",
                 activation and f"act={activation}", scale is not None and "scale",
                 parameter is not None and parameter.dtype != x.dtype and f"params={type_name('bias', parameter.dtype)}", _rows("x", x),
                 (transposed or weight.stride(0) != k) and f"{'wt' if transposed else 'w'}=@{weight.stride(0)}",
                 residual is not None and (f"residual=@{residual.stride(0)}" if residual.stride(0) != n else "residual"),
                 residual is not None and residual.shape[0] != m and f"period={residual.shape[0]}", out_dtype != x.dtype and "out=fp32",
                 return_preactivation and "aux", moments_columns and f"moments={moments_columns}", _align(alignment))


def linear_act_input_grad(dy: Tensor, weight: Tensor, transposed: bool, pre: Tensor, activation: str, alignment: int) -> str:
    """dy, weight: as linear()'s x and weight; pre: as the result lies."""
    plain = linear(dy, weight, transposed, None, None, None, None, False, dy.dtype, alignment)
    return _text(plain, f"dact={activation}", _rows("pre", pre))


def linear_weight_grad(dy: Tensor, x: Tensor, dtype: torch.dtype, bias: bool, scale: bool, alignment: int) -> str:
    """dy: [m, n], x: [m, k], the last strides 1. dtype: of the gradients, and with a scale of all parameters."""
    (m, n), k = dy.shape, x.shape[1]
    return _text(f"linear_weight_grad {type_name('dy', dy.dtype)} m={m} n={n} k={k}", bias and "bias", scale and "scale",
                 scale and dtype != dy.dtype and f"params={type_name('params', dtype)}", _rows("dy", dy), _rows("x", x),
                 dtype != dy.dtype and f"out={type_name('out', dtype)}", _align(alignment))


def window_attention(qkv: Tensor, windows: Windows, bias: Optional[Tensor], padding: Optional[Tensor], scale: Optional[float],
                     interleaved: bool) -> str:
    """qkv: [B, H, W, 3, heads, d], or [B, H, W, heads, 3, d] where they are interleaved."""
    heads, d = qkv.shape[3 if interleaved else 4], qkv.shape[5]
    return _text(f"window_attention {TYPES[qkv.dtype]} b={qkv.shape[0]} image={_by(qkv.shape[1:3])} window={_by(windows.window)}",
                 any(windows.shift) and f"shift={_by(windows.shift)}", f"h={heads} d={d}", interleaved and "layout=interleaved",
                 windows.grid and "grid", padding is not None and "padding", windows.pads_first and "pad_first",
                 scale is not None and f"scale={scale!r}", bias is not None and f"bias={TYPES[bias.dtype]}:{_by(bias.shape)}")


def window_attention_backward(qkv: Tensor, windows: Windows, bias: Optional[Tensor], padding: Optional[Tensor], scale: Optional[float],
                              interleaved: bool, dbias_windows: int, table_rows: int) -> str:
    """As window_attention(). dbias_windows: of the bias's gradient, table_rows: of that of its table; 0: it is not asked for."""
    operator, forward = window_attention(qkv, windows, bias, padding, scale, interleaved).split(" ", 1)
    return _text(f"{operator}_backward {forward}", dbias_windows and f"dbias={_by((dbias_windows, *bias.shape[1:]))}",
                 table_rows and f"dtable={table_rows}")


def attention(q: Tensor, k: Tensor, v: Tensor, read: Optional[Tensor], out: Tensor, is_causal: bool, scale: Optional[float], lse: bool,
              alignment: int, dropped: int = 0) -> str:
    """q, k, v, out: [B, H, N, D], the last stride 1; read: the mask or bias, of four dimensions; dropped: so many weights of 256."""
    (batch, heads, nq, d), (_, kv_heads, nk, _) = q.shape, k.shape
    what = "" if read is None else "mask" if read.dtype == torch.bool else "bias"
    return _text(f"attention {TYPES[q.dtype]} b={batch} h={heads}", kv_heads != heads and f"hkv={kv_heads}", f"nq={nq} nk={nk} d={d}",
                 _lie(q=q, k=k, v=v, o=out), is_causal and "causal", scale is not None and f"scale={scale!r}",
                 what and f"{what}={'bool' if what == 'mask' else TYPES[read.dtype]}:{_by(read.shape)}@{_steps(read, 4)}",
                 dropped and f"dropout={dropped / 256!r}", lse and "lse", _align(alignment))


def attention_backward(q: Tensor, k: Tensor, v: Tensor, read: Optional[Tensor], out: Tensor, dout: Tensor, dq: Tensor, dk: Tensor, dv: Tensor,
                       dbias: Optional[Tensor], is_causal: bool, scale: Optional[float], alignment: int, dropped: int = 0) -> str:
    """As attention(); the gradients as their tensors."""
    operator, forward = attention(q, k, v, read, out, is_causal, scale, False, alignment, dropped).split(" ", 1)
    return _text(f"{operator}_backward {forward}", _lie(do=dout, dq=dq, dk=dk, dv=dv), dbias is not None and f"dbias={type_name('dbias', dbias.dtype)}")


def packed_attention(q: Tensor, k: Tensor, v: Tensor, sequences: int, longest: int, longest_k: Optional[int], packed: Packed) -> str:
    """q: [tokens, heads, d], k and v: [tokens, kv_heads, d], the last strides 1; longest_k: where k has offsets of its own."""
    def strides(name: str, tensor: Tensor) -> str:
        _, heads, d = tensor.shape
        head = tensor.stride(1) if heads > 1 else d
        return f"{name}={tensor.stride(0)}x{head}" if (tensor.stride(0), head) != (heads * d, d) else ""
    return _text(f"packed_attention {TYPES[q.dtype]} tokens={q.shape[0]} longest={longest} sequences={sequences}",
                 longest_k is not None and f"tokens_k={k.shape[0]} longest_k={longest_k}", f"h={q.shape[1]}",
                 k.shape[1] != q.shape[1] and f"hkv={k.shape[1]}", f"d={q.shape[2]}", strides("q", q), strides("k", k), strides("v", v),
                 packed.causal and "causal", packed.lse and "lse", packed.scale is not None and f"scale={packed.scale!r}")


def _text(*words: Any) -> str:
    """Those that are there."""
    return " ".join(word for word in words if word)


def _align(alignment: int) -> str:
    return f"align={alignment}" if alignment != 16 else ""


def _rows(name: str, matrix: Tensor) -> str:
    """From one row to the next, where there is a next one and it does not follow at once."""
    return f"{name}=@{matrix.stride(0)}" if matrix.shape[0] > 1 and matrix.stride(0) != matrix.shape[1] else ""


def _lie(**views: Tensor) -> str:
    return " ".join(f"{name}=@{_steps(view, 3)}" for name, view in views.items())


def _steps(view: Tensor, dimensions: int) -> str:
    """The strides of its first dimensions, 0 of those that have one entry."""
    return ",".join(str(step if size > 1 else 0) for step, size in zip(view.stride()[:dimensions], view.shape))


def _by(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents))
