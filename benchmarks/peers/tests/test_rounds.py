# benchmarks/peers/tests/test_rounds.py -- The round robin with invented peers and clock.
# SPDX-License-Identifier: Apache-2.0
import random
import unittest

from . import support  # noqa: F401  (the path)

from peers.engine.rounds import Limits, PeerFailed, run_rounds


LIMITS = Limits()


class Bench:
    """Invented times: name -> function of the number of its samples so far."""

    def __init__(self, times, fail=(), second=0.0):
        self.times, self.fail, self.second = times, dict(fail), second
        self.orders, self.counts, self.now = [], {}, 0.0

    def __call__(self, names):
        self.orders.append(list(names))
        self.now += self.second
        for name in names:
            if self.fail.get(name) == self.counts.get(name, 0):
                raise PeerFailed(name, "out of luck")
        for name in names:
            self.counts[name] = self.counts.get(name, 0) + 1
        return {name: self.times[name](self.counts[name]) for name in names}

    def run(self, limits=LIMITS, seconds=1e9, seed=3):
        return run_rounds(
            list(self.times), self, limits, seconds, random.Random(seed), lambda: self.now
        )


def noisy(i):
    return 10.0 + (i * 7919 % 13)


class RoundsTest(unittest.TestCase):
    def test_every_peer_is_in_every_round_once(self):
        bench = Bench({"a": noisy, "b": noisy, "c": lambda i: 5.0})
        outcome = bench.run(Limits(least=5, most=30, noise=0.0001))
        self.assertEqual({len(values) for values in outcome.samples.values()}, {30})
        self.assertTrue(all(sorted(order) == ["a", "b", "c"] for order in bench.orders))

    def test_the_order_changes_from_round_to_round(self):
        bench = Bench({"a": noisy, "b": noisy, "c": noisy})
        bench.run(Limits(least=5, most=30, noise=0.0))
        self.assertGreater(len({tuple(order) for order in bench.orders}), 3)

    def test_quiet_peers_end_after_the_least_number_of_rounds(self):
        outcome = Bench({"a": lambda i: 5.0, "b": lambda i: 7.0}).run(Limits(least=6, most=60))
        self.assertEqual(
            {name: len(values) for name, values in outcome.samples.items()}, {"a": 6, "b": 6}
        )

    def test_a_slow_peer_leaves_after_the_least_number_and_the_others_go_on(self):
        outcome = Bench({"quick": noisy, "slow": lambda i: 50000.0 + 9000 * (i % 2)}).run(
            Limits(least=5, most=20, noise=0.0, slow_us=20000.0)
        )
        self.assertEqual((len(outcome.samples["quick"]), len(outcome.samples["slow"])), (20, 5))

    def test_the_time_ends_rounds_but_never_the_least_number(self):
        bench = Bench({"a": noisy}, second=10.0)
        self.assertEqual(
            len(bench.run(Limits(least=5, most=60, noise=0.0), seconds=1.0).samples["a"]), 5
        )
        bench = Bench({"a": noisy}, second=10.0)
        self.assertEqual(
            len(bench.run(Limits(least=5, most=60, noise=0.0), seconds=95.0).samples["a"]), 10
        )

    def test_a_failing_peer_leaves_with_its_reason_and_the_round_is_run_again_without_it(self):
        bench = Bench({"a": noisy, "bad": noisy, "c": noisy}, fail={"bad": 2})
        outcome = bench.run(Limits(least=4, most=6, noise=0.0))
        self.assertEqual(outcome.failed, {"bad": "out of luck"})
        self.assertEqual(
            {name: len(values) for name, values in outcome.samples.items()}, {"a": 6, "c": 6}
        )

    def test_all_may_fail(self):
        outcome = Bench({"a": noisy, "b": noisy}, fail={"a": 0, "b": 0}).run()
        self.assertEqual((outcome.samples, sorted(outcome.failed)), ({}, ["a", "b"]))

    def test_no_peer_is_no_round(self):
        bench = Bench({})
        self.assertEqual((bench.run().samples, bench.orders), ({}, []))
