# benchmarks/models/clock.py -- How long passes take, and how long until their calls returned.
# SPDX-License-Identifier: Apache-2.0
"""All times are milliseconds per pass. Nothing else runs on the device."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from peers.engine import capture
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

Run = Callable[[], Any]


_PROFILED = 3  # passes
#: Regions that a profiler puts beside the kernels on the device's line of time.
_REGIONS = ("Torch-Compiled Region", "## Call CompiledFxGraph", "ProfilerStep", "CompiledFunction")


def kernels_of(events: Iterable[Any], passes: int) -> list[tuple[str, float, float]]:
    """(name, microseconds, calls) per pass of what ran on the GPU, the longest first."""
    us: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in events:
        if event.device_type != DeviceType.CUDA or event.is_user_annotation or event.name.startswith(_REGIONS):
            continue
        us[event.name] += event.time_range.elapsed_us()
        calls[event.name] += 1
    return [(name, total / passes, calls[name] / passes) for name, total in us.most_common()]


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

    def peak(self, run: Callable[[], Any]) -> tuple[float | None, Any]:
        """MiB that it takes at most, over what was there before, and what it gives; None: not known."""
        return None, run()

    def kernels(self, run: Run) -> list[tuple[str, float, float]]:
        """(name, microseconds, calls) of the kernels of one pass, the longest first; empty: not known."""
        return []


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

    def peak(self, run: Callable[[], Any]) -> tuple[float | None, Any]:
        # Garbage, or a library's workspace, that is freed meanwhile would be taken off: torch.cuda.graph() collects and frees.
        self.synchronize()
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        found = run()
        self.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20, found

    def kernels(self, run: Run) -> list[tuple[str, float, float]]:
        run()
        self.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as watched:
            for _ in range(_PROFILED):
                run()
            self.synchronize()
        return kernels_of(watched.events(), _PROFILED)

    def capture(self, run: Callable[[], Tensor]) -> tuple[Run, Tensor]:
        """A replay of one pass, and where it writes its answer."""
        side = torch.cuda.Stream()
        capture.warm(run, side, 2)
        graph, answer = capture.capture(run, side)
        return graph.replay, answer
