# python/vitune/_runtime/command.py -- Runs the vitune command: tuning needs processes of its own, so it is not done here.
# SPDX-License-Identifier: Apache-2.0
"""The command's progress goes to this process's stderr; its JSON document is the answer."""
from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Optional

from .errors import CommandError
from .library import command_path

_LAST_LINES = 5


def _listed(option: str, values: str | Iterable[str] | None) -> list[str]:
    if values is None:
        return []
    return [word for value in ([values] if isinstance(values, str) else values) for word in (option, value)]


def tune_arguments(problems: Iterable[str], *, model: str | Iterable[str] | None, batch: int | Iterable[int] | None,
                   dtype: str | None, way: str | None, operator: str | Iterable[str] | None, preset: str | Iterable[str] | None, file: str | os.PathLike[str] | None,
                   from_misses: bool, device: str | int | None, budget: str | int | None, effort: str | None, objective: str | None,
                   database: str | os.PathLike[str] | None, fresh: bool, jobs: int | None) -> list[str]:
    """The words after `vitune tune`."""
    words = [*_listed("--problem", list(problems)), *_listed("--model", model), *_listed("--preset", preset)]
    if batch is not None:
        words += ["--batch", str(batch) if isinstance(batch, int) else ",".join(map(str, batch))]
    if operator is not None:
        words += ["--operator", operator if isinstance(operator, str) else ",".join(operator)]
    for option, value in (("--dtype", dtype), ("--as", way), ("--from", file), ("--device", device), ("--budget", budget), ("--effort", effort),
                          ("--objective", objective), ("--db", database), ("--jobs", jobs)):
        if value is not None:
            words += [option, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    words += ["--from-misses"] * from_misses + ["--fresh"] * fresh
    return words


def run_json(arguments: list[str], quiet: bool) -> dict[str, Any]:
    """The JSON document of `vitune ARGUMENTS --json`. Raises CommandError, VituneError without a command."""
    command = [str(command_path()), *arguments, "--json", *["--quiet"] * quiet]
    # A terminal has the progress line to itself. Elsewhere (a notebook, a log) nobody may see the messages beside the
    # exception, so their end is kept for it.
    to_terminal = _is_terminal()
    said: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=None if to_terminal else subprocess.PIPE,
                          text=True, errors="replace") as process:
        listener = threading.Thread(target=_pass_on, args=(process.stderr, said), daemon=True)
        if not to_terminal:
            listener.start()
        try:
            assert process.stdout is not None
            output = process.stdout.read()
            process.wait()
        except KeyboardInterrupt:
            # The command has the signal too: it saves what it has and ends in under two seconds.
            process.wait()
            raise
        if not to_terminal:
            listener.join()
    if process.returncode != 0:
        reason = "; its messages are on stderr" if to_terminal else ": " + "\n".join(said) if said else ""
        raise CommandError(f"'{' '.join(command)}' ended with exit code {process.returncode}{reason}", process.returncode)
    return json.loads(output)


class Lines:
    """The JSON documents that `vitune ARGUMENTS`, which has --jsonl among them, prints one by one.

    At the deadline (of time.monotonic()), and at Ctrl-C, the command is asked to stop: it saves what it has, which takes it two
    seconds at most.
    """

    def __init__(self, arguments: list[str], deadline: Optional[float]) -> None:
        self._command, self._deadline = [str(command_path()), *arguments], deadline
        self._was_stopped = False
        self.interrupted = False  #: by Ctrl-C, which is not raised then

    def read(self) -> Iterator[dict[str, Any]]:
        """Raises CommandError where the command fails without a result; that some problems have no winner is said in their lines."""
        said: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        count = 0
        # In a group of its own: a terminal's Ctrl-C is for this process, which passes it on once.
        with subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                              start_new_session=True) as process:
            threading.Thread(target=said.extend, args=(map(str.rstrip, process.stderr or ()),), daemon=True).start()
            timer = threading.Timer(max(0.0, (self._deadline or 0.0) - time.monotonic()), self._stop, (process,))
            timer.daemon = True
            if self._deadline is not None:
                timer.start()
            try:
                while line := self._line(process):
                    count += 1
                    yield json.loads(line)
                process.wait()
            finally:
                timer.cancel()
                self._stop(process)
        if process.returncode != 0 and count == 0 and not self._was_stopped:
            raise CommandError(f"'{' '.join(self._command)}' ended with exit code {process.returncode}: " + "\n".join(said),
                               process.returncode)

    def _line(self, process: subprocess.Popen) -> str:
        while True:
            try:
                return process.stdout.readline()
            except KeyboardInterrupt:
                self.interrupted = True
                self._stop(process)

    def _stop(self, process: subprocess.Popen) -> None:
        """Once: the second signal would end it at once."""
        if process.poll() is None and not self._was_stopped:
            self._was_stopped = True
            process.send_signal(signal.SIGINT)


def _is_terminal() -> bool:
    """Whether the command's own stderr, and Python's, are the same terminal."""
    try:
        return sys.stderr.fileno() == 2 and os.isatty(2)
    except (AttributeError, OSError, ValueError):
        return False


def _pass_on(lines: Iterable[str] | None, said: collections.deque[str]) -> None:
    for line in lines or ():
        said.append(line.rstrip("\n"))
        try:
            sys.stderr.write(line)
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):
            pass  # a stderr that cannot be written stops nothing
