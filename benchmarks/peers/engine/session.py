# benchmarks/peers/engine/session.py -- The measuring process: problem after problem, a row each.
# SPDX-License-Identifier: Apache-2.0
"""Owns the GPU. What cannot be survived in this process ends it with POISONED; supervise.py starts
another one, which goes on there, without the peer that was at work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import pathlib
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from . import device, document, judge
from .peer import OURS, Absent, Call, Refused, sentence
from .problems import Problem
from .roster import Errors, Reference, Roster
from .rounds import Limits, Outcome, run_rounds
from .samples import Summary
from .timing import DeviceTimer

REPEATS = 100  # calls of vitune whose outputs must be the same bit for bit
POISONED = 75  # exit status: CUDA no longer answers in this process
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Poisoned(Exception):
    """The CUDA context is lost."""


class OtherDevice(Exception):
    """The rows that are there were measured on another GPU."""


class Journal:
    """Which problem and peer are at work, on disk: read by the process that watches this one."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def note(self, problem: str, peer: str, stage: str) -> None:
        """Peer "" where several are at work."""
        self._path.write_text(json.dumps({"problem": problem, "peer": peer, "stage": stage}))

    def close(self) -> None:
        """Nothing is at work any more: an end that hangs is no problem's fault."""
        self._path.unlink(missing_ok=True)


def _alive() -> None:
    try:
        torch.cuda.synchronize()
    except Exception as error:
        raise Poisoned(sentence(error)) from error


def _bits(output: Any) -> list[torch.Tensor]:
    """Of a tensor or a tuple of them, as integers of the same size: NaN equals itself there."""
    found = output if isinstance(output, tuple) else (output,)
    return [tensor.view(_INTEGERS[tensor.element_size()]) for tensor in found]


def _others(call: Call, output: Any) -> int:
    """How many of REPEATS - 1 further calls give another output than this one, in any bit."""
    first = _bits(output)
    with call.within():
        outputs = (_bits(call.run()) for _ in range(REPEATS - 1))
        return sum(not all(map(torch.equal, other, first)) for other in outputs)


def _named(what: str, errors: Mapping[str, Errors]) -> str:
    return "the output" if len(errors) == 1 else f"'{what}'"


def _errors_in_json(errors: Mapping[str, Errors]) -> dict[str, Any]:
    """Those of the first output, and those of further ones under their names."""
    (_, first), *further = errors.items()
    return {
        **dataclasses.asdict(first),
        **{what: dataclasses.asdict(error) for what, error in further},
    }


