# python/vitune/_ops/attention.py -- Attention on PyTorch's tensors: the operators vitune::attention and their launches.
# SPDX-License-Identifier: Apache-2.0
"""One context per GPU, made at its first call; one plan per combination of shapes, strides and types.

Where the operators' library is (_runtime/native.py), the operators, their plans and their launches are its, and what follows here
serves without it. Without a compiler or a tracing mode around it, a call goes straight to the launch then: PyTorch's
dispatch of Python operators would cost several times as much as the launch itself.
"""
from __future__ import annotations

import atexit
import contextlib
import contextvars
import ctypes
import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._runtime import native, structs as _structs
from .._runtime.context import AttentionDesc, Context, Selection
from .._runtime.counters import counters
from .._runtime.errors import InvalidArgument, Unsupported, VituneError, reason_of
from .._runtime.library import check
from . import flops, order as result_order, originals
from .layout import View, fold, output_shape
from .order import TORCHS, empty_result

_DTYPES = {torch.bfloat16: _structs.BF16, torch.float16: _structs.FP16}
_MASK_DTYPES = {**_DTYPES, torch.float32: _structs.FP32}
_MAX_PLANS = 4096
_meta_counts_as_gpu: contextvars.ContextVar[bool] = contextvars.ContextVar("meta_counts_as_gpu", default=False)

# --- contexts

_contexts: dict[int, Context] = {}
_lock = threading.Lock()


def context_of(device: int) -> Context:
    """The context of a GPU, made at the first call. Raises LibraryNotFound, NoDevice, VituneError."""
    context = _contexts.get(device)
    if context is None:
        with _lock:
            context = _contexts.get(device)
            if context is None:
                context = _contexts[device] = Context(device)
    return context


def contexts() -> list[Context]:
    """Those that are in use."""
    return list(_contexts.values())


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _contexts.clear()
    _plans.clear()


def _flush() -> None:
    for context in contexts():
        try:
            context.flush()
        except VituneError:  # what was missed is a hint: not worth an error at exit
            pass


os.register_at_fork(after_in_child=_forget_after_fork)
atexit.register(_flush)

# --- plans


class Plan(NamedTuple):
    """All of a call that does not depend on addresses."""

    desc: AttentionDesc
    by_reference: Any  # of desc, kept alive by it
    launches: int
    steps: tuple[int, ...]  # bytes from one launch to the next of q, k, v, mask, out, lse
    out_shape: tuple[int, ...]
    out_strides: tuple[int, ...]  # as the kernel writes it
    wanted_strides: tuple[int, ...]  # as it is given back
    lse_shape: Optional[tuple[int, ...]]  # in memory; None: not wanted
    lse_order: tuple[int, ...]
    is_empty: bool
    bias: bool  # the mask is additive


_plans: dict[tuple, Plan | VituneError] = {}


def _check_operands(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float]) -> None:
    if q.dtype not in _DTYPES:
        raise Unsupported(f"dtype {_name(q.dtype)}: the kernels take bfloat16 and float16")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise InvalidArgument(f"q, k and v have the dtypes {_name(q.dtype)}, {_name(k.dtype)} and {_name(v.dtype)}:"
                              " they must agree")
    for name, tensor in (("k", k), ("v", v), ("attn_mask", mask)):
        if tensor is not None and tensor.device != q.device:
            raise InvalidArgument(f"{name} is on {tensor.device} and q on {q.device}: they must be on one GPU")
    if mask is not None and is_causal:
        raise InvalidArgument("attn_mask and is_causal=True exclude each other, as in PyTorch")
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, q.dtype):
        raise Unsupported(f"attn_mask of dtype {_name(mask.dtype)}: bool, float32 and {_name(q.dtype)}, that of q, are understood, as in"
                          " PyTorch")
    if mask is not None and mask.dim() < 2 and q.dim() == 4:
        raise InvalidArgument(f"attn_mask of rank {mask.dim()}: it needs a dimension of queries and one of keys, as in PyTorch")
    if scale == 0.0:
        raise Unsupported("scale 0: every key would weigh the same")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _view(tensor: Tensor) -> View:
    return View(tuple(tensor.shape), tuple(tensor.stride()))


