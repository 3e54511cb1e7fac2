# benchmarks/peers/tests/test_timing.py -- What is queued for a time, on a CUDA that writes it down.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import types
import unittest
from unittest import mock

from .support import needs_torch, torch

from peers.engine.peer import Call
from peers.engine.rounds import PeerFailed

if torch is not None:
    from peers.engine import timing


class Cuda:
    """Stands for torch.cuda: a trace of what was queued; every event is 3 microseconds apart."""

    def __init__(self):
        self.trace, self.host = [], 0.0
        outer = self

        class Event:
            def __init__(self, enable_timing):
                pass

            def record(self):
                outer.trace.append("event")

            def elapsed_time(self, end):
                return 0.003

        class Graph:
            def replay(self):
                outer.trace.append(f"replay {self.calls}")

        @contextlib.contextmanager
        def graph(made, pool, stream, capture_error_mode):
            self.captured_on = stream
            before = len(outer.trace)
            yield
            made.calls = len(outer.trace) - before
            del outer.trace[before:]

        self.Event, self.CUDAGraph, self.graph = Event, Graph, graph
        streams = [types.SimpleNamespace(wait_stream=lambda other: None)]
        self.current_stream = lambda: streams[-1]
        self.Stream = lambda: types.SimpleNamespace(wait_stream=lambda other: None)

        @contextlib.contextmanager
        def stream(entered):
            streams.append(entered)
            yield
            streams.pop()

        self.stream = stream
        self._sleep = lambda cycles: self.trace.append(f"hold {cycles / 2e9:.4f}")
        self.synchronize = lambda: self.trace.append("wait")
        self.empty_cache = lambda: None
        self.current_device = lambda: 0
        self.get_device_properties = lambda device: types.SimpleNamespace(L2_cache_size=60 << 20)


@needs_torch
class TimerTest(unittest.TestCase):
    def setUp(self):
        self.cuda, self.seconds = Cuda(), [0.0]
        for target, value in (
            ("peers.engine.timing.torch.cuda", self.cuda),
            ("peers.engine.timing.torch.zeros", mock.Mock()),
            ("peers.engine.timing.torch.empty", mock.Mock()),
            ("peers.engine.timing.time.perf_counter", lambda: self.seconds[0]),
        ):
            patch = mock.patch(target, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.clear = mock.Mock()
        patch = mock.patch.object(torch._C, "_cuda_clearCublasWorkspaces", self.clear, create=True)
        patch.start()
        self.addCleanup(patch.stop)
        patch = mock.patch("peers.engine.timing.torch.sum", lambda *a, **k: self.cuda.trace.append("read"))
        patch.start()
        self.addCleanup(patch.stop)
        self.timer = timing.DeviceTimer()

    def call(self, name, seconds=0.0, within=contextlib.nullcontext):
        def run():
            self.seconds[0] += seconds
            self.cuda.trace.append(name)

        return Call(run, within=within)

    def test_a_cold_call_has_the_l2_read_before_its_first_event_and_nothing_between(self):
        self.assertEqual(
            self.timer.cold_round(["b", "a"], {n: self.call(n) for n in "ab"}), {"a": 3.0, "b": 3.0}
        )
        wanted = "wait hold read event b event read event a event wait"
        self.assertEqual([word.split()[0] for word in self.cuda.trace], wanted.split())

    def test_the_buffer_is_read_whole_and_is_at_least_four_times_the_l2(self):
        self.assertEqual(self.timer.flush_bytes, 256 << 20)

    def test_a_round_that_the_host_was_too_slow_for_is_taken_again_and_held_longer(self):
        self.timer.cold_round(["slow"], {"slow": self.call("slow", seconds=0.1)})
        holds = [float(word.split()[1]) for word in self.cuda.trace if word.startswith("hold")]
        self.assertEqual(len(holds), 2)
        self.assertGreater(holds[1], 0.1)

    def test_a_peers_backend_is_pinned_while_its_call_is_queued(self):
        @contextlib.contextmanager
        def within():
            self.cuda.trace.append("pinned")
            yield
            self.cuda.trace.append("free")

        self.timer.cold_round(["a"], {"a": self.call("a", within=within)})
        trace = self.cuda.trace
        self.assertTrue(trace.index("pinned") < trace.index("a") < trace.index("free"))

    def test_a_graph_has_as_many_calls_as_fill_two_milliseconds_and_its_time_is_per_call(self):
        calls = {name: self.call(name) for name in ("quick", "middle", "slow")}
        cases = (("quick", 4.0, 100), ("middle", 100.0, 20), ("slow", 9e4, 1))
        for name, cold_us, repeats in cases:
            self.timer.capture(name, calls[name], cold_us)
            self.cuda.trace.clear()
            self.assertEqual(self.timer.warm_round([name], calls), {name: 3.0 / repeats})
            untimed = [f"replay {repeats}"] * (repeats > 1)
            self.assertEqual(
                self.cuda.trace[2:], [*untimed, "event", f"replay {repeats}", "event", "wait"]
            )

    def test_a_capture_is_of_the_stream_that_the_call_ran_on_before(self):
        """Autograd's backward pass runs where its forward pass did."""
        streams = []
        self.timer.capture("a", Call(lambda: streams.append(self.cuda.current_stream())), 5000.0)
        self.assertIs(streams[0], self.cuda.captured_on)
        self.assertIsNot(streams[0], self.cuda.current_stream())

    def test_a_graph_owns_its_workspaces(self):
        cleared = []
        self.timer.capture("a", Call(lambda: cleared.append(self.clear.call_count)), 1000.0)
        self.assertEqual((cleared, self.clear.call_count), ([0, 1, 1], 2))  # once outside of the capture

    def test_a_call_that_fails_is_named(self):
        def fail():
            raise ValueError("no luck")

        with self.assertRaisesRegex(PeerFailed, "bad: ValueError: no luck"):
            self.timer.cold_round(["a", "bad"], {"a": self.call("a"), "bad": Call(fail)})

    def test_a_python_call_is_host_time_over_the_number_of_calls(self):
        queued, done = self.timer.python_call(self.call("a", seconds=2e-5), 10.0)
        self.assertAlmostEqual(queued, 20.0)
        self.assertAlmostEqual(done, 20.0)
        self.assertEqual(self.cuda.trace.count("a"), 150)
