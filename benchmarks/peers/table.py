#!/usr/bin/env python3
# benchmarks/peers/table.py -- Markdown and console tables of a result; needs no GPU and no PyTorch.
# SPDX-License-Identifier: Apache-2.0
"""Tables of peers.json: who is fastest per problem, by how much, and where vitune loses.

    benchmarks/peers/table.py peers.json [--readme | --page | --console] [--out FILE]

Speed-ups are peer / vitune: above 1 vitune is faster. The best peer is the fastest fused one;
unfused "eager" and vitune's own default kernel are shown and not counted; of norms the means are
also over the best with "eager" and over that alone. Of linear layers every peer of the same function
counts, and vitune's own kernels are compared beside what is served. --readme replaces the
marked region of README.md, --page that of docs/results.md which has the file's name.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable
from typing import Any

if __package__ in (None, ""):
    _HERE = pathlib.Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != _HERE]
    sys.path.insert(0, str(_HERE.parent))
    __package__ = "peers"

from peers.compared import (  # noqa: E402
    Best,
    best,
    broken,
    errors,
    losses,
    means,
    not_compared,
    peers_of,
    spreads,
    unfused_means,
    ways_of,
)
from peers.engine import document  # noqa: E402
from peers.engine.judge import WORSE  # noqa: E402
from peers.engine.roster import Roster  # noqa: E402
from peers.engine.samples import geometric_mean  # noqa: E402
from peers.rosters import roster_of  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
README, PAGE = "README.md", "docs/results.md"


def _us(row: dict[str, Any], peer: str, kind: str) -> str:
    us = row["us"].get(peer, {}).get(kind)
    return "–" if us is None else f"{us:.1f}"


def _against(found: Best | None, mark: str = "") -> list[str]:
    if found is None:
        return ["–", "–", "–"]
    ratio = f"{found.ratio:.2f}"
    return [found.peer, f"{found.us:.1f}", (ratio if found.ratio >= 1 else f"**{ratio}**") + mark]


def _mark(row: dict[str, Any], kind: str) -> str:
    return " *broken*" if broken(row, kind) else ""


def _floor(row: dict[str, Any], way: str = "vitune", kind: str = "cold") -> str:
    us = row["us"].get(way, {}).get(kind)
    return "–" if us is None or not row["floor_us"] else f"{100 * row['floor_us'] / us:.0f} %"


def _markdown_table(head: list[str], left: int, rows: list[list[str]]) -> list[str]:
    rule = ["---" if i < left else "--:" for i in range(len(head))]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]


def _per_peer(
    found: dict[str, Any], peers: list[str], cell: Callable[[dict[str, Any], str], str]
) -> list[str]:
    """A line per problem, a column per peer."""
    rows = [[row["name"], *(cell(row, peer) for peer in peers)] for row in found["rows"]]
    return _markdown_table(["problem", *peers], 1, rows)


def summary_table(found: dict[str, Any]) -> list[str]:
    """One line per problem: vitune, the best fused peer, their ratio, cold and warm."""
    if "vitune_own" in ways_of(found):
        return _own_table(found)
    head = [
        "group",
        "problem",
        "vitune cold µs",
        "best peer",
        "its cold µs",
        "speed-up",
        "vitune warm µs",
        "best peer",
        "its warm µs",
        "speed-up",
        "of floor",
    ]
    rows = [
        [
            row["group"],
            row["name"],
            _us(row, "vitune", "cold"),
            *_against(best(row, "cold"), _mark(row, "cold")),
            _us(row, "vitune", "warm"),
            *_against(best(row, "warm"), _mark(row, "warm")),
            _floor(row),
        ]
        for row in found["rows"]
    ]
    return _markdown_table(head, 2, rows)


def _own_table(found: dict[str, Any]) -> list[str]:
    """The same of an operator whose winners may be a library's: vitune's own kernels, then what is served."""
    head = [
        *("group", "problem", "own warm µs", "served warm µs", "by"),
        *("best peer", "its warm µs", "own speed-up", "served speed-up"),
        *("own cold µs", "best peer", "its cold µs", "own speed-up", "own of floor, warm"),
    ]
    rows = []
    for row in found["rows"]:
        own, served = (best(row, "warm", way) for way in ("vitune_own", "vitune"))
        peer, us, ratio = _against(own)
        if own is None:
            peer, us, _ = _against(served)
        rows.append(
            [
                *(row["group"], row["name"]),
                *(_us(row, way, "warm") for way in ("vitune_own", "vitune")),
                row.get("provider", {}).get("vitune", "–"),
                *(peer, us, ratio, _against(served)[2]),
                _us(row, "vitune_own", "cold"),
                *_against(best(row, "cold", "vitune_own")),
                _floor(row, "vitune_own", "warm"),
            ]
        )
    return _markdown_table(head, 2, rows)


def losses_section(found: dict[str, Any]) -> list[str]:
    """Where vitune loses, in words, even if that is nowhere."""
    lost, missing = losses(found), not_compared(found)
    peer = "a fused peer" if _roster(found).unfused else "a peer of the same function"
    lines = [
        f"Where vitune loses to {peer}:",
        "",
        *(lost or ["- nowhere among the problems compared"]),
    ]
    return lines + (["", "Not compared:", "", *missing] if missing else [])


def _collected(found: dict[str, Any], field: str) -> list[str]:
    """Each peer's reasons, and in which problems."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in found["rows"]:
        for peer, reason in row[field].items():
            reasons.setdefault((peer, reason), []).append(row["name"])
    return [
        f"- {peer}: {reason} ({len(names)}: {', '.join(names[:4])}{', …' * (len(names) > 4)})"
        for (peer, reason), names in sorted(reasons.items())
    ]


