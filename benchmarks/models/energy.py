# benchmarks/models/energy.py -- Joules of an image by each way: NVML's counter over windows of passes, the ways in turn.
# SPDX-License-Identifier: Apache-2.0
"""Knows no PyTorch: what counts, waits and runs is handed in."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

SECONDS = 5.0  # of a window: NVML's counter moves every 20 to 100 ms
OURS, PEERS = "vitune_compile", ("compile_default", "compile_reduce", "compile_max")
_WINDOWS = 3


def joules(runs: dict[str, Callable[[], Any]], counter: Callable[[], float], synchronize: Callable[[], None], images: int,
           seconds: float, now: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Of an image, by way."""
    found: dict[str, list[float]] = {way: [] for way in runs}
    for window in range(_WINDOWS):
        for way in runs if window % 2 == 0 else reversed(runs):
            runs[way]()
            synchronize()
            began, before, passes = now(), counter(), 0
            while now() - began < seconds:
                runs[way]()
                passes += 1
                if passes % 16 == 0:  # else the queue, and not the clock, ends the window
                    synchronize()
            synchronize()
            found[way].append((counter() - before) / (passes * images))
    return {way: sorted(windows)[_WINDOWS // 2] for way, windows in found.items()}


def noted(candidates: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """What the candidates of a row run, by name, filled as they are prepared."""
    runs: dict[str, Callable[[], Any]] = {}

    def prepared(name: str, prepare: Callable[[], Any]) -> Any:
        made = prepare()
        runs[name] = made.run
        return made

    for name, candidate in candidates.items():
        candidate.prepare = functools.partial(prepared, name, candidate.prepare)
    return runs


@dataclasses.dataclass(frozen=True)
class Meter:
    """Of one GPU."""

    counter: Callable[[], float]  #: joules so far
    seconds: float  #: of a window

    def mj(self, runs: dict[str, Callable[[], Any]], ways: Sequence[str], images: int, synchronize: Callable[[], None]) -> dict[str, float]:
        """Millijoules of an image, by those of the ways that run."""
        chosen = {way: runs[way] for way in ways if way in runs}
        return {way: round(1e3 * each, 3) for way, each in joules(chosen, self.counter, synchronize, images, self.seconds).items()}


def peer(row: dict[str, Any]) -> str | None:
    """The mode of torch.compile that takes the fewest joules, of a row that says so."""
    mj = row.get("mj", {})
    return min((way for way in PEERS if way in mj), key=mj.__getitem__, default=None) if OURS in mj else None


def fewer(row: dict[str, Any]) -> float | None:
    """Joules of that mode over those of vitune.compile; None where they were not measured."""
    over = peer(row)
    return row["mj"][over] / row["mj"][OURS] if over else None
