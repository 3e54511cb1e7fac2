# python/vitune/_command.py -- Runs the vitune command: tuning needs processes of its own, so it is not done here.
# SPDX-License-Identifier: Apache-2.0
"""The command's progress goes to this process's stderr; its JSON document is the answer."""
from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any

from ._errors import CommandError
from ._library import command_path

_LAST_LINES = 5


def _listed(option: str, values: str | Iterable[str] | None) -> list[str]:
    if values is None:
        return []
    return [word for value in ([values] if isinstance(values, str) else values) for word in (option, value)]


def tune_arguments(problems: Iterable[str], *, model: str | Iterable[str] | None, batch: int | Iterable[int] | None,
                   dtype: str | None, operator: str | Iterable[str] | None, preset: str | Iterable[str] | None, file: str | os.PathLike[str] | None,
                   from_misses: bool, device: str | int | None, budget: str | int | None, effort: str | None, objective: str | None,
                   database: str | os.PathLike[str] | None, fresh: bool, jobs: int | None) -> list[str]:
    """The words after `vitune tune`."""
    words = [*_listed("--problem", list(problems)), *_listed("--model", model), *_listed("--preset", preset)]
    if batch is not None:
        words += ["--batch", str(batch) if isinstance(batch, int) else ",".join(map(str, batch))]
    if operator is not None:
        words += ["--operator", operator if isinstance(operator, str) else ",".join(operator)]
    for option, value in (("--dtype", dtype), ("--from", file), ("--device", device), ("--budget", budget), ("--effort", effort),
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
