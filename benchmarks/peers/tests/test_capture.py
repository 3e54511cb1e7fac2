# benchmarks/peers/tests/test_capture.py -- What lies around a capture, on a CUDA that writes it down.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import gc
import unittest
from unittest import mock

from .support import needs_torch, torch

if torch is not None:
    from peers.engine import capture


class Cuda:
    """Stands for torch.cuda: a trace; a stream is a name, and a capture can fail where it begins or ends."""

    def __init__(self, trace):
        self.trace, self.now, self.asked, self.fails_at = trace, "user's", None, ""
        self.default_generators = [mock.Mock()]
        self.CUDAGraph = mock.Mock
        self.current_device = lambda: 0
        self.current_stream = lambda: mock.Mock(wait_stream=lambda other: trace.append(f"{self.now} waits"), on=self.now)
        self.synchronize = lambda: trace.append("synchronize")

    def set_stream(self, stream):
        self.now = stream.on

    @contextlib.contextmanager
    def stream(self, entered):
        before, self.now = self.now, entered.on
        yield
        self.now = before

    def graph(self, made, **asked):
        self.captured, self.asked = made, asked
        return _Captured(self)

    def note(self, word):
        self.trace.append(word)
        if self.fails_at == word:
            raise RuntimeError(f"capture cannot {word}")


class _Captured:
    def __init__(self, cuda):
        self._cuda = cuda

    def __enter__(self):
        self._cuda.now = "capture's"
        self._cuda.note("begin")

    def __exit__(self, *reason):
        self._cuda.note("end")
        self._cuda.now = "user's"


@needs_torch
class CaptureTest(unittest.TestCase):
    def setUp(self):
        self.trace = []
        self.cuda, self.fresh = Cuda(self.trace), mock.Mock()
        clear = mock.Mock(side_effect=lambda: self.trace.append("clear"))
        for patch in (
            mock.patch.object(torch, "cuda", self.cuda),
            mock.patch.object(torch, "Generator", lambda device: self.fresh),
            mock.patch.object(torch._C, "_cuda_clearCublasWorkspaces", clear, create=True),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(gc.enable if gc.isenabled() else gc.disable)
        self.renewed = self.cuda.default_generators[0].graphsafe_set_state

    def run_once(self):
        self.trace.append("collected meanwhile" if gc.isenabled() else "run")
        return "result"

    def breaks(self):
        self.run_once()
        try:
            raise KeyError("an earlier one, which was dealt with")
        except KeyError:
            raise ArithmeticError("a value in the middle")

    def expect_clean(self):
        self.assertEqual((self.trace[0], self.trace[-1], self.trace.count("clear")), ("clear", "clear", 2))
        self.assertEqual(self.cuda.now, "user's")
        self.assertTrue(gc.isenabled())

    def test_workspaces_are_the_graphs_own_and_no_garbage_is_collected_meanwhile(self):
        graph, result = capture.capture(self.run_once, "side", "pool", "thread_local")
        self.assertEqual(self.trace, ["clear", "begin", "run", "end", "clear"])
        self.assertIs(graph, self.cuda.captured)
        self.assertEqual(result, "result")
        self.assertEqual(self.cuda.asked, {"stream": "side", "pool": "pool", "capture_error_mode": "thread_local"})
        self.renewed.assert_not_called()
        self.expect_clean()

    def test_garbage_is_collected_before(self):
        with mock.patch.object(gc, "collect", lambda: self.trace.append("collect")):
            capture.capture(self.run_once)
        self.assertEqual(self.trace[0], "collect")

    def test_a_collector_that_was_off_stays_off(self):
        gc.disable()
        with capture.no_collection():
            pass
        self.assertFalse(gc.isenabled())

    def test_what_broke_it_is_told_whatever_its_end_says_and_the_next_capture_finds_all_in_order(self):
        for fails_at in ("", "end"):
            with self.subTest(fails_at):
                self.trace.clear()
                self.renewed.reset_mock()
                self.cuda.fails_at = fails_at
                with self.assertRaisesRegex(ArithmeticError, "a value in the middle"):
                    capture.capture(self.breaks)
                self.assertEqual(self.trace, ["clear", "begin", "run", "end", "clear"])
                self.renewed.assert_called_once_with(self.fresh.graphsafe_get_state())
                self.expect_clean()

    def test_a_capture_that_cannot_begin_or_end_says_so_and_leaves_all_in_order(self):
        for fails_at in ("begin", "end"):
            with self.subTest(fails_at):
                self.trace.clear()
                self.renewed.reset_mock()
                self.cuda.fails_at = fails_at
                with self.assertRaisesRegex(RuntimeError, f"cannot {fails_at}"):
                    capture.capture(self.run_once)
                self.renewed.assert_called_once_with(self.fresh.graphsafe_get_state())
                self.expect_clean()

    def test_first_calls_are_made_on_the_stream_of_the_capture(self):
        side = mock.Mock(on="side", wait_stream=lambda other: self.trace.append("side waits"))
        capture.warm(lambda: self.trace.append(f"run on {self.cuda.now}"), side, 2)
        wanted = ["side waits", "run on side", "run on side", "user's waits", "synchronize"]
        self.assertEqual(self.trace, wanted)


if __name__ == "__main__":
    unittest.main()
