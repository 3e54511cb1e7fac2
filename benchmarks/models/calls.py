# benchmarks/models/calls.py -- Host time of one attention call, by who serves it.
# SPDX-License-Identifier: Apache-2.0
"""A problem so small that the GPU is done before the next call: what is left is the host's time."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import torch
from peers.engine.peer import sentence
from peers.engine.rounds import Limits, PeerFailed, run_rounds
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import ways
from .interval import summary

CALLS = 200  # in a row are one sample
LIMITS = Limits(least=9, most=41, noise=0.005, slow_us=float("inf"))
GRAD_MODES = {"inference_mode": torch.inference_mode, "no_grad": torch.no_grad}
PROBLEM = {"batch": 1, "heads": 12, "tokens": 197, "head_size": 64}

Call = Callable[[], Any]


def _operands(device: str) -> list[torch.Tensor]:
    """q, k and v as models make them: views of one tensor."""
    torch.manual_seed(0)
    b, h, n, d = PROBLEM.values()
    qkv = torch.randn(b, n, 3, h, d, device=device).bfloat16()
    return list(qkv.permute(2, 0, 3, 1, 4).unbind(0))


def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """The registered operator, whoever registered it, with its own defaults spelled out."""
    from vitune._ops import attention as attention_ops  # noqa: F401: registers it

    operator = torch.ops.vitune.attention.default
    given = {"dropout_p": 0.0, "is_causal": False, "enable_gqa": False, "fall_back": False}
    rest = [
        argument.default_value if argument.has_default_value() else given.get(argument.name)
        for argument in operator._schema.arguments[3:]
    ]
    return lambda: operator(q, k, v, *rest)


def candidates(device: str) -> tuple[dict[str, tuple[ways.Way, Call]], dict[str, str]]:
    """name -> (what it is called within, the call), and why others are missing."""
    q, k, v = _operands(device)

    def sdpa() -> Any:  # looked up at each call, as models do
        return functional.scaled_dot_product_attention(q, k, v)

    def only(backend: Any) -> ways.Way:
        return lambda: sdpa_kernel(backend)

    def user() -> Call:
        import vitune

        return lambda: vitune.attention(q, k, v)

    found: dict[str, tuple[ways.Way, Call]] = {
        "torch": (contextlib.nullcontext, sdpa),
        "torch flash": (only(SDPBackend.FLASH_ATTENTION), sdpa),
        "torch efficient": (only(SDPBackend.EFFICIENT_ATTENTION), sdpa),
        "torch cudnn": (only(SDPBackend.CUDNN_ATTENTION), sdpa),
        "torch math": (only(SDPBackend.MATH), sdpa),
        "vitune drop-in": (ways.WAYS[ways.OURS], sdpa),
    }
    failed = {}
    makers = {
        "vitune.attention": user,
        "vitune operator": lambda: _operator(q, k, v),
    }
    for name, maker in makers.items():
        try:
            found[name] = (contextlib.nullcontext, maker())
        except Exception as reason:
            failed[name] = sentence(reason)
    return found, failed


def _sample(call: Call, clock: Any) -> float:
    """Microseconds per call until it returned."""
    clock.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS * 1e6


def measure(device: str, clock: Any, seconds: float, chance: random.Random) -> list[dict[str, Any]]:
    """A row per grad mode."""
    rows = []
    for mode, entered in GRAD_MODES.items():
        found, failed = candidates(device)
        with entered():
            for name, (within, call) in list(found.items()):
                try:
                    with within():
                        call()
                        clock.synchronize()
                except Exception as reason:
                    failed[name] = sentence(reason)
                    del found[name]

            def one_round(names: Any) -> dict[str, float]:
                us = {}
                for name in names:
                    within, call = found[name]
                    try:
                        with within():
                            us[name] = _sample(call, clock)
                    except Exception as reason:
                        raise PeerFailed(name, sentence(reason)) from reason
                return us

            outcome = run_rounds(list(found), one_round, LIMITS, seconds / len(GRAD_MODES), chance)
        rows.append(
            {
                "grad": mode,
                "problem": PROBLEM,
                "us": {name: summary(us, "us") for name, us in outcome.samples.items() if us},
                "failed": failed | outcome.failed,
            }
        )
    return rows
