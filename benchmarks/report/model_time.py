# benchmarks/report/model_time.py -- Where the time of whole models goes, by kind of kernel, beside each kind's floor.
# SPDX-License-Identifier: Apache-2.0
"""Of benchmarks/models' document; rows that do not say it are left out."""

from __future__ import annotations

import dataclasses
from typing import Any

from matplotlib.patches import Patch

from . import documents
from .page import Table
from .palette import paint
from .picture import Canvas, Picture

#: As in benchmarks/models/kinds.py.
KINDS = ("gemm", "attention", "norm", "activation", "copies", "convolution", "other")
_OURS = ("vitune_compile", "vitune")
_WORDS = {"torch": "PyTorch", "cudnn": "cuDNN first", "compile_default": "torch.compile", "compile_reduce": "reduce-overhead",
          "compile_max": "max-autotune", "vitune_compile": "vitune.compile"}
_MOST_ROWS = 8
_BAR, _GAP, _TOP, _BOTTOM = 13, 12, 26, 34
_NARROW_STEP = 2  # bars and their names, which stand above them


@dataclasses.dataclass
class Line:
    """One bar: microseconds of each kind that is there."""

    name: str
    us: dict[str, float]

    @property
    def all(self) -> float:
        return sum(self.us.values())


@dataclasses.dataclass
class Group:
    """A model at a batch: the way it is compared with, vitune's, and the floor."""

    name: str
    lines: list[Line]


def _us(document: dict[str, Any], holder: dict[str, Any]) -> dict[str, float]:
    found = {kind: documents.positive(document, holder, kind) for kind in KINDS}
    return {kind: us for kind, us in found.items() if us}


def _group(document: dict[str, Any], row: dict[str, Any]) -> Group | None:
    by_way = documents.members(document, row, "kinds_us")
    ours = next((way for way in _OURS if way in by_way), None)
    if ours is None:
        return None
    over = documents.text(documents.members(document, row, "gain"), "over")
    lines = [Line(_WORDS.get(way, way), _us(document, documents.members(document, by_way, way)))
             for way in (over, ours) if way in by_way]
    floor = _us(document, documents.members(document, row, "floor_us"))
    lines += [Line("floor", floor)] if floor else []
    batch, mode = documents.integer(row, "batch") or "?", documents.text(row, "mode")
    name = f"{documents.text(row, 'model')} b{batch}" + ("" if mode == "graph" else f", {mode}")
    return Group(name, [line for line in lines if line.us])


def groups(document: dict[str, Any]) -> list[Group]:
    """Those that say where their time goes."""
    found = (_group(document, row) for row in documents.rows(document, "rows"))
    return [group for group in found if group is not None and group.lines]


def _shown(document: dict[str, Any], every: list[Group]) -> list[Group]:
    """Compiled models, then batches of 32, as many as a picture takes; else the first."""
    wanted = [group for end in (", compiled", " b32") for group in every if group.name.endswith(end)]
    return (wanted or every)[:_MOST_ROWS]


def _legend(canvas: Canvas, left: float) -> None:
    handles = [Patch(facecolor=paint(f"kind-{kind}"), label=kind) for kind in KINDS]
    columns = 4 if canvas.narrow else len(KINDS)
    canvas.figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(left / canvas.width, 1), ncol=columns, fontsize=10,
                         handlelength=0.9, handleheight=0.9, columnspacing=1.0, borderaxespad=0.2)


def _draw(canvas: Canvas, shown: list[Group]) -> None:
    left, right = (8, 12) if canvas.narrow else (230, 150)
    top = _TOP + (18 if canvas.narrow else 0)
    axes = canvas.axes(left, right, top, _BOTTOM)
    place = 0.0
    step = _NARROW_STEP if canvas.narrow else 1
    for group in shown:
        whole = group.lines[0].all
        axes.annotate(group.name, (0, place - 0.75), xycoords=("axes fraction", "data"), xytext=(3, 0),
                      textcoords="offset points", va="center", fontsize=10, color=paint("ink"), annotation_clip=False)
        place += 0.5 + (step - 1)
        for line in group.lines:
            _bar(canvas, axes, place, line, whole, group.name)
            place += step
        place += 1.2
    axes.set_ylim(place - 1.2, -1.6)
    axes.set_xlim(0, max(line.all / group.lines[0].all for group in shown for line in group.lines) * 1.01)
    axes.set_yticks([])
    axes.grid(axis="x")
    axes.set_xlabel("time of kernels; the first bar of each model is 1")
    _legend(canvas, left)


def _bar(canvas: Canvas, axes: Any, place: float, line: Line, whole: float, of: str) -> None:
    began = 0.0
    for kind in KINDS:
        us = line.us.get(kind, 0.0)
        if not us:
            continue
        tip = canvas.tip(f"{of}, {line.name}", f"{kind}: {us:.4g} us of {line.all:.4g}")
        drawn = axes.barh(place, us / whole, left=began / whole, height=0.8, color=paint(f"kind-{kind}"))
        drawn[0].set_gid(tip)
        began += us
    if canvas.narrow:
        axes.annotate(f"{line.name}, {line.all / 1e3:.3g} ms", (0, place - 0.95), xycoords=("axes fraction", "data"), xytext=(3, 0),
                      textcoords="offset points", va="center", fontsize=9, color=paint("muted"), annotation_clip=False)
        return
    axes.annotate(line.name, (0, place), xycoords=("axes fraction", "data"), xytext=(-6, 0), textcoords="offset points",
                  ha="right", va="center", fontsize=10, color=paint("muted"), annotation_clip=False)
    axes.annotate(f"{line.all / 1e3:.3g} ms", (1, place), xycoords=("axes fraction", "data"), xytext=(8, 0),
                  textcoords="offset points", va="center", fontsize=10, color=paint("muted"), annotation_clip=False)


def picture(document: dict[str, Any]) -> Picture | None:
    """None where no row says where its time goes."""
    shown = _shown(document, groups(document))
    if not shown:
        return None
    bars = sum(len(group.lines) for group in shown)
    height = _TOP + _BOTTOM + bars * _BAR + len(shown) * (_BAR + _GAP)
    heading = "Where the time of a pass goes: what vitune is compared with, vitune, and the floor of each kind"
    return Picture("model-time", heading, f"Time by kind of kernel of {len(shown)} models. The numbers are in the table below.",
                   lambda canvas: _draw(canvas, shown), (1100, height),
                   (340, height + 18 + (bars + len(shown)) * _BAR * (_NARROW_STEP - 1)))


def table(document: dict[str, Any]) -> Table | None:
    """Microseconds of each kind, all rows."""
    every = groups(document)
    if not every:
        return None
    rows = [[group.name, line.name, *(f"{line.us[kind]:.4g}" if kind in line.us else "–" for kind in KINDS), f"{line.all:.4g}"]
            for group in every for line in group.lines]
    return Table("Kernels by kind, us", ["model", "way", *KINDS, "all"], rows, 2)
