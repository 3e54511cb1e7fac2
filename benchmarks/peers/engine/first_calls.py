# benchmarks/peers/engine/first_calls.py -- What a program's first call of each peer costs.
# SPDX-License-Identifier: Apache-2.0
"""Every sample is a process of its own, since a library is loaded and its plans are made once per
process. Importing PyTorch, making the CUDA context and making the tensors come before and are timed
apart. All peers take turns; the first turn, which brings the libraries into the system's file cache,
is not counted unless the time allows no other. Needs no PyTorch but in the processes that measure.
"""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import document
from .peer import Absent, Refused, Settings, is_refusal, sentence
from .problems import Problem
from .roster import Roster
from .samples import median

#: Microseconds of the host, in the order in which they pass.
STEPS = ("import_torch", "cuda_context", "first", "second", "later", "next_problem")
TURNS = 6
_LATER = 20  # calls whose median is `later`

METHOD = {
    "process": "one process per sample, peers in turns and in a random order; the first turn fills "
    "the system's file cache and is not counted unless it is the only one; medians",
    "import_torch": "importing PyTorch",
    "cuda_context": "the first tensor on the GPU: driver, context, PyTorch's own start",
    "first": "first call of the first problem, until the GPU has done it; its tensors were there, "
    "the backend was chosen, libvitune and what PyTorch links of cuDNN were loaded",
    "second": "the same call again",
    "later": f"median of the {_LATER} calls after that",
    "next_problem": "first call of the second problem, after those",
}


def measure(
    roster: Roster, name: str, problems: Sequence[Problem], settings: Settings, device: str
) -> dict[str, float]:
    """In a fresh process: STEPS -> microseconds. Raises what the peer raises."""
    began = time.perf_counter()
    import torch

    imported = time.perf_counter()
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    torch.zeros(1, device=device)
    synchronize()
    ready = time.perf_counter()

    peer: Any = roster.peers([name], settings)[0]
    first, following = (
        peer.make(problem, roster.operands(problem, device)) for problem in problems[:2]
    )
    synchronize()

    def timed(run: Callable[[], Any]) -> float:
        start = time.perf_counter()
        run()
        synchronize()
        return (time.perf_counter() - start) * 1e6

    found = {"import_torch": (imported - began) * 1e6, "cuda_context": (ready - imported) * 1e6}
    with torch.no_grad(), first.within():
        found["first"], found["second"] = timed(first.run), timed(first.run)
        found["later"] = median([timed(first.run) for _ in range(_LATER)])
    with torch.no_grad(), following.within():
        found["next_problem"] = timed(following.run)
    return found


def worker(
    roster: Roster,
    name: str,
    problems: Sequence[Problem],
    settings: Settings,
    device: str = "cuda",
) -> int:
    """Measures and prints one line of JSON: the steps, or {"refused"|"failed": why}."""
    try:
        answer: dict[str, Any] = {"us": measure(roster, name, problems, settings, device)}
    except (Refused, Absent) as reason:
        answer = {"refused": sentence(reason)}
    except Exception as error:
        answer = {"refused" if is_refusal(error) else "failed": sentence(error)}
    print(json.dumps(answer), flush=True)
    return 0


def _ask(command: Sequence[str], seconds: float) -> dict[str, Any]:
    """What a worker answered; a death or a hang is an answer as well."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failed": f"its process did not end within {seconds:.0f} s"}
    lines = done.stdout.splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return answer
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return {"failed": f"its process ended with status {done.returncode}: {last[:200]}"}


def _summary(samples: list[dict[str, float]]) -> dict[str, Any]:
    counted = samples[1:] or samples
    found: dict[str, Any] = {"samples": len(counted), "file_cache_filled": len(samples) > 1}
    for step in STEPS:
        values = [sample[step] for sample in counted]
        found[step] = round(median(values), 2)
        found[f"{step}_low"], found[f"{step}_high"] = round(min(values), 2), round(max(values), 2)
    return found


def collect(
    names: Sequence[str],
    command: Callable[[str], Sequence[str]],
    budget: float,
    turns: int = TURNS,
    chance: random.Random | None = None,
) -> dict[str, dict[str, Any]]:
    """{"us": peer -> steps, "refused": peer -> why, "failed": peer -> why} of processes in turns.

    command: the worker of a peer. The first turn has the order of `names`. No process begins that
    would end after `budget` seconds, going by the slowest of a turn before it, and none runs on
    after that.
    """
    until = time.monotonic() + budget
    seconds: list[float] = []  # of all processes
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    found: dict[str, dict[str, Any]] = {"us": {}, "refused": {}, "failed": {}}
    left = list(names)
    for turn in range(turns):
        for name in (chance or random).sample(left, len(left)) if turn else list(left):
            began = time.monotonic()
            if began + max(seconds[-len(names) :], default=0.0) > until:
                left = []
                break
            answer = _ask(command(name), max(0.1, until - began))
            seconds.append(time.monotonic() - began)
            if "us" in answer:
                samples[name].append(answer["us"])
                continue
            left.remove(name)
            kind = "refused" if "refused" in answer else "failed"
            found[kind][name] = str(answer.get(kind, "its process answered nothing"))
    for name in names:
        if samples[name] and name not in found["failed"]:
            found["us"][name] = _summary(samples[name])
        elif name not in found["failed"] and name not in found["refused"]:
            found["failed"][name] = "no time was left for it"
    return found


def write(
    found: dict[str, dict[str, Any]],
    about: tuple[dict[str, Any], dict[str, Any]],
    problems: Sequence[Problem],
    date: str,
    path: pathlib.Path,
) -> None:
    """The document: schema 1 of "first_calls". about: (device, versions); date: ISO 8601, UTC."""
    made = {
        "schema": 1,
        "command": "first_calls",
        "device": about[0],
        "versions": about[1],
        "date": date,
        "method": METHOD,
        "problem": problems[0].text,
        "next_problem": problems[1].text,
        **found,
    }
    document.write(made, path)


def table(found: dict[str, dict[str, Any]]) -> str:
    """For a terminal: milliseconds."""
    lines = [f"{'first calls, ms':16s}" + "".join(f"{step:>14s}" for step in STEPS)]
    for name, us in found["us"].items():
        cells = "".join(f"{us[step] / 1e3:14.3f}" for step in STEPS)
        lines.append(f"{name:16s}{cells}  ({us['samples']} processes)")
    for kind in ("refused", "failed"):
        lines += [f"{name:16s}{kind}: {why}" for name, why in found[kind].items()]
    return "\n".join(lines)
