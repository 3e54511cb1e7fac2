# benchmarks/models/program.py -- A program that measures row by row: its arguments, the process that works, the one that watches.
# SPDX-License-Identifier: Apache-2.0
"""Knows no PyTorch before a process works. What is measured is told by who inherits this."""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

from . import caches
from .watch import POISONED, Watch

WRONG = 6  # exit status: vitune failed, or gave a wrong answer, where PyTorch did not


def share_of(tasks: Sequence[Any], shard: str) -> list[Any]:
    """Those of the I-th of N processes, "I/N" from 0, in their order: the longest by `expected_seconds` are dealt out first, each
    to the process that has least to do; those that say `later` after all others. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", shard)
    number, count = (int(word) for word in found.groups()) if found else (0, 0)
    if number >= count:
        raise ValueError(f"--shard '{shard}' is no I/N: a process's number from 0, and how many there are")
    load, mine = [0.0] * count, []
    seconds = [getattr(task, "expected_seconds", 1.0) for task in tasks]
    later = [getattr(task, "later", False) for task in tasks]
    for place in sorted(range(len(tasks)), key=lambda place: (later[place], -seconds[place])):
        least = load.index(min(load))
        load[least] += seconds[place]
        if least == number:
            mine.append(place)
    return [tasks[place] for place in sorted(mine)]


class Program:
    """One of them. Arguments of the command line go through as argparse has them."""

    name: str  #: as documents have it: "models"
    description: str
    document: Any  #: the module of the results' form
    file: str  #: where results go unless told
    list_help: str  #: of --models
    run_py: pathlib.Path  #: starts it in another process

    def tasks(self, arguments: argparse.Namespace) -> list[Any]:
        """All that was asked for, the most important first. Raises ValueError."""
        raise NotImplementedError

    def method(self) -> dict[str, str]:
        """How each figure is measured, by its name in the document."""
        raise NotImplementedError

    def session(self, result: dict[str, Any], arguments: argparse.Namespace, clock: Any, ceilings: Any) -> Any:
        """What runs the tasks: a Tasks."""
        raise NotImplementedError

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Further ones."""

    def main(self, words: list[str] | None = None) -> int:
        """0; 1: a file or device is not there; 2: arguments that cannot be; others: see above."""
        began = time.monotonic()
        words = sys.argv[1:] if words is None else words
        arguments = self._arguments(words)
        try:
            tasks = self._chosen(arguments)
        except ValueError as reason:
            print(f"{self.name}: {reason}", file=sys.stderr)
            return 2
        if arguments.list:
            print(*tasks, sep="\n")
            return 0
        if arguments.merge:
            return self._merge(arguments, tasks)
        until = began + arguments.limit
        return self._work(arguments, tasks, until) if arguments.worker else self._watch(arguments, tasks, words, until)

    def _arguments(self, words: list[str]) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"benchmarks/{self.run_py.parent.name}/run.py", description=self.description)
        add = parser.add_argument
        add("--json", type=pathlib.Path, default=pathlib.Path(self.file), metavar="FILE")
        add("--limit", "--budget", type=float, default=520, metavar="SECONDS", help="of the whole call")
        add("--resume", action="store_true", help="go on with what FILE lacks")
        add("--merge", nargs="+", type=pathlib.Path, metavar="FILE",
            help="no run: writes the rows of these into one, the last one's where several measured the same")
        add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: for trying it out")
        add("--rows", "--only", metavar="REGEX", help="of the usual ones, those whose name matches: see --list")
        add("--shard", metavar="I/N", help="of these, the share of the I-th of N processes, from 0: each with a FILE of its own, see --merge")
        add("--models", metavar="LIST", help=self.list_help)
        add("--list", action="store_true", help="print the names and end")
        add("--library", metavar="FILE", help="libvitune.so.0; else the package finds it")
        add("--db", type=pathlib.Path, metavar="FILE", help="winners; else the user's own")
        add("--cache", type=pathlib.Path, metavar="FOLDER", help="for what is compiled; else PyTorch's own")
        add("--cache-mb", type=float, default=256, metavar="MIB", help="what FOLDER may hold after a row")
        add("--ceilings", metavar="TFLOPS,TB/S", help="of the GPU, for floors; an H200's are known")
        add("--worker", action="store_true", help=argparse.SUPPRESS)
        self.add_arguments(parser)
        return parser.parse_args(words)

    def _chosen(self, arguments: argparse.Namespace) -> list[Any]:
        """Raises ValueError."""
        tasks = self.tasks(arguments)
        if arguments.rows:
            try:
                wanted = re.compile(arguments.rows)
            except re.error as reason:
                raise ValueError(f"--rows '{arguments.rows}' is no regular expression: {reason}") from None
            tasks = [task for task in tasks if wanted.search(str(task))]
        if not tasks:
            raise ValueError(f"no row matches '{arguments.rows}': --list names them")
        return share_of(tasks, arguments.shard) if arguments.shard else tasks

    def _merge(self, arguments: argparse.Namespace, tasks: list[Any]) -> int:
        try:
            found = [self.document.read(path) for path in arguments.merge]
            return self._say(self.document.merged(found), tasks, arguments.json)
        except (self.document.BadDocument, OSError) as reason:
            print(f"{self.name}: {reason}", file=sys.stderr)
            return 1

    def _say(self, result: dict[str, Any], tasks: list[Any], path: pathlib.Path) -> int:
        """What is there and what is left; the latter is written down."""
        left = [task for task in tasks if not self.document.done(result, task)]
        result["unfinished"] = [str(task) for task in left]
        self.document.write(result, path)
        print(f"{len(result['rows'])} rows in {path}, {len(left)} tasks unfinished{': --resume' if left else ''}")
        return WRONG if self.document.ours_failed(result) else 0

    def _watch(self, arguments: argparse.Namespace, tasks: list[Any], words: list[str], until: float) -> int:
        def start(resume: bool) -> list[str]:
            more = ["--worker", f"--limit={until - time.monotonic():.0f}", *(["--resume"] if resume else [])]
            return [sys.executable, str(self.run_py), *words, *more]

        status = Watch(arguments.json, tasks, until, document=self.document).run(start)
        self.trim(arguments)  # a process that was stopped did not
        if status not in (0, WRONG):
            return status
        try:
            result = self.document.read(arguments.json)
        except self.document.BadDocument as reason:
            print(f"{self.name}: {reason}", file=sys.stderr)
            return 1
        return self._say(result, tasks, arguments.json)

    @staticmethod
    def trim(arguments: argparse.Namespace) -> None:
        """What was compiled, to the size that was told."""
        if arguments.cache:
            caches.trim(arguments.cache, int(arguments.cache_mb * 2**20))

    def _work(self, arguments: argparse.Namespace, tasks: list[Any], until: float) -> int:
        """In a process of its own: see Watch."""
        if arguments.cache:
            caches.use(arguments.cache)
        if arguments.db:
            os.environ["VITUNE_DB"] = str(arguments.db.resolve())
        try:
            import torch
        except ImportError:
            print(f"{self.name}: PyTorch is not installed", file=sys.stderr)
            return 1
        if arguments.device == "cuda" and not torch.cuda.is_available():
            print(f"{self.name}: PyTorch sees no CUDA device", file=sys.stderr)
            return 1
        if arguments.library:
            import vitune

            vitune.use_library(arguments.library)
        return self._measure(arguments, tasks, until)

    def _measure(self, arguments: argparse.Namespace, tasks: list[Any], until: float) -> int:
        from . import about, clock
        from .floor import Ceilings
        from .row import Poisoned

        machine, versions = about.describe(arguments.device)
        try:
            ceilings = Ceilings.parse(arguments.ceilings) if arguments.ceilings else Ceilings.of(machine["name"])
        except ValueError as reason:
            print(f"{self.name}: --ceilings {reason}", file=sys.stderr)
            return 2
        result = self._result(arguments, machine, versions)
        if result is None:
            return 1
        if ceilings is not None:
            result["ceilings"] = {"tflops": ceilings.tflops, "tb_s": ceilings.tb_s}
        timer = clock.CudaClock() if arguments.device == "cuda" else clock.CpuClock()
        try:
            self.session(result, arguments, timer, ceilings).run(tasks, until)
        except Poisoned:
            return POISONED
        return WRONG if self.document.ours_failed(result) else 0

    def _result(self, arguments: argparse.Namespace, machine: dict, versions: dict) -> dict[str, Any] | None:
        """The document to go on with; None: it cannot be, which was said."""
        if not (arguments.resume and arguments.json.exists()):
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            return self.document.new(machine, versions, now, self.method())
        try:
            result = self.document.read(arguments.json)
        except self.document.BadDocument as reason:
            print(f"{self.name}: {reason}", file=sys.stderr)
            return None
        if (result["device"]["name"], result["versions"]) != (machine["name"], versions):
            print(f"{self.name}: {arguments.json} is of another device or other versions", file=sys.stderr)
            return None
        result["method"] = self.method()
        return result
