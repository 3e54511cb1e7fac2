# benchmarks/report/training.py -- Training steps: what a user gains per step.
# SPDX-License-Identifier: Apache-2.0
"""Of benchmarks/train_models' document, whose words docs/training.md explains."""

from __future__ import annotations

from typing import Any

from . import documents
from .bars import Bar, draw, sizes
from .models import gain_of, interval, milliseconds
from .page import Section, Table
from .picture import Picture
from .times import geometric_mean

MODES = ("called", "graph")
_WAYS = ("eager", "compile_default", "compile_reduce", "compile_max", "compile_step_graph", "vitune_compile", "vitune_compile_training", "vitune_train_step")


def _name(row: dict[str, Any]) -> str:
    params = documents.text(row, "params")
    return f"{documents.text(row, 'model')} b{documents.integer(row, 'batch') or '?'}{'' if params == 'amp' else f', {params}'}"


def _by_name(document: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in documents.rows(document, "rows"):
        found.setdefault(_name(row), {})[documents.text(row, "mode")] = row
    return found


def _bar(document: dict[str, Any], name: str, modes: dict[str, dict[str, Any]]) -> Bar:
    gains = {mode: gain_of(document, modes.get(mode, {})) for mode in MODES}
    called, graph = (gains[mode].get("times") for mode in MODES)
    over = documents.text(documents.members(document, modes.get("called", {}), "gain"), "over")
    tip = tuple(f"{mode}: {interval(gain)}" for mode, gain in gains.items() if gain)
    return Bar(name, called, graph, f"{called:.2f}× {over}" if called else over, tip)


def tiles(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Geometric means."""
    found = []
    for mode, what in (("called", "training steps as called"), ("graph", "training steps as CUDA graphs")):
        gains = [gain["times"] for row in documents.rows(document, "rows")
                 if documents.text(row, "mode") == mode and (gain := gain_of(document, row))]
        if gains:
            found.append((f"{geometric_mean(gains):.2f}×", f"{what}: geometric mean over {len(gains)}"))
    return found


def section(document: dict[str, Any], source: str) -> Section | None:
    """None where nothing was measured; without a picture where no model has a gain."""
    by_name = _by_name(document)
    bars = [bar for bar in (_bar(document, name, modes) for name, modes in by_name.items()) if bar.bar or bar.ring]
    bars.sort(key=lambda bar: -(bar.bar or bar.ring or 0))
    rows = [(f"{name}, {mode}", modes[mode]) for name, modes in by_name.items() for mode in MODES if mode in modes]
    ways = [way for way in _WAYS if any(milliseconds(document, row, way) != "–" for _, row in rows)]
    if not ways:
        return None
    table = Table("", ["model", *(f"{way}, ms" for way in ways), "gain"],
                  [[name, *(milliseconds(document, row, way) for way in ways), interval(gain_of(document, row))] for name, row in rows])
    drawn = Picture("training", "", f"Gain of {len(bars)} models' training steps with vitune. The numbers are in the table below.",
                    lambda canvas: draw(canvas, bars, MODES, "time without over with vitune", "called, over"), *sizes(len(bars)))
    caption = "Over the best of PyTorch's ways, named at the right. Bars: called from Python; rings: one CUDA graph."
    return Section("training", "Training steps", caption, source, [drawn] if bars else [], [table], [])
