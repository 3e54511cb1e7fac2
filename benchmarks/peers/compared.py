# benchmarks/peers/compared.py -- What follows from a result: the best peer, means, losses.
# SPDX-License-Identifier: Apache-2.0
"""Speed-ups are peer / vitune: above 1 vitune is faster. No PyTorch here."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from .engine import judge
from .engine.peer import OURS
from .engine.samples import geometric_mean
from .rosters import roster_of

KINDS = ("cold", "warm")
_FASTER = 1.05  # unfused kernels than the fastest peer that counts, whose kernel is then no baseline


@dataclasses.dataclass(frozen=True)
class Best:
    """One way of vitune beside the fastest fused peer of the same function, cold or warm."""

    vitune: float  #: microseconds
    peer: str
    us: float

    @property
    def ratio(self) -> float:
        """Above 1: vitune is faster."""
        return self.us / self.vitune


def peers_of(row: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Those of `names` that vitune is compared with in this row."""
    return judge.compared(row, names, roster_of(row["problem"]).unfused)


def ways_of(found: dict[str, Any]) -> tuple[str, ...]:
    """Of vitune's, those that are compared with the peers; the rows are of one operator's roster."""
    return roster_of(found["rows"][0]["problem"] if found["rows"] else "").ways


def _fastest(
    row: dict[str, Any], kind: str, peers: Iterable[str], way: str = "vitune"
) -> Best | None:
    """vitune beside the fastest of these; None where vitune, or all of them, have no such time."""
    times = {peer: us[kind] for peer, us in row["us"].items() if kind in us}
    timed = [peer for peer in peers if peer in times]
    if way not in times or not timed:
        return None
    peer = min(timed, key=times.__getitem__)
    return Best(times[way], peer, times[peer])


def best(row: dict[str, Any], kind: str, way: str = "vitune") -> Best | None:
    """None where this way of vitune, or every peer that counts, has no such time."""
    return _fastest(row, kind, peers_of(row, row["us"]), way)


def broken(row: dict[str, Any], kind: str) -> bool:
    """Whether even the unfused kernels are faster than the fastest peer that counts: no mean has such a row, but of operators with a mean
    in which the unfused count."""
    roster = roster_of(row["problem"])
    fused, unfused = best(row, kind), _fastest(row, kind, roster.unfused)
    return bool(fused and unfused and not roster.counts_unfused and fused.us > _FASTER * unfused.us)


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


def spreads(found: dict[str, Any], way: str = "vitune") -> list[Spread]:
    """One per group and kind that has something to compare, in the order of the rows."""
    result = []
    for group, rows in _groups(found).items():
        for kind in KINDS:
            pairs = [(row, one) for row in rows if (one := best(row, kind, way)) and not broken(row, kind)]
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
            peers = peers_of(row, known)
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


def _groups(found: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows by group, in their order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in found["rows"]:
        groups.setdefault(row["group"], []).append(row)
    return groups


def _mean(pairs: Sequence[tuple[str, Best | None]]) -> str:
    """Of (kind, comparison): "cold 1.20 (least 1.10, ...), warm ..."."""
    parts = []
    for kind in KINDS:
        ratios = [one.ratio for which, one in pairs if which == kind and one]
        if ratios:
            ahead = sum(ratio >= 1 for ratio in ratios)
            parts.append(
                f"{kind} {geometric_mean(ratios):.2f} (least {min(ratios):.2f}, most "
                f"{max(ratios):.2f}, ahead in {ahead} of {len(ratios)})"
            )
    return ", ".join(parts) if parts else "nothing to compare"


def _left_out(rows: Sequence[dict[str, Any]]) -> str:
    names = [row["name"] for row in rows if any(broken(row, kind) for kind in KINDS)]
    return f"; in no mean, PyTorch's own kernels being faster than the best peer: {', '.join(names)}" if names else ""


def means(found: dict[str, Any]) -> list[str]:
    """One line per group: geometric means of the speed-ups, the least, and what tuning gains."""
    lines, ways = [], ways_of(found)
    for group, rows in _groups(found).items():
        for way in ways:
            told = _mean([(kind, best(row, kind, way)) for row in rows for kind in KINDS if not broken(row, kind)])
            told += _left_out(rows)
            whose = f" `{way}`," if len(ways) > 1 else ""
            gain = _default_gain(rows) if way == "vitune" else ""
            lines.append(f"- group `{group}`,{whose} geometric mean over the best peer: {told}{gain}")
    return lines


def unfused_means(found: dict[str, Any]) -> list[str]:
    """The same over the best of all peers, the unfused among them, and over each unfused one alone.

    Only of operators whose unfused peers may count (Roster.counts_unfused).
    """
    lines = []
    for group, rows in _groups(found).items():
        roster = roster_of(rows[0]["problem"])
        there = [name for name in roster.unfused if any(name in row["us"] for row in rows)]
        if not roster.counts_unfused or not there:
            continue
        everyone = [name for name in roster.names if name not in OURS]
        for told, peers in (
            (f"the best peer, {' and '.join(f'`{name}`' for name in there)} counted", everyone),
            *((f"`{name}` alone", [name]) for name in there),
        ):
            pairs = [(kind, _fastest(row, kind, peers)) for row in rows for kind in KINDS]
            if any(one for _, one in pairs):
                lines.append(f"- group `{group}`, geometric mean over {told}: {_mean(pairs)}")
    return lines


def losses(found: dict[str, Any]) -> list[str]:
    """One line per problem and kind in which a peer that counts is faster, the worst first."""
    ways = ways_of(found)
    slower = [
        (one.ratio, row, kind, one, f" `{way}`" if len(ways) > 1 else "")
        for row in found["rows"]
        for way in ways
        for kind in KINDS
        if (one := best(row, kind, way)) and one.ratio < 1
    ]
    return [
        f"- {row['name']}, {kind}:{whose} {one.vitune:.1f} µs, {one.peer} {one.us:.1f} µs ({ratio:.3f})"
        for ratio, row, kind, one, whose in sorted(slower, key=lambda item: item[0])
    ]


def not_compared(found: dict[str, Any]) -> list[str]:
    """Rows in which vitune has no time, and what was not measured at all."""
    lines = []
    for row in found["rows"]:
        for way in ways_of(found):
            if "cold" not in row["us"].get(way, {}):
                why = row["failed"].get(way) or row["refused"].get(way) or "not asked for"
                lines.append(f"- {row['name']}: {way} has no result: {why}")
    lines += [f"- {name}: not measured, the time was over" for name in found["unfinished"]]
    return lines
