# python/vitune/_dropin/training.py -- Which calls that need a gradient the drop-in serves: none, those that a CUDA graph captures, or all.
# SPDX-License-Identifier: Apache-2.0
"""A node of autograd in Python costs the host more than PyTorch's own, which are C++: an eager step is often the host's time, so that faster
kernels gain nothing there and the node loses. What a CUDA graph captures is run once by the host and replayed without it. A node in C++
would need PyTorch's C++ interface, and so a library for each of its versions: the stable one has no autograd."""
from __future__ import annotations

import os
import threading
from typing import ClassVar, Optional

import torch

#: What a caller may ask for: more is served with each.
NONE, CAPTURED, ALL = 0, 1, 2
_OF_ARGUMENT = {False: NONE, None: CAPTURED, True: ALL}

#: What those ask for who have installed vitune: see Asking.
asked = NONE

#: The longest rows of keys and queries whose backward pass is known not to be slower than PyTorch's (docs/kernels.md).
LONGEST = 2048

OUTSIDE = ("requires_grad outside of a CUDA graph: PyTorch's own takes less of the host's time; training=True serves it (where no gradient is"
           " wanted: torch.no_grad() or torch.inference_mode())")
OFF = "requires_grad, and training=False"
TOO_LONG = f"requires_grad, rows of more than {LONGEST} tokens: PyTorch's backward pass is faster there; training=True serves it"

_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)  # None: a PyTorch without CUDA
_is_initialized = torch.cuda.is_initialized


def is_capturing() -> bool:
    """Whether a CUDA graph is being made of the current stream."""
    return _is_capturing is not None and _is_initialized() and _is_capturing()


def asked_by(training: Optional[bool]) -> int:
    """What an argument of that name asks for."""
    return _OF_ARGUMENT[training]


class Asking:
    """What one asks for from enter() to leave(). Of several in the process the last that came and says something decides."""

    _inside: ClassVar[list["Asking"]] = []
    _lock = threading.Lock()

    def __init__(self, training: Optional[bool]) -> None:
        self._says, self._asked = training is not None, asked_by(training)

    def enter(self) -> None:
        with self._lock:
            self._inside.append(self)
            self._decide()

    def leave(self) -> None:
        with self._lock:
            del self._inside[max(place for place, each in enumerate(self._inside) if each is self)]
            self._decide()

    def _decide(self) -> None:
        global asked
        asked = next((each._asked for each in reversed(self._inside) if each._says), CAPTURED if self._inside else NONE)


def _renew_lock() -> None:
    # Another thread of the parent may have held it.
    Asking._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def reason(asked: int, queries: int, keys: int) -> Optional[str]:
    """Why attention that needs a gradient is left to PyTorch; None: it is served."""
    if asked == ALL:
        return None
    if asked == NONE:
        return OFF
    if not is_capturing():
        return OUTSIDE
    return TOO_LONG if max(queries, keys) > LONGEST else None
