# python/tests/test_torch_linear.py -- Linear layers on PyTorch's tensors, on the emulated device: values, strides, refusals.
# SPDX-License-Identifier: Apache-2.0
"""Tensors stay on the CPU: only the launch is replaced, as in test_torch_norm.py."""
import unittest
from unittest import mock

import vitune

from .support import DEVICE, needs_device, needs_library, needs_torch, torch

if torch is not None:
    import torch.nn.functional as F
    from torch._subclasses.fake_tensor import FakeTensorMode

    from vitune._ops import attention as attention_ops, linear as linear_ops

    from .test_torch_norm import launch_copies


def launch_staged(problem, tensors):
    """What scratch.launch() does, with tensors of the CPU."""
    context = attention_ops.context_of(0)
    size = context.workspace_bytes(problem)
    scratch = DEVICE.upload(bytes(max(size, 1)))
    launch_copies(tensors, 5, lambda pointers: context.run(problem, pointers, workspace=scratch if size else 0,
                                                           workspace_bytes=size))


@needs_library
@needs_device
@needs_torch
class LinearTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        self.launched = []

        def launch(problem, tensors):
            self.launched.append((problem.text, tensors))
            launch_staged(problem, tensors)
        for module, name, value in ((linear_ops, "launch", launch), (attention_ops, "is_on_gpu", lambda tensor: True)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def expect_close(self, got, want):
        bound = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2**-16}[got.dtype]
        self.assertEqual(tuple(got.shape), tuple(want.shape))
        self.assertLessEqual((got.double() - want).abs().max().item(), bound * max(1.0, want.abs().max().item()))

    def layer(self, n, k, dtype=None):
        dtype = dtype or torch.bfloat16
        return torch.randn(n, k, dtype=dtype) / k**0.5, torch.randn(n, dtype=dtype)

    def test_a_layer_with_its_activation_is_pytorchs(self):
        x, (w, b) = torch.randn(2, 9, 40, dtype=torch.bfloat16), self.layer(72, 40)
        sums = F.linear(x.double(), w.double(), b.double())
        self.expect_close(vitune.linear(x, w, b), sums)
        want, before = vitune.linear(x, w, b, activation="gelu", return_preactivation=True)
        self.expect_close(want, F.gelu(sums))
        self.expect_close(before, sums)
        self.expect_close(vitune.linear(x, w, activation="silu"), F.silu(F.linear(x.double(), w.double())))
        self.assertEqual(self.launched[0][0], "linear bf16 m=18 n=72 k=40 bias")

    def test_scale_and_residual_follow_in_fp32(self):
        x, (w, b) = torch.randn(3, 5, 24, dtype=torch.float16), self.layer(33, 24, torch.float16)
        scale, residual = torch.randn(33, dtype=torch.float16), torch.randn(3, 5, 33)
        want = residual.double() + scale.double() * F.linear(x.double(), w.double(), b.double())
        self.expect_close(vitune.linear(x, w, b, scale=scale, residual=residual, out_dtype=torch.float32), want)
        table = torch.randn(5, 33, dtype=torch.float16)  # a row of it for each token
        self.expect_close(vitune.linear(x, w, b, residual=table), F.linear(x.double(), w.double(), b.double()) + table.double())
        self.assertIn("period=5", self.launched[-1][0])

    def test_strides_are_taken_where_they_can_be(self):
        tokens, (w, b) = torch.randn(4, 3, 48, dtype=torch.bfloat16), self.layer(16, 48)
        first = tokens[:, 0]
        self.expect_close(vitune.linear(first, w, b), F.linear(first.double(), w.double(), b.double()))
        self.assertEqual(self.launched[-1][1][0].data_ptr(), tokens.data_ptr())
        across = torch.randn(48, 16, dtype=torch.bfloat16).t()
        self.expect_close(vitune.linear(first, across), F.linear(first.double(), across.double()))
        self.assertIn(" wt", self.launched[-1][0])
        self.assertEqual(self.launched[-1][1][1].data_ptr(), across.data_ptr())
        same = torch.randn(1, 48, dtype=torch.bfloat16).expand(3, 48)  # rows that overlap are copied
        self.expect_close(vitune.linear(same, w), F.linear(same.double(), w.double()))

    def test_nothing_is_no_launch(self):
        w, _ = self.layer(16, 8)
        self.assertEqual(tuple(vitune.linear(torch.randn(0, 8, dtype=torch.bfloat16), w).shape), (0, 16))
        self.assertEqual(self.launched, [])

    def test_a_compiled_call_is_the_eager_one(self):
        x, (w, b) = torch.randn(6, 32, dtype=torch.bfloat16), self.layer(24, 32)
        linear_ops.linear_op.register_kernel("cpu")(linear_ops.linear_op._init_fn)

        def call(x):
            out, before = vitune.linear(x, w, b, activation="gelu_tanh", return_preactivation=True)
            return out * 2, before
        with torch.no_grad():
            want = call(x)
            for dynamic in (False, True):
                torch._dynamo.reset()
                got = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")(x)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, want)))

    def test_what_a_call_asks_is_known_of_meta_tensors(self):
        x, w = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((32, 197, 768), (3072, 768)))
        text = linear_ops.text_of(x, w, torch.empty(3072, dtype=torch.bfloat16, device="meta"), activation="gelu")
        self.assertEqual(vitune.Problem(text).text, "linear bf16 m=6304 n=3072 k=768 bias act=gelu")

    def test_what_cannot_be_is_refused_with_the_reason(self):
        x, (w, b) = torch.randn(4, 16, dtype=torch.bfloat16), self.layer(8, 16)
        for said, arguments, options in (
                ("in_features", (x, w.t()), {}), ("one type", (x, w.half()), {}), ("(8,)", (x, w, b[:4]), {}),
                ("activation", (x, w), {"activation": "tanh"}), ("residual of (4, 7)", (x, w), {"residual": x[:, :7]}),
                ("result's type", (x, w), {"residual": torch.randn(4, 8)}),
                ("bias of", (x, w, b), {"scale": torch.randn(8)}), ("out_dtype", (x, w), {"out_dtype": torch.float16}),
                ("float32", (x.float(), w.float()), {})):
            with self.assertRaises((vitune.InvalidArgument, vitune.Unsupported)) as refused:
                vitune.linear(*arguments, **options)
            self.assertIn(said, str(refused.exception))
        with self.assertRaisesRegex(vitune.Unsupported, "linear layers have no derivative"):
            vitune.linear(x.requires_grad_(), w)
        self.assertEqual(self.launched, [])


