# benchmarks/models/tests/test_interval.py -- The interval holds what it says; gains are paired.
# SPDX-License-Identifier: Apache-2.0
import random
import unittest

from . import support  # noqa: F401: sets the path

from models.interval import gain, rank, summary


class IntervalTest(unittest.TestCase):
    def test_the_ranks_of_published_tables(self):
        # Order statistics of the 95 % interval of a median, from the binomial distribution.
        for count, k in {6: 1, 8: 1, 9: 2, 11: 2, 12: 3, 20: 6, 25: 8, 40: 14}.items():
            self.assertEqual(rank(count), k, count)

    def test_few_samples_give_their_whole_range(self):
        self.assertEqual(summary([3.0, 1.0, 2.0], "ms"), {"ms": 2, "low": 1, "high": 3, "samples": 3})

    def test_the_interval_holds_the_median_as_often_as_it_says(self):
        chance, hits = random.Random(5), 0
        for _ in range(2000):  # a skewed distribution, median ln 2
            found = summary([chance.expovariate(1.0) for _ in range(15)], "ms")
            hits += found["low"] <= 0.693147 <= found["high"]
        self.assertGreaterEqual(hits, 1880)
        self.assertLess(hits, 1980)  # nor is it wide for nothing

    def test_a_gain_is_over_the_better_peer_and_paired_by_round(self):
        drift = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]  # the whole machine slows down
        samples = {
            "torch": [2.4 * x for x in drift],
            "cudnn": [2.2 * x for x in drift],
            "vitune": [2.0 * x for x in drift],
        }
        found = gain(samples, ("torch", "cudnn"), "vitune")
        self.assertEqual(found["over"], "cudnn")
        for key in ("times", "low", "high"):
            self.assertAlmostEqual(found[key], 1.1, msg=key)

    def test_without_one_side_there_is_no_gain(self):
        self.assertIsNone(gain({"vitune": [1.0]}, ("torch", "cudnn"), "vitune"))
        self.assertIsNone(gain({"torch": [1.0]}, ("torch", "cudnn"), "vitune"))
