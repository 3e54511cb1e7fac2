# benchmarks/models/watch.py -- Watches the measuring process: one that hangs or dies costs the row that it was at.
# SPDX-License-Identifier: Apache-2.0
"""This process opens no CUDA and loads no PyTorch: nothing that happens there can take the results with it."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import document as of_models
from .roster import Task

START_SECONDS = 180.0  # until the first task begins: PyTorch is loaded from a cold disk
POISONED = 75  # exit status of a process that could not go on, where another one can
GRACE = 5.0  # seconds beyond the limit, for a task that is about to end
_CUT = "the time was over"


class Watch:
    """Over one run."""

    def __init__(self, path: pathlib.Path, tasks: Sequence[Task], until: float, poll: float = 0.5,
                 clock: Callable[[], float] = time.monotonic, document: Any = of_models) -> None:  # fmt: skip
        """until: of the clock, after which everything is stopped. tasks: all that may be at work. document: the module that reads
        and writes what lies at `path`."""
        self._document = document
        self._path, self._until, self._poll, self._clock = path, until, poll, clock
        self._stale: tuple[int, int] | None = None
        self._tasks: Mapping[str, Task] = {str(task): task for task in tasks}

    def run(self, start: Callable[[bool], Sequence[str]]) -> int:
        """Runs what `start(whether to resume)` gives until it ends by itself; its exit status, 0 where time was over. Only in the main
        thread."""
        former = signal.signal(signal.SIGTERM, _terminated)
        try:
            return self._run(start)
        finally:
            signal.signal(signal.SIGTERM, former)

    def _run(self, start: Callable[[bool], Sequence[str]]) -> int:
        resume = False
        while True:
            self._stale = self._stamp()
            process = subprocess.Popen(start(resume), start_new_session=True)  # with what it starts itself
            try:
                blamed = self._wait(process)
            except BaseException:
                _stop(process)
                raise
            if blamed == _CUT:
                return 0
            task = self._at_work()
            if task is None and process.returncode != POISONED:
                return process.returncode if blamed is None else 1
            if task is not None:
                self._note(task, blamed or f"the process ended at this: exit status {process.returncode}")
            if self._clock() > self._until - GRACE:
                return 0
            resume = True

    def _wait(self, process: subprocess.Popen[bytes]) -> str | None:
        """Until its end; why it was stopped, None if it ended by itself."""
        at, since = None, self._clock()
        while process.poll() is None:
            time.sleep(self._poll)
            task, now = self._at_work(), self._clock()
            if task != at:
                at, since = task, now
            most = START_SECONDS if at is None else at.most_seconds
            if now > self._until + GRACE:
                _stop(process)
                return _CUT
            if now - since > most:
                _stop(process)
                return f"it hung: no end after {most:.0f} s"
        return None

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _read(self) -> dict[str, Any] | None:
        """The document, None before this process wrote it: what an earlier call left at work is not."""
        if self._stamp() == self._stale:
            return None
        try:
            return self._document.read(self._path)
        except self._document.BadDocument:
            return None

    def _at_work(self) -> Task | None:
        found = self._read()
        return None if found is None else self._tasks.get(found["at_work"])

    def _note(self, task: Task, reason: str) -> None:
        found = self._read()
        if found is None:
            return
        print(f"{found['command']}: {task}: {reason}; going on without it", file=sys.stderr, flush=True)
        self._document.add(found, task, [self._document.failed(task, reason)])
        found["at_work"] = None
        found["tries"].pop(str(task), None)
        self._document.write(found, self._path)


def _terminated(number: int, _: Any) -> None:
    """Else this process would end at once, and the one that measures, in a session of its own, would go on."""
    sys.exit(128 + number)


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
