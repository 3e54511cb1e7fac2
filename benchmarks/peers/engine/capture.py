# benchmarks/peers/engine/capture.py -- CUDA graphs that own what they use.
# SPDX-License-Identifier: Apache-2.0
"""PyTorch makes a workspace for cuBLAS at the first product on a stream, keeps it for the next ones, and frees all workspaces
when it is asked to, as torch.compile's reduce-overhead asks. A graph captured on a stream that had its workspace before writes
to freed memory from then on. A workspace that is made in the middle of a capture lies in the graph's own pool.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch


def warm(run: Callable[[], Any], stream: Any, times: int) -> None:
    """Runs it on the stream of the capture to come: what first calls make is made outside of it."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()


def capture(
    run: Callable[[], Any], stream: Any = None, pool: Any = None, error_mode: str = "global"
) -> tuple[Any, Any]:
    """A graph with replay(), and what run() gave, which each replay writes again.

    Raises what broke it; the pool is of no use then. stream, pool, error_mode: of torch.cuda.graph().
    """
    graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    broken: list[BaseException] = []
    try:
        captured = torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode=error_mode)
        with no_collection(), _own_workspaces(), captured:
            try:
                result = run()
            except BaseException as reason:
                broken.append(reason)
                raise
        return graph, result
    except BaseException as end:
        torch.cuda.set_stream(current)  # PyTorch leaves the capture's where its end fails
        _renew_chance()
        raise (broken or [end])[0] from None  # of what broke it the capture's end says nothing
    finally:
        broken.clear()  # a traceback that holds itself would keep the tensors of a failed run


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Python's collector runs before, not meanwhile: it would destroy older graphs in the middle of
    a capture, which ends it, or take its time in the middle of a sample."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _own_workspaces() -> Iterator[None]:
    """Within, cuBLAS' workspaces are new; afterwards nobody else uses them."""
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


def _renew_chance() -> None:
    """PyTorch's generator of random numbers believes for good that it is inside of a capture that
    failed: it gets another state."""
    fresh = torch.Generator("cuda")
    fresh.manual_seed(0)
    device = torch.cuda.current_device()
    torch.cuda.default_generators[device].graphsafe_set_state(fresh.graphsafe_get_state())
