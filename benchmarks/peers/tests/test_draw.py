# benchmarks/peers/tests/test_draw.py -- A seed draws the same problems, each of them once.
# SPDX-License-Identifier: Apache-2.0

import collections
import json
import pathlib
import unittest

from .support import needs_library

from peers.attention.draw import draw
from peers.engine.problems import collect
from peers.rosters import roster_of

SHIPPED = pathlib.Path(__file__).resolve().parents[3] / "data/drawn_problems.json"


def calls(count: int) -> list[dict]:
    return [
        {"model": f"m{i}", "batch": 1 + 31 * (i % 2), "problem": f"p{i // 2}"} for i in range(count)
    ]


class DrawTest(unittest.TestCase):
    def test_a_seed_draws_the_same_problems_each_once(self):
        first = draw(calls(100), 20, 7)
        self.assertEqual(first, draw(calls(100), 20, 7))
        self.assertNotEqual(first, draw(calls(100), 20, 8))
        self.assertEqual(len({entry["problem"] for entry in first}), 20)
        self.assertEqual({entry["group"] for entry in first}, {"b1", "b32"})

    def test_fewer_problems_than_asked_for_are_all_drawn(self):
        self.assertEqual({e["problem"] for e in draw(calls(6), 20, 1)}, {"p0", "p1", "p2"})

    def test_each_call_has_the_same_chance(self):
        counts = collections.Counter(
            entry["problem"] for seed in range(400) for entry in draw(calls(40), 5, seed)
        )
        self.assertEqual(len(counts), 20)
        self.assertLess(max(counts.values()), 2 * min(counts.values()))

    @needs_library
    def test_the_shipped_ones_are_problems(self):
        shipped = json.loads(SHIPPED.read_text())["problems"]
        self.assertEqual(len(collect(roster_of, [], [SHIPPED])[1]), len(shipped))
        self.assertEqual(len(shipped), 50)


if __name__ == "__main__":
    unittest.main()
