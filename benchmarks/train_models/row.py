# benchmarks/train_models/row.py -- Measures the steps of one model at one batch: all ways, interleaved, in both modes.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from models.interval import gain, summary
from models.row import Samples, alive, by_kind, timed
from peers.engine.peer import sentence
from torch import Tensor

from . import kinds
from .document import new_row
from .graph import Captures
from .step import Step, Training
from .ways import BUILDS, EAGER, OURS, PEERS, Way, replaced

#: How far a way's loss, and the norm of its gradients, may be from those of the first one that ran: rounding, and dropout's chance.
LOSS, NORM = 0.05, 1.5
#: Steps of a sample: in the first one of a row the GPU waits for the host, as in none of a training's.
LEAST_IN_A_ROW = 4
MOST_KERNELS = 16  # of a way in the row, the longest first


class _Failed(Exception):
    """A build that several ways share; its text says why."""


@dataclasses.dataclass
class _Prepared:
    """What can be run again and again."""

    run: Callable[[], Any]
    peak_gb: float | None  #: None: not known


class Row:
    """Of one training. A way that fails says so in the row and leaves the others alone."""

    def __init__(self, training: Training, clock: Any, seconds: float, chance: random.Random) -> None:
        """seconds: of rounds, for each mode."""
        self._training, self._clock, self._seconds, self._chance = training, clock, seconds, chance
        self._has_graphs = "graph" in clock.modes
        self._captures = Captures(training) if self._has_graphs else None
        self._within: dict[str, Callable[[], Any]] = {}  # way -> where its steps run
        self._built: dict[str, Any] = {}  # build -> its step, or why there is none
        self._graphs: dict[str, Any] = {}  # build -> its graph, loss and memory, or why there is none
        self._peak: dict[str, float | None] = {}
        self._doing = ""  # with the way that is prepared
        self._reference: tuple[float, float] | None = None
        self._samples: dict[str, Samples] = {"called": {}, "graph": {}}
        self._says: dict[str, dict[str, Any]] = {"compile_s": {}, "loss": {}, "gradient_norm": {}, "replaced": {}}

    def measure(self, ways: Sequence[Way], left_out: Mapping[str, str]) -> list[dict[str, Any]]:
        """A row for each mode, without its name. left_out: {"NAME as MODE": why}."""
        modes = [mode for mode in ("called", "graph") if (mode == "called" or self._has_graphs) and any(way.build(mode) for way in ways)]
        rows = {mode: new_row(mode) for mode in modes}
        told = {way.name for way in ways if way.whole}  # what a graph runs is what is called
        # Graphs first, and timed before others are made.
        for records in (False, True):
            runs: dict[str, dict[str, Any]] = {mode: {} for mode in modes}
            for mode in reversed(modes):
                for way in ways:
                    if way.build(mode) is not None and (way.records and mode == "called") == records:
                        self._prepare(way, mode, rows[mode], runs[mode], _why_left_out(way, mode, ways, left_out))
                if runs[mode]:
                    self._time(rows[mode], runs[mode])
            for mode in reversed(modes):
                self._look(rows[mode], runs[mode], told)
                told |= set(rows[mode]["kinds_us"])
        for mode in modes:
            self._compare(rows[mode], self._samples[mode])
        more = {name: found for name, found in self._says.items() if found}
        return [row | more for row in rows.values()]

    def eager_ms(self) -> float:
        """Of an eager step, as a graph where there are any: for a choice that holds for all ways."""
        step = self._training.step(self._training.model)
        if self._captures is None:
            step()
            return self._clock.passes(step, 1)
        self._captures.warm(step)
        graph, _ = self._captures.capture(step)
        graph.replay()
        return min(self._clock.passes(graph.replay, 2) for _ in range(3))

    def _prepare(self, way: Way, mode: str, row: dict[str, Any], runs: dict[str, Any], left_out: str | None) -> None:
        """left_out: why; None: it is not."""
        if left_out:
            row["failed"][way.name] = left_out
            return
        build, self._doing, self._within[way.name] = way.build(mode), "prepared", way.within
        try:
            with way.within():
                if mode == "graph":
                    prepared = self._as_graph(build)
                elif way.whole and self._has_graphs:
                    prepared = self._copied_into(build)
                else:
                    prepared = self._called(build)
        except Exception as reason:
            row["failed"][way.name] = str(reason) if isinstance(reason, _Failed) else sentence(reason)
            alive(self._clock, self._doing, way.name, mode)
        else:
            runs[way.name] = prepared.run
            if prepared.peak_gb is not None:
                row["peak_gb"][way.name] = round(prepared.peak_gb, 3)
            return
        # Frees the memory that a failed way held, its traceback's too, for the others.
        self._training.forget_gradients()
        gc.collect()
        self._clock.release()

    def _once(self, found: dict[str, Any], build: str, make: Callable[[str], Any]) -> Any:
        """What `make` gave for a build at its first asking. Raises _Failed, again and again, where it failed then."""
        if build not in found:
            try:
                found[build] = make(build)
            except Exception as reason:
                found[build] = _Failed(str(reason) if isinstance(reason, _Failed) else sentence(reason))
        if isinstance(found[build], _Failed):
            raise found[build].with_traceback(None)
        return found[build]

    def _step(self, build: str) -> Step:
        return self._once(self._built, build, self._make)

    def _make(self, build: str) -> Step:
        """Compiled, run some times, and judged."""
        step, subject = BUILDS[build](self._training)
        began = time.monotonic()
        step()
        self._clock.synchronize()
        self._says["compile_s"][build] = round(time.monotonic() - began, 1)
        self._training.forget_gradients()
        # Where a way records graphs of its own it is the second call, and vitune's step the fourth.
        memory, _ = self._clock.peak(lambda: [step() for _ in range(4)])
        self._peak[build] = self._gb(memory)
        self._judge(build, step)
        if subject is not None:
            self._says["replaced"][build] = replaced(subject)
        return step

    def _called(self, build: str) -> _Prepared:
        return _Prepared(self._step(build), self._peak[build])

    def _as_graph(self, build: str) -> _Prepared:
        graph, _, peak = self._once(self._graphs, build, self._capture)
        return _Prepared(graph.replay, peak)

    def _capture(self, build: str) -> tuple[Any, Tensor, float | None]:
        step, self._doing = self._step(build), "captured"
        self._captures.warm(step)
        self._training.forget_gradients()
        memory, (graph, loss) = self._clock.peak(lambda: self._captures.capture(step))
        loss.fill_(float("nan"))  # what the replay does not write stays so
        self._doing = "replayed"

        def replayed() -> Tensor:
            graph.replay()
            return loss

        self._judge(build, replayed)
        return graph, loss, self._gb(memory)

    def _copied_into(self, build: str) -> _Prepared:
        """Each step has a batch of its own, which the graph's is overwritten with."""
        graph, _, peak = self._once(self._graphs, build, self._capture)
        training = self._training
        images, labels = training.images.clone(), training.labels.clone()

        def run() -> None:
            training.images.copy_(images, non_blocking=True)
            training.labels.copy_(labels, non_blocking=True)
            graph.replay()

        more = sum(each.numel() * each.element_size() for each in (images, labels)) / 2**30
        return _Prepared(run, None if peak is None else peak + more)

    def _judge(self, build: str, run: Step) -> None:
        """Raises ValueError where a step is not one: by its loss, its gradients and the optimizer's count of steps."""
        before = self._training.count()
        loss = float(run())
        taken, norm = self._training.count() - before, self._training.gradient_norm()
        if taken != 1:
            raise ValueError(f"the optimizer took {taken:g} steps instead of one")
        if self._reference is None:
            if not (abs(loss) < float("inf") and 0 < norm < float("inf")):
                raise ValueError(f"a loss of {loss:g} with gradients of norm {norm:g}: nothing to compare with")
            self._reference = loss, norm
        wanted, of_norm = self._reference
        if not abs(loss - wanted) <= LOSS * abs(wanted):
            raise ValueError(f"wrong loss: {loss:g}, and {wanted:g} of the first way")
        if not of_norm / NORM <= norm <= of_norm * NORM:
            raise ValueError(f"wrong gradients: their norm is {norm:g}, and {of_norm:g} of the first way")
        self._says["loss"][build], self._says["gradient_norm"][build] = round(loss, 5), round(norm, 5)

    def _gb(self, over_mib: float | None) -> float | None:
        """Of a step that takes so much over what is there between steps."""
        return None if over_mib is None else over_mib / 2**10 + self._training.standing_bytes() / 2**30

    def _look(self, row: dict[str, Any], runs: dict[str, Any], told: set[str]) -> None:
        """Where the time goes, of the ways that are not told yet."""
        for name in row["ms"].keys() & runs.keys() - told:
            most = MOST_KERNELS if name in ("compile_default", *OURS) else 0  # of the others the kinds say enough
            by_kind(row, name, runs[name], self._within[name], self._clock, kinds.by_kind, most)

    def _time(self, row: dict[str, Any], runs: dict[str, Any]) -> None:
        within = {name: self._within[name] for name in runs}
        told = timed(row["mode"], runs, within, self._clock, self._seconds, self._chance, LEAST_IN_A_ROW, alone=True)
        row["failed"] |= told.failed
        for name, values in told.samples.items():
            found = summary(values, "ms")
            row["ms"][name] = {figure: found[figure] for figure in ("ms", "low", "high")}
            row.setdefault("host_ms", {})[name] = summary(told.host[name], "ms")["ms"]
            row.setdefault("idle_ms", {})[name] = summary(told.alone[name], "ms")["ms"]
            row.setdefault("in_a_row", {})[name] = told.in_a_row[name]
        row["rounds"] = max(row.get("rounds", 0), *map(len, told.samples.values()), 0)
        self._samples[row["mode"]] |= told.samples

    @staticmethod
    def _compare(row: dict[str, Any], samples: Samples) -> None:
        """Notes the gain of the best of vitune's ways, and that of the eager step with the drop-in over the one without."""
        ours = min((name for name in OURS if name in row["ms"] and name not in EAGER), key=lambda name: row["ms"][name]["ms"], default=None)
        found = gain(samples, PEERS, ours) if ours else None
        if found:
            row["gain"] = {"of": ours, **found}
        if eager := gain(samples, EAGER[:1], EAGER[1]):
            row["eager_gain"] = eager


def _why_left_out(way: Way, mode: str, ways: Sequence[Way], left_out: Mapping[str, str]) -> str | None:
    """A way whose whole step is another one's graph goes with that one."""
    graphs = (each.name for each in ways if way.whole and mode == "called" and each.graph == way.called)
    names = (f"{way.name} as {mode}", *(f"{name} as graph" for name in graphs))
    return next((left_out[name] for name in names if name in left_out), None)
