# benchmarks/train_models/tests/test_graph.py -- Replays of captured steps train as called steps do. Needs a GPU.
# SPDX-License-Identifier: Apache-2.0
import unittest

from .support import needs, training

try:
    import torch
    from train_models.graph import Captures

    HAS_GPU = torch.cuda.is_available()
except ImportError:
    HAS_GPU = False


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
