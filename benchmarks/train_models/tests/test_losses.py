# benchmarks/train_models/tests/test_losses.py -- Losses fall, and their distance to fp32 is that of the same steps.
# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from .support import needs, small

try:
    import torch
    from models.clock import CpuClock
    from train_models import losses, zoo
except ImportError:
    torch = None


@needs("torch")
class LossesTest(unittest.TestCase):
    def measure(self, build, steps=40):
        builds = {"eager": losses.BUILDS["eager"], "default": build, "vitune_in_graph": losses.BUILDS["eager"]}
        with (
            mock.patch.object(losses, "STEPS", steps),
            mock.patch.object(losses, "RATE", 3e-2),
            mock.patch.object(losses, "BUILDS", builds),
            mock.patch.object(zoo, "build", lambda name, params, device: (small(losses.PATTERNS), 4)),
        ):
            return losses.measure("small", 32, "cpu", CpuClock())

    def test_every_way_learns_the_same_steps_and_is_near_fp32(self):
        found = self.measure(losses.BUILDS["eager"])
        self.assertEqual((found["steps"], found["seeds"], found["failed"]), (40, len(losses.SEEDS), {}))
        self.assertEqual(set(found["distance"]), {"eager", "compile_default", "vitune_compile"})
        self.assertEqual(found["distance"]["eager"], found["distance"]["compile_default"])  # nothing else differs
        for spread in found["distance"].values():
            self.assertLess(0.0, spread["least"])
            self.assertLessEqual(spread["least"], spread["mean"])
            self.assertLessEqual(spread["mean"], spread["most"])
            self.assertLess(spread["most"], 0.1)
        self.assertEqual(set(found["last_loss"]), {"fp32", *found["distance"]})
        self.assertLess(max(found["last_loss"]["fp32"]), 2.0)  # from ln 10
        self.assertEqual(len(set(found["last_loss"]["fp32"])), len(losses.SEEDS))
        for way, curves in found["curve"].items():
            self.assertEqual([len(curve) for curve in curves], [4] * len(losses.SEEDS), way)

    def test_wrong_gradients_are_far_from_fp32(self):
        def build(training):
            def forward(images):
                logits = training.model(images)
                return 2 * logits.detach() - logits  # climbs

            return training.step(forward), None

        found = self.measure(build)
        self.assertGreater(found["distance"]["compile_default"]["least"], 5 * found["distance"]["eager"]["most"])

    def test_a_way_that_fails_says_why(self):
        def build(training):
            raise RuntimeError("no Triton")

        found = self.measure(build, steps=2)
        self.assertEqual(found["failed"], {"compile_default": "RuntimeError: no Triton"})
        self.assertEqual(set(found["distance"]), {"eager", "vitune_compile"})