def make_plan(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
              enable_gqa: bool, return_lse: bool, window_masks: bool, order: int = TORCHS) -> Plan:
    """Folds the tensors into a description. Reads shapes, strides, types and devices only."""
    _check_operands(q, k, v, mask, is_causal, scale)
    views = (_view(q), _view(k), _view(v), None if mask is None else _view(mask))
    words = {"enable_gqa": enable_gqa, "window_masks": window_masks}
    layout = fold(*views, **words)
    if order == TORCHS:
        order = result_order.asked(q, k, v, mask, is_causal, scale, enable_gqa)
    wanted = result_order.strides(order, q, layout.out_shape, v)
    written = layout.out_strides
    as_wanted = fold(*views, **words, out_strides=wanted)
    if as_wanted.launches == 1 or layout.launches > 1:  # else a copy of one launch's result costs less than a launch for each image
        layout, written = as_wanted, wanted
    strides = {name: _structs.Strides(*getattr(layout, name)) for name in ("q", "k", "v", "o")}
    desc = AttentionDesc(dtype=_DTYPES[q.dtype], causal=is_causal, batch=layout.batch, heads=layout.heads,
                         kv_heads=layout.kv_heads, nq=layout.nq, nk=layout.nk, d=layout.d, scale=scale or 0.0,
                         lse=return_lse, **strides)
    bias = mask is not None and mask.dtype is not torch.bool
    if mask is not None:
        kind = "bias" if bias else "mask"
        setattr(desc, f"{kind}_type", _MASK_DTYPES[mask.dtype] if bias else _structs.BOOL)
        setattr(desc, f"{kind}_batches", layout.mask_batches)
        setattr(desc, f"{kind}_strides", (ctypes.c_int64 * 4)(*layout.mask))
    sizes = (2, 2, 2, 0 if mask is None else mask.element_size(), 2, 4)
    return Plan(desc, ctypes.byref(desc), layout.launches, tuple(a * b for a, b in zip(layout.steps, sizes)),
                layout.out_shape, written, wanted, layout.lse_shape if return_lse else None,
                layout.lse_order, is_empty=0 in layout.out_shape or layout.nk == 0, bias=bias)


def _plan_of(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], *rest: Any) -> Plan:
    # Strides of a mask decide as much as those of q; dtype and device of all are checked once per plan. So is PyTorch's choice where
    # switches do not change the order of its result.
    if rest[-1] == TORCHS and q.dim() == 4 and not result_order.has_rows_outside(q) and q.dtype in _DTYPES:
        rest = (*rest[:-1], result_order.asked(q, k, v, mask, *rest[:3]))
    key = (q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(), k.dtype, k.device, v.shape, v.stride(), v.dtype,
           v.device, None if mask is None else (mask.shape, mask.stride(), mask.dtype, mask.device), rest)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        try:
            plan = make_plan(q, k, v, mask, *rest)
        except VituneError as error:
            plan = type(error)(str(error), error.status)  # without its traceback, which would keep the tensors of all its callers
        _plans[key] = plan
    if isinstance(plan, VituneError):
        raise type(plan)(str(plan), plan.status)
    return plan


# --- launches

_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _stream(device: int) -> int:
    return _raw_stream(device) if _raw_stream is not None else torch.cuda.current_stream(device).cuda_stream


def launch(plan: Plan, q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], out: Tensor, lse: Optional[Tensor]) -> None:
    """Launches all of a plan on the current stream of q's GPU."""
    device = q.get_device()
    context = _contexts.get(device) or context_of(device)
    pointers = (q.data_ptr(), k.data_ptr(), v.data_ptr(), None if mask is None else mask.data_ptr(), out.data_ptr(),
                None if lse is None else lse.data_ptr())
    launch_pointers(context, plan, pointers, _stream(device))


