# benchmarks/peers/tests/test_samples.py -- Medians, spreads, means against known values.
# SPDX-License-Identifier: Apache-2.0
import math
import random
import statistics
import unittest

from . import support  # noqa: F401  (the path)

from peers.engine.samples import Summary, geometric_mean, median, median_noise, quantile


class SamplesTest(unittest.TestCase):
    def test_quantiles_are_linear_between_neighbours(self):
        for values, share, wanted in (
            ([3.0], 0.9, 3.0),
            ([1.0, 2.0], 0.5, 1.5),
            ([4.0, 1.0, 3.0, 2.0, 5.0], 0.1, 1.4),
            ([4.0, 1.0, 3.0, 2.0, 5.0], 0.9, 4.6),
            ([1.0, 9.0], 1.0, 9.0),
        ):
            with self.subTest(values=values, share=share):
                self.assertAlmostEqual(quantile(values, share), wanted)

    def test_the_median_is_that_of_the_standard_library(self):
        chance = random.Random(1)
        for count in range(1, 20):
            values = [chance.random() for _ in range(count)]
            self.assertAlmostEqual(median(values), statistics.median(values))

    def test_nothing_has_no_quantile_and_no_mean(self):
        with self.assertRaises(ValueError):
            quantile([], 0.5)
        with self.assertRaises(ValueError):
            geometric_mean([])

    def test_a_summary_keeps_spread_and_number(self):
        self.assertEqual(Summary.of([float(i) for i in range(11)]), Summary(5.0, 1.0, 9.0, 11))

    def test_noise_is_the_relative_half_width_of_the_medians_interval(self):
        # The interval of 400 samples of a normal distribution: 1.96 * 1.253 * sigma / sqrt(400) = 0.123 sigma.
        chance = random.Random(2)
        values = [chance.gauss(100.0, 2.0) for _ in range(400)]
        self.assertAlmostEqual(median_noise(values), 0.123 * 2.0 / 100.0, delta=0.0005)

    def test_an_outlier_is_no_noise_but_few_samples_are(self):
        self.assertEqual(median_noise([5.0] * 20 + [500.0]), 0.0)
        self.assertEqual(median_noise([5.0] * 3), math.inf)

    def test_a_geometric_mean_of_a_ratio_and_its_inverse_is_one(self):
        self.assertAlmostEqual(geometric_mean([4.0, 0.25]), 1.0)
