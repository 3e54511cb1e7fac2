# python/tests/test_torch_compile_attention_race.py -- The race of attention in vitune.compile(): who is put in, both sides, how they are timed.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import unittest
from unittest import mock

from .support import torch
from .test_torch_compile import CompileCase, served_by_nearest

if torch is not None:
    import torch.nn.functional as F

    from vitune._compile import backend
    from vitune._compile.patterns import attention as attention_pattern, benchmark

    from .torch_cases import packed


class RaceTest(CompileCase):
    """A race that would be on a GPU, with times of the test's own."""

    def setUp(self):
        super().setUp()
        self.raced, self.times = [], benchmark.Times(10.0, 20.0)
        for name, value in (("can_race", lambda device: True), ("race", self.race)):
            patch = mock.patch.object(benchmark, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        for patch in (mock.patch.object(backend, "_times", {}), mock.patch.object(attention_pattern, "selected", served_by_nearest)):
            patch.start()
            self.addCleanup(patch.stop)

    def race(self, ours, theirs, device):
        self.raced.append((ours(), theirs()))
        if isinstance(self.times, Exception):
            raise self.times
        return self.times

    def attend(self, call=F.scaled_dot_product_attention if torch is not None else None, qkv=None, **keywords):
        torch._dynamo.reset()
        with torch.no_grad():
            _, report = self.compiled(lambda q, k, v: call(q, k, v), *(qkv or packed(2, 5, 3, 64, dtype=torch.bfloat16)), **keywords)
        return report.calls[0]

    def test_who_loses_is_left_out_and_both_times_are_told(self):
        self.assertTrue(self.attend().replaced)
        for ours, theirs, replaced in ((20.0, 10.0, False), (10.2, 10.0, True), (10.4, 10.0, False)):
            with self.subTest(ours), mock.patch.object(backend, "_times", {}):
                self.times = benchmark.Times(ours, theirs)
                call = self.attend()
                self.assertEqual((call.replaced, call.times), (replaced, self.times))
                self.assertIn(f"{ours} us here, PyTorch's {theirs}; ", str(call))
                self.assertEqual("PyTorch's was faster" in call.reason, not replaced)

    def test_what_cannot_be_raced_is_replaced_as_ever(self):
        self.times = torch.OutOfMemoryError("of the test")
        call = self.attend()
        self.assertEqual((call.replaced, call.times, len(self.raced)), (True, None, 1))

    def test_who_names_an_operator_is_not_asked_for_times(self):
        self.assertEqual((self.attend(replace="attention").replaced, self.raced), (True, []))

    def test_a_problem_is_raced_once(self):
        q, k, v = packed(2, 5, 3, 64, dtype=torch.bfloat16)
        self.attend(lambda q, k, v: F.scaled_dot_product_attention(q, k, v) + F.scaled_dot_product_attention(q, k, v) * 2)
        self.attend()
        self.assertEqual(len(self.raced), 1)
        self.attend(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        self.assertEqual(len(self.raced), 2)

    def test_both_sides_are_the_same_attention_of_finite_numbers(self):
        bias, masks = torch.randn(1, 3, 5, 5, dtype=torch.bfloat16), torch.randn(4, 5, 5, dtype=torch.bfloat16)
        keep = torch.rand(1, 1, 5, 5) > 0.5
        heads = torch.nn.MultiheadAttention(32, 2, batch_first=True).bfloat16().eval()
        sdpa = F.scaled_dot_product_attention

        def windows(q, k, v):
            return sdpa(q, k, v, bias + masks.view(1, 4, 1, 5, 5).expand(2, -1, 3, -1, -1).reshape(-1, 3, 5, 5))
        x = torch.randn(2, 9, 32, dtype=torch.bfloat16)
        cases = {"plain": (sdpa, None), "causal": (lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.3), None),
                 "mask": (lambda q, k, v: sdpa(q, k, v, keep.expand(2, 3, 5, 5)), None),
                 "shared heads": (lambda q, k, v: sdpa(q, k[:, :1], v[:, :1], enable_gqa=True), None),
                 "windows": (windows, packed(8, 5, 3, 64, dtype=torch.bfloat16)),
                 "written out": (lambda q, k, v: ((q * 0.3) @ k.mT + bias).softmax(-1) @ v, None),
                 "heads": (lambda x, *_: heads(x, x, x, need_weights=False)[0], (x, x, x))}
        for name, (call, qkv) in cases.items():
            with self.subTest(name):
                self.assertTrue(self.attend(call, qkv).replaced)
                ours, theirs = self.raced[-1]
                self.assertTrue(ours.isfinite().all() and ours.std() > 0.05)
                self.expect_close(ours, theirs)
        self.assertEqual(len(self.raced), len(cases))

    def test_tensors_made_up_lie_as_they_did_and_leave_the_users_chance_alone(self):
        like = torch.empty_strided((2, 3, 4), (40, 0, 2), dtype=torch.bfloat16, device="meta")
        before = torch.get_rng_state()
        with benchmark.apart():
            made, flags = (benchmark.sample(each, torch.device("cpu")) for each in (like, like.bool()))
        self.assertEqual((made.shape, made.stride(), made.dtype), (like.shape, like.stride(), like.dtype))
        self.assertTrue(made.std() > 0.1 and flags.all())
        self.assertTrue(torch.equal(torch.get_rng_state(), before))


class _Gpu:
    """A host that queues work and a GPU that does it: what benchmark.race() asks of torch.cuda. All in milliseconds."""

    def __init__(self):
        self.host, self.free, self.graph, gpu = 0.0, 0.0, None, self  # free: when all that is queued is done

        class Event:
            def __init__(self, enable_timing):
                pass

            def record(self, stream):
                self.at = gpu.queued(0.0)

            def synchronize(self):
                gpu.host = max(gpu.host, self.at)

            def query(self):
                return self.at <= gpu.host

            def elapsed_time(self, end):
                return end.at - self.at

        class Graph:
            def capture_begin(self, capture_error_mode):
                gpu.graph, self.calls, self.launch = self, [], 0.0

            def capture_end(self):
                gpu.graph = None

            def replay(self):
                gpu.host += self.launch
                for ms in self.calls:
                    gpu.queued(ms)
        self.stands_in = {"Event": Event, "CUDAGraph": Graph, "Stream": mock.MagicMock(), "current_stream": mock.MagicMock(),
                          "stream": contextlib.nullcontext, "device": contextlib.nullcontext,
                          "_sleep": lambda cycles: self.queued(cycles / 2e6)}

    def queued(self, ms):
        """When what the host queues now is done."""
        self.free = max(self.free, self.host) + ms
        return self.free

    def call(self, us, first_ms=0.0, launch_us=0.0):
        """A kernel of so many microseconds, and the host's for its launch in a graph; its first call takes longer, and cannot be
        captured."""
        calls = []

        def run():
            calls.append(us)
            if self.graph is not None:
                self.graph.calls.append(us / 1e3)
                self.graph.launch += launch_us / 1e3
            else:
                self.host += first_ms if len(calls) == 1 else 0.03
                self.queued(us / 1e3)
        run.calls = calls
        return run


@unittest.skipIf(torch is None, "PyTorch is not installed")
class RaceTimesTest(unittest.TestCase):
    def setUp(self):
        self.gpu = _Gpu()
        patch = mock.patch.multiple(torch.cuda, **self.gpu.stands_in)
        patch.start()
        self.addCleanup(patch.stop)

    def test_times_are_those_of_the_gpu_alone_per_call(self):
        fast, slow = self.gpu.call(5.0, first_ms=90.0), self.gpu.call(2000.0)
        times = benchmark.race(fast, slow, torch.device("cuda:0"))
        self.assertAlmostEqual(times.ours_us, 5.0)
        self.assertAlmostEqual(times.theirs_us, 2000.0)
        self.assertFalse(times.lost)
        self.assertEqual((len(fast.calls), len(slow.calls)), (3 + 32, 3 + 1))  # a graph of a millisecond, by the time with the host's

    def test_what_the_host_takes_to_launch_a_graph_is_hidden_as_in_a_model(self):
        for launch_us in (3.0, 60.0):
            ours, theirs = self.gpu.call(5.0, launch_us=launch_us), self.gpu.call(6.0, launch_us=1.0)
            times = benchmark.race(ours, theirs, torch.device("cuda:0"))
            self.assertAlmostEqual(times.ours_us, 5.0)
            self.assertAlmostEqual(times.theirs_us, 6.0)

    def test_what_is_slow_until_the_gpu_has_its_clocks_does_not_count(self):
        slow, replays = [], 0
        inner = self.gpu.stands_in["CUDAGraph"]

        class Graph(inner):
            def replay(graph):
                nonlocal replays
                replays += 1
                super().replay()
                if replays <= 16:
                    self.gpu.queued(5.0)
                    slow.append(replays)
        with mock.patch.object(torch.cuda, "CUDAGraph", Graph):
            times = benchmark.race(self.gpu.call(5.0), self.gpu.call(8.0), torch.device("cuda:0"))
        self.assertEqual(len(slow), 16)
        self.assertAlmostEqual(times.ours_us, 5.0)
        self.assertAlmostEqual(times.theirs_us, 8.0)

    def test_a_call_that_cannot_be_captured_ends_its_capture(self):
        def refused():
            if self.gpu.graph is not None:
                raise RuntimeError("not permitted when stream is capturing")
        with self.assertRaisesRegex(RuntimeError, "not permitted"):
            benchmark.race(refused, self.gpu.call(1.0), torch.device("cuda:0"))
        self.assertIsNone(self.gpu.graph)


if __name__ == "__main__":
    unittest.main()
