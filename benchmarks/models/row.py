# benchmarks/models/row.py -- Measures one model at one batch in one mode: all ways, interleaved.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Iterable
from typing import Any

import torch
from peers.engine.capture import no_collection
from peers.engine.peer import sentence
from peers.engine.rounds import Limits, PeerFailed, run_rounds
from torch import Tensor

from . import answer, kinds, ways
from .clock import Run
from .interval import gain, summary

BLOCK_MS = 40.0  # of passes in a row are one sample
MOST_IN_A_ROW = 100
_TRIED = 3  # passes in a row, for a first idea of how long one takes
MOST_LETTERS = 90  # of a kernel's name
LIMITS = Limits(least=7, most=41, noise=0.003, slow_us=float("inf"))


class Poisoned(Exception):
    """The device no longer answers in this process."""

    def __init__(self, reason: str, way: str = "") -> None:
        """way: the one at work, "NAME as MODE"; "": not one of them alone."""
        super().__init__(f"{way}, {reason}" if way else reason)
        self.way = way


class Skipped(Exception):
    """This machine or this model has no such way: no failure of it."""


def alive(clock: Any, doing: str, name: str = "", mode: str = "") -> None:
    """Raises Poisoned if it is not. doing: with what; name, mode: of the way that was at work."""
    try:
        clock.synchronize()
    except Exception as reason:
        raise Poisoned(f"{doing}: {sentence(reason)}", f"{name} as {mode}" if name else "") from reason


class Subject:
    """A model and its images, with the answer in fp32 and how far PyTorch's own is from it."""

    def __init__(self, forward: Callable[[], Tensor], wanted: Tensor) -> None:
        self.forward = forward
        self.wanted = wanted
        self.of_torch = answer.error(forward(), wanted)
        if not self.of_torch <= answer.MOST:
            raise ValueError(f"PyTorch's own bf16 is {self.of_torch:.3g} from fp32: nothing to judge by")


@dataclasses.dataclass
class Prepared:
    """What can be run again and again."""

    run: Run
    answer: Tensor
    memory_mb: float | None  #: that a pass takes at most, over what was there before; None: not known


@dataclasses.dataclass
class Candidate:
    """One way."""

    within: ways.Way  #: entered around everything
    prepare: Callable[[], Prepared]


def _eager(subject: Subject, clock: Any) -> Prepared:
    memory, found = clock.peak(subject.forward)
    return Prepared(subject.forward, found, memory)


def _graph(subject: Subject, clock: Any) -> Prepared:
    memory, (replay, found) = clock.peak(lambda: clock.capture(subject.forward))
    found.fill_(float("nan"))  # what the replay does not write stays so
    replay()
    clock.synchronize()
    return Prepared(replay, found, memory)


def candidates(mode: str, subject: Subject, served: dict[str, ways.Way], clock: Any) -> dict[str, Candidate]:
    """A model as it is, eager or as a graph, in each of these ways."""
    prepare = {"eager": _eager, "graph": _graph}[mode]
    return {name: Candidate(way, functools.partial(prepare, subject, clock)) for name, way in served.items()}


@dataclasses.dataclass
class Race:
    """Who is compared with whom, and how."""

    peers: tuple[str, ...]
    ours: str
    seconds: float  #: of rounds
    chance: random.Random
    by_kind: bool = True  #: whether kernels are looked at afterwards
    more: tuple[tuple[str, tuple[str, ...]], ...] = ()  #: (way, peers): further gains


def measure(mode: str, subject: Subject, found: dict[str, Candidate], clock: Any, race: Race) -> dict[str, Any]:
    """The row without its name. Inside inference_mode."""
    row: dict[str, Any] = {"mode": mode, "ms": {}, "host_ms": {}, "error": {}, "failed": {}}
    runs: dict[str, Run] = {}
    for name, candidate in found.items():
        try:
            with candidate.within():
                prepared = candidate.prepare()
            if _judge(row, name, prepared, subject):
                runs[name] = prepared.run
        except Skipped as reason:
            row.setdefault("skipped", {})[name] = str(reason)
        except Exception as reason:
            row["failed"][name] = sentence(reason)
            alive(clock, "prepared", name, mode)
            clock.release()  # what a way that failed held is free for the others
    if runs:
        within = {name: candidate.within for name, candidate in found.items()}
        _time(row, runs, within, clock, race)
        for name in row["ms"] if race.by_kind else ():
            by_kind(row, name, runs[name], within[name], clock)
    return row


