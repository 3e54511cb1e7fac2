# benchmarks/peers/engine/samples.py -- What is said about a list of times: median, spread, enough.
# SPDX-License-Identifier: Apache-2.0
"""Plain numbers in and out. Times are microseconds everywhere in this package."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of `values` lie, linear between neighbours."""
    if not values:
        raise ValueError("no values: a quantile of nothing was asked for")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: Sequence[float]) -> float:
    """The middle value, the mean of the middle two of an even number."""
    return quantile(values, 0.5)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Median and spread of samples, microseconds."""

    median: float
    p10: float
    p90: float
    samples: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Summary":
        """Of at least one value."""
        return cls(median(values), quantile(values, 0.1), quantile(values, 0.9), len(values))


def median_noise(values: Sequence[float]) -> float:
    """Half the width of the median's 95 % interval over the median, as if samples were normal.

    The spread is that between the quartiles, so that single outliers do not matter. Infinite for
    fewer than four values.
    """
    middle = median(values) if values else 0.0
    if len(values) < 4 or middle <= 0:
        return math.inf
    sigma = (quantile(values, 0.75) - quantile(values, 0.25)) / 1.349
    # 1.253: the standard error of a median is that much larger than that of a mean.
    return 1.96 * 1.253 * sigma / math.sqrt(len(values)) / middle


def geometric_mean(values: Iterable[float]) -> float:
    """Of at least one positive value."""
    logs = [math.log(value) for value in values]
    if not logs:
        raise ValueError("no values: a mean of nothing was asked for")
    return math.exp(sum(logs) / len(logs))
