# benchmarks/models/time_table.py -- Where the time of a pass goes, by kind, and how far each kind is from its floor: tables.
# SPDX-License-Identifier: Apache-2.0
"""Of rows that say so: those of older documents, and of rows that no profiler saw, give nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .kinds import KINDS

#: A row's own ways and its peers, in the order of preference.
OURS = ("vitune_compile", "vitune")
_INTRO = """
## Where the time goes

Microseconds of a pass in kernels of each kind, and in brackets how many times the floor of that kind: its operators
each reading their operands and writing their result once, and multiplying at what the GPU does at most. Fused operators may go
below it. Copies need not be at all. The last column is the kind that is farthest from its floor: what to do next.
*other* is additions, multiplications, pooling and reductions. Kernels of a CUDA graph, or of a compiled model.
"""


def profiled(rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Rows and vitune's way in them, of those that have its time by kind."""
    found = []
    for row in rows:
        way = next((name for name in OURS if name in row.get("kinds_us", {})), None)
        if way is not None:
            found.append((row, way))
    return found


def ways_of(row: dict[str, Any], ours: str) -> list[str]:
    """What vitune is compared with, if it was looked at, and vitune's."""
    over = (row.get("gain") or {}).get("over")
    return [name for name in (over, ours) if name in row["kinds_us"]]


def excess(us: dict[str, float], floor: dict[str, float]) -> dict[str, float]:
    """Microseconds of each kind over its floor, the most first. All of what has no floor is over it."""
    over = {kind: us[kind] - floor.get(kind, 0.0) for kind in us}
    return dict(sorted(over.items(), key=lambda item: -item[1]))


def cell(us: float | None, floor: float | None) -> str:
    """Microseconds, and how many times the floor; "-" for none."""
    if us is None:
        return "-"
    times = f" (x{us / floor:.1f})" if floor else ""
    return f"{us:.0f}{times}" if us >= 10 else f"{us:.1f}{times}"


def _line(row: dict[str, Any], way: str) -> str:
    us, floor = row["kinds_us"][way], row.get("floor_us", {})
    name = f"{way}, {row['vitune_mode']}" if way == "vitune_compile" and "vitune_mode" in row else way
    cells = [f"`{row['model']}`", str(row["batch"]), name]
    cells += [cell(us.get(kind), floor.get(kind)) for kind in KINDS]
    next_kind, over = next(iter(excess(us, floor).items()))
    cells += [cell(sum(us.values()), sum(floor.values())), f"{next_kind}: {over:.0f}" if floor and over > 0 else "-"]
    return "| " + " | ".join(cells) + " |"


def _summary(rows: Sequence[tuple[dict[str, Any], str]]) -> list[str]:
    """Shares and distances over all rows of vitune's ways."""
    lines = []
    for way in OURS:
        of_way = [(row["kinds_us"][way], row.get("floor_us", {})) for row, name in rows if name == way]
        if not of_way:
            continue
        parts = []
        for kind in KINDS:
            share = sum(us.get(kind, 0.0) / sum(us.values()) for us, _ in of_way) / len(of_way)
            known = [(us.get(kind, 0.0), floor[kind]) for us, floor in of_way if kind in floor]
            times = sum(us for us, _ in known) / sum(floor for _, floor in known) if known else None
            if share >= 0.001:
                parts.append(f"{kind} {100 * share:.0f} %" + (f" (x{times:.1f})" if times else ""))
        lines.append(f"- {way}, {len(of_way)} rows, mean of their shares: {', '.join(parts)}.")
    return lines


def time_section(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of Markdown; none without rows that say where their time goes."""
    found = profiled(rows)
    if not found:
        return []
    head = ["model", "batch", "way", *KINDS, "all", "most over its floor, us"]
    lines = [_INTRO, *_summary(found), ""]
    lines += ["| " + " | ".join(head) + " |", "|--|--:|--|" + "--:|" * (len(KINDS) + 1) + "--|"]
    return lines + [_line(row, way) for row, ours in found for way in ways_of(row, ours)]
