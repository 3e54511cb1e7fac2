# benchmarks/models/clock.py -- How long passes take, and how long until their calls returned.
# SPDX-License-Identifier: Apache-2.0
"""All times are milliseconds per pass. Nothing else runs on the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Run = Callable[[], Any]


class CpuClock:
    """For trying the program without a GPU: its figures mean nothing about one."""

    modes = ("eager",)

    def synchronize(self) -> None:
        """Waits until all that was queued is done."""

    def release(self) -> None:
        """Gives back memory that nothing uses."""

    def passes(self, run: Run, count: int) -> float:
        """Of `count` passes in a row."""
        return self.host(lambda: [run() for _ in range(count)]) / count

    def host(self, run: Run) -> float:
        """Until one pass has returned, the device idle before."""
        self.synchronize()
        began = time.perf_counter()
        run()
        return (time.perf_counter() - began) * 1e3


class CudaClock(CpuClock):
    """On the current CUDA device and stream."""

    modes = ("eager", "graph")

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def release(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def passes(self, run: Run, count: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.synchronize()
        begin.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count

    def capture(self, run: Callable[[], Tensor]) -> tuple[Run, Tensor]:
        """A replay of one pass, and where it writes its answer."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):  # what is made at first calls is made outside of the capture
                run()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = run()
        return graph.replay, answer
