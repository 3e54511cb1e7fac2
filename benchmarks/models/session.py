# benchmarks/models/session.py -- What each task of a run measures: a model as it is, compiled, or one call.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pathlib
import random
from collections.abc import Callable
from typing import Any

import torch

from . import calls, compiled, document, energy, row, ways, whole, zoo
from .floor import Ceilings, floor_us
from .roster import Task
from .tasks import Tasks

MOST_SECONDS = 6.0  # of rounds for one row and mode


class Settings:
    """What holds for all tasks."""

    def __init__(self, device: str, clock: Any, ceilings: Ceilings | None, after_compiling: Callable[[], Any],
                 files: tuple[str, ...] = (), meter: energy.Meter | None = None) -> None:
        self.device, self.clock, self.ceilings, self.after_compiling = device, clock, ceilings, after_compiling
        self.files = files  #: kinds of files that compiled models are measured beside
        self.meter = meter  #: of compiled models; None: joules are not measured


class Session(Tasks):
    """Of whole models' passes."""

    document = document

    def __init__(self, result: dict[str, Any], path: pathlib.Path, settings: Settings) -> None:
        super().__init__(result, path, settings.clock)
        self._settings, self._device = settings, settings.device
        self._chance = random.Random(0)
        self._built: tuple[str, Any, int] | None = None

    def forget(self) -> None:
        self._built = None

    def line(self, found: dict[str, Any]) -> str:
        return _line(found)

    def rows(self, task: Task) -> list[dict[str, Any]]:
        if task.kind == "calls":
            return calls.measure(self._device, self._clock, 2 * MOST_SECONDS, self._chance)
        model, size = self._model(task.model)
        images = zoo.images(task.batch, size, self._device)
        subject = row.subject_of(model, images)
        floors = self._floors(subject)
        with torch.inference_mode():
            if task.kind == "compiled":
                found = [self._compiled(subject, model, images)]
            else:
                found = self._as_it_is(task, subject, model)
        return [each | floors for each in found]

    def _floors(self, subject: row.Subject) -> dict[str, Any]:
        ceilings = self._settings.ceilings
        return {} if ceilings is None else {"floor_us": floor_us(subject.forward, ceilings)}

    def _race(self, peers: tuple[str, ...], ours: str, by_kind: bool = True) -> row.Race:
        return row.Race(peers, ours, MOST_SECONDS, self._chance, by_kind)

    def _as_it_is(self, task: Task, subject: row.Subject, model: Any) -> list[dict[str, Any]]:
        modes, served = self._clock.modes, ways.ways_of(model)
        if task.kind == "plain":
            modes = ("eager",)
            served = {name: way for name, way in served.items() if name in ("torch", ways.OURS)}
        found: list[dict[str, Any]] = []
        for mode in reversed(modes):  # the kernels of a graph are those of the model called eagerly
            by_kind = task.kind == "rows" and not any("kinds_us" in each for each in found)
            candidates = row.candidates(mode, subject, served, self._clock)
            each = row.measure(mode, subject, candidates, self._clock, self._race(ways.PEERS, ways.OURS, by_kind))
            if ways.OURS in each["ms"]:
                each["served"] = ways.served_by_vitune(served[ways.OURS], subject.forward)
            found.insert(0, each)
            self._clock.release()
        return found

    def _compiled(self, subject: row.Subject, model: Any, images: torch.Tensor) -> dict[str, Any]:
        compiler = compiled.Compiler(model, images, self._clock)
        files = whole.Files(model, images, self._clock, self._settings.files)
        candidates = compiler.candidates() | files.candidates()
        seconds = MOST_SECONDS * len(candidates) / len(compiled.WAYS)
        more = ((whole.RUNNER, compiled.PEERS), *whole.COMPARED)
        runs = energy.noted(candidates)
        try:
            race = row.Race(compiled.PEERS, compiled.OURS, seconds, self._chance, more=more)
            found = row.measure("compiled", subject, candidates, self._clock, race)
            if self._settings.meter:
                timed = [way for way in compiled.WAYS if way in found["ms"]]
                found["mj"] = self._settings.meter.mj(runs, timed, len(images), self._clock.synchronize)
            return found | compiler.says() | files.says()
        finally:
            runs.clear()
            files.forget()
            compiler.forget()
            self._settings.after_compiling()

    def _model(self, name: str) -> tuple[Any, int]:
        """Consecutive tasks share it."""
        if self._built is None or self._built[0] != name:
            self._built = None
            self._clock.release()
            self._built = (name, *zoo.build(name, self._device))
        return self._built[1:]


def _line(found: dict[str, Any]) -> str:
    times = found.get("ms") or found.get("us") or {}
    words = [found.get("mode") or found.get("grad", "")]
    words += [f"{name} {next(iter(value.values())):.3f}" for name, value in times.items()]
    if found.get("gain"):
        words.append("x{times:.3f} [{low:.3f}, {high:.3f}]".format_map(found["gain"]))
    words += [f"{name or 'all'}: FAILED {reason[:120]}" for name, reason in found["failed"].items()]
    return "  ".join(words)
