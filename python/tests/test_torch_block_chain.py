# python/tests/test_torch_block_chain.py -- benchmarks/lab/block_chain.py on the emulated device: every chain is the model, every problem named.
# SPDX-License-Identifier: Apache-2.0
import importlib.util
import sys
import unittest
from unittest import mock

import vitune

from .support import ROOT, needs_device, needs_torch, torch

if torch is not None:
    from vitune._ops import linear as linear_ops, norm as norm_ops

    from .test_torch_host import TorchTest
    from .test_torch_linear import launch_staged
    from .test_torch_norm import launch_staged as launch_norm_staged

    def load():
        spec = importlib.util.spec_from_file_location("block_chain", ROOT / "benchmarks" / "lab" / "block_chain.py")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
else:
    TorchTest = unittest.TestCase


@needs_device
@needs_torch
class BlockChainTest(TorchTest):
    def setUp(self):
        super().setUp()
        self.chain, self.asked = load(), set()
        self.addCleanup(sys.modules.pop, "block_chain")

        def launch(problem, tensors):
            self.asked.add(problem.text)
            launch_staged(problem, tensors)
        for module, name, value in ((linear_ops, "launch", launch), (norm_ops, "launch", launch_norm_staged)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.shape = self.chain.Shape(image=32, patch=16, width=64, heads=1, depth=2, hidden=128, classes=10)

    def test_every_chain_is_the_model(self):
        with torch.inference_mode():
            rows = self.chain.run(self.shape, 2, torch.device("cpu"), False)
        self.assertEqual([row["way"] for row in rows], list(self.chain.CHAINS))
        for row in rows:
            with self.subTest(row["way"]):
                self.assertNotIn("failed", row)
                self.assertLess(row["error_over_eager"], 1.5)  # of 20 logits: the limit is for a thousand times as many
        text = self.chain.table(rows)
        self.assertEqual(len(text.splitlines()), 1 + len(rows))
        known = {vitune.Problem(problem).text for problem in self.chain.problems_of(self.shape, [2])}
        self.assertEqual({problem for problem in known if problem.startswith("linear")}, self.asked)
        self.assertEqual(sum(problem.startswith("attention") for problem in known), 1)

    def test_a_way_that_fails_is_told_and_the_rest_measured(self):
        images, exact = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64)

        def fails(x):
            raise ValueError("of the test")
        rows = self.chain.measured({"fails": fails, "all fused": lambda x: x * 2}, images, exact, 0.5)
        self.assertEqual((rows[0]["failed"], rows[1]["error_over_eager"]), ("ValueError: of the test", 2.0))
        text = self.chain.table([{"batch": 1, **row} for row in rows])
        self.assertIn("failed: ValueError", text)
        self.assertIn("2.000  over 1.1", text)

    def test_without_a_gpu_it_says_so(self):
        with mock.patch.object(torch.cuda, "is_available", lambda: False), mock.patch("sys.stderr") as said:
            self.assertEqual(self.chain.main([]), 1)
        self.assertIn("needs PyTorch with a GPU", str(said.write.call_args_list))


if __name__ == "__main__":
    unittest.main()
