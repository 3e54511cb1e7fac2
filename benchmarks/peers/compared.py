# benchmarks/peers/compared.py -- What follows from a result: the best peer, means, losses.
# SPDX-License-Identifier: Apache-2.0
"""Speed-ups are peer / vitune: above 1 vitune is faster. No PyTorch here."""
from __future__ import annotations

import dataclasses
import statistics
from typing import Any

from .judge import fused
from .samples import geometric_mean

KINDS = ("cold", "warm")


@dataclasses.dataclass(frozen=True)
class Best:
    """vitune beside the fastest fused peer, cold or warm."""

    vitune: float  #: microseconds
    peer: str
    us: float

    @property
    def ratio(self) -> float:
        """Above 1: vitune is faster."""
        return self.us / self.vitune


def best(row: dict[str, Any], kind: str) -> Best | None:
    """None where vitune, or every fused peer, has no such time."""
    times = {peer: us[kind] for peer, us in row["us"].items() if kind in us}
    peers = fused(times)
    if "vitune" not in times or not peers:
        return None
    peer = min(peers, key=times.__getitem__)
    return Best(times["vitune"], peer, times[peer])


@dataclasses.dataclass(frozen=True)
class Spread:
    """A group's speed-ups over the best peer of each problem, cold or warm."""

    group: str
    kind: str
    ratios: list[float]
    shares: list[tuple[float, float]]  #: of the floor: vitune, the best peer

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def ahead(self) -> int:
        return sum(ratio >= 1 for ratio in self.ratios)


def spreads(found: dict[str, Any]) -> list[Spread]:
    """One per group and kind that has something to compare, in the order of the rows."""
    result = []
    for group in dict.fromkeys(row["group"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["group"] == group]
        for kind in KINDS:
            pairs = [(row, one) for row in rows if (one := best(row, kind))]
            shares = [
                (row["floor_us"] / one.vitune, row["floor_us"] / one.us)
                for row, one in pairs
                if row["floor_us"]
            ]
            if pairs:
                result.append(Spread(group, kind, [one.ratio for _, one in pairs], shares))
    return result


@dataclasses.dataclass(frozen=True)
class Errors:
    """vitune's errors over the least of any fused peer, problem by problem."""

    ratios: list[float]  #: of the largest errors
    rms: list[float]

    def above(self, factor: float) -> list[float]:
        return [ratio for ratio in self.ratios if ratio > factor]


def errors(found: dict[str, Any]) -> Errors:
    """Of the problems where vitune and a fused peer have an error above 0."""
    both: dict[str, list[float]] = {"max": [], "rms": []}
    for row in found["rows"]:
        for kind, ratios in both.items():
            known = {peer: error[kind] for peer, error in row["err"].items() if error[kind] > 0}
            peers = fused(known)
            if "vitune" in known and peers:
                ratios.append(known["vitune"] / min(known[peer] for peer in peers))
    return Errors(both["max"], both["rms"])


def _default_gain(rows: list[dict[str, Any]]) -> str:
    gains = [
        row["us"]["vitune_default"]["cold"] / row["us"]["vitune"]["cold"]
        for row in rows
        if all("cold" in row["us"].get(name, {}) for name in ("vitune", "vitune_default"))
    ]
    return f"; tuning over the default kernel {geometric_mean(gains):.2f}" if gains else ""


def means(found: dict[str, Any]) -> list[str]:
    """One line per group: geometric means of the speed-ups, the least, and what tuning gains."""
    lines = []
    for group in dict.fromkeys(row["group"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["group"] == group]
        parts = []
        for kind in KINDS:
            ratios = [one.ratio for one in (best(row, kind) for row in rows) if one]
            if ratios:
                ahead = sum(ratio >= 1 for ratio in ratios)
                parts.append(
                    f"{kind} {geometric_mean(ratios):.2f} (least {min(ratios):.2f}, most "
                    f"{max(ratios):.2f}, ahead in {ahead} of {len(ratios)})"
                )
        told = ", ".join(parts) if parts else "nothing to compare"
        lines.append(
            f"- group `{group}`, geometric mean over the best peer: {told}{_default_gain(rows)}"
        )
    return lines


def losses(found: dict[str, Any]) -> list[str]:
    """One line per problem and kind in which a fused peer is faster, the worst first."""
    slower = [
        (one.ratio, row, kind, one)
        for row in found["rows"]
        for kind in KINDS
        if (one := best(row, kind)) and one.ratio < 1
    ]
    return [
        f"- {row['name']}, {kind}: {one.vitune:.1f} µs, {one.peer} {one.us:.1f} µs ({ratio:.3f})"
        for ratio, row, kind, one in sorted(slower, key=lambda item: item[0])
    ]


def not_compared(found: dict[str, Any]) -> list[str]:
    """Rows in which vitune has no time, and what was not measured at all."""
    lines = []
    for row in found["rows"]:
        if "cold" not in row["us"].get("vitune", {}):
            why = row["failed"].get("vitune") or row["refused"].get("vitune") or "not asked for"
            lines.append(f"- {row['name']}: vitune has no result: {why}")
    lines += [f"- {name}: not measured, the time was over" for name in found["unfinished"]]
    return lines
