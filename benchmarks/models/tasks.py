# benchmarks/models/tasks.py -- Task after task within a time limit, each on disk as it ends.
# SPDX-License-Identifier: Apache-2.0
"""What a task measures is told by who inherits this."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Sequence
from typing import Any

from peers.engine.peer import sentence

from . import row

MOST_TRIES = 3  # of a task that does not end: compiling goes on with what the caches have
NEVER_ENDED = f"it did not end in {MOST_TRIES} tries, which their time limits or the machine cut off"


class Tasks:
    """One process's part of a run. Raises row.Poisoned where another process must go on."""

    document: Any  #: the module that knows the form of `result`
    leaves_out = False  #: whether rows() leaves out what left_out() names

    def __init__(self, result: dict[str, Any], path: pathlib.Path, clock: Any) -> None:
        self._result, self._path, self._clock = result, path, clock

    def rows(self, task: Any) -> list[dict[str, Any]]:
        """What a task gives. May raise anything, which becomes the task's row."""
        raise NotImplementedError

    def left_out(self, task: Any) -> dict[str, str]:
        """{"NAME as MODE": why} of the ways with which earlier processes lost the device."""
        return self._result.get("left_out", {}).get(str(task), {})

    def forget(self) -> None:
        """Lets go of what is kept for the next task: this one failed."""

    def line(self, found: dict[str, Any]) -> str:
        """A row for who looks on."""
        raise NotImplementedError

    def run(self, tasks: Sequence[Task], until: float) -> None:
        """until: time.monotonic() after which no task begins. Those not begun are `unfinished`."""
        self._result["at_work"] = None
        todo = [task for task in tasks if not self.document.done(self._result, task)]
        left = list(todo)
        for task in todo:
            self._result["unfinished"] = [str(each) for each in left]
            if until - time.monotonic() < task.least_seconds:
                continue  # one that takes less may still have time
            if self._begin(task):
                self._do(task)
            self._result["at_work"] = None
            left.remove(task)
        self._result["unfinished"] = [str(each) for each in left]
        self.document.write(self._result, self._path)

    def _begin(self, task: Task) -> bool:
        """Writes down that it is at work; False where it was so too often."""
        tries = self._result["tries"].get(str(task), 0)
        if tries >= MOST_TRIES:
            self._add(task, [self.document.failed(task, NEVER_ENDED)])
            return False
        self._result["tries"][str(task)] = tries + 1
        self._result["at_work"] = str(task)
        self.document.write(self._result, self._path)
        return True

    def _do(self, task: Task) -> None:
        began = time.monotonic()
        try:
            rows = self._rows_or_why(task)
        except row.Poisoned as reason:
            self._lost(task, reason)
            raise
        self._add(task, rows)
        self._clock.release()
        print(f"  {time.monotonic() - began:.1f} s", flush=True)

    def _rows_or_why(self, task: Task) -> list[dict[str, Any]]:
        """Of a task that fails a row with the reason. Raises row.Poisoned."""
        try:
            return self.rows(task)
        except row.Poisoned:
            raise
        except Exception as reason:
            self.forget()
            row.alive(self._clock, sentence(reason))
            return [self.document.failed(task, sentence(reason))]

    def _lost(self, task: Task, poisoned: row.Poisoned) -> None:
        """Another process measures the row without the way that was at work; too many of them cost the row."""
        reason = f"the device no longer answers: {poisoned}"
        if self.leaves_out and poisoned.way and self._result["tries"][str(task)] < MOST_TRIES:
            self._result.setdefault("left_out", {}).setdefault(str(task), {})[poisoned.way] = reason
            print(f"{task} {poisoned.way}: {reason}", flush=True)
        else:
            self._add(task, [self.document.failed(task, reason)])
        self._result["at_work"] = None
        self.document.write(self._result, self._path)

    def _add(self, task: Task, rows: list[dict[str, Any]]) -> None:
        self.document.add(self._result, task, rows)
        self._result["tries"].pop(str(task), None)
        self._result.get("left_out", {}).pop(str(task), None)
        for each in rows:
            print(f"{task} {self.line(each)}", flush=True)
