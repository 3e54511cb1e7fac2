# python/vitune/_dropin/lone_norms.py -- Small norms of programs in which no attention is served: after a while they are PyTorch's.
# SPDX-License-Identifier: Apache-2.0
"""A Python function under the name of PyTorch's layer_norm takes a model's host some 3 us at each call, which a small norm does not earn,
whoever computes it: SwinV2-T at batch 8 took 2.4 % longer, also where the function handed all calls on at once. Beside attention that is
served it is earned many times over. So a program that calls so many small norms in a row without attention gets its names back."""
from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .._runtime.counters import counters
from . import training

PATIENCE = 1_000  #: calls in a row
SMALL = 3_000_000  #: elements; a norm of fewer takes the GPU less time than its launch takes the host
WHY = (f"LayerNorms are PyTorch's again: of {PATIENCE:,} in a row all were small, with no attention served among them, and a call of Python's in"
       " their place cost more than a kernel gained. They are served again once attention is")

left = PATIENCE  #: calls until it is looked at again
aside = False  #: the names are PyTorch's
exchange: Callable[[], None]  #: binds the names as `aside` says (install.py)
_attention = 0  #: calls that were served when it was last looked at


def look(x: Tensor) -> None:
    """After the last of so many norms, which was of x."""
    global left, aside, _attention
    left, before, _attention = PATIENCE, _attention, counters.served
    if _attention == before and x.numel() < SMALL and training.asked != training.ALL and not training.is_capturing():
        aside = True
        exchange()


def come_back() -> None:
    """As attention is served."""
    global aside
    aside = False
    exchange()
