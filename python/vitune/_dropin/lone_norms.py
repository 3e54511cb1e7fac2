# python/vitune/_dropin/lone_norms.py -- Small norms of programs in which no attention is served: after a while they are PyTorch's.
# SPDX-License-Identifier: Apache-2.0
"""A Python function under the name of PyTorch's layer_norm takes a model's host some 3 us at each call, which a small norm does not earn,
whoever computes it: SwinV2-T at batch 8 took 2.4 % longer, also where the function handed all calls on at once. Beside attention that is
served it is earned many times over. So a program that calls so many norms in a row without attention gets its names back, if the last of
them, more than a pass of a model has, were small."""
from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .._runtime.counters import counters
from . import training

PATIENCE = 1_000  #: calls in a row
LOOKED_AT = 250  #: further ones
SMALL = 3_000_000  #: elements; a norm of fewer takes the GPU less time than its launch takes the host
WHY = (f"LayerNorms are PyTorch's again: {PATIENCE:,} came in a row with no attention served among them, the next {LOOKED_AT} were small, and a call"
       " of Python's in their place costs more than a kernel gains. They are served again once attention is")

left = PATIENCE  #: calls until the next is looked at
aside = False  #: the names are PyTorch's
exchange: Callable[[], None]  #: binds the names as `aside` says (install.py)
_looked_at = 0
_attention = 0  #: calls that were served when it was last looked at


def look(x: Tensor) -> None:
    """At a norm of x."""
    global left, aside, _looked_at
    if x.numel() >= SMALL or training.asked == training.ALL or training.is_capturing() or _attention_came():
        left, _looked_at = PATIENCE, 0
        return
    _looked_at += 1
    if _looked_at >= LOOKED_AT:
        left, _looked_at = PATIENCE, 0
        aside = True
        exchange()


def look_for_attention() -> None:
    """While they are aside, before each call of attention: whether one was served since."""
    if _attention_came():
        come_back()


def come_back() -> None:
    """The names are vitune's."""
    global aside
    aside = False
    exchange()


def _attention_came() -> bool:
    global _attention
    before, _attention = _attention, counters.served
    return _attention != before
