# benchmarks/peers/attention/selfcheck.py -- What the Triton kernel must get right before it is timed.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.util

#: Padded head sizes, fewer keys than queries and the reverse, one query, every kind of mask.
PROBLEMS = (
    "fp16 b=2 h=3 n=49 d=32",
    "fp16 b=2 h=2 n=37 d=72",
    "fp16 b=2 h=2 nq=40 nk=70 d=40 layout=bhnd causal",
    "fp16 b=1 h=2 nq=150 nk=40 d=16 causal",
    "fp16 b=4 h=2 n=33 d=32 bias=fp16:1x2x33x33",
    "fp16 b=4 h=2 n=33 d=24 bias=fp32:2x1x33x33",
    "fp16 b=2 h=1 nq=1 nk=50 d=72 bias=fp16:2x1x1x50",
    "fp16 b=2 h=2 n=70 d=32 mask=bool:2x1x70x70",
    "fp16 b=1 h=4 hkv=2 n=140 d=88 scale=0.2",
    "fp16 b=1 h=2 n=33 d=128 bias=fp16:1x2x33x33@0,1320,40,1",
)
CONFIG = {"BLOCK_M": 32, "BLOCK_N": 32}


def triton_error(text: str, device: str) -> float:
    """The kernel's norm-wise error on a problem, in one config, without the autotuner."""
    from . import triton_attention
    from .operands import make_operands
    from .problem import Problem
    from .reference import make_reference

    problem = Problem.of({"problem": text})
    operands = make_operands(problem, device)
    out = triton_attention.attention(problem, operands, triton_attention.kernel, **CONFIG)
    return make_reference(problem, operands).errors(out)["out"].relative


def broken_triton() -> str | None:
    """Why Triton is left out on this GPU; None if it is right, or not installed."""
    if importlib.util.find_spec("triton") is None:
        return None  # absent, which is no failure
    for text in (*PROBLEMS, *(text.replace("fp16", "bf16") for text in PROBLEMS[1:5:3])):
        try:
            error = triton_error(text, "cuda")
        except Exception as reason:  # whatever a compiler raises
            return f"self-check '{text}': {type(reason).__name__}: {str(reason)[:200]}"
        if not error < 0.01:
            return f"self-check '{text}': {error:.3g} from fp64"
    return None
