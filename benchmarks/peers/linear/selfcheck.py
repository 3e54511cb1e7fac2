# benchmarks/peers/linear/selfcheck.py -- What the Triton kernel must get right before it is timed.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.util

#: Tails of all three extents, several tiles per program, every word, rows that lie apart; both GELUs large
#: enough to be told apart (reference.py).
PROBLEMS = (
    "linear fp16 m=70 n=72 k=40",
    "linear fp16 m=197 n=200 k=72 bias act=gelu",
    "linear fp16 m=130 n=96 k=588 bias x=@592 w=@592 residual period=65",
    "linear fp16 m=64 n=136 k=64 bias scale residual",
    "linear fp16 m=90 n=40 k=96 norm=layer bias act=gelu",
    "linear fp16 m=33 n=64 k=32 bias act=relu",
    "linear fp16 m=1024 n=512 k=32 bias act=gelu",
    "linear fp16 m=1024 n=512 k=32 bias act=gelu_tanh",
    "linear fp16 m=33 n=64 k=32 act=quick_gelu",
    "linear fp16 m=33 n=64 k=32 act=silu residual",
)
CONFIG = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 2}


def triton_error(text: str, device: str) -> float:
    """The kernel's norm-wise error on a problem, in one config; infinite if it is of another function."""
    from . import triton_linear
    from .operands import make_operands
    from .problem import Problem
    from .reference import make_reference

    problem = Problem.of({"problem": text})
    operands = make_operands(problem, device)
    reference = make_reference(problem, operands)
    out = triton_linear.linear(problem, operands, triton_linear.kernel, **CONFIG)
    return float("inf") if reference.instead(out) else reference.errors(out)["out"].relative


def broken_triton() -> str | None:
    """Why Triton is left out on this GPU; None if it is right, or not installed."""
    if importlib.util.find_spec("triton") is None:
        return None  # absent, which is no failure
    for text in (*PROBLEMS, *(text.replace("fp16", "bf16") for text in PROBLEMS[1:5])):
        try:
            error = triton_error(text, "cuda")
        except Exception as reason:  # whatever a compiler raises
            return f"self-check '{text}': {type(reason).__name__}: {str(reason)[:200]}"
        if not error < 0.01:
            return f"self-check '{text}': {error:.3g} from fp64"
    return None
