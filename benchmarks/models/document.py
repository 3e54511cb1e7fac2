# benchmarks/models/document.py -- The JSON of a run: what is in it, what is still to be done.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from peers.engine.document import BadDocument, write

from . import baseline
from .roster import Task

__all__ = ["BadDocument", "add", "alike", "done", "failed", "merged", "new", "ours_failed", "read", "write"]

SCHEMA = 1
_LISTS = ("rows", "plain", "calls", "unfinished")


def new(device: dict[str, Any], versions: dict[str, Any], date: str, method: dict, command: str = "models",
        lists: Sequence[str] = _LISTS) -> dict[str, Any]:
    """Without rows. date: ISO 8601, UTC. command: who writes it; lists: the names of its lists."""
    head = {"schema": SCHEMA, "command": command, "device": device, "versions": versions}
    return head | {"date": date, "method": method, **{name: [] for name in lists}, "at_work": None, "tries": {}}


def read(path: pathlib.Path, command: str = "models", lists: Sequence[str] = _LISTS) -> dict[str, Any]:
    """Of that command, with these lists. Raises BadDocument."""
    try:
        found = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as reason:
        raise BadDocument(f"cannot read {path}: {reason}") from None
    if not isinstance(found, dict) or (found.get("schema"), found.get("command")) != (SCHEMA, command):
        raise BadDocument(f"{path} is no result of benchmarks/{command} of schema {SCHEMA}")
    for names, kind in ((lists, list), (("device", "versions"), dict), (("date",), str)):
        missing = [name for name in names if not isinstance(found.get(name), kind)]
        if missing:
            raise BadDocument(f"{path} lacks {', '.join(missing)}")
    found.setdefault("tries", {})  # older ones
    if command == "models":
        baseline.mark(found["rows"])
    return found


def add(document: dict[str, Any], task: Task, rows: list[dict[str, Any]]) -> None:
    """What a task gave, under its name."""
    name = {"model": task.model, "batch": task.batch} if task.model else {}
    document[_list_of(task)] += [name | row for row in rows]
    baseline.mark(document["rows"])


def merged(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One of several runs on alike machines: of what more than one measured, the last one's rows. Raises BadDocument."""
    result = dict(documents[0], at_work=None, tries={}, unfinished=[])
    for other in documents[1:]:
        alike(result, other)
        for name in ("rows", "plain"):
            again = {_task_of(row) for row in other[name]}
            result[name] = [row for row in result[name] if _task_of(row) not in again] + other[name]
        result["calls"] = other["calls"] or result["calls"]
        result["date"] = max(result["date"], other["date"])
    baseline.mark(result["rows"])
    return result


def alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Raises BadDocument where two are of different machines or versions, so that their rows must not stand side by side."""
    for name in ("name", "driver"):
        if other["device"].get(name) != one["device"].get(name):
            raise BadDocument(f"rows of another GPU or driver ({other['device'].get(name)}) are no part of the same document")
    if (other["versions"], other.get("ceilings")) != (one["versions"], one.get("ceilings")):
        raise BadDocument("rows of other versions are no part of the same document")


def _task_of(row: dict[str, Any]) -> tuple[str, int, bool]:
    """What it is a row of: a model at a batch, compiled or in all other modes."""
    return row["model"], row["batch"], row["mode"] == "compiled"


def failed(task: Task, reason: str) -> dict[str, Any]:
    """The row of a task that gave nothing."""
    mode = "compiled" if task.kind == "compiled" else "eager"
    return {"mode": mode, "ms": {}, "host_ms": {}, "error": {}, "failed": {"": reason}}


def _list_of(task: Task) -> str:
    """Compiled models' rows are beside those of models as they are."""
    return "rows" if task.kind == "compiled" else task.kind


def done(document: dict[str, Any], task: Task) -> bool:
    """Whether it is in there, failed or not."""
    rows = document[_list_of(task)]
    wanted = (task.model, task.batch, task.kind == "compiled")
    return bool(rows) if not task.model else any(_task_of(row) == wanted for row in rows)


def ours_failed(document: dict[str, Any]) -> list[str]:
    """The rows in which vitune failed and PyTorch did not."""
    return [
        f"{row['model']} b{row['batch']} {row['mode']}"
        for row in document["rows"] + document["plain"]
        if ("vitune" in row["failed"] and "torch" in row["ms"])
        or ({"vitune_compile", "runner", "runner_graph"} & row["failed"].keys() and "compile_default" in row["ms"])
    ]
