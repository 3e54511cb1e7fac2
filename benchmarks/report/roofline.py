# benchmarks/report/roofline.py -- Throughput against operations per byte, under measured ceilings.
# SPDX-License-Identifier: Apache-2.0
"""And how near each problem is to its floor, whose figures are told apart from the ceilings."""

from __future__ import annotations

from typing import Any

from . import documents
from .page import Section, Table
from .palette import paint
from .picture import Canvas, Picture, logarithmic, ticks_between
from .speed_up import microseconds
from .times import Row, Times, label

FLOOR = "the larger of operations over 790 TFLOP/s and least traffic over 4.3 TB/s"


def ceilings(document: dict[str, Any] | None) -> dict[str, float]:
    """"tensor" in TFLOP/s, "hbm" and "l2" in TB/s, as far as they were measured."""
    if document is None:
        return {}
    measured = documents.members(document, document, "measured")
    median = {name: documents.positive(document, documents.members(document, measured, name), "median")
              for name in list(measured)[:100]}
    sources = {"hbm": ("hbm_copy_tb_s", "hbm_read_tb_s"), "l2": ("l2_read_tb_s",),
               "tensor": ("wgmma_tflops", "mma_tflops")}
    best = {name: max((median.get(key) or 0 for key in keys)) for name, keys in sources.items()}
    return {name: rate for name, rate in best.items() if rate}


def _tflops(row: Row, us: float) -> float:
    return row.problem.flops / us * 1e-6


def _roof(canvas: Canvas, axes: Any, roof: dict[str, float], x: tuple[float, float], y: tuple[float, float]) -> None:
    top = roof.get("tensor", y[1])
    for name, style in (("hbm", "-"), ("l2", "--")):
        if name in roof:
            end = min(top / roof[name], x[1])
            axes.plot([x[0], end], [roof[name] * x[0], roof[name] * end], style, color=paint("axis"), linewidth=1.2)
    if "tensor" in roof:
        start = top / max(roof.get("hbm", 0), roof.get("l2", 0), top / x[1])
        axes.plot([start, x[1]], [top, top], color=paint("axis"), linewidth=1.2)
    words = [text for name, text in (("tensor", "tensor cores {:.0f} TFLOP/s"), ("hbm", "— HBM {:.2f} TB/s"),
                                     ("l2", "- - L2 {:.2f} TB/s")) if name in roof for text in [text.format(roof[name])]]
    canvas.figure.text(62 / canvas.width, 1 - 10 / canvas.height, words[0] if words else "", fontsize=10,
                       color=paint("muted"), va="center")
    canvas.figure.text(62 / canvas.width, 1 - 24 / canvas.height, "   ".join(words[1:]), fontsize=10,
                       color=paint("muted"), va="center")


def _range(values: list[float], by: float) -> tuple[float, float]:
    return min(values) / by, max(values) * by


def _extremes(rows: list[Row]) -> list[Row]:
    """The rows that are named: the fastest, the slowest, least and most operations per byte."""
    rate = lambda row: _tflops(row, row.ours("cold"))  # noqa: E731
    named = [max(rows, key=rate), min(rows, key=rate)]
    for candidate in (min(rows, key=lambda row: row.problem.intensity), max(rows, key=lambda row: row.problem.intensity)):
        if candidate not in named:
            named.append(candidate)
    return named


def _draw_roof(canvas: Canvas, rows: list[Row], roof: dict[str, float]) -> None:
    axes = canvas.axes(56, 16, 38, 42)
    x = _range([row.problem.intensity for row in rows], 2.5)
    rates = [_tflops(row, us) for row in rows for us in (row.ours("cold"), (row.best("cold") or (0, 0))[1]) if us]
    y = _range(rates + ([roof["tensor"]] if "tensor" in roof else []), 1.6)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.grid()
    _roof(canvas, axes, roof, x, y)
    for row in rows:
        here, ours, best = row.problem.intensity, _tflops(row, row.ours("cold")), row.best("cold")
        tip = [row.marked, f"{here:.0f} operations per byte", f"vitune {ours:.0f} TFLOP/s"]
        if best:
            tip.append(f"{label(best[0])} {_tflops(row, best[1]):.0f} TFLOP/s")
            axes.plot([here], [_tflops(row, best[1])], "D", markersize=4.5, color=paint("peer"), gid=canvas.tip(*tip))
        axes.plot([here], [ours], "o", markersize=6, color=paint("ours"), gid=canvas.tip(*tip))
    _name_extremes(axes, rows, x)
    logarithmic(axes.xaxis, ticks_between(*x))
    logarithmic(axes.yaxis, ticks_between(*y))
    axes.set_xlabel("operations per byte of least traffic")
    axes.set_ylabel("TFLOP/s, cold")


