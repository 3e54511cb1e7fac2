# benchmarks/models/tests/test_row.py -- Wrong answers and failures leave a row, the others go on.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import random
import unittest
from unittest import mock

from .support import needs

try:
    import torch
    from models import row
    from models.clock import CpuClock, kernels_of
    from torch.autograd import DeviceType
except ImportError:
    torch = None


class _Clock:
    """Times by the way that is entered; a lost device on demand."""

    modes = ("eager", "graph")

    def __init__(self, ms):
        self.ms, self.now, self.lost, self.unseen = ms, "torch", False, None

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

    def peak(self, run):
        return 100.0 + self.ms[self.now], run()

    def kernels(self, run):
        run()
        if self.unseen == self.now:
            raise RuntimeError("CUPTI_ERROR")
        return [("nvjet_" + 200 * "x", 8.0, 2.0), ("Memset (Device)", self.ms[self.now], 1.0)]


@needs("torch")
class RowTest(unittest.TestCase):
    def setUp(self):
        self.clock = _Clock({"torch": 3.0, "cudnn": 2.0, "vitune": 1.0})
        self.wanted = torch.randn(4, 8)
        self.answers = {}  # way -> what the model answers within it

    def measure(self, mode="eager", clock=None, by_kind=True):
        def forward():
            found = self.answers.get(self.clock.now, self.wanted)
            if isinstance(found, Exception):
                raise found
            return found.clone()

        subject = row.Subject(forward, self.wanted)
        clock = clock or self.clock
        served = {name: self.clock.way(name) for name in self.clock.ms}
        race = row.Race(("torch", "cudnn"), "vitune", 0.0, random.Random(1), by_kind)
        return row.measure(mode, subject, row.candidates(mode, subject, served, clock), clock, race)

    def test_every_way_has_its_median_and_interval_and_host_time(self):
        for mode in ("eager", "graph"):
            found = self.measure(mode)
            self.assertEqual(found["mode"], mode)
            self.assertEqual({n: t["ms"] for n, t in found["ms"].items()}, self.clock.ms)
            self.assertEqual(found["host_ms"]["vitune"]["ms"], 0.1)
            self.assertEqual((found["gain"]["over"], found["gain"]["times"]), ("cudnn", 2.0))
            self.assertGreaterEqual(found["ms"]["torch"]["samples"], 6)

    def test_memory_and_time_by_kind_of_every_way(self):
        for mode in ("eager", "graph"):
            found = self.measure(mode)
            self.assertEqual(found["memory_mb"], {"torch": 103.0, "cudnn": 102.0, "vitune": 101.0})
            self.assertEqual(found["kinds_us"]["cudnn"], {"gemm": 8.0, "copies": 2.0})
            self.assertNotIn("kernels", found)  # the kinds say enough
        self.assertNotIn("kinds_us", self.measure(by_kind=False))

    def test_the_longest_kernels_are_named_where_they_are_asked_for(self):
        found = {}
        row.by_kind(found, "vitune", lambda: None, contextlib.nullcontext, self.clock, most=1)
        (first,) = found["kernels"]["vitune"]
        self.assertEqual((len(first["name"]), first["us"], first["calls"]), (90, 8.0, 2.0))

    def test_what_a_profiler_does_not_see_is_absent(self):
        self.clock.unseen = "vitune"
        found = self.measure()
        self.assertEqual(sorted(found["kinds_us"]), ["cudnn", "torch"])
        self.assertEqual(found["not_profiled"], {"vitune": "RuntimeError: CUPTI_ERROR"})
        self.assertIn("vitune", found["ms"])
        for field in ("kinds_us", "memory_mb", "not_profiled"):
            self.assertNotIn(field, self.measure(clock=CpuClock()), field)

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
        with self.assertRaisesRegex(row.Poisoned, "^cudnn as [a-z]+, prepared: RuntimeError: CUDA error") as found:
            self.measure()
        self.assertRegex(found.exception.way, "^cudnn as [a-z]+$")

    def test_without_a_yardstick_nothing_is_judged(self):
        self.answers["torch"] = -self.wanted
        with self.assertRaises(ValueError):
            self.measure()

    def test_the_cpu_clock_measures(self):
        found = self.measure(clock=CpuClock())
        self.assertTrue(all(time["ms"] > 0 for time in found["ms"].values()))

    def test_kernels_are_what_ran_on_the_device_for_each_pass(self):
        def event(name, us, device="CUDA", region=False):
            times = mock.Mock(elapsed_us=lambda: us)
            found = mock.Mock(device_type=getattr(DeviceType, device), is_user_annotation=region, time_range=times)
            found.name = name
            return found

        events = [event("a", 2.0), event("b", 9.0), event("a", 4.0), event("aten::mm", 50.0, "CPU"),
                  event("forward", 99.0, region=True), event("Torch-Compiled Region: 0/0", 99.0)]  # fmt: skip
        self.assertEqual(kernels_of(events, 2), [("b", 4.5, 0.5), ("a", 3.0, 1.0)])
