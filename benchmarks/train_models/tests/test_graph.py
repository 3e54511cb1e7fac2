# benchmarks/train_models/tests/test_graph.py -- Captures share a stream and a pool; on a GPU, replays of captured steps train as called steps do.
# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from .support import needs, training

try:
    import torch
    from train_models import graph as graph_module
    from train_models.graph import WARM, Captures

    HAS_GPU = torch.cuda.is_available()
except ImportError:
    HAS_GPU = False


@needs("torch")
class CapturesTest(unittest.TestCase):
    def setUp(self):
        self.cuda, self.capture = mock.Mock(), mock.Mock()
        self.cuda.graph_pool_handle.side_effect = ["first pool", "second pool"]
        for patch in (mock.patch.object(torch, "cuda", self.cuda), mock.patch.object(graph_module, "capture", self.capture)):
            patch.start()
            self.addCleanup(patch.stop)
        self.captures, self.stream = Captures(mock.Mock()), self.cuda.Stream.return_value

    def captured(self):
        return self.capture.capture.call_args_list

    def test_steps_are_captured_on_the_stream_that_they_ran_on_and_share_a_pool_which_an_anchor_keeps(self):
        self.captures.warm("step")
        self.capture.warm.assert_called_once_with("step", self.stream, WARM)
        self.assertIs(self.captures.capture("step"), self.capture.capture.return_value)
        self.captures.capture("other")
        self.assertEqual(self.captured(), [mock.call(mock.ANY, self.stream, "first pool"), mock.call("step", self.stream, "first pool"),
                                           mock.call("other", self.stream, "first pool")])  # fmt: skip

    def test_a_pool_in_which_a_capture_failed_is_not_used_again(self):
        self.capture.capture.side_effect = [mock.DEFAULT, RuntimeError("no")]
        with self.assertRaisesRegex(RuntimeError, "no"):
            self.captures.capture("step")
        self.capture.capture.side_effect = None
        self.captures.capture("step")
        self.assertEqual(self.captured()[2:], [mock.call(mock.ANY, self.stream, "second pool"), mock.call("step", self.stream, "second pool")])


@needs("torch")
@unittest.skipUnless(HAS_GPU, "no CUDA device")
class GraphTest(unittest.TestCase):
    def test_two_graphs_of_one_pool_replayed_in_turn_train_as_called_steps_do(self):
        for params in ("amp", "bf16"):
            wanted, replayed = (training("cuda", 1e-3, params) for _ in range(2))
            step, captures = replayed.step(replayed.model), Captures(replayed)
            captures.warm(step)
            captures.capture(step)  # one that is gone when the others are made
            graphs = [captures.capture(step) for _ in range(2)]
            found = []
            for graph, loss in graphs * 3:
                loss.fill_(float("nan"))
                graph.replay()
                found.append(float(loss))
            called = wanted.step(wanted.model)
            losses = [float(called()) for _ in range(3 + 6)]  # those before the capture too
            torch.testing.assert_close(torch.tensor(found), torch.tensor(losses[3:]), rtol=1e-3, atol=1e-3)
            self.assertEqual(replayed.count(), 9)
            self.assertLess(found[-1], found[0])
            for one, other in zip(wanted.model.parameters(), replayed.model.parameters()):
                torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-3)

    def test_a_capture_that_fails_leaves_the_next_one_whole(self):
        trained = training("cuda")
        captures, step = Captures(trained), trained.step(trained.model)
        captures.warm(step)
        stream = torch.cuda.current_stream()

        def breaks():
            raise ArithmeticError(float(step()))  # a value is asked for in the middle

        with self.assertRaisesRegex(RuntimeError, "captur"):
            captures.capture(breaks)
        self.assertEqual(torch.cuda.current_stream(), stream)
        torch.cuda.synchronize()
        captures.warm(step)
        graph, loss = captures.capture(step)
        loss.fill_(float("nan"))
        graph.replay()
        self.assertTrue(torch.isfinite(loss))

    def test_a_graph_is_right_after_workspaces_were_freed(self):
        """As torch.compile's reduce-overhead frees them: what then writes to their memory is not this graph."""
        trained = training("cuda")
        captures, step = Captures(trained), trained.step(trained.model)
        captures.warm(step)
        graph, loss = captures.capture(step)
        wanted = float(step())
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        others = [torch.full((2**20,), 7.0, device="cuda") for _ in range(64)]  # in the memory that was freed
        loss.fill_(float("nan"))
        graph.replay()
        torch.testing.assert_close(float(loss), wanted, rtol=1e-3, atol=1e-3)
        for each in others:
            self.assertTrue(bool((each == 7).all()))
