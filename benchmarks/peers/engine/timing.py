# benchmarks/peers/engine/timing.py -- How a time is taken on the GPU: cold, warm, from Python.
# SPDX-License-Identifier: Apache-2.0
"""All times are microseconds per call. One stream, one GPU, nothing else running on it.

The host never decides a GPU time: the stream is held by a sleeping kernel until a whole round is
queued, so that no gap between two kernels is a wait for Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .capture import capture, warm
from .peer import Call, sentence
from .rounds import PeerFailed

_CYCLES_PER_SECOND = 2.0e9  # about the SM clock: a hold need not be exact


class DeviceTimer:
    """Times calls on the current device. Owns the buffer that is read to empty the L2."""

    def __init__(self) -> None:
        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        l2 = getattr(facts, "L2_cache_size", 0) or 64 << 20
        #: Bytes read before each cold call. Written once, here: a dirty L2 would cost extra.
        self.flush_bytes = max(256 << 20, 4 * l2)
        self._buffer = torch.zeros(self.flush_bytes // 4, dtype=torch.float32, device="cuda")
        self._sum = torch.empty((), dtype=torch.float32, device="cuda")
        self._hold_seconds = 0.02
        self._graphs: dict[str, tuple[torch.cuda.CUDAGraph, int]] = {}

    def _flush(self) -> None:
        torch.sum(self._buffer, 0, out=self._sum)

    def _queue(
        self, names: Sequence[str], calls: dict[str, Call], cold: bool
    ) -> list[tuple[torch.cuda.Event, torch.cuda.Event]]:
        """Queues one measurement of each behind a sleep; the events around each."""
        torch.cuda._sleep(int(self._hold_seconds * _CYCLES_PER_SECOND))
        events = []
        for name in names:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            try:
                with calls[name].within():
                    work = self._cold(calls[name]) if cold else self._warm(name)
                    begin.record()
                    work()
                    end.record()
            except Exception as error:
                torch.cuda.synchronize()
                raise PeerFailed(name, sentence(error)) from error
            events.append((begin, end))
        return events

    def _cold(self, call: Call) -> Callable[[], Any]:
        self._flush()
        return call.run

    def _warm(self, name: str) -> Callable[[], Any]:
        graph, repeats = self._graphs[name]
        if repeats > 1:
            graph.replay()  # what the others left in the L2 goes
        return graph.replay

    def _round(self, names: Sequence[str], calls: dict[str, Call], cold: bool) -> dict[str, float]:
        for _ in range(4):
            torch.cuda.synchronize()
            began = time.perf_counter()
            events = self._queue(names, calls, cold)
            queued = time.perf_counter() - began
            torch.cuda.synchronize()
            held, self._hold_seconds = self._hold_seconds, min(0.5, 1.5 * queued + 5e-4)
            # The GPU began before all was queued: gaps may be the host's. Again, held longer.
            if queued < 0.9 * held:
                break
        return {name: begin.elapsed_time(end) * 1e3 for name, (begin, end) in zip(names, events)}

    def cold_round(self, names: Sequence[str], calls: dict[str, Call]) -> dict[str, float]:
        """One call of each, the L2 emptied by reading before it. Raises PeerFailed."""
        return self._round(names, calls, True)

    def warm_round(self, names: Sequence[str], calls: dict[str, Call]) -> dict[str, float]:
        """One replay of each peer's graph, over its number of calls. Raises PeerFailed."""
        times = self._round(names, calls, False)
        return {name: us / self._graphs[name][1] for name, us in times.items()}

    def capture(self, name: str, call: Call, cold_us: float) -> None:
        """Captures as many calls as fill about 2 ms, 1 to 100, over one set of buffers."""
        repeats = max(1, min(100, int(2000 / max(cold_us, 1.0))))
        side = torch.cuda.Stream()

        def calls() -> None:
            for _ in range(repeats):
                call.run()

        with call.within():
            warm(call.run, side, 1)
            # Compilers' threads may talk to CUDA meanwhile: only this thread's mistakes count.
            graph, _ = capture(calls, side, error_mode="thread_local")
        torch.cuda.synchronize()
        self._graphs[name] = (graph, repeats)

    def forget(self) -> None:
        """Drops all graphs and gives their memory back."""
        self._graphs.clear()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def python_call(self, call: Call, cold_us: float) -> tuple[float, float]:
        """What an eager call costs from Python: (until it returns, with the GPU's part).

        N calls without a synchronisation in between, then one; the least of three repeats.
        """
        count = max(2, min(50, int(20000 / max(cold_us, 1.0))))
        queued, done = [], []
        with call.within():
            for _ in range(3):
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(count):
                    call.run()
                queued.append(time.perf_counter() - began)
                torch.cuda.synchronize()
                done.append(time.perf_counter() - began)
        return min(queued) / count * 1e6, min(done) / count * 1e6

    def empty_us(self) -> dict[str, float]:
        """What the two methods read of a kernel that does nothing: part of every figure."""
        nothing = {"nothing": Call(lambda: torch.cuda._sleep(0))}
        self.capture("nothing", nothing["nothing"], 1.0)
        found = {
            kind: min(measure(["nothing"], nothing)["nothing"] for _ in range(9))
            for kind, measure in (("cold", self.cold_round), ("warm", self.warm_round))
        }
        self.forget()
        return found
