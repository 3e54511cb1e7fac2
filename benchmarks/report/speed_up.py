# benchmarks/report/speed_up.py -- vitune beside the best peer of each problem, which is named.
# SPDX-License-Identifier: Apache-2.0
"""Bars are cold, rings warm."""

from __future__ import annotations

from .bars import Bar, draw, sizes
from .page import Section, Table
from .picture import Picture
from .times import KINDS, Row, Times, label


def microseconds(us: float | None) -> str:
    """A time for people."""
    return "–" if us is None else f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 1000 else f"{us:.0f}"


def _best_words(row: Row, kind: str) -> tuple[str, str, str]:
    best, ratio = row.best(kind), row.ratio(kind)
    if best is None:
        return "–", "–", "–"
    return label(best[0]), microseconds(best[1]), f"{ratio:.2f}×" if ratio else "–"


def _tip(row: Row) -> tuple[str, ...]:
    lines = []
    for kind in KINDS:
        if row.ours(kind):
            peer, us, ratio = _best_words(row, kind)
            lines.append(f"{kind}: {microseconds(row.ours(kind))} µs, {peer} {us} µs, {ratio}")
    return tuple(lines) + (("replayed",) if row.replayed else ())


def _bar(row: Row) -> Bar:
    peer, _, ratio = _best_words(row, "cold")
    return Bar(row.marked, row.ratio("cold"), row.ratio("warm"), f"{ratio} {peer}", _tip(row))


def table(times: Times) -> Table:
    """A row per problem."""
    head = ["problem", *(cell for kind in KINDS for cell in
                         (f"vitune {kind}, µs", f"best peer, {kind}", "its µs", "speed-up"))]
    rows = [[row.marked, *(cell for kind in KINDS for cell in (microseconds(row.ours(kind)), *_best_words(row, kind)))]
            for row in times.rows]
    return Table("", head, rows)


def tiles(times: Times) -> list[tuple[str, str]]:
    """Means and counts; a word where the times are replayed."""
    from .times import geometric_mean

    found = []
    for whose, rows in times.by_layer():
        of_whom = (f", {whose}" if whose else "") + _replayed_words(rows)
        for kind in KINDS:
            ratios = [ratio for row in rows if (ratio := row.ratio(kind)) is not None]
            if not ratios:
                continue
            if len(ratios) > 1:
                found.append((f"{geometric_mean(ratios):.2f}×", f"attention over the best peer, {kind}, geometric mean{of_whom}"))
            ahead = sum(ratio >= 1 for ratio in ratios)
            found.append((f"{ahead} of {len(ratios)}", f"problems faster than the best peer, {kind}{of_whom}"))
        if not any(row.ratio(kind) for row in rows for kind in KINDS):
            found.append((str(len(rows)), f"problems with a tuned kernel{of_whom}"))
    return found


def _replayed_words(rows: list[Row]) -> str:
    """Nothing, ", replayed", or how many of them."""
    count = sum(row.replayed for row in rows)
    return "" if not count else ", replayed" if count == len(rows) else f", {count} of them replayed"


def norms(runs: list[tuple[Times, str]]) -> Section | None:
    """Sentences and tables, no picture: a page has one of bars for each thing that a reader came for."""
    from .times import geometric_mean

    notes = []
    for times, source in runs:
        for operator in dict.fromkeys(row.text.split(" ", 1)[0] for row in times.rows):
            rows = [row for row in times.rows if row.text.split(" ", 1)[0] == operator]
            found = {kind: [ratio for row in rows if (ratio := row.ratio(kind)) is not None] for kind in KINDS}
            means = [f"{kind} {geometric_mean(ratios):.2f}×, ahead in {sum(ratio >= 1 for ratio in ratios)} of {len(ratios)}"
                     for kind, ratios in found.items() if ratios]
            notes.append(f"{operator}: {'; '.join(means) or 'no peer was measured'}. {source}")
    if not notes:
        return None
    return Section("norms", "Norms beside the best peer",
                   "Time of the fastest other implementation over vitune's, geometric means: cold is with nothing in L2 "
                   "before the call, warm called again and again.", "", tables=[table(times) for times, _ in runs],
                   notes=notes)


def section(times: Times, source: str) -> Section:
    """The picture is left out where no peer has a time."""
    rows = sorted((row for row in times.rows if row.ratio("cold") or row.ratio("warm")),
                  key=lambda row: -(row.ratio("cold") or row.ratio("warm") or 0))
    if not rows:
        return Section("speed-up", "Attention, problem by problem",
                       "No time of another implementation is stored for these problems; 'make peers' measures some.",
                       source, tables=[table(times)])
    bars = [_bar(row) for row in rows]
    drawn = Picture("speed-up", "", f"Time of the best peer over that of vitune, {len(bars)} problems sorted by the cold "
                    "ratio. The numbers are in the table below.",
                    lambda canvas: draw(canvas, bars, KINDS, "time of the best peer over vitune's", "cold, best peer"),
                    *sizes(len(bars)))
    slower = sum((row.ratio(kind) or 1) < 1 for row in rows for kind in KINDS)
    caption = "Time of the fastest other fused kernel, named at the right, over vitune's. Bars: nothing in L2 before the "
    caption += "call (cold); rings: called again and again (warm). Right of the line vitune is faster."
    caption += " Orange: vitune is slower." if slower else ""
    notes = []
    if times.stored_peers:
        notes.append(f"The peers' times are stored ones of another run ({times.peers_from or 'of an NVIDIA H200'}), so small differences "
                     "mean nothing; 'make peers' measures all side by side.")
    if times.absent:
        notes.append(f"Not among the peers of this run: {', '.join(times.absent)}.")
    without = [row.name for row in times.rows if row not in rows]
    if without:
        notes.append(f"{len(without)} of the problems have no time of a peer: the table has them.")
    return Section("speed-up", "Attention beside the best peer", caption, source, [drawn], [table(times)], notes)
