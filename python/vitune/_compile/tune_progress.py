# python/vitune/_compile/tune_progress.py -- How far the tuning of a model is: one line that changes where that can be shown, else a line for each step.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import sys
import time
from typing import Any, Optional


def _changes_lines(stream: Any) -> bool:
    """Whether a carriage return goes back to the line's begin: in a terminal, and in a notebook's cell."""
    try:
        return bool(stream.isatty()) or type(stream).__module__.startswith("ipykernel")
    except (AttributeError, OSError, ValueError):
        return False


def problems_text(count: int) -> str:
    return f"{count} problem{'' if count == 1 else 's'}"


class Progress:
    """Writes to stderr. quiet: nothing."""

    def __init__(self, quiet: bool, deadline: Optional[float]) -> None:
        self._quiet, self._deadline = quiet, deadline
        self._changes = _changes_lines(sys.stderr)
        self._count, self._of, self._share, self._shown = 0, 0, 0.0, 0

    def begin(self, problems: int) -> None:
        """So many are to be tuned."""
        self._count, self._of, self._share = 0, problems, 0.0
        self.say(f"tuning {problems_text(problems)}, kernels with the largest share of a pass first")

    def done(self, share: float, problem: str) -> None:
        """One of them was."""
        self._count += 1
        self._share += share
        self.say(f"{self._count} of {problems_text(self._of)}, {100 * self._share:.0f} % of their time{self._left()}: {problem}")

    def say(self, text: str) -> None:
        text = f"vitune: {text}"
        if self._changes:
            text = text[:shutil.get_terminal_size().columns - 1]
            self._write("\r" + text.ljust(self._shown))
            self._shown = len(text)
        else:
            self._write(text + "\n")

    def end(self) -> None:
        """Whatever is written next begins a line."""
        if self._changes and self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _left(self) -> str:
        return "" if self._deadline is None else f", {max(0.0, self._deadline - time.monotonic()):.0f} s left"

    def _write(self, text: str) -> None:
        if self._quiet:
            return
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):
            self._quiet = True  # a stderr that cannot be written stops nothing
