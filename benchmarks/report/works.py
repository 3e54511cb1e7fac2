#!/usr/bin/env python3
# benchmarks/report/works.py -- Writes docs/works.md: the works that vitune starts from, ours beside theirs.
# SPDX-License-Identifier: Apache-2.0
"""works.py RESULTS_FOLDER > docs/works.md. Needs the standard library only."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":  # this folder itself must not be on the path: a package lies in it
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path.insert(0, str(HERE.parent))

from report import documents  # noqa: E402
from report.problem import attention  # noqa: E402

_INTRO = """# The works that vitune starts from

Figures as their authors give them, measured on their machines, and ours beside them, on the same problems: cold calls on {device}, {date}.
The two were not measured side by side: the table says how far the machine and the kernel together have come. Written by `benchmarks/report/works.py`;
do not edit.
"""


def _key(text: str) -> tuple[Any, ...]:
    found = attention(text)
    return (found.batch, found.heads, found.nq, found.nk, found.d, found.plain) if found else (text,)


def _ours(results: pathlib.Path) -> dict[tuple[str, tuple[Any, ...]], dict[str, float]]:
    """(kernel, problem) -> "us" and "bytes"."""
    found = {}
    peers = documents.read(results / "reference_peers.json", "peers", "benchmarks/peers")
    for row in documents.rows(peers, "rows"):
        for peer, us in row["us"].items():
            found[peer, _key(row["problem"])] = {"us": us.get("cold"), "bytes": row["memory"].get(peer)}
    for row in documents.rows(documents.read(results / "reference.json"), "rows"):
        found[row["kernel"], _key(row["problem"])] = {"us": row["us"], "bytes": row.get("call_bytes")}
    return found


def _text(row: dict[str, Any], measured: dict[str, float] | None) -> str:
    figure = (measured or {}).get("bytes" if row.get("shows") == "memory" else "us")
    if not figure:
        return "–"
    if row.get("shows") == "memory":
        return f"{figure / 1e6:.1f} MB" if figure < 1e9 else f"{figure / 1e9:.2f} GB"
    return f"{figure:.1f} µs" if figure < 1e3 else f"{figure / 1e3:.2f} ms"


def _table(table: dict[str, Any], ours: dict) -> Iterator[str]:
    yield f"\n### {table['title']}\n\nTheir machine: {table['machine']}. {table.get('note', '')}".rstrip() + "\n"
    problems = table.get("problems", [])
    head = [cell for number, column in enumerate(table["columns"])
            for cell in ([column, "ours"] if number < len(problems) else [column])]
    yield "| " + " | ".join([table["first_column"], *head]) + " |"
    yield "|--|" + "--:|" * len(head)
    for row in table["rows"]:
        cells = []
        for number, cell in enumerate(row["cells"]):
            cells.append(cell)
            if number < len(problems):
                cells.append(_text(row, ours.get((row.get("kernel"), _key(problems[number])))))
        yield "| " + " | ".join([row["label"], *cells]) + " |"


def page(results: pathlib.Path, works: pathlib.Path) -> str:
    """The whole document."""
    ours = _ours(results)
    measured = documents.read(results / "reference.json")
    lines = [_INTRO.format(device=documents.device_name(measured), date=documents.day(measured))]
    for work in documents.rows(documents.read(works), "works"):
        lines.append(f"\n## {work['title']}\n\n{work['source']}.")
        lines += [f"\n{work['note']}"] if work.get("note") else []
        for table in work["tables"]:
            lines += _table(table, ours)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(pathlib.Path(sys.argv[1]), HERE.parents[1] / "data/reference_works.json"))
