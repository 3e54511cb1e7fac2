# python/vitune/_ops/order.py -- Where the result of attention lies in memory: as PyTorch's own would, or as a caller asks.
# SPDX-License-Identifier: Apache-2.0
"""PyTorch chooses a backend for each call, and each lays out its result in a way of its own: cuDNN and flash as q lies, the
memory-efficient one with rows outside of heads, the plain one contiguously. That decides which ``view()`` of the result a program may
take. PyTorch's choice is asked for, not repeated: it depends on switches, priorities, devices, versions and shapes."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import _disable_current_modes

from . import originals
from .layout import contiguous_strides, output_shape, output_strides

#: The orders that an operator of attention knows, as integers: compilers keep them in their graphs.
TORCHS = 0  #: that of PyTorch's own result, where the call is made
CONTIGUOUS = 1
ROWS = 2  #: rows outside of heads, so that joining the heads costs nothing; of rank 5 see _layout.output_order()
OF_Q = 3  #: that of q, as torch.empty_like() gives it

_OF_BACKEND = {SDPBackend.MATH.value: CONTIGUOUS, SDPBackend.EFFICIENT_ATTENTION.value: ROWS}  # all others: as q lies


def has_rows_outside(q: Tensor) -> bool:
    """Whether q of rank 4 is [batch, rows, heads, d] in memory: then all but the plain backend lay out the result so."""
    (batch, heads, rows, _), (of_batch, of_heads, of_rows, _) = q.shape, q.stride()
    return (heads == 1 or rows == 1 or of_rows >= of_heads) and (batch == 1 or of_batch >= max(of_heads, of_rows))


def repeats(mask: Optional[Tensor], q: Tensor) -> bool:
    """Whether a mask has an entry for each window, again and again, which PyTorch has not."""
    return mask is not None and mask.dim() == q.dim() == 4 and 1 < mask.shape[0] < q.shape[0]


def of_backend(backend: int) -> int:
    """The order of a backend's result, by its number in torch.nn.attention.SDPBackend."""
    return _OF_BACKEND.get(backend, OF_Q)


def asked(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float], enable_gqa: bool) -> int:
    """That of the backend which PyTorch would choose at this moment; of tensors without a device, and where it has none for such a
    call, that of cuDNN and flash."""
    if repeats(mask, q):
        return ROWS
    try:
        if not q.is_meta:
            return of_backend(torch._fused_sdp_choice(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa))
    except (RuntimeError, IndexError):
        pass
    return OF_Q if q.dim() == 4 else CONTIGUOUS


def strides(order: int, q: Tensor, shape: Sequence[int], v: Tensor) -> tuple[int, ...]:
    """Of a result of that shape."""
    if order == OF_Q and tuple(shape) == tuple(q.shape):
        return tuple(torch.empty_like(q, device="meta").stride())
    return output_strides(shape, v.stride()) if order == ROWS else contiguous_strides(shape)


def empty_result(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float], enable_gqa: bool,
                 order: int) -> Tensor:
    """A tensor as the result of fake tensors will be, with nothing in it. Raises what PyTorch raises of such a call."""
    if order == TORCHS and not repeats(mask, q):
        torchs = originals.attention_op(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
        return q.new_empty_strided(torchs.shape, torchs.stride())
    shape = output_shape(q.shape, k.shape, v.shape)
    return q.new_empty_strided(shape, strides(ROWS if order == TORCHS else order, q, shape, v))


@torch.library.custom_op("vitune::empty_as_torchs", mutates_args=())
def empty_as_torchs_op(q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                       enable_gqa: bool) -> Tensor:
    order = asked(q, k, v, attn_mask, is_causal, scale, enable_gqa)
    shape = output_shape(q.shape, k.shape, v.shape)
    return q.new_empty_strided(shape, strides(order, q, shape, v))


@torch.library.register_fake("vitune::empty_as_torchs")
def _(q: Tensor, k: Tensor, v: Tensor, attn_mask: Any, is_causal: bool, scale: Any, enable_gqa: bool) -> Tensor:
    return empty_result(q, k, v, attn_mask, is_causal, scale, enable_gqa, TORCHS)


def _stand_in(tensor: Optional[Tensor]) -> Optional[Tensor]:
    """A new tensor of its type, device and strides; sizes that are symbols are what they were where the model was traced."""
    if tensor is None:
        return None
    sizes, steps = ([int(size.node.hint or 64) if isinstance(size, torch.SymInt) else size for size in sizes]  # or: data decides it
                    for sizes in (tensor.shape, tensor.stride()))
    return torch.empty_strided(sizes, steps, dtype=tensor.dtype, device=tensor.device)


def while_compiling(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool, scale: Optional[float],
                    enable_gqa: bool) -> int:
    """What TORCHS is at this place of a model that is being compiled. The graph keeps it, whatever is switched where it runs, as
    PyTorch's own graphs keep a backend. Dynamo sees the tensor that tells as an operator's, which is of no other use: compilers take it
    out."""
    if not torch.compiler.is_dynamo_compiling():  # torch.export, which would leave it in the program: it does not see these tensors
        with torch._C.DisableTorchFunction(), _disable_current_modes(), FakeTensorMode():
            return _order_of(empty_result(*map(_stand_in, (q, k, v, mask)), is_causal, scale, enable_gqa, TORCHS))
    return _order_of(empty_as_torchs_op(q, k, v, mask, is_causal, scale, enable_gqa))


def _order_of(torchs: Tensor) -> int:
    if torchs.is_contiguous():
        return CONTIGUOUS
    return ROWS if torchs.dim() == 4 and torchs.transpose(1, 2).is_contiguous() else OF_Q
