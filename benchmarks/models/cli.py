# benchmarks/models/cli.py -- The command line: arguments, the process that measures and the one that watches it.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import re
import sys
import time

from . import caches, document, roster
from .roster import Task
from .watch import POISONED, Watch

WRONG = 6  # exit status: vitune failed, or gave a wrong answer, where PyTorch did not
_DESCRIPTION = """Time per forward pass of whole models: PyTorch's attention beside vitune's, as they are and compiled.
The document is on disk after each row. A model that hangs or fails costs its row. What the time did not suffice for is
measured by a later call with --resume; compiled models go on with what the caches have by then."""


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/models/run.py", description=_DESCRIPTION)
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("models.json"), metavar="FILE")
    parser.add_argument("--limit", type=float, default=520, metavar="SECONDS", help="of the whole call")
    parser.add_argument("--resume", action="store_true", help="go on with what FILE lacks")
    parser.add_argument("--merge", nargs="+", type=pathlib.Path, metavar="FILE", help="no run: writes the rows of these into one, "
                        "the last one's where several measured the same")  # fmt: skip
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: for trying it out")
    parser.add_argument("--rows", metavar="REGEX", help="of the usual ones, those whose name matches: see --list")
    parser.add_argument("--models", metavar="LIST", help="MODEL:BATCH,compiled/MODEL:BATCH,plain/MODEL:BATCH,calls")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--library", metavar="FILE", help="libvitune.so.0; else the package finds it")
    parser.add_argument("--db", type=pathlib.Path, metavar="FILE", help="winners; else the user's own")
    parser.add_argument("--cache", type=pathlib.Path, metavar="FOLDER", help="for what is compiled; else PyTorch's own")
    parser.add_argument("--cache-mb", type=float, default=256, metavar="MIB", help="what FOLDER may hold after a row")
    parser.add_argument("--ceilings", metavar="TFLOPS,TB/S", help="of the GPU, for floors; an H200's are known")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _tasks(arguments: argparse.Namespace) -> list[Task]:
    """Raises ValueError."""
    tasks = roster.tasks_of(arguments.models) if arguments.models else roster.TASKS
    if arguments.rows:
        try:
            wanted = re.compile(arguments.rows)
        except re.error as reason:
            raise ValueError(f"--rows '{arguments.rows}' is no regular expression: {reason}") from None
        tasks = [task for task in tasks if wanted.search(str(task))]
    if not tasks:
        raise ValueError(f"no row matches '{arguments.rows}': --list names them")
    return tasks


def main(words: list[str] | None = None) -> int:
    """0; 1: a file or device is not there; 2: arguments that cannot be; others: see above."""
    began = time.monotonic()
    words = sys.argv[1:] if words is None else words
    arguments = _arguments(words)
    try:
        tasks = _tasks(arguments)
    except ValueError as reason:
        print(f"models: {reason}", file=sys.stderr)
        return 2
    if arguments.list:
        print(*tasks, sep="\n")
        return 0
    if arguments.merge:
        return _merge(arguments, tasks)
    until = began + arguments.limit
    return _work(arguments, tasks, until) if arguments.worker else _watch(arguments, tasks, words, until)


def _merge(arguments: argparse.Namespace, tasks: list[Task]) -> int:
    try:
        return _say(document.merged([document.read(path) for path in arguments.merge]), tasks, arguments.json)
    except (document.BadDocument, OSError) as reason:
        print(f"models: {reason}", file=sys.stderr)
        return 1


def _say(result: dict, tasks: list[Task], path: pathlib.Path) -> int:
    """What is there and what is left; the latter is written down."""
    left = [task for task in tasks if not document.done(result, task)]
    result["unfinished"] = [str(task) for task in left]
    document.write(result, path)
    print(f"{len(result['rows'])} rows in {path}, {len(left)} tasks unfinished{': --resume' if left else ''}")
    return WRONG if document.ours_failed(result) else 0


def _watch(arguments: argparse.Namespace, tasks: list[Task], words: list[str], until: float) -> int:
    def start(resume: bool) -> list[str]:
        program = str(pathlib.Path(__file__).with_name("run.py"))
        more = ["--worker", f"--limit={until - time.monotonic():.0f}", *(["--resume"] if resume else [])]
        return [sys.executable, program, *words, *more]

    status = Watch(arguments.json, tasks, until).run(start)
    _trim(arguments)  # a process that was stopped did not
    if status not in (0, WRONG):
        return status
    try:
        result = document.read(arguments.json)
    except document.BadDocument as reason:
        print(f"models: {reason}", file=sys.stderr)
        return 1
    return _say(result, tasks, arguments.json)


def _trim(arguments: argparse.Namespace) -> None:
    if arguments.cache:
        caches.trim(arguments.cache, int(arguments.cache_mb * 2**20))


def _work(arguments: argparse.Namespace, tasks: list[Task], until: float) -> int:
    """In a process of its own: see Watch."""
    if arguments.cache:
        caches.use(arguments.cache)
    if arguments.db:
        os.environ["VITUNE_DB"] = str(arguments.db.resolve())
    try:
        import torch
    except ImportError:
        print("models: PyTorch is not installed", file=sys.stderr)
        return 1
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("models: PyTorch sees no CUDA device", file=sys.stderr)
        return 1
    if arguments.library:
        import vitune

        vitune.use_library(arguments.library)
    return _measure(arguments, tasks, until)


def _measure(arguments: argparse.Namespace, tasks: list[Task], until: float) -> int:
    from . import about, clock
    from .floor import Ceilings
    from .row import Poisoned
    from .session import Session, Settings

    device = arguments.device
    machine, versions = about.describe(device)
    try:
        ceilings = Ceilings.parse(arguments.ceilings) if arguments.ceilings else Ceilings.of(machine["name"])
    except ValueError as reason:
        print(f"models: --ceilings {reason}", file=sys.stderr)
        return 2
    result = _result(arguments, machine, versions)
    if result is None:
        return 1
    if ceilings is not None:
        result["ceilings"] = {"tflops": ceilings.tflops, "tb_s": ceilings.tb_s}
    timer = clock.CudaClock() if device == "cuda" else clock.CpuClock()

    settings = Settings(device, timer, ceilings, lambda: _trim(arguments))
    try:
        Session(result, arguments.json, settings).run(tasks, until)
    except Poisoned:
        return POISONED
    return WRONG if document.ours_failed(result) else 0


def _result(arguments: argparse.Namespace, machine: dict, versions: dict) -> dict | None:
    """The document to go on with; None: it cannot be, which was said."""
    from . import about

    if not (arguments.resume and arguments.json.exists()):
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        return document.new(machine, versions, now, about.METHOD)
    try:
        result = document.read(arguments.json)
    except document.BadDocument as reason:
        print(f"models: {reason}", file=sys.stderr)
        return None
    if (result["device"]["name"], result["versions"]) != (machine["name"], versions):
        print(f"models: {arguments.json} is of another device or other versions", file=sys.stderr)
        return None
    result["method"] = about.METHOD
    return result
