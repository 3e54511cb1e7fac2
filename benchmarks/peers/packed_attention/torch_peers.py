# benchmarks/peers/packed_attention/torch_peers.py -- Packed sequences by PyTorch's varlen_attn, FlashAttention-4, and cuDNN in three forms.
# SPDX-License-Identifier: Apache-2.0
"""Each makes a call of one problem, or says why not (Refused, Absent). Reshaped and padded operands are made before the call: only what
the backend itself does is counted."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pad_sequence

from ..engine.peer import Absent, Call, Refused, is_refusal
from .operands import Operands
from .problem import Problem


def _cudnn(run: Callable[[], Any]) -> Call:
    """With cuDNN alone allowed; called once, since a backend decides at the call. Raises Refused with PyTorch's words."""
    call = Call(run, within=lambda: sdpa_kernel([SDPBackend.CUDNN_ATTENTION]))
    with call.within():
        try:
            call.run()
        except RuntimeError as error:
            if not is_refusal(error):
                raise
            raise Refused(str(error)) from None
    return call


class VarlenAttn:
    """PyTorch's varlen_attn, which is FlashAttention-2."""

    name = "varlen_flash"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Absent where PyTorch has none."""
        try:
            varlen_attn = importlib.import_module("torch.nn.attention.varlen").varlen_attn
        except (ImportError, AttributeError) as error:
            raise Absent(f"PyTorch {torch.__version__} has no varlen_attn: {error}") from None
        t, longest = operands, operands.longest
        call = Call(lambda: varlen_attn(t.q, t.k, t.v, t.offsets, t.offsets, longest, longest))
        call.run()
        return call


class Flash4:
    """FlashAttention-4's function for packed sequences."""

    name = "fa4"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Absent where it cannot be imported."""
        try:
            function = importlib.import_module("flash_attn.cute").flash_attn_varlen_func
        except (ImportError, AttributeError) as error:
            raise Absent(f"flash_attn.cute cannot be imported: {error}") from None
        t = operands

        def run() -> torch.Tensor:
            found = function(t.q, t.k, t.v, cu_seqlens_q=t.offsets, cu_seqlens_k=t.offsets)
            return found[0] if isinstance(found, tuple) else found

        run()
        return Call(run)


class CudnnBatch:
    """cuDNN on a batch, which sequences of one length are."""

    name = "cudnn_batch"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Refused for lengths that differ."""
        if len(set(operands.lengths)) != 1:
            raise Refused("lengths differ")
        q, k, v = operands.batch()
        return _cudnn(lambda: F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1))


class CudnnPadded:
    """cuDNN on a batch that is padded to the longest sequence, with a mask of the keys that there are; the result is packed again, as a
    model needs it."""

    name = "cudnn_padded"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Refused where cuDNN takes no such mask."""
        t = operands
        q, k, v = (
            pad_sequence(list(tensor.split(t.lengths)), batch_first=True).transpose(1, 2)
            for tensor in (t.q, t.k, t.v)
        )
        there = torch.arange(t.longest, device=q.device) < torch.tensor(t.lengths, device=q.device)[:, None]
        mask = there[:, None, None, :]
        places = there.flatten().nonzero()[:, 0]

        def run() -> torch.Tensor:
            out = F.scaled_dot_product_attention(q, k, v, mask)
            return out.transpose(1, 2).flatten(0, 1)[places]

        return _cudnn(run)


class CudnnEach:
    """cuDNN, a call for each sequence."""

    name = "cudnn_each"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Results are written side by side by a last copy, as a model needs them."""
        each = operands.each()

        def run() -> torch.Tensor:
            found = [F.scaled_dot_product_attention(*three)[0].transpose(0, 1) for three in each]
            return torch.cat(found)

        return _cudnn(run)
