# benchmarks/peers/attention/torch_peers.py -- PyTorch's attention by backend, compiled, FlashAttention-3/4.
# SPDX-License-Identifier: Apache-2.0
"""A backend that cannot take a problem refuses, in PyTorch's own words; no other one steps in."""

from __future__ import annotations

import importlib
import warnings
import zlib
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..engine.peer import Absent, Call, Refused, is_refusal
from .operands import Operands
from .problem import Problem


class Sdpa:
    """scaled_dot_product_attention with one backend allowed."""

    def __init__(self, name: str, backend: SDPBackend) -> None:
        self.name = name
        self._backend = backend

    def make(self, problem: Problem, operands: Operands) -> Call:
        """The call, not made yet. Raises Refused for what PyTorch's arguments cannot say."""
        t = operands
        if problem.desc.causal and t.mask is not None:
            raise Refused("PyTorch takes a mask or causal, not both")
        keywords: dict[str, Any] = {
            "attn_mask": t.wide_mask,
            "is_causal": bool(problem.desc.causal),
            "scale": problem.scale,
        }
        if problem.kv_heads != problem.desc.heads:
            keywords["enable_gqa"] = True
        if t.wide_mask is not None and t.wide_mask.is_floating_point():
            # PyTorch wants a bias of the queries' type; the conversion is not counted.
            keywords["attn_mask"] = t.wide_mask.to(t.q.dtype)

        def run() -> torch.Tensor:
            return F.scaled_dot_product_attention(t.q, t.k, t.v, **keywords)

        return Call(run, within=lambda: sdpa_kernel([self._backend]))

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Calls once, since a backend decides at the call. Raises Refused with PyTorch's words."""
        call = self.make(problem, operands)
        with warnings.catch_warnings(record=True) as found, call.within():
            warnings.simplefilter("always")
            try:
                call.run()
            except RuntimeError as error:
                if not is_refusal(error):
                    raise
                raise Refused(reason(found) or str(error)) from None
        return call


def reason(found: list[warnings.WarningMessage]) -> str:
    """What PyTorch warned about the backend that was asked for, without its source positions."""
    texts = [str(warning.message).split(" (Triggered internally")[0].strip() for warning in found]
    useful = [
        text for text in texts if text and "because:" not in text and "runtime disabled" not in text
    ]
    return "; ".join(dict.fromkeys(useful))


def flex_score_mod(bias: torch.Tensor) -> Any:
    """Adds bias[b|1, h|1, nq|1, nk|1] to a score."""
    steps = [int(extent > 1) for extent in bias.shape]

    def score_mod(score, b, h, q, k):  # type: ignore[no-untyped-def]
        return score + bias[b * steps[0], h * steps[1], q * steps[2], k * steps[3]]

    return score_mod


def flex_mask_mod(mask: torch.Tensor) -> Any:
    """Whether mask[b|1, h|1, nq|1, nk|1] lets a key be seen."""
    steps = [int(extent > 1) for extent in mask.shape]

    def mask_mod(b, h, q, k):  # type: ignore[no-untyped-def]
        return mask[b * steps[0], h * steps[1], q * steps[2], k * steps[3]]

    return mask_mod


def flex_keywords(problem: Problem, operands: Operands) -> dict[str, Any]:
    """score_mod, block_mask and so on of flex_attention for a problem."""
    from torch.nn.attention.flex_attention import create_block_mask

    desc, mask = problem.desc, operands.wide_mask
    keywords: dict[str, Any] = {"scale": problem.scale}
    device = str(operands.q.device)
    if problem.kv_heads != desc.heads:
        keywords["enable_gqa"] = True
    if desc.causal:
        keywords["block_mask"] = create_block_mask(
            lambda b, h, q, k: q >= k, None, None, desc.nq, desc.nk, device=device
        )
    elif mask is not None and mask.dtype is torch.bool:
        batch, heads = (extent if extent > 1 else None for extent in mask.shape[:2])
        keywords["block_mask"] = create_block_mask(
            flex_mask_mod(mask), batch, heads, desc.nq, desc.nk, device=device
        )
    elif mask is not None:
        keywords["score_mod"] = flex_score_mod(mask)
    return keywords


class Flex:
    """FlexAttention, compiled for each problem with PyTorch's default options."""

    name = "flex"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles. The compiler's own refusals (NotImplementedError) become Refused."""
        from torch.nn.attention.flex_attention import flex_attention

        t = operands
        if problem.desc.causal and t.mask is not None:
            raise Refused("PyTorch takes a mask or causal, not both")
        keywords = flex_keywords(problem, t)
        torch._dynamo.reset()  # else the tenth problem is one recompilation too many
        # fullgraph: what cannot be fused is an error and not the unfused formula.
        compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)

        def run() -> Any:
            return compiled(t.q, t.k, t.v, **keywords)

        try:
            run()
        except Exception as error:
            if "NYI" in str(error) or "NotImplementedError" in str(error):
                raise Refused(f"FlexAttention: {str(error).splitlines()[0]}") from None
            raise
        return Call(run)


class Compiled:
    """The unfused formula under torch.compile: whatever PyTorch makes of it, fused or not."""

    name = "compiled"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles. Refuses what is more than softmax(scale q k^T) v."""
        t = operands
        if problem.desc.causal or t.mask is not None or problem.kv_heads != problem.desc.heads:
            raise Refused("only the plain formula is compiled: no mask, not causal, equal heads")
        scale = problem.scale

        def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return torch.softmax(q @ k.transpose(-2, -1) * scale, dim=-1) @ v

        # A code object per problem: PyTorch bounds how often one is compiled, and a reset as in Flex
        # would cost that peer its kernel.
        name = f"formula_{zlib.crc32(problem.text.encode())}"
        formula.__code__ = formula.__code__.replace(co_name=name)
        compiled = torch.compile(formula, dynamic=False, fullgraph=True)
        compiled(t.q, t.k, t.v)
        return Call(lambda: compiled(t.q, t.k, t.v))


class FlashAttentionPackage:
    """FlashAttention-3 or -4 where its package is installed."""

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self._module = module

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Absent without the package, Refused for what it does not compute."""
        try:
            function = importlib.import_module(self._module).flash_attn_func
        except (ImportError, AttributeError, OSError) as error:
            raise Absent(f"{self._module} cannot be imported: {error}") from None
        desc, t = problem.desc, operands
        if t.mask is not None:
            raise Refused("FlashAttention takes no bias and no mask")
        if desc.causal and desc.nq != desc.nk:
            raise Refused("FlashAttention aligns causal bottom right where nq and nk differ")
        q, k, v = (x.transpose(1, 2) for x in (t.q, t.k, t.v))

        def run() -> torch.Tensor:
            out = function(q, k, v, softmax_scale=problem.scale, causal=bool(desc.causal))
            return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

        run()
        return Call(run)


def torch_peers() -> list[Any]:
    """All of this file."""
    return [
        Sdpa("cudnn", SDPBackend.CUDNN_ATTENTION),
        Sdpa("flash", SDPBackend.FLASH_ATTENTION),
        Sdpa("effic", SDPBackend.EFFICIENT_ATTENTION),
        FlashAttentionPackage("fa3", "flash_attn_interface"),
        FlashAttentionPackage("fa4", "flash_attn.cute"),
        Flex(),
        Compiled(),
        Sdpa("eager", SDPBackend.MATH),
    ]
