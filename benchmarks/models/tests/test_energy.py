# benchmarks/models/tests/test_energy.py -- Joules: windows in turn, of the ways that ran; who takes the fewest.
# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from . import support  # noqa: F401 -- the path

from models import energy


class EnergyTest(unittest.TestCase):
    def test_energy_is_of_an_image_and_the_ways_take_turns(self):
        spent, order = [0.0], []

        def way(name, joules):
            def run():
                order.append(name)
                spent[0] += joules
            return run

        ticks = iter(range(10_000))
        found = energy.joules({"a": way("a", 8.0), "b": way("b", 2.0)}, lambda: spent[0], lambda: None, 4, 5.0, lambda: float(next(ticks)))
        self.assertEqual(found, {"a": 2.0, "b": 0.5})
        turns = [name for name, before in zip(order, [None, *order]) if name != before]
        self.assertEqual(turns, ["a", "b", "a", "b"])  # the second window runs back: b follows b, a follows a

    def test_a_meter_gives_millijoules_of_the_ways_that_run(self):
        spent = [0.0]

        def run():
            spent[0] += 0.5

        meter = energy.Meter(lambda: spent[0], 0.001)
        self.assertEqual(meter.mj({"a": run, "c": run}, ("a", "b"), 8, lambda: None), {"a": 62.5})

    def test_candidates_are_known_by_what_they_run_once_they_are_prepared(self):
        one, other = (mock.Mock(prepare=lambda run=run: mock.Mock(run=run)) for run in ("f", "g"))
        runs = energy.noted({"one": one, "other": other})
        self.assertEqual(runs, {})
        self.assertEqual((other.prepare().run, runs), ("g", {"other": "g"}))
        one.prepare()
        self.assertEqual(runs, {"other": "g", "one": "f"})

    def test_the_mode_that_takes_the_fewest_is_compared_with(self):
        row = {"mj": {"compile_default": 9.0, "compile_reduce": 6.0, "vitune_compile": 4.0}}
        self.assertEqual((energy.peer(row), energy.fewer(row)), ("compile_reduce", 1.5))
        for mj in ({}, {"compile_default": 9.0}, {"vitune_compile": 4.0}):
            self.assertEqual((energy.peer({"mj": mj}), energy.fewer({"mj": mj})), (None, None))
        self.assertIsNone(energy.fewer({}))


if __name__ == "__main__":
    unittest.main()
