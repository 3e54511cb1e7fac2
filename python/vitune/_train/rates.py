# python/vitune/_train/rates.py -- Learning rates in GPU memory, where a graph reads them and schedulers need not know of them.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Optional

import torch
from torch import Tensor


class Rates:
    """An fp32 tensor for each group of an optimizer. The groups keep what the user and the schedulers put there."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._optimizer, self._device = optimizer, device
        self._tensors: list[Tensor] = []
        self._written: list[Optional[float]] = []  # None: a tensor's value, which only the GPU may know

    def write(self) -> None:
        """What the groups have now. Waits for nothing."""
        for place, group in enumerate(self._optimizer.param_groups):
            if place == len(self._tensors):
                self._tensors.append(torch.zeros((), dtype=torch.float32, device=self._device))
                self._written.append(None)
            rate = group["lr"]
            if isinstance(rate, Tensor):
                self._tensors[place].copy_(rate.detach().reshape(()), non_blocking=True)
                self._written[place] = None
            elif rate != self._written[place]:
                self._tensors[place].fill_(rate)
                self._written[place] = rate

    @contextlib.contextmanager
    def in_groups(self) -> Iterator[None]:
        """The tensors are the groups' rates inside of it."""
        groups = list(self._optimizer.param_groups)
        theirs = [group["lr"] for group in groups]
        try:
            for group, tensor in zip(groups, self._tensors):
                group["lr"] = tensor
            yield
        finally:
            for group, rate in zip(groups, theirs):
                group["lr"] = rate