@needs_library
@needs_device
@needs_torch
class NormBeforeTest(unittest.TestCase):
    def test_a_layer_norm_far_from_zero_is_folded_by_its_statistics(self):
        """By the problem's text: x a hundred times as far from 0 as it is wide, and the norm's weight and bias in w and b."""
        torch.manual_seed(6)
        m, n, k = 13, 40, 96
        x = (100 + torch.randn(m, k)).to(torch.float16)
        gamma, beta, w, b = 1 + torch.randn(k) / 4, torch.randn(k) / 4, torch.randn(n, k) / k**0.5, torch.randn(n)
        folded = (w * gamma).half()
        wide = x.double()
        mean, rstd = wide.mean(-1), (wide.var(-1, unbiased=False) + 1e-6).rsqrt()
        sums, bias = folded.double().sum(-1).float(), (b.double() + w.double() @ beta.double()).float()
        out = torch.empty(m, n, dtype=torch.float16)
        problem = vitune.Problem(f"linear fp16 m={m} n={n} k={k} norm=layer bias params=fp32")
        launch_staged(problem, (x, folded, bias, None, None, out, None, mean.float(), rstd.float(), sums, None, None))
        normed = (wide - mean[:, None]) * rstd[:, None]
        right = F.linear(normed, folded.double(), bias.double())
        # Sums of 1e4 in fp32, and a mean that is known to 2**-18, before rstd makes them what is left.
        self.assertLessEqual((out.double() - right).abs().max().item(), 2**-8 * right.abs().max().item())
        unfolded = F.linear(F.layer_norm(wide, (k,), gamma.double(), beta.double(), 1e-6), w.double(), b.double())
        self.assertLessEqual((out.double() - unfolded).abs().max().item(), 2**-6 * unfolded.abs().max().item())


@needs_library
@needs_torch
class FakeLinearTest(unittest.TestCase):
    def test_compilers_know_the_results(self):
        with FakeTensorMode(), torch.no_grad():
            x = torch.empty(2, 197, 768, dtype=torch.bfloat16, device="cuda")
            w = torch.empty(3072, 768, dtype=torch.bfloat16, device="cuda")
            results = vitune.linear(x, w, return_preactivation=True, out_dtype=torch.float32)
        self.assertEqual([(tuple(t.shape), t.dtype) for t in results],
                         [((2, 197, 3072), torch.float32), ((2, 197, 3072), torch.bfloat16)])


if __name__ == "__main__":
    unittest.main()
