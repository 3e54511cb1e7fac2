# benchmarks/train_models/document.py -- The JSON of a run: what is in it, what is still to be done.
# SPDX-License-Identifier: Apache-2.0
"""A row is {model, batch, params, mode, ms: {way: {ms, low, high}}, peak_gb: {way}, kinds_us: {way: {kind}}} and what else is known
of it: failed, gain, eager_gain, floor_us, compile_s, sdpa, loss, gradient_norm, replaced, rounds, host_ms, idle_ms, in_a_row. Those of
`searches` have compile_max among few ways."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from models import document as of_models
from models.document import BadDocument, write

from .roster import Task

__all__ = ["BadDocument", "add", "done", "failed", "merged", "new", "new_row", "ours_failed", "read", "write"]

COMMAND = "train_models"
_LISTS = ("rows", "searches", "losses", "unfinished")
_LIST_OF = {"searched": "searches", "losses": "losses"}  # by the kind of a task; else rows
_ROW = {"model": str, "batch": int, "params": str, "mode": str, "ms": dict, "peak_gb": dict, "kinds_us": dict, "failed": dict}
DROP_IN = "vitune_eager"  #: the way that is measured beside the eager step alone too
_OF_WAYS = ("ms", "peak_gb", "host_ms", "idle_ms", "in_a_row")


def new(device: dict[str, Any], versions: dict[str, Any], date: str, method: dict[str, str]) -> dict[str, Any]:
    """Without rows. date: ISO 8601, UTC."""
    return of_models.new(device, versions, date, method, COMMAND, _LISTS)


def read(path: pathlib.Path) -> dict[str, Any]:
    """Raises BadDocument."""
    found = of_models.read(path, COMMAND, _LISTS)
    for number, row in enumerate([*found["rows"], *found["searches"]]):
        wrong = [name for name, kind in _ROW.items() if not isinstance(row, dict) or not isinstance(row.get(name), kind)]
        if wrong:
            raise BadDocument(f"{path}: row {number}: {', '.join(wrong)} missing or of another type")
    return found


def new_row(mode: str) -> dict[str, Any]:
    """Without its name, and without figures."""
    return {"mode": mode, "ms": {}, "peak_gb": {}, "kinds_us": {}, "failed": {}}


def add(document: dict[str, Any], task: Task, rows: list[dict[str, Any]]) -> None:
    """What a task gave, under its name. The eager step alone goes into the row that is there."""
    name: dict[str, Any] = {"model": task.model, "batch": task.batch}
    if task.kind != "losses":
        name["params"] = task.params
    list_ = _list_of(task)
    rows = [name | row for row in rows]
    if task.kind == "eager":
        document[list_], rows = _with_eager(document[list_], rows)
    else:
        document[list_] = [row for row in document[list_] if _name_of(row) != _of(task) or not _is_eager(row)]
    document[list_] += rows


def failed(task: Task, reason: str) -> dict[str, Any]:
    """The row of a task that gave nothing."""
    return {"failed": {"": reason}} if task.kind == "losses" else new_row("called") | {"failed": {"": reason}}


def done(document: dict[str, Any], task: Task) -> bool:
    """Whether it is in there, failed or not."""
    wanted = _of(task)
    found = [row for row in document[_list_of(task)] if _name_of(row) == wanted]
    if task.kind == "eager":
        return any(DROP_IN in row["ms"] or DROP_IN in row["failed"] for row in found)
    return any(not _is_eager(row) for row in found)


def merged(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One of several runs on alike machines: of what more than one measured, the last one's rows. The eager step alone goes into the row
    that is there. Tries of what did not end count on. Raises BadDocument."""
    tries = {name: count for document in documents for name, count in document["tries"].items()}
    result = dict(documents[0], at_work=None, tries=tries, unfinished=[])
    for other in documents[1:]:
        of_models.alike(result, other)
        for name in ("rows", "searches", "losses"):
            result[name], more = _with_eager(result[name], other[name])
            again = {_name_of(row) for row in more}
            result[name] = [row for row in result[name] if _name_of(row) not in again] + more
        result["date"] = max(result["date"], other["date"])
    return result


def _is_eager(row: dict[str, Any]) -> bool:
    """Whether it has nothing but the eager step, without and with the drop-in."""
    return DROP_IN in row.get("ms", {}) and "compile_default" not in row["ms"]


def _with_eager(rows: list[dict[str, Any]], more: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows with the drop-in's figures of those in `more` that have the eager step alone, and the rest of `more`."""
    eager = {(_name_of(row), row["mode"]): row for row in more if _is_eager(row)}
    there = {(_name_of(row), row["mode"]) for row in rows if "mode" in row} & eager.keys()
    rest = [row for row in more if not _is_eager(row) or (_name_of(row), row["mode"]) not in there]
    return [_joined(row, eager.get((_name_of(row), row.get("mode")))) for row in rows], rest


def _joined(row: dict[str, Any], eager: dict[str, Any] | None) -> dict[str, Any]:
    """Its gain is over the eager step of its own run."""
    if eager is None:
        return row
    figures = {name: row.get(name, {}) | {DROP_IN: eager[name][DROP_IN]} for name in _OF_WAYS if DROP_IN in eager.get(name, {})}
    return row | figures | {name: eager[name] for name in ("eager_gain",) if name in eager}


def ours_failed(document: dict[str, Any]) -> list[str]:
    """The rows in which vitune failed and PyTorch, compiled alike, did not."""
    return [
        f"{row['model']} b{row['batch']} {row['params']} {row['mode']}"
        for row in [*document["rows"], *document["searches"]]
        if any(way.startswith("vitune") for way in row["failed"]) and "compile_default" in row["ms"]
    ]


def _list_of(task: Task) -> str:
    return _LIST_OF.get(task.kind, "rows")


def _of(task: Task) -> tuple[str, int, str | None]:
    """The name of its rows."""
    return task.model, task.batch, None if task.kind == "losses" else task.params


def _name_of(row: dict[str, Any]) -> tuple[str, int, str | None]:
    """What it is a row of."""
    return row["model"], row["batch"], row.get("params")
