# benchmarks/models/row.py -- Measures one model at one batch in one mode: all ways, interleaved.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable
from typing import Any

import torch
from peers.engine.peer import sentence
from peers.engine.rounds import Limits, PeerFailed, run_rounds
from torch import Tensor

from . import answer, ways
from .clock import Run
from .interval import gain, summary

BLOCK_MS = 40.0  # of passes in a row are one sample
LIMITS = Limits(least=7, most=41, noise=0.003, slow_us=float("inf"))


class Poisoned(Exception):
    """The device no longer answers in this process."""


def alive(clock: Any) -> None:
    """Raises Poisoned if it is not."""
    try:
        clock.synchronize()
    except Exception as reason:
        raise Poisoned(sentence(reason)) from reason


class Subject:
    """A model and its images, with the answer in fp32 and how far PyTorch's own is from it."""

    def __init__(self, forward: Callable[[], Tensor], wanted: Tensor) -> None:
        self.forward = forward
        self.wanted = wanted
        self.of_torch = answer.error(forward(), wanted)
        if not self.of_torch <= answer.MOST:
            raise ValueError(f"PyTorch's own bf16 is {self.of_torch:.3g} from fp32: nothing to judge by")


def _prepare(mode: str, subject: Subject, clock: Any) -> tuple[Run, Tensor]:
    if mode == "eager":
        return subject.forward, subject.forward()
    replay, found = clock.capture(subject.forward)
    found.fill_(float("nan"))  # what the replay does not write stays so
    replay()
    clock.synchronize()
    return replay, found


def measure(
    mode: str,
    subject: Subject,
    served: dict[str, ways.Way],
    clock: Any,
    seconds: float,
    chance: random.Random,
) -> dict[str, Any]:
    """The row without its name. Inside inference_mode; `seconds` for the rounds."""
    row: dict[str, Any] = {"mode": mode, "ms": {}, "host_ms": {}, "error": {}, "failed": {}}
    runs: dict[str, Run] = {}
    for name, way in served.items():
        try:
            with way():
                run, found = _prepare(mode, subject, clock)
            row["error"][name] = answer.error(found, subject.wanted)
            reason = answer.wrong(row["error"][name], subject.of_torch)
            if reason:
                row["error"].pop(name)
                row["failed"][name] = reason
            else:
                runs[name] = run
        except Exception as reason:
            row["failed"][name] = sentence(reason)
            alive(clock)
    if runs:
        _time(row, runs, served, clock, seconds, chance)
    return row


def _time(
    row: dict[str, Any],
    runs: dict[str, Run],
    served: dict[str, ways.Way],
    clock: Any,
    seconds: float,
    chance: random.Random,
) -> None:
    first = next(iter(runs))
    with served[first]():
        once = min(clock.passes(runs[first], 1) for _ in range(3))
    passes = max(1, min(100, int(BLOCK_MS / max(once, 1e-3))))
    host: dict[str, list[float]] = {name: [] for name in runs}

    def one_round(names: Any) -> dict[str, float]:
        ms, returned = {}, {}
        for name in names:
            try:
                with served[name]():
                    returned[name] = clock.host(runs[name])
                    ms[name] = clock.passes(runs[name], passes)
            except Exception as reason:
                alive(clock)
                raise PeerFailed(name, sentence(reason)) from reason
        for name, value in returned.items():
            host[name].append(value)
        return {name: value * 1e3 for name, value in ms.items()}

    with _no_collection():
        outcome = run_rounds(list(runs), one_round, LIMITS, seconds, chance)
    row["failed"] |= outcome.failed
    samples = {name: [us / 1e3 for us in found] for name, found in outcome.samples.items()}
    for name, found in samples.items():
        row["ms"][name] = summary(found, "ms")
        row["host_ms"][name] = summary(host[name], "ms")
    row["gain"] = gain(samples, ways.PEERS, ways.OURS)


@contextlib.contextmanager
def _no_collection() -> Any:
    """Python's collector runs before, not in the middle of one way's samples."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def subject_of(model: Any, images: Tensor) -> Subject:
    """Outside of inference_mode, which what it holds is then used in."""
    wanted = answer.reference(model, images)
    with torch.inference_mode():
        return Subject(lambda: model(images), wanted)