def _judge(row: dict[str, Any], name: str, prepared: Prepared, subject: Subject) -> bool:
    """Notes the error and the memory of a way; whether its answer is right."""
    error = answer.error(prepared.answer, subject.wanted)
    reason = answer.wrong(error, subject.of_torch)
    if reason:
        row["failed"][name] = reason
        return False
    row["error"][name] = error
    if prepared.memory_mb is not None:
        row.setdefault("memory_mb", {})[name] = round(prepared.memory_mb, 1)
    return True


def by_kind(row: dict[str, Any], name: str, run: Run, within: ways.Way, clock: Any,
            sort: Callable[[Iterable[tuple[str, float]]], dict[str, float]] = kinds.by_kind, most: int = 0) -> None:
    """Notes where the time of a pass goes, by kinds as `sort` tells them, and the `most` longest kernels; nothing where no profiler
    says it."""
    try:
        with within():
            kernels = clock.kernels(run)
    except Exception as reason:
        alive(clock, "profiled", name, row["mode"])
        row.setdefault("not_profiled", {})[name] = sentence(reason)
        return
    if kernels:
        row.setdefault("kinds_us", {})[name] = sort((kernel, us) for kernel, us, _ in kernels)
    if kernels and most:
        row.setdefault("kernels", {})[name] = [
            {"name": kinds.short_name(kernel, MOST_LETTERS), "us": round(us, 2), "calls": calls}
            for kernel, us, calls in kernels[:most]
        ]


def _time(row: dict[str, Any], runs: dict[str, Run], within: dict[str, ways.Way], clock: Any, race: Race) -> None:
    told = timed(row["mode"], runs, within, clock, race.seconds, race.chance)
    row["failed"] |= told.failed
    for name, values in told.samples.items():
        row["ms"][name] = summary(values, "ms")
        row["host_ms"][name] = summary(told.host[name], "ms")
    row["gain"] = gain(told.samples, race.peers, race.ours)
    for way, peers in race.more:
        if found := gain(told.samples, peers, way):
            row.setdefault("gains", []).append({"of": way} | found)


Samples = dict[str, list[float]]


@dataclasses.dataclass
class Timed:
    """Milliseconds of each way, by name, a figure a round."""

    samples: Samples  #: per pass, of passes in a row
    host: Samples  #: until the calls of a pass had returned, the device idle before
    alone: Samples  #: of one pass, the device idle before; empty where it was not asked for
    in_a_row: dict[str, int]  #: passes of a sample
    failed: dict[str, str]  #: who, and why


def in_a_row(run: Run, clock: Any, least: int) -> int:
    """Passes of a way that fill a block, by its own time and not that of a slower one: the first pass of a row has the time of the host in
    it, so that two ways whose rows are not equally long would not be compared by the same rule."""
    once = min(clock.passes(run, _TRIED) for _ in range(2))
    return max(least, min(MOST_IN_A_ROW, int(BLOCK_MS / max(once, 1e-3))))


def timed(mode: str, runs: dict[str, Run], within: dict[str, ways.Way], clock: Any, seconds: float, chance: random.Random,
          least: int = 1, alone: bool = False) -> Timed:
    """All of them in turn, in rounds of random order. least: passes in a row. alone: passes of an idle device are timed, too."""
    found = Timed({}, {name: [] for name in runs}, {name: [] for name in runs} if alone else {}, {}, {})

    def one(name: str) -> tuple[float, float, float]:
        run = runs[name]
        if name not in found.in_a_row:
            found.in_a_row[name] = in_a_row(run, clock, least)
        returned, one_alone = clock.host(run), clock.passes(run, 1) if alone else 0.0
        return returned, one_alone, clock.passes(run, found.in_a_row[name])

    def one_round(names: Any) -> dict[str, float]:
        told = {}
        for name in names:
            try:
                with within[name]():
                    told[name] = one(name)
            except Exception as reason:
                alive(clock, "timed", name, mode)
                raise PeerFailed(name, sentence(reason)) from reason
        for name, (returned, one_alone, _) in told.items():
            found.host[name].append(returned)
            if alone:
                found.alone[name].append(one_alone)
        return {name: ms * 1e3 for name, (_, _, ms) in told.items()}

    with no_collection():
        outcome = run_rounds(list(runs), one_round, LIMITS, seconds, chance)
    found.samples = {name: [us / 1e3 for us in values] for name, values in outcome.samples.items()}
    found.failed = outcome.failed
    return found


def subject_of(model: Any, images: Tensor) -> Subject:
    """Outside of inference_mode, which what it holds is then used in."""
    wanted = answer.reference(model, images)
    with torch.inference_mode():
        return Subject(lambda: model(images), wanted)