def _name_extremes(axes: Any, rows: list[Row], x: tuple[float, float]) -> None:
    placed: list[tuple[float, float]] = []
    for row in _extremes(rows):
        here, rate = row.problem.intensity, _tflops(row, row.ours("cold"))
        if any(abs(1 - rate / other) < 0.25 for _, other in placed):
            continue
        placed.append((here, rate))
        right = here > (x[0] * x[1]) ** 0.5
        axes.annotate(row.name[:22], (here, rate), xytext=(-8 if right else 8, -3), textcoords="offset points",
                      ha="right" if right else "left", va="top", fontsize=9, color=paint("ink"))


def _draw_floor(canvas: Canvas, rows: list[Row]) -> None:
    axes = canvas.axes(56, 16, 38, 42)
    drawn = [(row, row.ours("cold") / row.floor_us, row.best("cold")) for row in rows]
    x = _range([row.floor_us for row, _, _ in drawn], 2)
    y = (1, max([share for _, share, _ in drawn] + [b[1] / row.floor_us for row, _, b in drawn if b]) * 1.3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*x)
    axes.set_ylim(0.9, y[1])
    axes.grid()
    axes.axhline(1, color=paint("ink"), linewidth=1)
    for row, share, best in drawn:
        tip = [row.marked, f"vitune {microseconds(row.ours('cold'))} µs: {share:.2f} times the floor"]
        if best:
            tip.append(f"{label(best[0])} {microseconds(best[1])} µs: {best[1] / row.floor_us:.2f} times")
            axes.plot([row.floor_us], [best[1] / row.floor_us], "D", markersize=4.5, color=paint("peer"),
                      gid=canvas.tip(*tip))
        axes.plot([row.floor_us], [share], "o", markersize=6, color=paint("ours"), gid=canvas.tip(*tip))
    logarithmic(axes.xaxis, ticks_between(*x))
    logarithmic(axes.yaxis, ticks_between(0.9, y[1]))
    axes.set_xlabel("floor of the problem, µs")
    axes.set_ylabel("cold time over the floor")
    canvas.figure.text(62 / canvas.width, 1 - 24 / canvas.height, "● vitune", color=paint("ours"), va="center")
    canvas.figure.text(132 / canvas.width, 1 - 24 / canvas.height, "◆ best peer", color=paint("peer"), va="center")


def _rates(rows: list[Row], roof: dict[str, float]) -> Table:
    head = ["problem", "best peer", "operations per byte", "vitune µs", "TFLOP/s", "TB/s", "peer TFLOP/s", "of floor"]
    cells = []
    for row in rows:
        us, best = row.ours("cold"), row.best("cold")
        share = f"{100 * row.floor_us / us:.0f} %" if row.floor_us else "–"
        cells.append([row.marked, label(best[0]) if best else "–", f"{row.problem.intensity:.0f}", microseconds(us),
                      f"{_tflops(row, us):.0f}", f"{row.problem.bytes / us * 1e-6:.2f}",
                      f"{_tflops(row, best[1]):.0f}" if best else "–", share])
    return Table("Cold calls", head, cells, 2)


def section(times: Times, document: dict[str, Any] | None, source: str) -> Section | None:
    """None where no problem is attention with a cold time."""
    rows = [row for row in times.rows if row.problem and row.ours("cold")]
    if not rows:
        return None
    roof = ceilings(document)
    size, narrow = (545, 360), (340, 330)
    pictures = [Picture("roofline", "Under the ceilings" if roof else "Throughput", f"Throughput, problems: {len(rows)}. The numbers are in the "
                        "table below.", lambda canvas: _draw_roof(canvas, rows, roof), size, narrow)]
    floors = [row for row in rows if row.floor_us]
    if floors:
        pictures.append(Picture("floor", "Over the floor", f"Cold time over the floor, problems: {len(floors)}. The "
                                "numbers are in the table below.", lambda canvas: _draw_floor(canvas, floors), size, narrow))
    caption = "Dots: vitune; diamonds: the best peer of the problem. "
    caption += "Ceilings are the rates measured by 'vitune devices --measure'. " if roof else (
        "No ceilings: 'vitune devices --measure --json' measures them. ")
    caption += f"The floor, of which shares are taken everywhere, is another figure: {FLOOR}."
    notes = []
    if document is not None and documents.day(document):
        notes.append(f"Ceilings of {documents.device_name(document)}, {documents.day(document)}.")
    return Section("roofline", "How near to the hardware", caption, source, pictures, [_rates(rows, roof)], notes)

