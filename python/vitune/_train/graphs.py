# python/vitune/_train/graphs.py -- CUDA graphs of one device: a stream to capture on, a pool of memory, and the capture itself.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .._runtime.errors import Unsupported


class CudaGraphs:
    """They share a pool: they are replayed in turn, and what must outlive a replay is held, or lies outside."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Backward runs on the stream of its forward: what is captured on a stream was run on it before.
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def eagerly(self, run: Callable[[], Any]) -> Any:
        """What run() gives, which is ready for the current stream."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = run()
        current.wait_stream(self._stream)
        return result

    def capture(self, run: Callable[[], Any]) -> tuple[Any, Any]:
        """A graph with replay(), and what run() gave, which each replay writes again. Raises what broke it; the pool is of no use then."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        generator = torch.cuda.default_generators[current.device_index]
        chance = generator.clone_state()
        broken: list[BaseException] = []

        def noted() -> Any:
            try:
                with _no_chance_of_the_host():
                    return run()
            except BaseException as reason:
                broken.append(reason)
                raise

        try:
            # The calls of other threads, such as a data loader's that pins memory, are no part of the capture and may not end it.
            with _no_collection(), torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                result = noted()
            return graph, result
        except BaseException as reason:
            torch.cuda.set_stream(current)  # PyTorch leaves the capture's where its end fails too
            if reason not in broken:  # the end failed, after which the generator believes for good that it is inside of a capture
                generator.graphsafe_set_state(chance)
            raise (broken or [reason])[0] from None  # of what broke it the capture's end says nothing

    def wait(self) -> None:
        """Until no graph runs: then they may be destroyed."""
        torch.cuda.synchronize(self._device)

    def bytes(self) -> int:
        """That the pool holds of the GPU's memory."""
        return sum(each["total_size"] for each in torch.cuda.memory_snapshot() if tuple(each["segment_pool_id"]) == tuple(self._pool))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """An older graph that the collector of garbage found in the middle would be destroyed there, which ends a capture."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _state_of_the_host() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy.random")
    legacy = () if numpy is None else numpy.get_state()
    return random.getstate(), torch.get_rng_state().tolist(), [each.tolist() if hasattr(each, "tolist") else each for each in legacy]


@contextlib.contextmanager
def _no_chance_of_the_host() -> Iterator[None]:
    before = _state_of_the_host()
    yield
    if _state_of_the_host() != before:
        raise Unsupported("random numbers are drawn on the host (random, numpy or PyTorch's generator of the CPU): a replay would have those"
                          " of the capture each time; draw them before the step and hand them in as a tensor, or on the GPU")
