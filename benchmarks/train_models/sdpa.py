# benchmarks/train_models/sdpa.py -- Which of PyTorch's attention kernels is the fastest for a model's step.
# SPDX-License-Identifier: Apache-2.0
"""One measure per row, of the eager step: what attention takes is the same in all of PyTorch's ways."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from models.row import alive
from peers.engine.peer import sentence
from torch.nn.attention import SDPBackend, sdpa_kernel

_CUDNN, _FLASH = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION
_EFFICIENT, _MATH = SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
#: Each takes the calls that those before it refuse: a mask that wants a gradient to the efficient one.
ORDERS = {
    "cudnn": [_CUDNN, _FLASH, _EFFICIENT, _MATH],
    "flash": [_FLASH, _EFFICIENT, _MATH],
    "efficient": [_EFFICIENT, _MATH],
}


@contextlib.contextmanager
def preferring(name: str | None) -> Any:
    """Within, PyTorch serves attention in this order; None: in its own."""
    if name is None:
        yield
        return
    # Inductor's caches do not look at the order, and would give what was compiled with another one.
    with sdpa_kernel(ORDERS[name], set_priority=True), torch.compiler.config.patch(cache_key_tag=f"sdpa {name}"):
        yield


def fastest(milliseconds: Callable[[], float], clock: Any) -> dict[str, Any]:
    """{"order": the best one's name, "ms": of each, "failed": why others have none}. `milliseconds` takes the time of a step. Raises
    Poisoned where the device no longer answers."""
    ms, failed = {}, {}
    for name in ORDERS:
        try:
            with preferring(name):
                ms[name] = round(milliseconds(), 4)
        except Exception as reason:
            failed[name] = sentence(reason)
            alive(clock, f"eager, attention by {name}")
    return {"order": min(ms, key=ms.__getitem__) if ms else None, "ms": ms, "failed": failed}
