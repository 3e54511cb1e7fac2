# benchmarks/report/first_calls.py -- What a program waits for before its first result.
# SPDX-License-Identifier: Apache-2.0
"""Host times of fresh processes (benchmarks/peers --first-calls), and of the library alone (bench_cold_start)."""

from __future__ import annotations

from typing import Any

from . import documents
from .page import Section, Table
from .palette import paint
from .picture import Canvas, Picture, logarithmic, ticks_between
from .times import label

_STEPS = (("first", "first call", "ours", "s"), ("next_problem", "first call of another problem", "peer", "D"),
          ("second", "second call", "plain", "o"))


def milliseconds(us: float) -> str:
    """A time of any size."""
    return f"{us:.3g} µs" if us < 1000 else f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def _peers(document: dict[str, Any]) -> dict[str, dict[str, float]]:
    found = {}
    for peer in list(us := documents.members(document, document, "us"))[:64]:
        steps = documents.members(document, us, peer)
        found[label(peer)] = {name: value for name in ("import_torch", "cuda_context", "first", "second", "later",
                                                       "next_problem")
                              if (value := documents.positive(document, steps, name))}
    return found


def _draw(canvas: Canvas, peers: dict[str, dict[str, float]]) -> None:
    axes = canvas.axes(124, 16, 28 if not canvas.narrow else 54, 42)
    axes.set_xscale("log")
    values = [peers[peer][step[0]] for peer in peers for step in _STEPS if step[0] in peers[peer]]
    x = min(values) / 1.5, max(values) * 1.5
    axes.set_xlim(*x)
    axes.set_ylim(len(peers) - 0.5, -0.5)
    axes.grid(axis="x")
    for place, (peer, steps) in enumerate(peers.items()):
        for step, what, colour, mark in _STEPS:
            if step in steps:
                axes.plot([steps[step]], [place], mark, markersize=7, color=paint(colour),
                          gid=canvas.tip(peer, f"{what}: {milliseconds(steps[step])}"))
    axes.set_yticks(range(len(peers)), list(peers), color=paint("ink"))
    axes.tick_params(axis="y", length=0)
    logarithmic(axes.xaxis, ticks_between(*x, steps=(1,)))
    axes.set_xlabel("host time, µs")
    at, line = 0, 0
    for _, what, colour, mark in _STEPS:
        sign = {"s": "■", "D": "◆", "o": "●"}[mark]
        x0, y0 = (124 + at, 10) if not canvas.narrow else (20, 10 + 15 * line)
        canvas.figure.text(x0 / canvas.width, 1 - y0 / canvas.height, f"{sign} {what}", color=paint(colour), va="center")
        at, line = at + 30 + 7 * len(what), line + 1


def _library(document: dict[str, Any]) -> Table:
    rows = []
    for entry in documents.rows(document, "benchmarks"):
        name, time = documents.text(entry, "name").split("/")[0], documents.positive(document, entry, "real_time")
        scale = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}.get(documents.text(entry, "time_unit"))
        if time and scale and not name.startswith("peak_memory") and entry.get("run_type") != "aggregate":
            rows.append([name.replace("_", " "), milliseconds(time * scale)])
    return Table(f"The library alone (bench_cold_start, {documents.day(document)})", ["step", "time"], rows)


def section(calls: dict[str, Any] | None, cold_start: dict[str, Any] | None, source: str) -> Section | None:
    """None where neither was measured."""
    peers = {peer: steps for peer, steps in _peers(calls).items() if steps} if calls else {}
    tables = []
    if peers:
        steps = ("import_torch", "cuda_context", "first", "second", "later", "next_problem")
        tables.append(Table("", ["peer", *(step.replace("_", " ") for step in steps)],
                            [[peer, *(milliseconds(found[s]) if s in found else "–" for s in steps)]
                             for peer, found in peers.items()]))
    if cold_start:
        tables.append(_library(cold_start))
    if not tables:
        return None
    drawn = {peer: found for peer, found in peers.items() if any(step[0] in found for step in _STEPS)}
    height = 78 + 26 * len(drawn)
    pictures = [Picture("first-calls", "", "Host time of first and later calls. The numbers are in the table below.",
                        lambda canvas: _draw(canvas, drawn), (820, height), (340, height + 26))] if drawn else []
    return Section("first-calls", "First calls", "Host time on a logarithmic scale, each peer in processes of its own, "
                   "through PyTorch; importing PyTorch and making the CUDA context are in the table only.",
                   source, pictures, tables)
