#!/usr/bin/env python3
# benchmarks/peers/stored.py -- Writes the peers' times of a run into data/bench_problems.json, where bench and report find them.
# SPDX-License-Identifier: Apache-2.0
"""stored.py peers.json data/bench_problems.json: of each problem there, what the run has of every peer. Needs the standard library only."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":  # this folder itself must not be on the path: a package lies in it
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path.insert(0, str(HERE.parent))

from peers.engine import document  # noqa: E402

KINDS = ("cold", "warm")
#: Names that `vitune bench` has had for some of them.
NAMES = {"flash": "flash2", "effic": "efficient"}
_TOLD = ("torch", "cudnn", "triton")
NOTE = (
    "Attention problems of vision transformers, with what others need for them. peers_us: microseconds per call of each peer that"
    " takes the problem, in the run that 'measured' names; cold: L2 flushed before each call, median of events; warm: CUDA-graph replay"
    " over one buffer set. cudnn, flash2 (FlashAttention-2) and efficient (memory-efficient) are PyTorch's; flex: FlexAttention; triton: a"
    " tuned Triton kernel; eager: unfused PyTorch. floor_us: max(flops / 790e12, min_bytes / 4.3e12), the matrix rate and copy bandwidth"
    " measured on such a machine. Written by benchmarks/peers/stored.py. Problem texts: docs/problems.md."
)


def is_peer(name: str) -> bool:
    """Whether it is another implementation."""
    return not name.startswith("vitune")


def peers_us(row: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Both times of each peer that has both."""
    return {NAMES.get(peer, peer): {kind: round(us[kind], 2) for kind in KINDS}
            for peer, us in row["us"].items() if is_peer(peer) and all(kind in us for kind in KINDS)}


def measured(run: dict[str, Any], problems: list[dict[str, Any]]) -> dict[str, Any]:
    """Where, when and with what."""
    names = dict.fromkeys(peer for problem in problems for peer in problem["peers_us"])
    return {"device": run["device"]["name"], "date": run["date"][:10], "driver": run["device"].get("driver"),
            "versions": {name: run["versions"][name] for name in _TOLD if run["versions"].get(name)}, "peers": list(names)}


def stored(run: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    """The problems of `target` with the times of `run`. Raises BadDocument for a problem that the run lacks."""
    rows = {row["problem"]: row for row in run["rows"]}
    problems = []
    for problem in target["problems"]:
        row = rows.get(problem["problem"])
        if row is None:
            raise document.BadDocument(f"the run has no times of '{problem['problem']}': measure all problems of the file, by 'make peers'")
        problems.append({**problem, "peers_us": peers_us(row)})
    return {"schema": target["schema"], "note": NOTE, "measured": measured(run, problems), "problems": problems}


def text(found: dict[str, Any]) -> str:
    """A problem a line, as people read and compare it."""

    def compact(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    head = ",\n ".join(f'"{name}":{compact(found[name])}' for name in ("schema", "note", "measured"))
    rows = ",\n".join(f"  {compact(problem)}" for problem in found["problems"])
    return f'{{{head},\n "problems":[\n{rows}\n ]}}\n'


def main() -> int:
    """0, 1 for a file that is no result or lacks a problem, 2 without two."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    source, target = map(pathlib.Path, sys.argv[1:])
    try:
        made = text(stored(document.read(source), json.loads(target.read_text())))
    except (document.BadDocument, OSError, ValueError) as reason:
        print(f"stored.py: {reason}", file=sys.stderr)
        return 1
    aside = target.with_name(target.name + ".part")
    aside.write_text(made)
    os.replace(aside, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
