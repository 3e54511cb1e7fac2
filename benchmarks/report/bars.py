# benchmarks/report/bars.py -- Ratios as bars around 1, a second kind as rings, a word at the right.
# SPDX-License-Identifier: Apache-2.0
"""One form for models and for problems: right of the line vitune is faster."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from .palette import paint
from .picture import Canvas, logarithmic, ticks_between

_ROW, _NARROW_ROW, _TOP, _BOTTOM = 15, 28, 26, 34


@dataclasses.dataclass
class Bar:
    """A row."""

    name: str
    bar: float | None
    ring: float | None
    bar_word: str  #: at the right: what the bar is over, say
    tip: tuple[str, ...]


def sizes(count: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of a picture of so many rows: wide, and narrow with names above their bars."""
    return (1100, _TOP + _BOTTOM + _ROW * count), (340, _TOP + _BOTTOM + _NARROW_ROW * count)


def _shown(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _legend(canvas: Canvas, kinds: tuple[str, str], left: float) -> None:
    y = 1 - 10 / canvas.height
    for number, (mark, kind) in enumerate(zip("so", kinds)):
        x = (left + number * 90) / canvas.width
        line = canvas.figure.add_artist(_marker(mark, x, y))
        line.set_transform(canvas.figure.transFigure)
        canvas.figure.text(x + 9 / canvas.width, y, kind, va="center")


def _marker(mark: str, x: float, y: float) -> Line2D:
    face = paint("ours") if mark == "s" else paint("surface")
    return Line2D([x], [y], marker=mark, markersize=7, color=paint("ours" if mark == "s" else "ink"),
                  markerfacecolor=face, linestyle="none")


def _name(axes: Axes, bars: Sequence[Bar], narrow: bool) -> None:
    names = [_shown(bar.name, 50 if narrow else 36) for bar in bars]
    axes.set_yticks(range(len(bars)), [""] * len(bars) if narrow else names, fontsize=10, color=paint("ink"))
    for place, name in enumerate(names if narrow else []):
        axes.annotate(name, (0, place), xycoords=("axes fraction", "data"), xytext=(3, 12),
                      textcoords="offset points", va="center", fontsize=10, annotation_clip=False,
                      bbox={"facecolor": paint("surface"), "edgecolor": "none", "pad": 0.5})


def draw(canvas: Canvas, bars: Sequence[Bar], kinds: tuple[str, str], axis: str, word_head: str) -> None:
    """bars: from the top down."""
    left, right = (12, 124) if canvas.narrow else (230, 250)
    axes = canvas.axes(left, right, _TOP, _BOTTOM)
    values = [value for bar in bars for value in (bar.bar, bar.ring) if value]
    low, high = min([1, *values]) * 0.97, max([1.05, *values]) * 1.05
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(len(bars) - 0.4, -0.7)
    axes.grid(axis="x")
    axes.axvline(1, color=paint("ink"), linewidth=1)
    for place, bar in enumerate(bars):
        tip = canvas.tip(bar.name, *bar.tip)
        if bar.bar:
            colour = paint("ours" if bar.bar >= 1 else "loss")
            drawn = axes.barh(place, bar.bar - 1, left=1, height=0.34 if canvas.narrow else 0.64, color=colour)
            drawn[0].set_gid(tip)
        if bar.ring:
            ring_tip = canvas.tip(bar.name, *bar.tip)
            axes.plot([bar.ring], [place], "o", markersize=6, markerfacecolor=paint("surface"),
                      color=paint("ink"), gid=ring_tip)
        axes.annotate(_shown(bar.bar_word, 20 if canvas.narrow else 38), (1, place),
                      xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points", va="center",
                      color=paint("muted"), fontsize=10, annotation_clip=False)
    _name(axes, bars, canvas.narrow)
    axes.tick_params(axis="y", length=0)
    spread = (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000) if high > 1.7 else (0.9, 0.95, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
    ticks = [tick for tick in (0.1, 0.2, 0.5, *spread) if low <= tick <= high]
    logarithmic(axes.xaxis, ticks or ticks_between(low, high))
    axes.set_xlabel(axis)
    _legend(canvas, kinds, left)
    canvas.figure.text(1 - (right - 8) / canvas.width, 1 - 10 / canvas.height, word_head, va="center",
                       color=paint("muted"), fontsize=10)
