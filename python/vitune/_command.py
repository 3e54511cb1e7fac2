# python/vitune/_command.py -- Runs the vitune command: tuning needs processes of its own, so it is not done here.
# SPDX-License-Identifier: Apache-2.0
"""The command's progress goes to this process's stderr; its JSON document is the answer."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from ._errors import CommandError
from ._library import command_path


def _listed(option: str, values: str | Iterable[str] | None) -> list[str]:
    if values is None:
        return []
    return [word for value in ([values] if isinstance(values, str) else values) for word in (option, value)]


def tune_arguments(problems: Iterable[str], *, model: str | Iterable[str] | None, batch: int | Iterable[int] | None,
                   dtype: str | None, preset: str | Iterable[str] | None, file: str | os.PathLike[str] | None,
                   from_misses: bool, device: str | int | None, budget: str | int | None, objective: str | None,
                   database: str | os.PathLike[str] | None, fresh: bool, jobs: int | None) -> list[str]:
    """The words after `vitune tune`."""
    words = [*_listed("--problem", list(problems)), *_listed("--model", model), *_listed("--preset", preset)]
    if batch is not None:
        words += ["--batch", str(batch) if isinstance(batch, int) else ",".join(map(str, batch))]
    for option, value in (("--dtype", dtype), ("--from", file), ("--device", device), ("--budget", budget),
                          ("--objective", objective), ("--db", database), ("--jobs", jobs)):
        if value is not None:
            words += [option, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    words += ["--from-misses"] * from_misses + ["--fresh"] * fresh
    return words


def run_json(arguments: list[str], quiet: bool) -> dict[str, Any]:
    """The JSON document of `vitune ARGUMENTS --json`. Raises CommandError, VituneError without a command."""
    command = [str(command_path()), *arguments, "--json", *["--quiet"] * quiet]
    # stderr may be replaced (a notebook) and have no file behind it.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=None if _has_file(sys.stderr) else subprocess.DEVNULL,
                          text=True) as process:
        try:
            output, _ = process.communicate()
        except KeyboardInterrupt:
            # The command has the signal too: it saves what it has and ends in under two seconds.
            process.wait()
            raise
    if process.returncode != 0:
        raise CommandError(f"'{' '.join(command)}' ended with exit code {process.returncode}; its messages are on stderr",
                           process.returncode)
    return json.loads(output)


def _has_file(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True
