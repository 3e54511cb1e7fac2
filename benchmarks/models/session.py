# benchmarks/models/session.py -- Task after task within a time limit, each on disk as it ends.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Sequence
from typing import Any

import torch
from peers.engine.peer import sentence

from . import calls, document, row, ways, zoo
from .roster import Task

MOST_SECONDS = 12.0  # of rounds for one row and mode


class Session:
    """One process's part of a run. Raises row.Poisoned where another process must go on."""

    def __init__(self, result: dict[str, Any], path: pathlib.Path, device: str, clock: Any) -> None:
        self._result, self._path, self._device, self._clock = result, path, device, clock
        self._chance = random.Random(0)
        self._built: tuple[str, Any, int] | None = None

    def run(self, tasks: Sequence[Task], until: float) -> None:
        """until: time.monotonic() after which no task begins. Those not begun are `unfinished`."""
        self._give_up_what_was_at_work(tasks)
        todo = [task for task in tasks if not document.done(self._result, task)]
        for number, task in enumerate(todo):
            self._result["unfinished"] = [str(each) for each in todo[number:]]
            left = until - time.monotonic()
            if left <= 0:
                break
            self._result["at_work"] = str(task)
            document.write(self._result, self._path)
            self._do(task, min(MOST_SECONDS, left / (len(todo) - number) / 2))
            self._result["at_work"] = None
        else:
            self._result["unfinished"] = []
        document.write(self._result, self._path)

    def _give_up_what_was_at_work(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if str(task) == self._result["at_work"]:
                self._add(task, [_failed("the process ended at this")])
        self._result["at_work"] = None

    def _do(self, task: Task, seconds: float) -> None:
        began = time.monotonic()
        try:
            rows = self._rows(task, seconds)
        except row.Poisoned as reason:
            self._add(task, [_failed(f"the device no longer answers: {reason}")])
            self._result["at_work"] = None
            document.write(self._result, self._path)
            raise
        except Exception as reason:
            rows = [_failed(sentence(reason))]
            self._built = None
            row.alive(self._clock)
        self._add(task, rows)
        self._clock.release()
        print(f"  {time.monotonic() - began:.1f} s", flush=True)

    def _add(self, task: Task, rows: list[dict[str, Any]]) -> None:
        document.add(self._result, task, rows)
        for each in rows:
            print(f"{task} {_line(each)}", flush=True)

    def _rows(self, task: Task, seconds: float) -> list[dict[str, Any]]:
        if task.kind == "calls":
            return calls.measure(self._device, self._clock, 2 * seconds, self._chance)
        model, size = self._model(task.model)
        subject = row.subject_of(model, zoo.images(task.batch, size, self._device))
        modes, served = self._clock.modes, ways.WAYS
        if task.kind == "plain":
            modes = ("eager",)
            served = {name: way for name, way in served.items() if name in ("torch", ways.OURS)}
        found = []
        with torch.inference_mode():
            for mode in modes:
                found.append(row.measure(mode, subject, served, self._clock, seconds, self._chance))
                if ways.OURS in found[-1]["ms"]:
                    found[-1]["served"] = ways.served_by_vitune(subject.forward)
                self._clock.release()
        return found

    def _model(self, name: str) -> tuple[Any, int]:
        """Consecutive tasks share it."""
        if self._built is None or self._built[0] != name:
            self._built = None
            self._clock.release()
            self._built = (name, *zoo.build(name, self._device))
        return self._built[1:]


def _failed(reason: str) -> dict[str, Any]:
    return {"mode": "eager", "ms": {}, "host_ms": {}, "error": {}, "failed": {"": reason}}


def _line(found: dict[str, Any]) -> str:
    times = found.get("ms") or found.get("us") or {}
    words = [found.get("mode") or found.get("grad", "")]
    words += [f"{name} {next(iter(value.values())):.3f}" for name, value in times.items()]
    if found.get("gain"):
        words.append("x{times:.3f} [{low:.3f}, {high:.3f}]".format_map(found["gain"]))
    words += [f"{name or 'all'}: FAILED {reason[:120]}" for name, reason in found["failed"].items()]
    return "  ".join(words)
