# benchmarks/tuner/figures.py -- What rows of tunes say.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["of"]


def of(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """loss_percent_mean, _worst: of a winner to the best known of its problem. same_percent: how often a tune gave the winner that its
    problem's tunes gave most often. equal_percent: how often one that takes at most 1 % longer than it or less. seconds, trials: of a
    tune of one problem, in the mean. rows: at least one."""
    losses = [100 * (row["warm_us"] / row["best_us"] - 1) for row in rows]
    by_problem = defaultdict(list)
    for row in rows:
        by_problem[row["problem"]].append(row)
    same = equal = 0
    for of_problem in by_problem.values():
        (usual, times), = Counter(row["config"] for row in of_problem).most_common(1)
        us = next(row["warm_us"] for row in of_problem if row["config"] == usual)
        same += times
        equal += sum(row["warm_us"] <= 1.01 * us for row in of_problem)
    count = len(rows)
    return {"loss_percent_mean": round(sum(losses) / count, 3), "loss_percent_worst": round(max(losses), 2),
            "same_percent": round(100 * same / count, 1), "equal_percent": round(100 * equal / count, 1),
            "seconds": round(sum(row["seconds"] for row in rows) / count, 2), "trials": round(sum(row["trials"] for row in rows) / count, 1)}
