# python/vitune/torch.py -- Drop-in for PyTorch: enabled() replaces scaled_dot_product_attention, stats() says how it went.
"""Models run unchanged::

    with vitune.torch.enabled(), torch.inference_mode():
        model(images)
    print(vitune.torch.stats())

What vitune cannot serve goes to PyTorch's own implementation: counted by reason in stats(), and a FallbackWarning
the first time that a reason is met.
"""
from __future__ import annotations

import dataclasses
import os
import threading
import types
from typing import Any, Optional

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import _torch_op
from ._counters import FallbackWarning
from ._library import library

__all__ = ["FallbackWarning", "Stats", "enabled", "reset_stats", "stats"]


@dataclasses.dataclass(frozen=True)
class Stats:
    """What became of attention calls in this process since reset_stats().

    ``served`` and ``fallbacks`` count calls, the other three launches: a call of rank 5 whose views do not fold makes one
    launch per image. Replays of a CUDA graph are not seen. A compiled model counts a fallback that is decided by
    types or shapes when it is compiled, not at every call.
    """

    served: int  #: calls that vitune answered, also those of vitune.attention()
    exact: int  #: launches of a kernel tuned for this very problem
    nearest: int  #: launches of one tuned for another problem of its class
    default: int  #: launches of a kernel that was not tuned
    fallbacks: int  #: calls that PyTorch answered
    reasons: dict[str, int]  #: the same by reason

    def __sub__(self, before: "Stats") -> "Stats":
        """What happened between `before` and this."""
        reasons = {reason: count - before.reasons.get(reason, 0) for reason, count in self.reasons.items()}
        return Stats(*(getattr(self, field.name) - getattr(before, field.name) for field in dataclasses.fields(self)[:5]),
                     {reason: count for reason, count in reasons.items() if count})

    def __str__(self) -> str:
        head = (f"served {self.served} ({self.exact} exact, {self.nearest} nearest, {self.default} default launches),"
                f" fell back {self.fallbacks}")
        return "".join([head, *(f"\n  {count:6d} x {reason}" for reason, count in sorted(self.reasons.items()))])


_baseline: dict[Any, Any] = {}


def stats() -> Stats:
    """Calls by what served them, and fallbacks by reason, in this process since reset_stats()."""
    launches = [0, 0, 0]
    for context in _torch_op.contexts():
        now, before = context.stats(), _baseline.get(context)
        for i, name in enumerate(("exact_calls", "nearest_calls", "default_calls")):
            launches[i] += getattr(now, name) - (getattr(before, name) if before is not None else 0)
    reasons = dict(_torch_op.counters.fallbacks)
    return Stats(_torch_op.counters.served, *launches, sum(reasons.values()), reasons)


def reset_stats() -> None:
    """Counts from 0 again. Reasons that were warned about are not warned about again."""
    _torch_op.counters.reset()
    _baseline.clear()
    _baseline.update({context: context.stats() for context in _torch_op.contexts()})


@torch.compiler.assume_constant_result
def _fall_back(reason: str) -> bool:
    # While a model is compiled this runs once, at that time: a graph has no place for warnings.
    _torch_op.counters.fall_back(reason)
    return True


def _reason(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], dropout_p: float) -> Optional[str]:
    """Why types and shapes alone rule vitune out; None if they do not."""
    for tensor in (q, k, v, mask):
        if tensor is not None and (tensor.is_nested or (type(tensor) is not Tensor and is_traceable_wrapper_subclass(tensor))):
            return f"a tensor of class {type(tensor).__name__}"
    if not _torch_op.is_on_gpu(q):
        return f"device {q.device.type}"
    if dropout_p > 0:
        return "dropout"
    if _torch_op.needs_gradient(q, k, v, mask):
        if _torch_op.has_tangent(q, k, v, mask):
            return "forward-mode AD: vitune has no derivative"
        return "requires_grad: vitune has no backward pass; use torch.no_grad() or torch.inference_mode()"
    if q.dtype not in (torch.bfloat16, torch.float16):
        return f"dtype {str(q.dtype).removeprefix('torch.')}: the kernels take bfloat16 and float16"
    if not q.dim() == k.dim() == v.dim():
        return f"q, k and v have the ranks {q.dim()}, {k.dim()} and {v.dim()}: they must agree"
    d = q.shape[-1]
    if v.shape[-1] != d:  # PyTorch's result has v's, which is not what a compiler would be told
        return f"v has head size {v.shape[-1]} and q {d}: the kernels need one head size"
    if d > 128:
        return f"head size {d} is above 128"
    if d % 8:
        return f"head size {d} is no multiple of 8"
    return None


def _autocast(tensor: Optional[Tensor]) -> Optional[Tensor]:
    """What autocast makes of an argument of PyTorch's own function."""
    if tensor is None or not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype("cuda"))


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
               is_causal: bool = False, *, scale: Optional[float] = None, enable_gqa: bool = False) -> Tensor:
    """scaled_dot_product_attention, served by vitune where it can."""
    if torch.is_autocast_enabled("cuda") and _torch_op.is_on_gpu(query):
        # Biases stay as they are: the kernels read fp32 ones.
        query, key, value = _autocast(query), _autocast(key), _autocast(value)
    reason = _reason(query, key, value, attn_mask, dropout_p)
    if reason is not None:
        _fall_back(reason)
        return _original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if _torch_op.may_launch_directly(query, key, value, attn_mask):
        return _torch_op.run_or_fall_back(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return _torch_op.attention_op(query, key, value, attn_mask, is_causal, scale, enable_gqa, True)


_functional = torch.nn.functional
_original = _functional.scaled_dot_product_attention
_multi_head = _functional.multi_head_attention_forward
# nn.MultiheadAttention's function is asked about as a whole, and what it calls itself then is not: this is the same
# function with our attention in its globals.
_globals = {**vars(_functional), "scaled_dot_product_attention": _attention}
del _globals["__name__"]  # else compilers take these globals for those of the module
_our_multi_head = types.FunctionType(_multi_head.__code__, _globals, _multi_head.__name__, _multi_head.__defaults__,
                                     _multi_head.__closure__)
_our_multi_head.__kwdefaults__ = _multi_head.__kwdefaults__


class _Mode(TorchFunctionMode):
    def __torch_function__(self, function, classes, args=(), kwargs=None):
        if function is _original:
            return _attention(*args, **(kwargs or {}))
        if function is _multi_head:
            function = _our_multi_head
        return function(*args, **kwargs) if kwargs else function(*args)


class _FusedLayers:
    """PyTorch's fused path of nn.MultiheadAttention and nn.TransformerEncoderLayer, which attends by itself: off while any
    thread is inside enabled(). Eager calls do not take it in a mode anyway; compiled ones would, unseen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = True

    def renew_lock(self) -> None:
        """After a fork: another thread of the parent may have held it."""
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                torch.backends.mha.set_fastpath_enabled(self._before)


_fused_layers = _FusedLayers()
os.register_at_fork(after_in_child=_fused_layers.renew_lock)


class enabled(_Mode):
    """A context manager in which vitune serves scaled_dot_product_attention, for this thread.

    May be nested and entered again. A model may be compiled inside of it, with fullgraph=True too. Raises
    LibraryNotFound where libvitune cannot be loaded.
    """

    def __init__(self) -> None:
        library()
        super().__init__()

    def __enter__(self) -> "enabled":
        _fused_layers.enter()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        _fused_layers.leave()
