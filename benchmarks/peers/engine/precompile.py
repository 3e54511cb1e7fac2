# benchmarks/peers/engine/precompile.py -- First calls of the peers that compile, ahead and in parallel.
# SPDX-License-Identifier: Apache-2.0
"""Fills the compilers' caches on disk, so that the measuring process finds its kernels there. Each
worker is a process of its own: a compiler that crashes or never ends costs one worker, and that
peer this problem.

A task is one line of JSON on a worker's stdin, {"peer": .., "problem": {..}}; the answer is one
line on its stdout: {} if it went well, else {"refused": why} or {"failed": why}.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from .peer import Absent, Refused, Settings, sentence
from .problems import Problem
from .roster import Roster

Task = dict[str, Any]
#: Problem text -> peer -> "refused: why" or "failed: why".
Verdicts = dict[str, dict[str, str]]


def groups(
    roster: Roster, problems: Sequence[Problem], peers: Sequence[str]
) -> list[list[Task]]:
    """Tasks by what they share: those of one group reuse each other's kernels, in sequence."""
    found: dict[tuple[Any, ...], list[Task]] = {}
    for problem in problems:
        for peer in peers:
            key = (peer, *roster.shares(peer, problem))
            found.setdefault(key, []).append({"peer": peer, "problem": problem.as_json()})
    return sorted(found.values(), key=len, reverse=True)


class _Worker:
    """One child process and its pipe."""

    def __init__(self, command: Sequence[str]) -> None:
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked, self._answers = self._process.stdin, self._process.stdout
        self._rest = b""

    def ask(self, task: Task, seconds: float) -> dict[str, str] | None:
        """The answer; None if the time is over. A worker that dies has failed at the task."""
        end = time.monotonic() + seconds
        try:
            self._asked.write(json.dumps(task).encode() + b"\n")
            self._asked.flush()
        except OSError:
            return self._death()
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                read = os.read(self._answers.fileno(), 65536)
                if not read:
                    return self._death()
                self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def _death(self) -> dict[str, str]:
        return {
            "failed": f"the process died at its first call (exit status {self._process.wait()})"
        }

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def run_pool(
    work: list[list[Task]], command: Sequence[str], workers: int, seconds: float, per_task: float
) -> Verdicts:
    """Runs all groups on `workers` processes; what went wrong, by problem and peer.

    A task that takes longer than `per_task` has failed. What `seconds` leave undone is no failure:
    the measuring process compiles it itself.
    """
    todo: queue.SimpleQueue[list[Task]] = queue.SimpleQueue()
    for group in work:
        todo.put(group)
    verdicts: Verdicts = {}
    end, lock = time.monotonic() + seconds, threading.Lock()

    def serve() -> None:
        worker: _Worker | None = None
        try:
            while time.monotonic() < end:
                try:
                    group = todo.get_nowait()
                except queue.Empty:
                    return
                for task in group:
                    left = end - time.monotonic()
                    if left <= 0:
                        return
                    if worker is None or not worker.alive:
                        worker = _Worker(command)
                    answer = worker.ask(task, min(left, per_task))
                    if answer is None:
                        worker.end()
                        worker = None
                        if left <= per_task:
                            return
                        answer = {"failed": f"its first call took more than {per_task:.0f} s"}
                    for kind, reason in answer.items():
                        with lock:
                            verdicts.setdefault(task["problem"]["problem"], {})[task["peer"]] = (
                                f"{kind}: {reason}"
                            )
        finally:
            if worker is not None:
                worker.end()

    threads = [threading.Thread(target=serve) for _ in range(min(workers, len(work)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return verdicts


def _first_call(task: Task, roster: Roster, settings: Settings) -> dict[str, str]:
    import torch

    try:
        problem = roster.problem(task["problem"])
        with torch.no_grad():
            operands = roster.operands(problem)
            roster.compile_ahead(task["peer"], problem, operands, settings)
            torch.cuda.synchronize()
    except (Absent, ImportError):
        return {}  # said once, by the measuring process
    except Refused as reason:
        return {"refused": sentence(reason)}
    except Exception as error:
        return {"failed": sentence(error)}
    finally:
        torch.cuda.empty_cache()
    return {}


def worker(roster: Roster, settings: Settings) -> int:
    """The worker process: answers tasks until its stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a compiler prints must not look like an answer
    for line in sys.stdin:
        answer = _first_call(json.loads(line), roster, settings)
        print(json.dumps(answer), file=answers, flush=True)
        if "CUDA error" in answer.get("failed", ""):
            return 1  # the context may be lost: the pool starts another process
    return 0
