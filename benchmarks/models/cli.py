# benchmarks/models/cli.py -- The command line: arguments, the device, a new process where needed.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import sys
import time

WRONG = 6  # exit status: vitune failed, or gave a wrong answer, where PyTorch did not
POISONED = 75  # exit status where this process could not go on and no other one should


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/models/run.py",
        description="Time per forward pass of whole models: PyTorch's attention beside vitune's.",
    )
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("models.json"), metavar="FILE")
    parser.add_argument("--limit", type=float, default=520, metavar="SECONDS", help="of the whole run")
    parser.add_argument("--resume", action="store_true", help="go on with what FILE lacks")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: for trying it out")
    parser.add_argument("--models", metavar="LIST", help="MODEL:BATCH,plain/MODEL:BATCH,calls; else all")
    parser.add_argument("--library", metavar="FILE", help="libvitune.so.0; else the package finds it")
    parser.add_argument("--db", type=pathlib.Path, metavar="FILE", help="winners; else the user's own")
    return parser.parse_args(words)


def _again(words: list[str], left: float) -> None:
    """The same in a new process, with the time that is left."""
    program = pathlib.Path(__file__).with_name("run.py")
    sys.stdout.flush()
    more = ["--resume", f"--limit={left:.0f}"]
    os.execv(sys.executable, [sys.executable, str(program), *words, *more])


def main(words: list[str] | None = None) -> int:
    """0; 1: a file or device is not there; 2: arguments that cannot be; others: see above."""
    began = time.monotonic()
    words = sys.argv[1:] if words is None else words
    arguments = _arguments(words)
    from . import roster

    try:
        tasks = roster.tasks_of(arguments.models) if arguments.models else roster.TASKS
    except ValueError as reason:
        print(f"models: {reason}", file=sys.stderr)
        return 2
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
    return _run(arguments, tasks, words, began)


def _run(arguments: argparse.Namespace, tasks: list, words: list[str], began: float) -> int:
    from . import about, clock, document
    from .row import Poisoned
    from .session import Session

    device = arguments.device
    machine, versions = about.describe(device)
    if arguments.resume and arguments.json.exists():
        try:
            result = document.read(arguments.json)
        except document.BadDocument as reason:
            print(f"models: {reason}", file=sys.stderr)
            return 1
        if (result["device"]["name"], result["versions"]) != (machine["name"], versions):
            print(f"models: {arguments.json} is of another device or other versions", file=sys.stderr)
            return 1
    else:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        result = document.new(machine, versions, now, about.METHOD)
    timer = clock.CudaClock() if device == "cuda" else clock.CpuClock()
    until = began + arguments.limit
    try:
        Session(result, arguments.json, device, timer).run(tasks, until)
    except Poisoned:
        if until - time.monotonic() < 20:
            return POISONED
        _again(words, until - time.monotonic())
    print(f"{len(result['rows'])} rows in {arguments.json}, {len(result['unfinished'])} tasks unfinished")
    return WRONG if document.ours_failed(result) else 0
