# benchmarks/peers/engine/document.py -- The JSON of a run: its schema, written row by row.
# SPDX-License-Identifier: Apache-2.0
"""A row is on disk as soon as it is measured; a reader sees whole documents only."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

SCHEMA = 1
_ROW = {
    "name": str,
    "group": str,
    "problem": str,
    "us": dict,
    "err": dict,
    "config": dict,
    "memory": dict,
    "refused": dict,
    "failed": dict,
    "flags": list,
}
_HEAD = {
    "schema": int,
    "command": str,
    "device": dict,
    "versions": dict,
    "date": str,
    "method": dict,
    "peers": list,
    "absent": dict,
    "rows": list,
    "unfinished": list,
}


class BadDocument(ValueError):
    """A file that is no result of this program."""


def new(
    device: dict[str, Any],
    versions: dict[str, Any],
    date: str,
    method: dict[str, Any],
    peers: list[str],
    **more: Any,
) -> dict[str, Any]:
    """A document without rows. date: ISO 8601, UTC."""
    return {
        "schema": SCHEMA,
        "command": "peers",
        "device": device,
        "versions": versions,
        "date": date,
        "method": method,
        "peers": peers,
        "absent": {},
        **more,
        "rows": [],
        "unfinished": [],
    }


def new_row(name: str, group: str, problem: str, floor_us: float | None) -> dict[str, Any]:
    """A row without results."""
    return {
        "name": name,
        "group": group,
        "problem": problem,
        "floor_us": floor_us,
        "us": {},
        "err": {},
        "config": {},
        "memory": {},
        "repeats": {},
        "refused": {},
        "failed": {},
        "flags": [],
    }


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def text(document: dict[str, Any]) -> str:
    """JSON with a line for each row of a list and for each member of an object: a row that changed is a line that changed."""
    members = []
    for name, value in document.items():
        if value and isinstance(value, dict):
            inside = [f"{_compact(str(key))}: {_compact(one)}" for key, one in value.items()]
        elif value and isinstance(value, list) and isinstance(value[0], (dict, list)):
            inside = list(map(_compact, value))
        else:
            members.append(f" {_compact(name)}: {_compact(value)}")
            continue
        begin, end = "{}" if isinstance(value, dict) else "[]"
        lines = ",\n  ".join(inside)
        members.append(f" {_compact(name)}: {begin}\n  {lines}\n {end}")
    joined = ",\n".join(members)
    return f"{{\n{joined}\n}}\n" if members else "{}\n"


def write(document: dict[str, Any], path: pathlib.Path) -> None:
    """Replaces the file at once: a stop in the middle leaves the earlier one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".part")
    with aside.open("w") as file:
        file.write(text(document))
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def _check(what: str, found: Any, wanted: Mapping[str, type]) -> None:
    if not isinstance(found, dict):
        raise BadDocument(f"{what} is no object")
    for key, kind in wanted.items():
        if not isinstance(found.get(key), kind):
            raise BadDocument(f"{what}: '{key}' is missing or no {kind.__name__}")


def check(document: Any, what: str = "the document") -> dict[str, Any]:
    """The document itself, if it is one of this schema. Raises BadDocument."""
    _check(what, document, _HEAD)
    if document["schema"] != SCHEMA or document["command"] != "peers":
        raise BadDocument(
            f"{what}: schema {document['schema']} of '{document['command']}', and not "
            f"{SCHEMA} of 'peers'"
        )
    for number, row in enumerate(document["rows"]):
        _check(f"{what}: row {number}", row, _ROW)
        for peer, times in row["us"].items():
            for kind in ("cold", "warm"):
                if kind in times and not (
                    isinstance(times[kind], (int, float)) and times[kind] > 0
                ):
                    raise BadDocument(f"{what}: row {number}: '{peer}' has no {kind} time above 0")
    return document


def read(path: pathlib.Path) -> dict[str, Any]:
    """A checked document. Raises BadDocument, also for a file that is no JSON."""
    try:
        return check(json.loads(path.read_text()), str(path))
    except (OSError, json.JSONDecodeError) as error:
        raise BadDocument(f"cannot read {path}: {error}") from None
