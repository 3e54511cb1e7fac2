# benchmarks/report/lengths.py -- Time and peak memory of long inputs beside unfused PyTorch.
# SPDX-License-Identifier: Apache-2.0
"""Plain self-attention of one batch and head size; left out below three lengths."""

from __future__ import annotations

from collections.abc import Callable

from .page import Section, Table
from .palette import paint
from .picture import Canvas, Picture, logarithmic, ticks_between
from .speed_up import microseconds
from .times import Row, Times, label

_PEERS = (("vitune", "ours", "o"), ("compiled", "compiled", "D"), ("eager", "plain", "X"))
_ENOUGH = 3
Figure = Callable[[Row, str], "float | None"]


def _time(row: Row, peer: str) -> float | None:
    return row.us.get(peer, {}).get("cold")


def _memory(row: Row, peer: str) -> float | None:
    size = row.memory.get(peer)
    return size / 1e6 if size else None


def _chosen(times: Times) -> list[Row]:
    groups: dict[tuple[int, int, int], list[Row]] = {}
    for row in times.rows:
        problem = row.problem
        if problem and problem.plain and problem.nq == problem.nk >= 256 and _time(row, "vitune"):
            groups.setdefault((problem.batch, problem.heads, problem.d), []).append(row)
    best = max(groups.values(), key=len, default=[])
    return sorted(best, key=lambda row: row.problem.nq) if len(best) >= _ENOUGH else []


def _draw(canvas: Canvas, rows: list[Row], figure: Figure, unit: str) -> None:
    axes = canvas.axes(64, 16, 28, 42)
    axes.set_xscale("log")
    axes.set_yscale("log")
    values, at = [], 0
    for peer, colour, mark in _PEERS:
        points = [(row.problem.nq, value, row) for row in rows if (value := figure(row, peer))]
        if not points:
            continue
        axes.plot([p[0] for p in points], [p[1] for p in points], color=paint(colour), linewidth=1.5)
        for tokens, value, row in points:
            values.append(value)
            axes.plot([tokens], [value], mark, markersize=6, color=paint(colour),
                      gid=canvas.tip(row.name, f"{label(peer)}: {value:.4g} {unit}"))
        canvas.figure.text((64 + at) / canvas.width, 1 - 10 / canvas.height, label(peer), color=paint(colour), va="center")
        at += 12 + 7 * len(label(peer))
    tokens = [row.problem.nq for row in rows]
    axes.set_xlim(min(tokens) / 1.2, max(tokens) * 1.2)
    axes.set_ylim(min(values) / 2, max(values) * 2)
    axes.grid()
    shown = tokens if not canvas.narrow else tokens[::2]
    logarithmic(axes.xaxis, shown)
    logarithmic(axes.yaxis, ticks_between(min(values) / 2, max(values) * 2))
    axes.set_xlabel("tokens")
    axes.set_ylabel(unit)


def section(times: Times, source: str) -> Section | None:
    """None where there are not three lengths of one shape."""
    rows = _chosen(times)
    if not rows:
        return None
    says = "against tokens. The numbers are in the table below."
    pictures = [Picture("lengths-latency", "Time of a call, cold", f"Time {says}",
                        lambda canvas: _draw(canvas, rows, _time, "µs"), (545, 300), (340, 290))]
    if any(_memory(row, "vitune") for row in rows):
        pictures.append(Picture("lengths-memory", "Peak memory of a call", f"Memory {says}",
                                lambda canvas: _draw(canvas, rows, _memory, "MB"), (545, 300), (340, 290)))
    peers = [peer for peer, _, _ in _PEERS if any(_time(row, peer) for row in rows)]
    head = ["problem", *(f"{label(peer)}, µs" for peer in peers), *(f"{label(peer)}, MB" for peer in peers)]
    cells = [[row.marked, *(microseconds(_time(row, peer)) for peer in peers),
              *(f"{size:.1f}" if (size := _memory(row, peer)) else "–" for peer in peers)] for row in rows]
    problem = rows[0].problem
    caption = (f"Plain self-attention of batch {problem.batch}, {problem.heads} heads of {problem.d}. Memory is the "
               "allocator's peak during a call, the output included, the inputs not.")
    return Section("lengths", "Long inputs", caption, source, pictures, [Table("", head, cells)])
