#!/usr/bin/env python3
# cmake/run_python_tests.py -- The Python package's tests, a process for each file, as many at once as there are cores.
# SPDX-License-Identifier: Apache-2.0
"""Called by `make python-test`, in whose environment the emulated device is found. Prints a line for each file, and all that one says which
fails. Files that import PyTorch are run once more with the staged operators' library (--operators). With --limit no file is begun after so
many seconds: which comes first is decided by the commit then, so that a few commits run them all, and those left out are named."""
from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
from typing import NoReturn, Optional, TextIO

ROOT = pathlib.Path(__file__).resolve().parents[1] / "python"


@dataclasses.dataclass
class File:
    """One file's tests, perhaps with an operators' library, and what came of them."""
    name: str
    operators: Optional[str]
    told: Optional[TextIO] = None
    begin: float = 0.0

    def __str__(self) -> str:
        return self.name + (" (staged operators)" if self.operators else "")

    def start(self, words: list[str]) -> int:
        """In a process of its own, whose number it returns."""
        self.told, self.begin = tempfile.TemporaryFile("w+", errors="replace"), time.monotonic()
        return os.fork() or self._run(words)

    def _run(self, words: list[str]) -> NoReturn:
        status = 1
        try:
            for descriptor in (1, 2):
                os.dup2(self.told.fileno(), descriptor)
            if self.operators:
                os.environ["VITUNE_TEST_OPERATORS"] = self.operators
            # By discovery: a file may leave itself out as a whole.
            found = ["unittest", "discover", "-s", "tests", "-t", ".", "-p", f"{self.name}.py", *words]
            result = unittest.main(module=None, argv=found, exit=False).result
            status = 0 if result.wasSuccessful() else 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def text(self) -> str:
        self.told.seek(0)
        return self.told.read()


def files(operators: Optional[str], first: Optional[int]) -> list[File]:
    """All without the library, then all with it; or both of one file after the other, beginning at that place."""
    names = sorted(path.stem for path in (ROOT / "tests").glob("test_*.py"))
    ways = [None, operators] if operators else [None]
    if first is None:
        found = [File(name, way) for way in ways for name in names]
    else:
        first %= len(names)
        found = [File(name, way) for name in names[first:] + names[:first] for way in ways]
    return [each for each in found if not each.operators or each.name.startswith("test_torch_")]


def of_commit() -> int:
    """A number that is another one for each commit; 0 outside of a clone."""
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(told.stdout, 16) if told.returncode == 0 else 0


def prepare() -> None:
    """What all processes share, so that each need not load it."""
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    try:
        import torch._dynamo  # noqa: F401
    except ImportError:
        pass  # PyTorch's tests leave themselves out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--files", metavar="REGEX", default="", help="those alone whose names have it")
    parser.add_argument("--limit", type=float, metavar="SECONDS")
    parser.add_argument("--operators", metavar="FILE", help="the staged library of PyTorch's operators")
    arguments, words = parser.parse_known_args()  # others are unittest's: -k NAME, -v
    until = time.monotonic() + (float("inf") if arguments.limit is None else arguments.limit)
    todo = files(arguments.operators, None if arguments.limit is None else of_commit())
    todo = [each for each in todo if re.search(arguments.files, each.name)]
    prepare()
    failed: list[File] = []
    late: list[File] = []
    running: dict[int, File] = {}
    tests = skipped = done = 0
    while todo or running:
        if todo and time.monotonic() > until:
            late, todo = todo, []
            continue
        if todo and len(running) < max(1, arguments.jobs):
            running[todo[0].start(words)] = todo[0]
            del todo[0]
            continue
        pid, status = os.wait()
        each = running.pop(pid)
        done += 1
        text = each.text()
        ran, left_out = (re.findall(pattern, text) for pattern in (r"\nRan (\d+) test", r"skipped=(\d+)\)?\n?$"))
        counts = [int(found[-1]) if found else 0 for found in (ran, left_out)]
        tests, skipped = tests + counts[0], skipped + counts[1]
        print(f"{'FAILED' if status else 'ok'}  {each}: {counts[0]} tests, {counts[1]} left out, {time.monotonic() - each.begin:.0f} s", flush=True)
        if status:
            failed.append(each)
            print(text, flush=True)
    print(f"python: {tests} tests, {skipped} left out, {len(failed)} files failed" + "".join(f"\n  {each}" for each in failed))
    if late:
        print(f"python: no time for {len(late)} of {len(late) + done} runs: {', '.join(sorted({each.name for each in late}))}")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
