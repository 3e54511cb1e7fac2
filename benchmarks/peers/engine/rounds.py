# benchmarks/peers/engine/rounds.py -- The round robin: every peer once per round, in a new random order.
# SPDX-License-Identifier: Apache-2.0
"""Knows neither PyTorch nor a GPU: a round is a function, and tests hand in their own."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Sequence

from .samples import median, median_noise


class PeerFailed(Exception):
    """A peer's call failed inside a round: it leaves, the others go on."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class Limits:
    """When rounds end."""

    least: int = 7  #: rounds that every peer takes part in, whatever the time
    most: int = 60
    noise: float = 0.004  #: enough once every median is known to this share (median_noise)
    slow_us: float = 20000.0  #: a peer above this leaves after `least` rounds: its spread is small


@dataclasses.dataclass
class Outcome:
    """Samples in microseconds per peer, in the order of the rounds, and who failed and why."""

    samples: dict[str, list[float]]
    failed: dict[str, str]


#: Runs the named peers in this order; microseconds of each. Raises PeerFailed.
Round = Callable[[Sequence[str]], dict[str, float]]


def _leaves(found: list[float], limits: Limits) -> bool:
    return len(found) >= limits.least and median(found) >= limits.slow_us


def _wants_more(found: list[float], limits: Limits) -> bool:
    return len(found) < limits.least or median_noise(found) > limits.noise


def run_rounds(
    names: Sequence[str],
    one_round: Round,
    limits: Limits,
    seconds: float,
    chance: random.Random,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Rounds over `names` until all medians are known well enough, `seconds` are over, or `most`.

    As long as one peer wants more samples all that are not slow get them: rounds stay paired. A
    round in which a peer fails does not count; it is run again without that peer.
    """
    outcome = Outcome({name: [] for name in names}, {})
    samples, end, rounds = outcome.samples, clock() + seconds, 0
    while rounds < limits.most:
        active = [name for name, found in samples.items() if not _leaves(found, limits)]
        if not any(_wants_more(samples[name], limits) for name in active):
            break
        if rounds >= limits.least and clock() >= end:
            break
        chance.shuffle(active)
        try:
            times = one_round(active)
        except PeerFailed as failure:
            outcome.failed[failure.name] = failure.reason
            del samples[failure.name]
            continue
        rounds += 1
        for name, us in times.items():
            samples[name].append(us)
    return outcome
