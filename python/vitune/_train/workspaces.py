# python/vitune/_train/workspaces.py -- Counts how often PyTorch gave back the workspaces of cuBLAS.
# SPDX-License-Identifier: Apache-2.0
"""A stream's first product makes one, in the plain steps before a capture, and the graph has its address, of which PyTorch knows nothing. It
gives back all of them whenever torch.compile's reduce-overhead records a graph and where Lightning's Trainer ends: the next replay of a graph
captured before writes to memory that is somebody else's by then, or nobody's (seen with PyTorch 2.11: a failed launch, a segmentation fault)."""
from __future__ import annotations

import functools
from typing import Any

import torch

_NAME = "_cuda_clearCublasWorkspaces"  # of torch._C, which all callers look up there; no call of C++ leads around it
_times = 0
_counting: Any = None  # what stands under that name since


def times_cleared() -> int:
    """Since watch() was called first."""
    return _times


def watch() -> None:
    """Counts from now on. Builds of PyTorch without CUDA have no workspaces."""
    global _counting
    clear = getattr(torch._C, _NAME, None)
    if clear is None or clear is _counting:
        return

    @functools.wraps(clear)
    def counted() -> None:
        global _times
        _times += 1
        clear()

    _counting = counted
    setattr(torch._C, _NAME, counted)
