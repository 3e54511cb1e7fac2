#!/usr/bin/env python3
# benchmarks/peers/attention/draw.py -- Draws problems at random from what timm's models ask.
# SPDX-License-Identifier: Apache-2.0
"""Problems that nobody chose, for `run.py --from` and `vitune tune --from`.

    vitune models --problems --batch 1,32 --json |
      benchmarks/peers/attention/draw.py --count 50 --seed 1

Each attention call of each model has the same chance; a problem is drawn once. Groups are the
batches. The same seed draws the same problems from the same models.
"""

from __future__ import annotations

import argparse
import json
import random
import sys


def draw(calls: list[dict], count: int, seed: int) -> list[dict]:
    """`count` distinct problems of `calls` (objects with model, batch and problem), or all."""
    calls = list(calls)
    random.Random(seed).shuffle(calls)
    found: dict[str, dict] = {}
    for call in calls:
        if len(found) == count:
            break
        group = f"b{call['batch']}"
        drawn = {"name": f"{call['model']} {group}", "group": group, "problem": call["problem"]}
        found.setdefault(call["problem"], drawn)
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    calls = json.load(sys.stdin)["problems"]
    problems = draw(calls, options.count, options.seed)
    note = (
        f"{len(problems)} problems drawn with seed {options.seed} from {len(calls)} calls of "
        "timm's models"
    )
    lines = ",\n  ".join(json.dumps(problem) for problem in problems)
    print(f'{{"schema": 1,\n "note": {json.dumps(note)},\n "problems": [\n  {lines}\n ]\n}}')


if __name__ == "__main__":
    main()