def launch_pointers(context: Context, plan: Plan, pointers: tuple, stream: int) -> None:
    """The launches of a plan, given the addresses of q, k, v, mask, out and lse (None where there is none)."""
    q, k, v, mask, out, lse = pointers
    for _ in range(plan.launches):
        bias_and_mask = (mask, None) if plan.bias else (None, mask)
        status = context._forward(context._handle, plan.by_reference, q, k, v, *bias_and_mask, out, lse, None, 0, stream)
        if status:
            check(status)
        if plan.launches > 1:
            q, k, v, mask, out, lse = (None if pointer is None else pointer + step
                                       for pointer, step in zip((q, k, v, mask, out, lse), plan.steps))


def run(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float], enable_gqa: bool,
        return_lse: bool, window_masks: bool, order: int = TORCHS) -> tuple[Tensor, Optional[Tensor]]:
    """Attention on the current stream: (out, lse or None), out in that order of _ops/order.py. Raises VituneError."""
    if order == TORCHS and not _efficient_allowed():  # else the plain backend is chosen by types and shapes alone, once per plan
        order = result_order.asked(q, k, v, mask, is_causal, scale, enable_gqa)
    if library is not None:
        return _run_operator(q, k, v, mask, is_causal, scale, enable_gqa, return_lse, window_masks, order)
    plan = _plan_of(q, k, v, mask, is_causal, scale, enable_gqa, return_lse, window_masks, order)
    out = torch.empty_strided(plan.out_shape, plan.out_strides, dtype=q.dtype, device=q.device)
    lse = None if plan.lse_shape is None else torch.empty(plan.lse_shape, dtype=torch.float32, device=q.device)
    if plan.is_empty:
        # No key at all is a row without any key; PyTorch gives the same.
        out.zero_()
        lse = None if lse is None else lse.fill_(-torch.inf)
    else:
        launch(plan, q, k, v, mask, out, lse)
        counters.serve()
    return _laid_out(out, plan.wanted_strides), None if lse is None else lse.permute(plan.lse_order).contiguous()


def _laid_out(out: Tensor, strides: tuple[int, ...]) -> Tensor:
    """It, or a copy that lies so."""
    return out if out.stride() == strides else out.new_empty_strided(out.shape, strides).copy_(out)


# --- the operators

_flash_allowed, _efficient_allowed, _cudnn_allowed = (
    torch._C._get_flash_sdp_enabled, torch._C._get_mem_efficient_sdp_enabled, torch._C._get_cudnn_sdp_enabled)


@torch.compiler.assume_constant_result  # as PyTorch's own choice is
def math_alone() -> bool:
    """Whether torch.nn.attention.sdpa_kernel allows PyTorch's plain implementation only."""
    return not (_flash_allowed() or _efficient_allowed() or _cudnn_allowed())


MATH_ALONE = "sdpa_kernel allows MATH alone"


library = native.load(context_of)


def norms_served() -> int:
    """Calls of norms that were answered in PyTorch's place in this process."""
    return counters.norms + (0 if library is None else library.norms())


def _run_operator(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                  enable_gqa: bool, return_lse: bool, window_masks: bool, order: int) -> tuple[Tensor, Optional[Tensor]]:
    try:
        if return_lse:
            return attention_lse_op(q, k, v, mask, is_causal, scale, enable_gqa, order)
        if mask is not None and not window_masks and mask.dim() == 4 and 1 < mask.shape[0] < q.shape[0]:
            raise InvalidArgument(f"attn_mask of shape {list(mask.shape)} does not broadcast to the batch of {q.shape[0]}")
        return call_operator(q, k, v, mask, is_causal, scale, enable_gqa, False, order), None
    except RuntimeError as error:
        raise error if isinstance(error, VituneError) else library.error(error) from None


