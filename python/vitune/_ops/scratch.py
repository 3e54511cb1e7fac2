# python/vitune/_ops/scratch.py -- Launches of problems that may need scratch memory, which PyTorch's allocator gives.
# SPDX-License-Identifier: Apache-2.0
"""How much a problem needs is kept with it, until its context is refreshed: a new winner may need another size."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch
from torch import Tensor

from .._runtime.context import Context, Problem
from .._runtime.errors import InvalidArgument
from . import attention as attention_ops
from .remembered import note


def _size(context: Context, problem: Problem) -> int:
    refreshes = context.refreshes
    asked, size = problem.workspaces.get(context.device, (-1, 0))
    if asked != refreshes:
        size = context.workspace_bytes(problem)
        problem.workspaces[context.device] = refreshes, size
    return size


def _run(context: Context, problem: Problem, tensors: Sequence[Optional[Tensor]], size: int) -> None:
    scratch = torch.empty(size, dtype=torch.uint8, device=tensors[0].device) if size else None
    context.run(problem, [0 if t is None else t.data_ptr() for t in tensors], stream=attention_ops._stream(context.device),
                workspace=scratch.data_ptr() if scratch is not None else 0, workspace_bytes=size)
    note(problem.text, tensors, size)


def launch(problem: Problem, tensors: Sequence[Optional[Tensor]]) -> None:
    """Launches on the first tensor's device, on its current stream. A problem that is new there is prepared, in a capture too."""
    context = attention_ops.context_of(tensors[0].get_device())
    size = _size(context, problem)
    try:
        _run(context, problem, tensors, size)
    except InvalidArgument:
        # Another thread's refresh may have come in between.
        needed = context.workspace_bytes(problem)
        if needed <= size:
            raise
        _run(context, problem, tensors, needed)
