# benchmarks/train_models/graph.py -- Whole steps as CUDA graphs.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import torch
from models.row import no_collection
from torch import Tensor

from .step import Step, Training

WARM = 3  #: steps before a capture: what is made at first calls is made outside of it


class Captures:
    """Of one training, all in one pool of memory: they are replayed in turn, and nothing but weights, the optimizer's state and
    the losses, which lie outside or are held, must outlive a replay."""

    def __init__(self, training: Training) -> None:
        self._training = training
        # Backward runs on the stream of its forward: both are made, and captured, on this one.
        self._stream = torch.cuda.Stream()
        self._pool: Any = None
        self._anchor: Any = None

    def warm(self, step: Step) -> None:
        """Runs it on the stream that it will be captured on."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM):
                step()
        torch.cuda.current_stream().wait_stream(self._stream)
        torch.cuda.synchronize()

    def capture(self, step: Step) -> tuple[Any, Tensor]:
        """The graph, and where it writes the loss. The gradients are made inside, and are the parameters' until others are."""
        self._training.forget_gradients()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            # A pool may be captured into as long as some graph of it is there: this one always is.
            self._anchor = self._captured(lambda: torch.zeros(1, device="cuda"))
        try:
            return self._captured(step)
        except BaseException:
            self._pool = None  # what state this one is in nobody knows
            raise

    def _captured(self, run: Step) -> tuple[Any, Tensor]:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            # An older graph that Python's collector found in the middle would be destroyed there, which ends a capture.
            with no_collection(), torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                return graph, run()
        except BaseException as reason:
            torch.cuda.set_stream(stream)  # PyTorch leaves the capture's where its end fails too
            _renew_chance()
            if isinstance(reason.__context__, Exception):
                raise reason.__context__ from None  # what broke it, of which the capture's end says nothing
            raise


def _renew_chance() -> None:
    """PyTorch's generator of random numbers believes for good that it is inside of a capture that failed: it gets another state."""
    fresh = torch.Generator("cuda")
    fresh.manual_seed(0)
    torch.cuda.default_generators[torch.cuda.current_device()].graphsafe_set_state(fresh.graphsafe_get_state())
