# benchmarks/models/tests/test_floor.py -- Floors are flops and bytes at the rates, counted by hand here.
# SPDX-License-Identifier: Apache-2.0
import unittest

from .support import needs

try:
    import torch
    import torch.nn.functional as F
    from models import zoo
    from models.floor import Ceilings, floor_us
except ImportError:
    torch = None

B, N, D, HEADS = 2, 5, 64, 2


@needs("torch")
class FloorTest(unittest.TestCase):
    def setUp(self):
        self.memory = Ceilings(1e5, 1e-6)  # a microsecond is a byte
        self.products = Ceilings(1e-6, 1e5)  # and here a flop

    def expect(self, run, ceilings, **wanted):
        self.assertEqual(floor_us(run, ceilings), wanted)

    def test_a_linear_layer_is_its_products_and_its_operands_bytes(self):
        x, weight, bias = torch.randn(B * N, D).bfloat16(), torch.randn(3 * D, D).bfloat16(), torch.randn(3 * D).bfloat16()
        self.expect(lambda: F.linear(x, weight, bias), self.products, gemm=2.0 * B * N * D * 3 * D)
        self.expect(lambda: F.linear(x, weight, bias), self.memory,
                    gemm=2.0 * (B * N * D + 3 * D * D + 3 * D + B * N * 3 * D))  # fmt: skip

    def test_attention_is_one_call_whatever_serves_it(self):
        q, k, v = torch.randn(3, B, HEADS, N, D).bfloat16().unbind(0)
        run = lambda: F.scaled_dot_product_attention(q, k, v)  # noqa: E731
        self.expect(run, self.products, attention=4.0 * B * HEADS * N * N * D)
        self.expect(run, self.memory, attention=4 * 2.0 * B * HEADS * N * D)

    def test_views_are_free_and_copies_are_read_and_written(self):
        x = torch.randn(4, 6)
        self.expect(lambda: x.transpose(0, 1).unsqueeze(0).expand(3, 6, 4)[1:], self.memory)
        self.expect(lambda: x.reshape(2, 12), self.memory)
        self.expect(lambda: x.t().contiguous(), self.memory, copies=2.0 * 4 * 24)
        self.expect(lambda: torch.roll(x, 1, 0), self.memory, copies=2.0 * 4 * 24)
        self.expect(lambda: x.clone().fill_(0), self.memory, copies=(2 + 1) * 4.0 * 24)

    def test_an_expanded_operand_is_read_once(self):
        x, y = torch.randn(4, 6), torch.randn(6)
        self.expect(lambda: x + y.expand(4, 6), self.memory, other=4.0 * (24 + 6 + 24))

    def test_kinds_of_a_block(self):
        x = torch.randn(B, 8, 8, 8)
        weight = torch.randn(8, 8, 1, 1)

        def run():
            F.silu(F.group_norm(F.conv2d(x, weight), 2))
            F.gelu(F.layer_norm(x, (8,)))

        found = floor_us(run, self.memory)
        size = 4.0 * x.numel()
        self.assertEqual(found["activation"], 2 * 2 * size)
        self.assertEqual(found["convolution"], 2 * size + 4 * 64)
        self.assertEqual(set(found), {"norm", "activation", "convolution"})

    def test_fused_encoder_layers_are_opened(self):
        layer = torch.nn.TransformerEncoderLayer(D, HEADS, 2 * D, batch_first=True).eval()
        x = torch.randn(B, N, D)
        with torch.no_grad():
            found = floor_us(lambda: layer(x), self.products)
        products = 2.0 * B * N * D * (3 * D + D + 2 * 2 * D)
        self.assertEqual((found["gemm"], found["attention"]), (products, 4.0 * B * N * N * D))
        self.assertTrue(torch.backends.mha.get_fastpath_enabled())

    @needs("timm")
    def test_a_vit_as_one_counts_it_by_hand(self):
        model, size = zoo.build("test_vit", "cpu")
        images = zoo.images(B, size, "cpu")
        found = floor_us(lambda: model(images), self.products)
        blocks, width, tokens = len(model.blocks), model.embed_dim, (size // 16) ** 2 + 1
        hidden = model.blocks[0].mlp.fc1.out_features
        linear = 2.0 * B * tokens * blocks * (4 * width * width + 2 * width * hidden) + 2.0 * B * width * model.num_classes
        self.assertEqual(found["gemm"], linear)
        self.assertEqual(found["attention"], 4.0 * B * tokens * tokens * width * blocks)
        self.assertEqual(found["convolution"], 2.0 * B * (tokens - 1) * width * 3 * 16 * 16)

    def test_rates_by_name_and_by_hand(self):
        self.assertEqual(Ceilings.of("NVIDIA H200"), Ceilings(790.0, 4.3))
        self.assertIsNone(Ceilings.of("CPU, x86_64"))
        self.assertEqual(Ceilings.parse("500,2.5"), Ceilings(500.0, 2.5))
        for wrong in ("500", "a,b", "0,1", "1,2,3", "nan,1"):
            with self.assertRaises(ValueError):
                Ceilings.parse(wrong)
