# benchmarks/models/baseline.py -- Whether PyTorch's time of a row is one to compare with.
# SPDX-License-Identifier: Apache-2.0
"""Of models as they are. The marks stand in the document, so that all who read it count alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: A graph replays what was captured: where it is slower than the eager pass, its capture computes more than the model does.
BROKEN = "broken"
#: The pass waits for the host: what is compared is Python's time, and not the GPU's.
HOST = "host"
_SLOWER_GRAPH = 1.05  # of PyTorch, over its eager pass, at some batch of the model
_HOST_BOUND = 1.5  # an eager pass over its graph, of PyTorch or of vitune
_PEERS = ("torch", "cudnn")


def _best(row: dict[str, Any], ways: Sequence[str]) -> float | None:
    return min((row["ms"][way]["ms"] for way in ways if way in row.get("ms", {})), default=None)


def _over(eager: dict[str, Any], graph: dict[str, Any], ways: Sequence[str]) -> float:
    """Time of the eager pass over that of the graph; 0 where one is not known."""
    times = _best(eager, ways), _best(graph, ways)
    return times[0] / times[1] if all(times) else 0.0


def mark(rows: Sequence[dict[str, Any]]) -> None:
    """Sets the "baseline" of graphs that are broken and of eager rows that the host bounds; removes it from all others."""
    pairs: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        row.pop("baseline", None)
        pairs.setdefault((row["model"], row["batch"]), {})[row["mode"]] = row
    broken = set()
    for (model, _), modes in pairs.items():
        if not {"eager", "graph"} <= modes.keys():
            continue
        eager, graph = modes["eager"], modes["graph"]
        if 0 < _over(eager, graph, _PEERS) < 1 / _SLOWER_GRAPH:
            broken.add(model)
        if max(_over(eager, graph, ways) for ways in (_PEERS, ("vitune",))) > _HOST_BOUND:
            eager["baseline"] = HOST
    for row in rows:
        if row["mode"] == "graph" and row["model"] in broken:
            row["baseline"] = BROKEN


def counts(row: dict[str, Any]) -> bool:
    """Whether its gain may be in a mean that is told of models."""
    return "baseline" not in row
