# python/vitune/_dropin/flash.py -- vitune as one of PyTorch's flash attention implementations: torch.nn.attention's registry.
# SPDX-License-Identifier: Apache-2.0
"""``torch.nn.attention.activate_flash_attention_impl("VITUNE")`` puts a kernel at the operator that scaled_dot_product_attention
calls where it chooses flash, and one at that of its backward pass: never with a mask, and on GPUs where PyTorch prefers cuDNN only with that
switched off. What vitune cannot serve goes to the kernel that was there: both compute the same log-sum-exp, so that either may go backward."""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .._ops import attention as attention_ops, attention_training
from .._ops.order import OF_Q
from .._runtime.counters import counters
from .._runtime.errors import Unsupported, VituneError, reason_of
from . import training

NAME = "VITUNE"
OPERATOR = "_scaled_dot_product_flash_attention"
BACKWARD = f"{OPERATOR}_backward"


class Handle:
    """What the registry holds while vitune is active."""

    def __init__(self, key: str) -> None:
        self._theirs, self._their_backward = (torch.library.get_kernel(f"aten::{name}", key) for name in (OPERATOR, BACKWARD))
        self._library: Optional[torch.library.Library] = torch.library.Library("aten", "IMPL", key)
        for name, ours in ((OPERATOR, self._attend), (BACKWARD, self._go_backward)):
            self._library.impl(name, ours, key, with_keyset=True, allow_override=True)

    def remove(self) -> None:
        self._library = None  # its kernels go with it

    def _attend(self, keys: Any, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
                return_debug_mask: bool = False, *, scale: Optional[float] = None) -> Any:
        why_not = "dropout" if dropout_p else "return_debug_mask" if return_debug_mask else None
        if why_not is None:
            try:
                return attend(query, key, value, is_causal, scale)
            except VituneError as error:
                why_not = reason_of(error)
        counters.fall_back(why_not)
        return self._theirs.call_boxed(keys, query, key, value, dropout_p, is_causal, return_debug_mask, scale=scale)


    def _go_backward(self, keys: Any, grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
                     cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool, philox_seed: Any,
                     philox_offset: Any, *, scale: Optional[float] = None) -> Any:
        why_not = "dropout" if dropout_p else None
        if why_not is None:
            try:
                return go_backward(grad_out, query, key, value, out, logsumexp, is_causal, scale)
            except VituneError as error:
                why_not = reason_of(error)
        counters.fall_back(why_not)
        return self._their_backward.call_boxed(keys, grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
                                               is_causal, philox_seed, philox_offset, scale=scale)


def go_backward(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, is_causal: bool,
                scale: Optional[float]) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, which lie as these do. Raises VituneError."""
    if max(query.shape[2], key.shape[2]) > training.LONGEST:
        raise Unsupported(f"a gradient of rows of more than {training.LONGEST} tokens: the kernel that was there is faster")
    gradients = attention_training.gradients_of(query, key, value, None, False)
    attention_training._backward(grad_out, query, key, value, None, out, lse.contiguous(), gradients, is_causal, scale)
    return gradients[:3]


def attend(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: Optional[float]) -> tuple:
    """What aten::_scaled_dot_product_flash_attention gives, by vitune. Raises VituneError."""
    # The forward pass of a compiled training graph runs without grad mode, as inference does: only inference mode tells them apart.
    out, lse = attention_ops.run(query, key, value, None, is_causal, scale, query.shape[1] != key.shape[1],
                             not torch.is_inference_mode_enabled(), False, OF_Q)  # as compilers are told
    if lse is None:  # nobody will go backward
        lse = query.new_empty(query.shape[:-1], dtype=torch.float32)
    return results(query, key, out, lse)


def results(query: Tensor, key: Tensor, out: Tensor, lse: Tensor) -> tuple:
    """All that the operator returns, where there was no dropout."""
    seed = query.new_zeros(2, dtype=torch.uint64)
    offset = query.new_zeros((), dtype=torch.uint64)
    return out, lse, None, None, query.shape[2], key.shape[2], seed, offset, query.new_empty(0)


def offer() -> None:
    """Names vitune to PyTorch's registry, where there is one (2.10 and newer)."""
    register = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if register is not None and hasattr(torch.library, "get_kernel"):
        register(NAME, register_fn=lambda: Handle("CUDA"))
