# benchmarks/report/models.py -- Whole models: what a user gains per forward pass.
# SPDX-License-Identifier: Apache-2.0
"""Of benchmarks/models' document, whose words docs/models.md explains."""

from __future__ import annotations

import math
from typing import Any

from . import documents, model_time
from .bars import Bar, draw, sizes
from .page import Section, Table
from .picture import Picture
from .times import geometric_mean

_WAYS = ("torch", "cudnn", "vitune")
_USUAL_BATCH = 32
#: As in benchmarks/models/baseline.py, whose marks the rows have.
_BROKEN, _HOST = "broken", "host"
_COMPILED = ("compile_default", "compile_reduce", "compile_max", "vitune_compile")


def _gain(document: dict[str, Any], row: dict[str, Any] | None) -> dict[str, float]:
    if row is None or "vitune" in documents.members(document, row, "failed"):
        return {}
    return gain_of(document, row)


def gain_of(document: dict[str, Any], row: dict[str, Any]) -> dict[str, float]:
    """times, low and high, as far as they are there; nothing without times."""
    found = documents.members(document, row, "gain")
    gain = {name: figure for name in ("times", "low", "high")
            if (figure := documents.positive(document, found, name))}
    return gain if "times" in gain else {}


def milliseconds(document: dict[str, Any], row: dict[str, Any] | None, way: str) -> str:
    """A cell: a way's time."""
    ways = documents.members(document, row or {}, "ms")
    found = documents.positive(document, documents.members(document, ways, way), "ms")
    return f"{found:.4g}" if found else "–"


def interval(gain: dict[str, float], mark: str = "") -> str:
    """A cell: the gain and its interval, and the mark of a row whose baseline says little."""
    return f"{gain['times']:.2f} [{gain['low']:.2f}, {gain['high']:.2f}]{f' {mark}' * bool(mark)}" if len(gain) == 3 else "–"


def _mark(row: dict[str, Any] | None) -> str:
    found = documents.text(row or {}, "baseline")
    return found if found in (_BROKEN, _HOST) else ""


def _by_model(document: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Of models as they are."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in documents.rows(document, "rows"):
        if documents.text(row, "mode") != "compiled":
            found.setdefault(_name(row), {})[documents.text(row, "mode")] = row
    return found


def _from_usual(modes: dict[str, dict[str, Any]]) -> float:
    """How far its batch is from the usual one."""
    batch = documents.integer(next(iter(modes.values())), "batch")
    return abs(math.log2(batch / _USUAL_BATCH)) if batch else math.inf


def _pictured(by_model: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """One batch of each model, the nearest to the usual one: all of them are in the table."""
    nearest: dict[str, str] = {}
    for name, modes in by_model.items():
        model = documents.text(next(iter(modes.values())), "model")
        if model not in nearest or _from_usual(modes) < _from_usual(by_model[nearest[model]]):
            nearest[model] = name
    return list(nearest.values())


def _name(row: dict[str, Any]) -> str:
    return f"{documents.text(row, 'model')} b{documents.integer(row, 'batch') or '?'}"


def _compiled(document: dict[str, Any]) -> Table | None:
    rows = [row for row in documents.rows(document, "rows") if documents.text(row, "mode") == "compiled"]
    lines = [[_name(row), *(milliseconds(document, row, way) for way in _COMPILED), interval(_gain(document, row))] for row in rows]
    head = ["model", "default, ms", "reduce-overhead, ms", "max-autotune, ms", "vitune.compile, ms", "gain"]
    return Table("Compiled", head, lines) if lines else None


def _bar(document: dict[str, Any], name: str, modes: dict[str, dict[str, Any]]) -> Bar:
    gains = {mode: {} if _mark(modes.get(mode)) == _BROKEN else _gain(document, modes.get(mode)) for mode in ("eager", "graph")}
    over = documents.text(documents.members(document, modes.get("eager", {}), "gain"), "over")
    tip = tuple(f"{mode}: {interval(gain, _mark(modes.get(mode)))}" for mode, gain in gains.items() if gain)
    eager, graph = (gains[mode].get("times") for mode in ("eager", "graph"))
    word = {"torch": "PyTorch", "cudnn": "cuDNN"}.get(over, over)
    if eager:
        word = f"{eager:.2f}× {word}"
    return Bar(name, eager, graph, word, tip)


def tiles(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Geometric means of rows whose baseline is one to compare with."""
    found = []
    for mode, what in (("eager", "models, forward pass, eager"), ("graph", "models, as CUDA graphs"), ("compiled", "models, compiled")):
        gains = [gain["times"] for row in documents.rows(document, "rows")
                 if documents.text(row, "mode") == mode and not _mark(row) and (gain := _gain(document, row))]
        if gains:
            found.append((f"{geometric_mean(gains):.2f}×", f"{what}: geometric mean over {len(gains)}"))
    return found


def _notes_of_marks(document: dict[str, Any]) -> list[str]:
    """Who is in no mean, and why."""
    marked = {mark: [row for row in documents.rows(document, "rows") if _mark(row) == mark] for mark in (_BROKEN, _HOST)}
    notes = []
    if rows := marked[_BROKEN]:
        names = dict.fromkeys(documents.text(row, "model") for row in rows)
        notes.append(f"Broken, and in no mean: graphs of {', '.join(list(names)[:8])}, where PyTorch's graph is slower than its own eager pass.")
    if rows := marked[_HOST]:
        notes.append(f"Host, and in no mean: {len(rows)} eager rows, where the GPU waits for Python (more than 1.5 times the graph's time).")
    return notes


def section(document: dict[str, Any], source: str) -> Section | None:
    """None where no model has a gain."""
    by_model = _by_model(document)
    bars = [_bar(document, name, by_model[name]) for name in _pictured(by_model)]
    bars = sorted((bar for bar in bars if bar.bar or bar.ring), key=lambda bar: -(bar.bar or bar.ring or 0))
    if not bars:
        return None
    head = ["model", *(f"{mode} {way}, ms" if way != "gain" else f"{mode} gain"
                       for mode in ("eager", "graph") for way in (*_WAYS, "gain"))]
    table = [[name, *(cell for mode in ("eager", "graph")
                      for cell in (*(milliseconds(document, modes.get(mode), way) for way in _WAYS),
                                   interval(_gain(document, modes.get(mode)), _mark(modes.get(mode)))))]
             for name, modes in by_model.items()]
    drawn = Picture("models", "", f"Gain of {len(bars)} models with vitune. The numbers are in the table below.",
                    lambda canvas: draw(canvas, bars, ("eager", "graph"), "time without over with vitune", "eager, over"),
                    *sizes(len(bars)))
    failed = [name for name, modes in by_model.items() if any(documents.members(document, row, "failed")
                                                              for row in modes.values())]
    notes = [f"Without a figure in some mode, PyTorch's ways included or not: {', '.join(failed[:8])}; docs/models.md "
             "has the reasons."] if failed else []
    notes += _notes_of_marks(document)
    caption = ("Time of a forward pass with the better of PyTorch's ways, named at the right (its own choice of kernels, or "
               "cuDNN preferred), over that with vitune's, of one batch of each model. Bars: called from Python; rings: replay of a CUDA graph. Right of the line vitune is faster.")
    pictures = [drawn, model_time.picture(document)]
    tables = [Table("", head, table), _compiled(document), model_time.table(document)]
    return Section("models", "Whole models", caption, source, [one for one in pictures if one], [one for one in tables if one],
                   notes)
