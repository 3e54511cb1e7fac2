# benchmarks/train_models/graph.py -- Whole steps as CUDA graphs.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import torch
from peers.engine import capture
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
        capture.warm(step, self._stream, WARM)

    def capture(self, step: Step) -> tuple[Any, Tensor]:
        """The graph, and where it writes the loss. The gradients are made inside, and are the parameters' until others are."""
        self._training.forget_gradients()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            # A pool may be captured into as long as some graph of it is there: this one always is.
            self._anchor = capture.capture(lambda: torch.zeros(1, device="cuda"), self._stream, self._pool)
        try:
            return capture.capture(step, self._stream, self._pool)
        except BaseException:
            self._pool = None  # what state this one is in nobody knows
            raise
