# benchmarks/models/interval.py -- A median with its distribution-free interval; a paired gain.
# SPDX-License-Identifier: Apache-2.0
"""Plain numbers in and out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from peers.engine.samples import median

CONFIDENCE = 0.95
LEAST = 6  #: samples that an interval of CONFIDENCE needs


def rank(count: int, confidence: float = CONFIDENCE) -> int:
    """k such that the median lies between the k-th and the k-th last of `count` samples.

    The chance that fewer than k samples fall on one side is a sum of the binomial distribution,
    whatever the samples' own distribution is. At least 1, for few samples too.
    """
    below, best = 0.0, 1
    for k in range(1, count // 2 + 1):
        below += math.comb(count, k - 1) / 2.0**count
        if 1 - 2 * below < confidence:
            break
        best = k
    return best


def summary(values: Sequence[float], unit: str) -> dict[str, float]:
    """{unit: median, "low", "high", "samples"} of at least one value."""
    ordered, k = sorted(values), rank(len(values))
    return {
        unit: round(median(ordered), 5),
        "low": round(ordered[k - 1], 5),
        "high": round(ordered[-k], 5),
        "samples": len(ordered),
    }


def gain(samples: dict[str, Sequence[float]], peers: Sequence[str], ours: str) -> dict | None:
    """How many times faster `ours` is than the better of `peers`, paired round by round."""
    found = [peer for peer in peers if samples.get(peer)]
    if not found or not samples.get(ours):
        return None
    over = min(found, key=lambda peer: median(samples[peer]))
    ratios = [theirs / our for theirs, our in zip(samples[over], samples[ours])]
    return {"over": over, **summary(ratios, "times")}
