# python/tests/test_torch_model_file_interpret.py -- The interpreter of model files: nodes, numbers that grow with the batch, expressions, views.
# SPDX-License-Identifier: Apache-2.0
import unittest

import vitune

from .support import torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F

from vitune._export import expression, graph, interpret


class InterpreterTest(unittest.TestCase):
    def answer(self, nodes, batch, **tensors):
        """The result of nodes of x [B, 4], of the tensor x there."""
        x = tensors.pop("x")
        shape = ["B", *x.shape[1:]]
        document = {"inputs": [{"name": "x", "type": "fp32", "shape": shape}], "outputs": [{"name": "out", "of": "t0"}],
                    "values": [{"name": "t0", "type": "fp32", "shape": shape}], "nodes": nodes}
        return interpret.Interpreter(document, tensors, batch).run({"x": x})["out"]

    def test_a_reduction_keeps_the_dimensions_before_those_it_is_over(self):
        x = torch.randn(3, 4, 5)
        for by, wanted in (("sum", x.sum(1)), ("mean", x.mean(1)), ("max", x.amax(1))):
            node = {"op": "map", "at": "", "x": "mul(a,2)", "by": by, "over": 1, "y": "add(r,1)",
                    "a": {"of": "x", "extents": ["B", 5, 4], "strides": [20, 1, 5]},
                    "out": {"of": "t0", "extents": ["B", 5], "strides": [20, 1]}}
            found = self.answer([node], 3, x=x)
            torch.testing.assert_close(found.reshape(3, 20)[:, :5], wanted * 2 + 1)
            self.assertTrue(found.reshape(3, 20)[:, 5:].isnan().all())  # nobody wrote there

    def test_attention_has_rows_without_keys_masks_and_fewer_heads(self):
        q, k, v = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
        mask = torch.rand(1, 1, 3, 5) > 0.4
        mask[..., 0, :] = False
        found = interpret._attend(q, k, v, torch.where(mask, 0.0, float("-inf")), False, 0.3)
        wanted = F.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True)
        torch.testing.assert_close(found[:, :, 1:], wanted[:, :, 1:])
        self.assertTrue((found[:, :, 0] == 0).all())
        square = interpret._attend(q, q, q, None, True, None)
        torch.testing.assert_close(square, F.scaled_dot_product_attention(q, q, q, is_causal=True))

    def test_products_and_group_norms(self):
        x = torch.randn(3, 4, 6)
        product = {"op": "matmul", "at": "", "scale": 0.5, "a": "x", "b": {"of": "x", "extents": ["B", 6, 4], "strides": [24, 1, 6]},
                   "out": {"of": "t0", "extents": ["B", 4, 4], "strides": [24, 6, 1]}}
        torch.testing.assert_close(self.answer([product], 3, x=x)[..., :4], x @ x.transpose(1, 2) * 0.5)
        norm = {"op": "group_norm", "at": "", "x": "x", "groups": 2, "eps": 1e-3, "act": "silu", "out": "t0"}
        torch.testing.assert_close(self.answer([norm], 3, x=x), F.silu(F.group_norm(x, 2, eps=1e-3)))

    def test_numbers_grow_with_the_batch(self):
        for number, batch, wanted in ((3, 7, 3), ("B", 7, 7), ("12*B", 7, 84), ([5, 2], 7, 19)):
            self.assertEqual(graph.at_batch(number, batch), wanted)
        for a, b in ((3, 0), (0, 1), (0, 12), (5, 2), (-4, 3)):
            self.assertEqual([graph.at_batch(graph.affine(a, b), batch) for batch in (1, 9)], [a + b, a + 9 * b])
        self.assertEqual(graph.grown({"x": [2, 7]}, {"x": [3, 7]}, (2, 3)), {"x": ["B", 7]})
        for first, second in (({"x": 1}, {"y": 1}), ([1], [1, 2]), ("a", "b"), (True, False)):
            with self.assertRaises(vitune.Unsupported):
                graph.grown(first, second, (2, 3))

    def test_expressions_are_read_and_never_run(self):
        x = torch.tensor([0.5, -2.0])
        torch.testing.assert_close(expression.evaluated("where(lt(a,0),mul(a,1e-05),add(a,b))", {"a": x, "b": x}), torch.tensor([1.0, -2e-5]))
        for text in ("", "add(a)", "add(a,b,c)", "i", "inf", "__import__('os')", "a;b", "add(a,b", "neg(" * 33 + "a" + ")" * 33, "0x10", "a b", "1.e5", "1E5", "1.2.3", ".5"):
            with self.assertRaises(vitune.Unsupported, msg=text):
                expression.parsed(text)

    def test_views_that_no_six_dimensions_say_are_refused(self):
        view = graph.View("x", 0, (2, 3, 1, 4, 5, 6, 7), graph.dense((2, 3, 1, 4, 5, 6, 7)))
        self.assertEqual(graph.merged([view])[0].extents, (2, 3, 4, 5, 6, 7))
        crossed = view.ordered((0, 6, 2, 4, 1, 5, 3))._replace(extents=(2, 7, 2, 5, 3, 6, 4))
        with self.assertRaisesRegex(vitune.Unsupported, "7 dimensions"):
            graph.merged([crossed])


if __name__ == "__main__":
    unittest.main()
