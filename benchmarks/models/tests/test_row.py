# benchmarks/models/tests/test_row.py -- Wrong answers and failures leave a row, the others go on.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import random
import unittest

from .support import needs

try:
    import torch
    from models import row
    from models.clock import CpuClock
except ImportError:
    torch = None


class _Clock:
    """Times by the way that is entered; a lost device on demand."""

    modes = ("eager", "graph")

    def __init__(self, ms):
        self.ms, self.now, self.lost = ms, "torch", False

    def way(self, name):
        @contextlib.contextmanager
        def entered():
            self.now = name
            yield

        return entered

    def synchronize(self):
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access")

    def release(self):
        pass

    def passes(self, run, count):
        run()
        return self.ms[self.now]

    def host(self, run):
        return self.ms[self.now] / 10

    def capture(self, run):
        answer = run()
        return (lambda: answer.copy_(run())), answer


@needs("torch")
class RowTest(unittest.TestCase):
    def setUp(self):
        self.clock = _Clock({"torch": 3.0, "cudnn": 2.0, "vitune": 1.0})
        self.wanted = torch.randn(4, 8)
        self.answers = {}  # way -> what the model answers within it

    def measure(self, mode="eager", clock=None):
        def forward():
            found = self.answers.get(self.clock.now, self.wanted)
            if isinstance(found, Exception):
                raise found
            return found.clone()

        subject = row.Subject(forward, self.wanted)
        served = {name: self.clock.way(name) for name in self.clock.ms}
        return row.measure(mode, subject, served, clock or self.clock, 0.0, random.Random(1))

    def test_every_way_has_its_median_and_interval_and_host_time(self):
        for mode in ("eager", "graph"):
            found = self.measure(mode)
            self.assertEqual(found["mode"], mode)
            self.assertEqual({n: t["ms"] for n, t in found["ms"].items()}, self.clock.ms)
            self.assertEqual(found["host_ms"]["vitune"]["ms"], 0.1)
            self.assertEqual((found["gain"]["over"], found["gain"]["times"]), ("cudnn", 2.0))
            self.assertGreaterEqual(found["ms"]["torch"]["samples"], 6)

    def test_a_wrong_answer_of_one_image_leaves_without_a_time(self):
        self.answers["vitune"] = self.wanted.clone()
        self.answers["vitune"][2] *= 1.005  # a mean over the images would not show it
        for mode in ("eager", "graph"):
            found = self.measure(mode)
            self.assertIn("wrong answer", found["failed"]["vitune"])
            self.assertEqual(sorted(found["ms"]), ["cudnn", "torch"])
            self.assertIsNone(found["gain"])

    def test_an_answer_that_is_not_finite_is_wrong(self):
        for value in (float("nan"), float("inf")):
            self.answers["vitune"] = self.wanted.clone()
            self.answers["vitune"][1, 1] = value
            self.assertIn("wrong answer", self.measure()["failed"]["vitune"])

    def test_a_graph_that_writes_nothing_is_wrong(self):
        self.clock.capture = lambda run: ((lambda: None), run())
        self.assertEqual(len(self.measure("graph")["failed"]), 3)

    def test_a_way_that_raises_leaves_and_the_others_go_on(self):
        self.answers["cudnn"] = RuntimeError("no plan")
        found = self.measure()
        self.assertEqual(found["failed"], {"cudnn": "RuntimeError: no plan"})
        self.assertEqual(found["gain"]["over"], "torch")

    def test_a_way_that_fails_after_rounds_says_so_and_has_no_time(self):
        count, passes = 0, self.clock.passes

        def fails_later(run, of):
            nonlocal count
            count += self.clock.now == "cudnn"
            if self.clock.now == "cudnn" and count > 3:
                raise RuntimeError("out of memory")
            return passes(run, of)

        self.clock.passes = fails_later
        found = self.measure()
        self.assertEqual(found["failed"], {"cudnn": "RuntimeError: out of memory"})
        self.assertEqual(sorted(found["ms"]), sorted(found["host_ms"]))
        self.assertEqual(sorted(found["ms"]), ["torch", "vitune"])

    def test_a_lost_device_is_told_apart(self):
        self.answers["cudnn"] = RuntimeError("illegal")
        self.clock.lost = True
        with self.assertRaises(row.Poisoned):
            self.measure()

    def test_without_a_yardstick_nothing_is_judged(self):
        self.answers["torch"] = -self.wanted
        with self.assertRaises(ValueError):
            self.measure()

    def test_the_cpu_clock_measures(self):
        found = self.measure(clock=CpuClock())
        self.assertTrue(all(time["ms"] > 0 for time in found["ms"].values()))