def _all_times(found: dict[str, Any], kind: str) -> list[str]:
    peers = [
        peer
        for peer in found["peers"]
        if any(kind in row["us"].get(peer, {}) for row in found["rows"])
    ]
    return _per_peer(found, peers, lambda row, peer: _us(row, peer, kind))


def _errors(found: dict[str, Any]) -> list[str]:
    peers = [peer for peer in found["peers"] if any(peer in row["err"] for row in found["rows"])]

    def cell(row: dict[str, Any], peer: str) -> str:
        error = row["err"].get(peer)
        return "–" if error is None else f"{error['max']:.1e} / {error['rms']:.1e}"

    return _per_peer(found, peers, cell)


def _python_cost(found: dict[str, Any]) -> list[str]:
    """Least over the problems: what the call itself costs, not what the GPU does meanwhile."""
    costs: dict[str, list[float]] = {}
    for row in found["rows"]:
        for peer, us in row["us"].items():
            if "python_queued" in us:
                costs.setdefault(peer, []).append(us["python_queued"])
    rows = [[peer, f"{min(costs[peer]):.1f}"] for peer in found["peers"] if peer in costs]
    return _markdown_table(["peer", "µs"], 1, rows) if rows else ["(not measured)"]


def _repeats(found: dict[str, Any]) -> list[str]:
    """Of each of vitune's kernels that was called again with the same inputs."""
    lines = []
    for peer in found["peers"]:
        seen = [row["repeats"][peer] for row in found["rows"] if peer in row.get("repeats", {})]
        if not seen:
            continue
        alike = sum(repeats["different"] == 0 for repeats in seen)
        calls = min(repeats["calls"] for repeats in seen)
        lines.append(
            f"- {peer}: {calls} calls with the same inputs gave the same bits for {alike} of "
            f"{len(seen)} problems"
        )
    return lines


def _memory(found: dict[str, Any]) -> list[str]:
    peers = [peer for peer in found["peers"] if any(peer in row["memory"] for row in found["rows"])]

    def cell(row: dict[str, Any], peer: str) -> str:
        size = row["memory"].get(peer)
        return "–" if size is None else f"{size / 2**20:.1f}"

    return _per_peer(found, peers, cell)


