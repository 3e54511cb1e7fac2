# benchmarks/train_models/tests/test_floor.py -- Floors of a step are flops and bytes at the rates, counted by hand here.
# SPDX-License-Identifier: Apache-2.0
import unittest

from .support import needs

try:
    import torch
    import torch.nn.functional as F
    from models.floor import Ceilings
    from train_models.floor import floor_us
    from train_models.step import Training
except ImportError:
    torch = None

N, D, K = 6, 16, 8


@needs("torch")
class FloorTest(unittest.TestCase):
    def setUp(self):
        self.memory = Ceilings(1e9, 1e-6)  # a microsecond is a byte
        self.products = Ceilings(1e-6, 1e9)  # and here a flop

    def test_a_linear_layer_is_three_products_in_a_step_and_two_where_its_input_wants_no_gradient(self):
        model = torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.Linear(D, K))
        training = Training(model, torch.randn(N, D), torch.zeros(N, dtype=torch.int64), "fp32")
        found = floor_us(training.step(model), self.products)
        self.assertEqual(found["gemm"], 2.0 * N * D * (2 * D + 3 * K))

    def test_norm_and_activation_are_their_bytes_forward_and_backward(self):
        x, gradient = torch.randn(N, D, requires_grad=True), torch.randn(N, D)

        def run():
            F.gelu(F.layer_norm(x, (D,))).backward(gradient)

        found = floor_us(run, self.memory)
        rows, row = N * D * 4.0, N * 4.0
        self.assertEqual(found["activation"], 2 * rows + 3 * rows)
        # x, its norm, mean and rstd; then two gradients, x, mean and rstd
        self.assertEqual(found["norm"], (2 * rows + 2 * row) + (3 * rows + 2 * row))

    def test_attention_backward_counts_every_gradient(self):
        q, k, v = (torch.randn(1, 2, N, 8, requires_grad=True) for _ in range(3))
        run = lambda: F.scaled_dot_product_attention(q, k, v).sum().backward()  # noqa: E731
        found = floor_us(run, self.memory)
        one = 2.0 * N * 8 * 4
        self.assertGreaterEqual(found["attention"], 4 * one + 7 * one)

    def test_adamw_moves_28_bytes_a_weight(self):
        model = torch.nn.Linear(D, K, bias=False)
        training = Training(model, torch.randn(N, D), torch.zeros(N, dtype=torch.int64), "fp32")
        step = training.step(model)
        step()
        self.assertEqual(floor_us(step, self.memory)["optimizer"], 28.0 * D * K + 4)  # and its count of steps

    def test_what_need_not_be_has_no_floor(self):
        x = torch.randn(N, D, requires_grad=True)
        self.assertEqual(floor_us(lambda: (x.t().contiguous() + 1).sum().backward(), self.memory), {})
