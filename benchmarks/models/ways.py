# benchmarks/models/ways.py -- How attention is served: by PyTorch's choice, cuDNN first, vitune.
# SPDX-License-Identifier: Apache-2.0
"""A way is a function that gives a context: entered around many passes, as a user would."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel

Way = Callable[[], Any]
PEERS = ("torch", "cudnn")  # what vitune is compared with: the better of these
OURS = "vitune"


def _cudnn_first() -> Any:
    # Calls that cuDNN does not take go to the others, or a model with one such call could not run.
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
             SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # fmt: skip
    return sdpa_kernel(order, set_priority=True)


@contextlib.contextmanager
def in_transformers(model: Any) -> Any:
    """A model of transformers by its own switch: attn_implementation="vitune"."""
    import vitune.transformers

    vitune.transformers.register()
    before = model.config._attn_implementation
    model.set_attn_implementation(vitune.transformers.NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _vitune() -> Any:
    import vitune.torch

    return vitune.torch.enabled()


WAYS: dict[str, Way] = {"torch": contextlib.nullcontext, "cudnn": _cudnn_first, OURS: _vitune}


def ways_of(model: Any) -> dict[str, Way]:
    """Those above; a model of transformers is told itself."""
    inner = getattr(model, "model", None)
    if hasattr(inner, "set_attn_implementation"):
        return WAYS | {OURS: lambda: in_transformers(inner)}
    return WAYS


def served_by_vitune(way: Way, run: Callable[[], Any]) -> dict[str, Any]:
    """What became of the attention calls of one pass: vitune.torch.stats() of it."""
    import vitune.torch

    before = vitune.torch.stats()
    with way():
        run()
    return dataclasses.asdict(vitune.torch.stats() - before)
