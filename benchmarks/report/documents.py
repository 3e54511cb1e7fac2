# benchmarks/report/documents.py -- Reads JSON of known fields; a wrong file is one sentence.
# SPDX-License-Identifier: Apache-2.0
"""Files are foreign input: sizes are bounded, texts are such as XML may have, and what is not as it must be is a
BadInput that names the place."""

from __future__ import annotations

import json
import os
import pathlib
import re
import stat
from typing import Any

_MOST_BYTES = 64 << 20
_MOST_VALUES = 4_000_000
_MOST_ROWS = 100_000
_MOST_LETTERS = 200
_LEAST, _MOST = 1e-9, 1e15
#: Control characters, halves of pairs and what is no character: neither XML nor UTF-8 has most of them.
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class BadInput(ValueError):
    """A file or option that cannot be used; its text says why and what to do."""


def _not_finite(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _clean(text: Any) -> Any:
    return _NO_TEXT.sub(lambda found: " " if found[0] in "\t\n\r" else "\ufffd", text) if isinstance(text, str) else text


def _clean_texts(document: dict[str, Any]) -> None:
    """Names and values, in place; without recursion, since a document may be as deep as the parser goes."""
    holders: list[Any] = [document]
    while holders:
        holder = holders.pop()
        if isinstance(holder, dict):
            pairs = [(_clean(name), _clean(value)) for name, value in holder.items()]
            holder.clear()
            holder.update(pairs)
            holders += [value for _, value in pairs if isinstance(value, (dict, list))]
        else:
            holder[:] = map(_clean, holder)
            holders += [value for value in holder if isinstance(value, (dict, list))]


def parse(text: str, name: str) -> dict[str, Any]:
    """The JSON object of a text of schema 1, or of Google Benchmark."""
    if sum(map(text.count, "[{,")) > _MOST_VALUES:  # each value but the first follows one of these
        raise BadInput(f"{name}: has more than {_MOST_VALUES} values, so it is no result")
    try:
        document = json.loads(text, parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name}: is no JSON: {str(error)[:_MOST_LETTERS]}") from None
    if not isinstance(document, dict):
        raise BadInput(f"{name}: is not a JSON object")
    _clean_texts(document)
    if document.get("schema", 1) != 1:
        raise BadInput(f"{name}: has schema {str(document['schema'])[:20]}: this version reads 1; update vitune")
    return document


def _content(path: pathlib.Path) -> bytes:
    """Of a regular file within the bound: a pipe would be waited for, and a device has no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise BadInput(f"{path}: is not a regular file")
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as opened:
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise BadInput(f"{path}: is larger than {_MOST_BYTES >> 20} MiB, so it is no result")
    return content


def read(path: pathlib.Path, command: str = "", made_by: str = "") -> dict[str, Any]:
    """The document of a file; `command` must be what wrote it, else a sentence names `made_by`."""
    try:
        text = _content(path).decode("utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is no JSON: not UTF-8") from None
    document = parse(text, str(path))
    if command and document.get("command") != command:
        raise BadInput(f"{path}: is not what {made_by} wrote")
    document["file"] = str(path)
    return document


def fail(document: dict[str, Any], where: str, what: str) -> BadInput:
    """The error for a place of a document."""
    return BadInput(f"{document.get('file', 'input')}: {where} {what}")


def rows(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects."""
    found = document.get(name)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise fail(document, name, "is not a list of objects")
    if len(found) > _MOST_ROWS:
        raise fail(document, name, f"has more than {_MOST_ROWS} rows")
    return found


def members(document: dict[str, Any], holder: dict[str, Any], name: str) -> dict[str, Any]:
    """An object; one that is missing is empty."""
    found = holder.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise fail(document, name, "is not a JSON object")
    return found


def text(holder: Any, name: str) -> str:
    """A short text; nothing where there is none."""
    found = holder.get(name) if isinstance(holder, dict) else None
    return found[:_MOST_LETTERS] if isinstance(found, str) else ""


def positive(document: dict[str, Any], holder: dict[str, Any], name: str) -> float | None:
    """A figure above 0, None where there is none."""
    found = holder.get(name)
    if found is None:
        return None
    number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if not number or not _LEAST <= found <= _MOST:
        raise fail(document, name, f"is {str(found)[:40]}; a figure above 0 is needed")
    return float(found)


def integer(holder: dict[str, Any], name: str) -> int | None:
    """A positive integer of 32 bits, None where there is none."""
    found = holder.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 2**31 else None


def device_name(document: dict[str, Any]) -> str:
    """Of either form that a document gives its device in."""
    device = document.get("device")
    return device[:_MOST_LETTERS] if isinstance(device, str) else text(device, "name")


def day(document: dict[str, Any]) -> str:
    """2026-11-20, or nothing."""
    return (text(document, "date") or text(document.get("context"), "date"))[:10]


def versions(document: dict[str, Any]) -> str:
    """One line of what was measured with."""
    found = members(document, document, "versions")
    parts = [f"{name} {value}"[:60] for name, value in list(found.items())[:20] if isinstance(value, str)]
    driver = text(document.get("device"), "driver")
    if driver:
        parts.append(f"driver {driver}")
    own = text(document.get("context"), "vitune_version")
    return ", ".join(parts) or (f"vitune {own}" if own else "")