def torch_attention(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                    enable_gqa: bool) -> Tensor:
    """PyTorch's own answer. A bias that autocast left in fp32 is taken as it would take it: not every kernel of PyTorch's can."""
    if mask is not None and mask.dtype is torch.float32 and q.dtype in _DTYPES:
        mask = mask.to(q.dtype)
    return originals.attention_op(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)


def run_or_fall_back(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                     enable_gqa: bool, order: int = TORCHS) -> Tensor:
    """run() for vitune.torch.enabled(): PyTorch answers, counted and warned about, where vitune cannot."""
    try:
        return run(q, k, v, mask, is_causal, scale, enable_gqa, False, False, order)[0]
    except VituneError as error:
        counters.fall_back(reason_of(error))
    return torch_attention(q, k, v, mask, is_causal, scale, enable_gqa)


def _refuse_tangents(*tensors: Optional[Tensor]) -> None:
    # A graph that was compiled outside of a dual level comes here; PyTorch's answer would be without a derivative too.
    if has_tangent(*tensors):
        raise Unsupported(_NO_TANGENT)


if library is not None:
    attention_op = torch.ops.vitune.attention.default
    # The same without a Python function between; the latter two for what leaves all but the mask out.
    call_operator = attention_op._op
    call_attend = torch.ops.vitune.attend.default._op
    call_attend_or_torch = torch.ops.vitune.attend_or_torch.default._op
    attention_lse_op = torch.ops.vitune.attention_lse.default
else:
    @torch.library.custom_op("vitune::attention", mutates_args=(), device_types="cuda")
    def attention_op(q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                     enable_gqa: bool, fall_back: bool, order: int = 0) -> Tensor:
        _refuse_tangents(q, k, v, attn_mask)
        if not fall_back:
            return run(q, k, v, attn_mask, is_causal, scale, enable_gqa, False, True, order)[0]
        if math_alone():  # where a compiled model runs, not where it was compiled
            counters.fall_back(MATH_ALONE)
            out = torch_attention(q, k, v, attn_mask, is_causal, scale, enable_gqa)
        else:
            out = run_or_fall_back(q, k, v, attn_mask, is_causal, scale, enable_gqa, order)
        return as_promised(out, order, q, k, v)

    @torch.library.custom_op("vitune::attention_lse", mutates_args=(), device_types="cuda")
    def attention_lse_op(q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                         enable_gqa: bool, order: int = 0) -> tuple[Tensor, Tensor]:
        _refuse_tangents(q, k, v, attn_mask)
        return run(q, k, v, attn_mask, is_causal, scale, enable_gqa, True, True, order)


def as_promised(out: Tensor, order: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's result, or a copy of it that lies as a compiler was told."""
    shape = output_shape(q.shape, k.shape, v.shape)
    if order == TORCHS or out.shape != shape:  # of operands of several ranks nothing is promised: no compiler sees such a call
        return out
    return _laid_out(out, result_order.strides(order, q, shape, v))


@torch.library.register_fake("vitune::attention")
def _(q, k, v, attn_mask, is_causal, scale, enable_gqa, fall_back, order=TORCHS):
    return empty_result(q, k, v, attn_mask, is_causal, scale, enable_gqa, order)


if library is not None:
    @torch.library.register_fake("vitune::attend")
    @torch.library.register_fake("vitune::attend_or_torch")
    def _(q, k, v, attn_mask=None):
        return empty_result(q, k, v, attn_mask, False, None, False, TORCHS)


@torch.library.register_fake("vitune::attention_lse")
def _(q, k, v, attn_mask, is_causal, scale, enable_gqa, order=TORCHS):
    out = empty_result(q, k, v, attn_mask, is_causal, scale, enable_gqa, order)
    return out, q.new_empty(out.shape[:-1], dtype=torch.float32)


flops.know("attention", "attention_lse", "empty_as_torchs", *(("attend", "attend_or_torch") if library is not None else ()))


# --- what vitune/__init__.py offers


def is_on_gpu(tensor: Tensor) -> bool:
    """Whether the kernels can reach it."""
    return tensor.is_cuda or tensor.is_meta and _meta_counts_as_gpu.get()


@contextlib.contextmanager
def meta_as_gpu() -> Iterator[None]:
    """Takes tensors on the meta device for a GPU's: of a pass that is only recorded."""
    token = _meta_counts_as_gpu.set(True)
    try:
        yield
    finally:
        _meta_counts_as_gpu.reset(token)


def needs_gradient(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor]) -> bool:
    """Whether a backward pass would come this way, or forward-mode AD does."""
    if getattr(forward_ad, "_current_level", -1) >= 0 and has_tangent(q, k, v, mask):
        return True
    return torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad
                                        or (mask is not None and mask.requires_grad))


