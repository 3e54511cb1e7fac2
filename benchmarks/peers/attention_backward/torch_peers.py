# benchmarks/peers/attention_backward/torch_peers.py -- PyTorch's gradients of attention by backend, and FlexAttention's.
# SPDX-License-Identifier: Apache-2.0
"""Forward runs once for each stream, outside what is timed; a call is autograd's walk back to q, k, v and a bias. PyTorch lets it run on
the stream of the forward pass, and has that of the leaves' first one wait: a capture must be of the only stream that its leaves know."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..attention import torch_peers as forward_peers
from ..attention.operands import Operands as ForwardOperands
from ..engine.peer import Call, Refused, is_refusal
from .operands import Operands
from .problem import Problem


def _leaves(problem: Problem, t: Operands) -> tuple[ForwardOperands, list[torch.Tensor]]:
    """Forward's operands as new leaves of autograd's graph, in the same memory, and those whose gradients are asked for."""
    given = t.forward
    q, k, v = (x.detach().requires_grad_() for x in (given.q, given.k, given.v))
    mask, wide, wanted = given.mask, given.wide_mask, [q, k, v]
    if problem.has_dbias:
        # PyTorch wants a bias of the queries' type; the conversion of its gradient is counted.
        mask = t.bias.detach().requires_grad_()
        wanted.append(mask)
        wide = mask
        if mask.shape[0] not in (1, problem.desc.batch):
            wide = mask.repeat(problem.desc.batch // mask.shape[0], 1, 1, 1)
    return ForwardOperands(q, k, v, mask, wide), wanted


def _stream() -> Any:
    return torch.cuda.current_stream() if torch.cuda.is_available() else None


def _backward(forward: Callable[[ForwardOperands], torch.Tensor], problem: Problem, t: Operands) -> Call:
    """Raises Refused where a gradient does not come."""
    passes: dict[Any, tuple[torch.Tensor, list[torch.Tensor]]] = {}

    def run() -> Any:
        stream = _stream()
        if stream not in passes:
            with torch.enable_grad():  # sessions measure without
                leaves, wanted = _leaves(problem, t)
                passes[stream] = forward(leaves), wanted
        out, wanted = passes[stream]
        return torch.autograd.grad(out, wanted, t.dout, retain_graph=True)

    try:
        run()
    except RuntimeError as error:
        if "does not require grad" in str(error) or "not have been used" in str(error):
            raise Refused("gives no gradient of the bias") from None
        raise
    return Call(run)


class Sdpa:
    """scaled_dot_product_attention with one backend allowed."""

    def __init__(self, name: str, backend: SDPBackend) -> None:
        self.name = name
        self._forward = forward_peers.Sdpa(name, backend)
        self._backend = backend

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Runs both passes. Raises Refused with PyTorch's words."""

        def forward(t: ForwardOperands) -> torch.Tensor:
            return self._forward.make(problem.forward, t).run()

        with warnings.catch_warnings(record=True) as found, sdpa_kernel([self._backend]):
            warnings.simplefilter("always")
            try:
                call = _backward(forward, problem, operands)
            except RuntimeError as error:
                if not is_refusal(error):
                    raise
                raise Refused(forward_peers.reason(found) or str(error)) from None
        return dataclasses.replace(call, within=lambda: sdpa_kernel([self._backend]))


class Flex:
    """FlexAttention, compiled for each problem with PyTorch's default options."""

    name = "flex"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles both passes. The compiler's own refusals (NotImplementedError) become Refused."""
        from torch.nn.attention.flex_attention import flex_attention

        if problem.desc.causal and operands.forward.mask is not None:
            raise Refused("PyTorch takes a mask or causal, not both")
        torch._dynamo.reset()  # else the tenth problem is one recompilation too many
        compiled: Callable[..., Any] = torch.compile(flex_attention, dynamic=False, fullgraph=True)

        def forward(t: ForwardOperands) -> torch.Tensor:
            return compiled(t.q, t.k, t.v, **forward_peers.flex_keywords(problem.forward, t))

        try:
            return _backward(forward, problem, operands)
        except Exception as error:
            if "NYI" in str(error) or "NotImplementedError" in str(error):
                raise Refused(f"FlexAttention: {str(error).splitlines()[0]}") from None
            raise


def torch_peers() -> list[Any]:
    """All of this file."""
    return [
        Sdpa("cudnn", SDPBackend.CUDNN_ATTENTION),
        Sdpa("flash", SDPBackend.FLASH_ATTENTION),
        Sdpa("effic", SDPBackend.EFFICIENT_ATTENTION),
        Flex(),
        Sdpa("eager", SDPBackend.MATH),
    ]