def header(found: dict[str, Any]) -> list[str]:
    """On what, with what and when."""
    device, versions = found["device"], found["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    driver = device.get("driver") or "?"
    return [f"{device.get('name', '?')}, driver {driver}; {named}; {found['date']}."]


def markdown(found: dict[str, Any]) -> str:
    """The whole document."""
    empty = found.get("empty_us") or {}
    nothing = (
        f"A kernel that does nothing reads {empty['cold']:.1f} µs cold and "
        f"{empty['warm']:.1f} µs warm."
        if empty
        else ""
    )
    state = ", ".join(f"{key} {value}" for key, value in found["device"].get("state", {}).items())
    parts = [
        ["# vitune beside its peers", ""],
        header(found),
        ["", f"{state}. {nothing}".strip(". "), ""],
        summary_table(found),
        [""],
        means(found),
        unfused_means(found),
        [""],
        losses_section(found),
    ]
    for title, lines in (
        ("Remarks", [f"- {row['name']}: {flag}" for row in found["rows"] for flag in row["flags"]]),
        ("Refused", _collected(found, "refused")),
        ("Failed", _collected(found, "failed")),
        ("Not here", [f"- {peer}: {reason}" for peer, reason in found["absent"].items()]),
        ("Cold, µs", _all_times(found, "cold")),
        ("Warm, µs", _all_times(found, "warm")),
        ("Largest / rms error against fp64", _errors(found)),
        ("Repeated calls", _repeats(found)),
        ("Least host time of an eager Python call", _python_cost(found)),
        ("Peak memory of a call, MiB", _memory(found)),
        ("Method", [f"- {key}: {value}" for key, value in found["method"].items()]),
    ):
        if lines:
            parts.append(["", f"## {title}", "", *lines])
    return "\n".join(line for part in parts for line in part) + "\n"


def _roster(found: dict[str, Any]) -> Roster:
    """Of the rows, which are of one run."""
    return roster_of(found["rows"][0]["problem"] if found["rows"] else "")


def _named(roster: Roster, peers: list[str]) -> str:
    names = [roster.labels.get(peer, peer) for peer in peers]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def peers_sentence(found: dict[str, Any]) -> str:
    """Who was there, and who was not."""
    here = [
        peer
        for peer in found["peers"]
        if any("cold" in row["us"].get(peer, {}) and peers_of(row, [peer]) for row in found["rows"])
    ]
    absent, roster = [peer for peer in found["peers"] if peer in found["absent"]], _roster(found)
    told = f"Peers: {_named(roster, here)}." if here else "No peer was measured."
    told += _of_another_function(found, roster)
    return f"{told} Not measured: {_named(roster, absent)}." if absent else told


def _of_another_function(found: dict[str, Any], roster: Roster) -> str:
    """Which peers do not count in some rows, as a sentence with a space before it."""
    counts = {
        peer: sum(not row.get("same_function", {}).get(peer, True) for row in found["rows"])
        for peer in found["peers"]
    }
    listed = [f"{_named(roster, [peer])} in {count}" for peer, count in counts.items() if count]
    if not listed:
        return ""
    return f" Of another function, and not counted: {', '.join(listed)} of {len(found['rows'])} problems."


def short_table(found: dict[str, Any]) -> list[str]:
    """A line per group and kind: the spread of the speed-ups over the best peer."""
    head = ["group", "L2", "problems", "median", "best", "worst", "faster"]
    rows = [
        [
            _roster(found).groups.get(one.group, f"`{one.group}`"),
            one.kind,
            str(len(one.ratios)),
            f"{one.median:.2f}",
            f"{max(one.ratios):.2f}",
            f"{min(one.ratios):.2f}",
            f"{one.ahead} of {len(one.ratios)}",
        ]
        for one in spreads(found)
    ]
    return _markdown_table(head, 2, rows)


def errors_sentence(found: dict[str, Any]) -> str:
    """How vitune's errors compare with the smallest of any peer."""
    seen = errors(found)
    if not seen.ratios:
        return "No errors to compare."
    larger = seen.above(WORSE)
    rms = f"root-mean-square error: at most {max(seen.rms):.2f} times"
    if not larger:
        return f"Largest error at most {max(seen.ratios):.2f} times the best peer's; {rms}."
    return (
        f"vitune's largest error is {min(larger):.1f} to {max(larger):.1f} times the best peer's "
        f"on {len(larger)} of {len(seen.ratios)} problems, at most {WORSE} times on the others; {rms}."
    )


def shares_table(found: dict[str, Any]) -> list[str]:
    """Geometric means of the floor over the time, per group and kind."""
    shares: dict[tuple[str, str], dict[str, str]] = {}
    for way in ways_of(found):
        for one in spreads(found, way):
            if one.shares:
                ours, best_peer = (geometric_mean(list(side)) for side in zip(*one.shares))
                told = shares.setdefault((one.group, one.kind), {})
                told[way] = f"{100 * ours:.0f} %"
                told.setdefault("best peer", f"{100 * best_peer:.0f} %")
    columns = [*ways_of(found), "best peer"]
    rows = [
        [f"`{group}`", kind, *(told.get(column, "–") for column in columns)]
        for (group, kind), told in shares.items()
    ]
    return _markdown_table(["group", "L2", *columns], 2, rows)


def readme(found: dict[str, Any]) -> str:
    """What README.md shows: six lines, and who took part."""
    lost = losses(found)
    slower = [f"vitune is slower in {len(lost)} of these times."] if lost else []
    parts = [peers_sentence(found), *slower, errors_sentence(found)]
    return "\n".join([*short_table(found), "", *header(found), " ".join(parts)])


def page(found: dict[str, Any]) -> str:
    """What docs/results.md shows of a file: every problem, the means, the losses."""
    return "\n".join(
        [
            *header(found),
            "",
            peers_sentence(found) + " " + errors_sentence(found),
            "",
            *summary_table(found),
            "",
            *means(found),
            *unfused_means(found),
            "",
            *losses_section(found),
            "",
            "Share of the floor, geometric means:",
            "",
            *shares_table(found),
        ]
    )


def console(found: dict[str, Any]) -> str:
    """The same for a terminal, without Markdown's bars."""
    cells = [
        [cell.strip(" *") for cell in line.strip("|").split("|")] for line in summary_table(found)
    ]
    cells.pop(1)
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))
        )
        for line in cells
    ]
    return "\n".join([*header(found), "", *lines, "", *means(found), *unfused_means(found), "", *losses_section(found)])


def replaced(text: str, region: str, mark: str, file: str) -> str:
    """`text` with another region of this mark. Raises ValueError without its two comments."""
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{file} needs one '{begin}' and one '{end}'")
    return text.split(begin)[0] + begin + "\n" + region + "\n" + end + text.split(end)[1]


def _replace_in(file: str, region: str, mark: str) -> None:
    target = ROOT / file
    target.write_text(replaced(target.read_text(), region, mark, file))


def main() -> int:
    """0, or 2 for a file that is no result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--console", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, help="a file; default: stdout")
    options = parser.parse_args()
    try:
        found = document.read(options.result)
    except document.BadDocument as error:
        print(f"table.py: {error}", file=sys.stderr)
        return 2
    try:
        if options.readme:
            _replace_in(README, readme(found), "results")
        if options.page:
            _replace_in(PAGE, page(found), options.result.stem)
    except ValueError as error:
        print(f"table.py: {error}", file=sys.stderr)
        return 2
    if options.readme or options.page:
        return 0
    text = console(found) + "\n" if options.console else markdown(found)
    options.out.write_text(text) if options.out else sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