def has_tangent(*tensors: Optional[Tensor]) -> bool:
    """Whether forward-mode AD wants a derivative of what is made of these: a dual level or torch.func.jvp."""
    if getattr(forward_ad, "_current_level", -1) < 0:
        return False
    if torch.compiler.is_compiling():
        return True  # tangents are not seen there
    if not forward_ad._is_fwd_grad_enabled():
        return False
    # Wrapped tensors do not tell whether a level further out has a tangent.
    return any(tensor is not None and (torch._C._functorch.is_functorch_wrapped_tensor(tensor)
                                       or forward_ad.unpack_dual(tensor).tangent is not None) for tensor in tensors)


_NO_TANGENT = ("vitune.attention has no forward-mode derivative, and an input asks for one (torch.func.jvp, a dual level): use"
               " PyTorch's scaled_dot_product_attention")
PLAIN = frozenset((Tensor, torch.nn.Parameter))


#: Whether a gradient is several in one (is_grads_batched): without memory of its own.
is_batched = torch._C._functorch.is_legacy_batchedtensor


def may_launch_directly(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor]) -> bool:
    """Whether nothing (a compiler, a tracer, a transform, a subclass, a negative bit) must see the call as an operator."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None or torch._C._get_tracing_state() is not None:
        return False
    if not (type(q) in PLAIN and type(k) in PLAIN and type(v) in PLAIN and (mask is None or type(mask) in PLAIN)):
        return False
    # The memory of a negative view has the other sign: the dispatcher makes a tensor of it. Conjugates are complex: no plan.
    return not (q.is_neg() or k.is_neg() or v.is_neg() or (mask is not None and mask.is_neg()))


_is_grad_enabled = torch.is_grad_enabled
_is_tracing = torch.compiler.is_dynamo_compiling


def odd_kind(attn_mask: Any, dropout_p: Any, is_causal: Any, scale: Any, enable_gqa: Any) -> Optional[str]:
    """Which argument is of a class that PyTorch refuses or converts; None: none is."""
    if attn_mask is not None and not isinstance(attn_mask, Tensor):
        return f"attn_mask is of class {type(attn_mask).__name__}"
    for name, value in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
        if not isinstance(value, bool):
            return f"{name} is of class {type(value).__name__}"
    for name, value in (("dropout_p", dropout_p), ("scale", 1.0 if scale is None else scale)):
        if not isinstance(value, (float, int)):
            return f"{name} is of class {type(value).__name__}"
    return None


def check_kinds(attn_mask: Any, is_causal: Any, scale: Any, enable_gqa: Any) -> None:
    """Raises InvalidArgument for what PyTorch's scaled_dot_product_attention would refuse or convert."""
    odd = odd_kind(attn_mask, 0.0, is_causal, scale, enable_gqa)
    if odd is not None:
        raise InvalidArgument(f"{odd}: a tensor is wanted for attn_mask, bools for is_causal and enable_gqa, a number for scale")


def attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
              enable_gqa: bool, return_lse: bool) -> Any:
    """See vitune.attention()."""
    if not (q.is_cuda or is_on_gpu(q)):
        raise Unsupported(f"q is on {q.device.type}: vitune's kernels run on CUDA devices; q.cuda(), or use PyTorch's own"
                          " scaled_dot_product_attention for it")
    if (_is_grad_enabled() or forward_ad._current_level >= 0) and needs_gradient(q, k, v, attn_mask):
        if has_tangent(q, k, v, attn_mask):
            raise Unsupported(_NO_TANGENT)
        return _with_gradient(q, k, v, attn_mask, is_causal, scale, enable_gqa, return_lse)
    if library is not None and type(q) is Tensor and (attn_mask is None or type(attn_mask) is Tensor) and (
            is_causal is False and enable_gqa is False and scale is None and not return_lse and not _is_tracing()
            and _efficient_allowed()):
        try:
            return call_attend(q, k, v) if attn_mask is None else call_attend(q, k, v, attn_mask)
        except RuntimeError as error:
            raise library.error(error) from None
    check_kinds(attn_mask, is_causal, scale, enable_gqa)
    is_compiling = torch.compiler.is_compiling()
    if not is_compiling if library is not None else may_launch_directly(q, k, v, attn_mask):
        out, lse = run(q, k, v, attn_mask, is_causal, scale, enable_gqa, return_lse, True)
        return (out, lse) if return_lse else out
    order = result_order.while_compiling(q, k, v, attn_mask, is_causal, scale, enable_gqa) if is_compiling else TORCHS
    if return_lse:
        return attention_lse_op(q, k, v, attn_mask, is_causal, scale, enable_gqa, order)
    return attention_op(q, k, v, attn_mask, is_causal, scale, enable_gqa, False, order)


def _with_gradient(q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: Optional[float], enable_gqa: bool,
                   return_lse: bool) -> Any:
    from . import attention_autograd  # which stands on this module

    check_kinds(attn_mask, is_causal, scale, enable_gqa)
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise Unsupported("vitune.attention has no derivative inside torch.func (vmap, grad and others): use PyTorch's"
                          " scaled_dot_product_attention there")
    if q.dim() == k.dim() == 4 and q.shape[1] != k.shape[1] and not enable_gqa:
        raise InvalidArgument(f"q has {q.shape[1]} heads and k {k.shape[1]}: say enable_gqa=True, or expand k and v, where a gradient is wanted")
    if torch.compiler.is_compiling():
        order = result_order.while_compiling(q, k, v, attn_mask, is_causal, scale, enable_gqa)
        out, lse = attention_autograd.training.attention_train(q, k, v, attn_mask, is_causal, scale, order)
    else:
        out, lse = attention_autograd.attend(q, k, v, attn_mask, is_causal, scale, TORCHS)
    return (out, lse) if return_lse else out


def _alignment(*tensors: Tensor) -> int:
    bits = 16
    for tensor in tensors:
        bits |= tensor.data_ptr() if tensor.device.type != "meta" else 0
    return bits & -bits


def problem_text(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> str:
    """See vitune.problem_text()."""
    return described(q, k, v, *rest).text()


def described(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float], enable_gqa: bool,
              return_lse: bool, order: int = TORCHS) -> AttentionDesc:
    """What such a call asks; arguments as of vitune.problem_text()."""
    check_kinds(mask, is_causal, scale, enable_gqa)
    plan = make_plan(q, k, v, mask, is_causal, scale, enable_gqa, return_lse, True, order)
    desc = AttentionDesc()
    ctypes.memmove(ctypes.byref(desc), plan.by_reference, ctypes.sizeof(_structs.Desc))
    desc.alignment = _alignment(q, k, v)
    return desc


def explain(q: Tensor, *rest: Any) -> Selection:
    """See vitune.explain()."""
    if not is_on_gpu(q):
        raise InvalidArgument(f"q is on {q.device.type}: which kernel serves it depends on the GPU that it is on")
    return context_of(q.get_device()).query(described(q, *rest))