class Session:
    """One run over problems. `excluded`: problem text -> peer (or "": all) -> why not to run it."""

    def __init__(
        self,
        roster: Roster,
        peers: list[Any],
        path: pathlib.Path,
        journal: Journal,
        excluded: dict[str, dict[str, str]],
        seed: int,
        timer: Any = None,
        **more: Any,
    ) -> None:
        """more: further fields of the document."""
        self._roster, self._more = roster, more
        self._peers, self._path, self._journal, self._excluded = peers, path, journal, excluded
        self._seed, self._chance = seed, random.Random(seed)
        self._timer = DeviceTimer() if timer is None else timer
        self._compiles: dict[str, list[float]] = {}  # seconds of first calls, by peer

    def begin(self, resume: bool) -> None:
        """Makes the document, or takes over that of a session that ended early."""
        about, versions = device.describe()
        if resume and self._path.exists():
            self._document = document.read(self._path)
            other = self._document["device"].get("name")
            if other != about["name"]:
                raise OtherDevice(f"{self._path} is of {other}, and this is {about['name']}")
            return
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        names = [peer.name for peer in self._peers]
        self._document = document.new(
            about,
            versions,
            now,
            device.METHOD,
            [name for name in self._roster.names if name in names],
            **self._more,
            seed=self._seed,
            empty_us=self._timer.empty_us(),
        )
        document.write(self._document, self._path)

    def run(self, problems: list[Problem], until: float, row_seconds: float = 0.0) -> None:
        """Measures what has no row yet. until: time.time() at which no further problem begins.

        The time that is left is shared out evenly, and no row's share is below `row_seconds`.
        """
        done = {row["problem"] for row in self._document["rows"]}
        todo = [problem for problem in problems if problem.text not in done]
        self._document["unfinished"] = [problem.name for problem in todo]
        document.write(self._document, self._path)
        for number, problem in enumerate(todo):
            left = until - time.time()
            if left <= 0:
                break
            row = self._measure(problem, max(row_seconds, left / (len(todo) - number)))
            self._document["rows"].append(row)
            self._document["unfinished"] = [problem.name for problem in todo[number + 1 :]]
            document.write(self._document, self._path)
            print(_line(row), flush=True)
        self._document["device"]["state_after"] = device.smi()
        document.write(self._document, self._path)
        self._journal.close()

    def _measure(self, problem: Problem, seconds: float) -> dict[str, Any]:
        began = time.time()
        row = document.new_row(problem.name, problem.group, problem.text, problem.floor_us)
        barred = self._excluded.get(problem.text, {})
        if "" in barred:
            row["failed"] = {peer.name: barred[""].partition(": ")[2] for peer in self._peers}
            return row
        self._journal.note(problem.text, "", "operands")
        torch.manual_seed(self._seed + len(self._document["rows"]))
        try:
            operands = self._roster.operands(problem)
        except ValueError as error:
            row["refused"] = {peer.name: str(error) for peer in self._peers}
            return row
        with torch.no_grad():
            self._time(problem, operands, row, barred, began + seconds)
        others = judge.compared(row, row["err"], self._roster.unfused)
        row["flags"] += judge.error_flags(row["err"], others)
        row["seconds"] = round(time.time() - began, 2)
        return row

    def _time(
        self,
        problem: Problem,
        operands: Any,
        row: dict[str, Any],
        barred: dict[str, str],
        end: float,
    ) -> None:
        calls = self._prepare(problem, operands, row, barred, end)
        self._judge(problem, operands, calls, row)
        self._journal.note(problem.text, "", "cold rounds")
        seconds = min(30.0, 0.4 * (end - time.time()))  # a watcher waits for each step
        cold = self._rounds(calls, self._timer.cold_round, seconds, row)
        for name in list(calls):
            self._journal.note(problem.text, name, "capture")
            with self._guard(name, calls, row):
                median = row["us"][name]["cold"]
                self._timer.capture(name, calls[name], median)
                queued, done = self._timer.python_call(calls[name], median)
                row["us"][name] |= {
                    "python_queued": round(queued, 2),
                    "python_done": round(done, 2),
                }
        self._journal.note(problem.text, "", "warm rounds")
        seconds = min(30.0, 0.9 * (end - time.time()))
        self._rounds(calls, self._timer.warm_round, seconds, row)
        row["rounds"] = max(map(len, cold.samples.values()), default=0)
        self._timer.forget()

    @contextlib.contextmanager
    def _guard(self, name: str, calls: dict[str, Call], row: dict[str, Any]) -> Any:
        """A peer that raises leaves with its reason; one that loses the GPU ends the session."""
        try:
            yield
            torch.cuda.synchronize()
        except Refused as reason:
            row["refused"][name] = sentence(reason)
            calls.pop(name, None)
        except Absent as reason:
            self._document["absent"][name] = sentence(reason)
            calls.pop(name, None)
        except Exception as error:
            row["failed"][name] = sentence(error)
            calls.pop(name, None)
            _alive()
            torch.cuda.empty_cache()

    def _no_time(self, name: str, end: float) -> str | None:
        """Why a peer that compiles is left out: its first call would cost other problems theirs."""
        before, left = self._compiles.get(name), end - time.time()
        if not before or left > 1.3 * sum(before) / len(before):
            return None
        usual = sum(before) / len(before)
        return f"not run: its first calls take {usual:.1f} s each, and {left:.1f} s are left here"

    def _prepare(
        self,
        problem: Problem,
        operands: Any,
        row: dict[str, Any],
        barred: dict[str, str],
        end: float,
    ) -> dict[str, Call]:
        calls: dict[str, Call] = {}
        for peer in self._peers:
            if peer.name in barred:
                kind, _, reason = barred[peer.name].partition(": ")
                row["refused" if kind == "refused" else "failed"][peer.name] = reason
                continue
            if peer.name in self._document["absent"]:
                continue
            reason = self._no_time(peer.name, end) if peer.name in self._roster.compiled else None
            if reason is not None:
                row["failed"][peer.name] = reason
                continue
            self._journal.note(problem.text, peer.name, "first call")
            began = time.time()
            with self._guard(peer.name, calls, row):
                calls[peer.name] = peer.prepare(problem, operands)
                self._compiles.setdefault(peer.name, []).append(time.time() - began)
        return calls

    def _judge(
        self, problem: Problem, operands: Any, calls: dict[str, Call], row: dict[str, Any]
    ) -> None:
        self._journal.note(problem.text, "", "reference")
        reference = self._roster.reference(problem, operands)
        sizes = self._roster.output_bytes(problem, operands)
        if reference.remark:
            row["flags"].append(reference.remark)
        for name in list(calls):
            self._journal.note(problem.text, name, "checked call")
            with self._guard(name, calls, row):
                self._judge_one(name, calls, reference, sizes, row)

    def _judge_one(
        self,
        name: str,
        calls: dict[str, Call],
        reference: Reference,
        sizes: Sequence[int],
        row: dict[str, Any],
    ) -> None:
        call = calls[name]
        # The allocator hands these blocks to the call's outputs next: what is not written stays NaN,
        # which all bits set are in every floating type.
        torch.cuda.empty_cache()
        poison = [torch.full((size,), 255, dtype=torch.uint8, device="cuda") for size in sizes]
        del poison
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with call.within():
            out = call.run()
        torch.cuda.synchronize()
        row["memory"][name] = torch.cuda.max_memory_allocated() - before
        errors = reference.errors(out)
        reasons = [
            reason
            for what, error in errors.items()
            if (reason := judge.wrong(error.relative, _named(what, errors)))
        ]
        if reasons:
            row["failed"][name] = "; ".join(reasons)
            calls.pop(name)
            return
        row["err"][name] = _errors_in_json(errors)
        self._note_function(name, call, reference, out, row)
        if name in OURS:
            row["repeats"][name] = {"calls": REPEATS, "different": _others(call, out)}
            row["flags"] += judge.repeat_flags(name, row["repeats"][name])
        if call.config:
            row["config"][name] = call.config
        if call.remark:
            row["flags"].append(f"{name}: {call.remark}")
        if name == "vitune":
            row["outcome"] = call.outcome
        if name in self._roster.ways and call.outcome != "exact":
            row["flags"].append(f"{name}: not tuned for this problem, served as '{call.outcome}'")

    def _note_function(
        self, name: str, call: Call, reference: Reference, out: Any, row: dict[str, Any]
    ) -> None:
        """Whose kernel it was, and whether it computes what was asked, as it says and as it looks."""
        if not call.provider:
            return
        row.setdefault("provider", {})[name] = call.provider
        instead = call.instead or reference.instead(out)
        row.setdefault("same_function", {})[name] = not instead
        if instead and name in OURS:
            row["flags"].append(f"{name}: computes {instead}")
        elif instead:
            row["flags"].append(f"{name}: computes {instead}, and does not count")

    def _rounds(
        self, calls: dict[str, Call], measure: Any, seconds: float, row: dict[str, Any]
    ) -> Outcome:
        kind = "cold" if measure == self._timer.cold_round else "warm"
        try:
            outcome = run_rounds(
                list(calls), lambda names: measure(names, calls), Limits(), seconds, self._chance
            )
        except Exception as error:
            raise Poisoned(sentence(error)) from error
        for name, reason in outcome.failed.items():
            row["failed"][name] = f"{kind} rounds: {reason}"
            calls.pop(name)
        for name, values in outcome.samples.items():
            if not values:
                continue
            found = Summary.of(values)
            row["us"].setdefault(name, {}).update(
                {
                    kind: round(found.median, 3),
                    f"{kind}_p10": round(found.p10, 3),
                    f"{kind}_p90": round(found.p90, 3),
                    f"{kind}_samples": found.samples,
                }
            )
        return outcome


def _line(row: dict[str, Any]) -> str:
    times = "  ".join(
        f"{name} {times['cold']:.1f}/{times.get('warm', float('nan')):.1f}"
        for name, times in row["us"].items()
        if "cold" in times
    )
    out = [
        *(f"{name} refused" for name in row["refused"]),
        *(f"{name} FAILED" for name in row["failed"]),
    ]
    return f"{row['name']:24.24s} {times}" + (f"  ({', '.join(out)})" if out else "")
