# python/tests/test_torch_linear_moments.py -- Linear layers that write moments or take them: texts, values, PyTorch's answers.
# SPDX-License-Identifier: Apache-2.0
"""As test_torch_linear.py: tensors stay on the CPU, and launches go to the emulated device."""
import unittest
import warnings
from unittest import mock

import vitune

from .support import needs_device, needs_library, needs_torch, torch

if torch is not None:
    import torch.nn.functional as F
    from torch._subclasses.fake_tensor import FakeTensorMode

    from vitune._ops import attention as attention_ops, linear as linear_ops, linear_moments as moments_ops

    from .test_torch_linear import launch_staged

    WITH, BY = moments_ops.linear_with_moments_or_torch_op, moments_ops.linear_by_moments_or_torch_op
    for op in (WITH, BY):
        op.register_kernel("cpu")(op._init_fn)


def exact_moments(y):
    """[..., columns / 32, 2], in fp64."""
    blocks = y.double().unflatten(-1, (-1, 32))
    return torch.stack((blocks.mean(-1), blocks.var(-1, unbiased=False) * 32), -1)


@needs_library
@needs_torch
class TextTest(unittest.TestCase):
    def text(self, *arguments, **keywords):
        meta = [None if shape is None else torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in arguments]
        return linear_ops.text_of(*meta, **keywords)

    def test_moments_are_words_of_the_problem(self):
        self.assertEqual(self.text((197, 3072), (768, 3072), (768,), None, (197, 768), moments_columns=32),
                         "linear bf16 m=197 n=768 k=3072 bias residual moments=32")
        self.assertEqual(self.text((197, 768), (3072, 768), (3072,), activation="gelu", norm=linear_ops.moments_kind(32, 1e-6)),
                         "linear bf16 m=197 n=3072 k=768 norm=moments:32 eps=1e-06 bias act=gelu")
        self.assertIn("norm=moments:32 eps=1.0 ", self.text((8, 32), (32, 32), (32,), norm=linear_ops.moments_kind(32, 1)))

    def test_the_library_knows_them(self):
        for text in ("linear bf16 m=197 n=768 k=3072 bias residual moments=32",
                     "linear bf16 m=197 n=3072 k=768 norm=moments:32 eps=1e-06 bias act=gelu", "linear bf16 m=197 n=768 k=3072"):
            with self.subTest(text):
                self.assertEqual(len(vitune.Problem(text).tensors), 15)


@needs_torch
class FakeMomentsTest(unittest.TestCase):
    def test_compilers_know_the_results(self):
        with FakeTensorMode(), torch.no_grad():
            x, w = (torch.empty(shape, dtype=torch.bfloat16, device="cuda") for shape in ((2, 197, 768), (96, 768)))
            out, moments = torch.ops.vitune.linear_with_moments_or_torch(x, w, None, None, None, "gelu", 32)
            next_w, sums = torch.empty(64, 96, dtype=torch.bfloat16, device="cuda"), torch.empty(64, device="cuda")
            given = (out, next_w, None, None, None, None, torch.float32, moments, 32, 1e-6, sums)
            result = torch.ops.vitune.linear_by_moments_or_torch(*given)
        self.assertEqual([(tuple(t.shape), t.dtype) for t in (out, moments, result)],
                         [((2, 197, 96), torch.bfloat16), ((2, 197, 3, 2), torch.float32), ((2, 197, 64), torch.float32)])


@needs_torch
class MomentsTest(unittest.TestCase):
    """Of what PyTorch's operators answer; with the library's kernels below."""

    def setUp(self):
        torch.manual_seed(7)
        warnings.simplefilter("ignore", vitune.torch.FallbackWarning)
        vitune.torch.reset_stats()
        self.launched = []
        for module, name, value in ((linear_ops, "_problem_of", self.problem_of), (linear_ops, "launch", self.launch),
                                    (attention_ops, "is_on_gpu", lambda tensor: True)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def problem_of(self, *arguments):
        raise vitune.Unsupported("of the test")

    def launch(self, problem, tensors):
        raise AssertionError("nothing is to be launched")

    def operands(self, far=0.0):
        """Two layers around a norm, whose columns lie `far` from 0."""
        k, n, last = 40, 96, 72
        x, w, b = torch.randn(2, 9, k), torch.randn(n, k) / k**0.5, far + torch.randn(n)
        gamma, beta = 1 + torch.randn(n) / 4, torch.randn(n) / 4
        next_w, next_b = torch.randn(last, n) / n**0.5, torch.randn(last)
        x, w, b, next_w = (tensor.bfloat16() for tensor in (x, w, b, next_w))
        return x, w, b, torch.randn(2, 9, n).bfloat16(), gamma, beta, next_w, next_b

    def expect_close(self, got, want, bound):
        self.assertEqual(tuple(got.shape), tuple(want.shape))
        self.assertLessEqual((got.double() - want).abs().max().item(), bound * max(1.0, want.abs().max().item()))

    def expect_both(self, far, bound):
        x, w, b, residual, gamma, beta, next_w, next_b = self.operands(far)
        out, moments = WITH(x, w, b, None, residual, None, 32)
        self.expect_close(out, residual.double() + F.linear(x.double(), w.double(), b.double()), 2**-7)
        self.expect_close(moments, exact_moments(out), 2**-16)
        folded, bias, sums = linear_ops.fold_norm(next_w, next_b, gamma, beta)
        got = BY(out, folded, bias, None, None, "gelu", None, moments, 32, 1e-6, sums)
        normed = F.layer_norm(out.double(), (out.shape[-1],), eps=1e-6)
        self.expect_close(got, F.gelu(F.linear(normed, folded.double(), bias.double())), bound)

    def test_the_second_layer_is_of_the_norm_of_the_first_ones_result(self):
        self.expect_both(0.0, 2**-6)

    def test_rows_far_from_zero_are_no_worse(self):
        self.expect_both(300.0, 2**-6)

    def test_calls_without_a_kernel_are_counted(self):
        self.expect_both(0.0, 2**-6)
        self.assertEqual(vitune.torch.stats().reasons, {"of the test": 2})

    def test_moments_are_of_32_columns_each(self):
        x, w = torch.randn(4, 16).bfloat16(), torch.randn(40, 16).bfloat16()
        with self.assertRaisesRegex(vitune.InvalidArgument, "the result of 40 columns"):
            linear_ops.run(x, w, None, None, None, None, False, None, moments_columns=32)
        norm = linear_ops.Norm(weight_sums=torch.zeros(40), moments=torch.zeros(4, 1, 2))
        with self.assertRaisesRegex(vitune.InvalidArgument, "moments of"):
            linear_ops.run(x, w, None, None, None, None, False, None, norm)

    def test_no_rows_are_no_launch(self):
        out, moments = WITH(torch.randn(0, 16).bfloat16(), torch.randn(64, 16).bfloat16(), None, None, None, None, 32)
        self.assertEqual((tuple(out.shape), tuple(moments.shape)), ((0, 64), (0, 2, 2)))
        self.assertEqual(vitune.torch.stats().reasons, {})


@needs_library
@needs_device
class LaunchedMomentsTest(MomentsTest):
    """The same by kernels, on the emulated device."""

    def problem_of(self, *arguments):
        return PROBLEM_OF(*arguments)

    def launch(self, problem, tensors):
        self.launched.append(problem.text)
        self.assertEqual(len(tensors), 12)
        launch_staged(problem, tensors)

    def expect_both(self, *arguments):
        super().expect_both(*arguments)
        self.assertEqual(vitune.torch.stats().reasons, {})

    def test_calls_without_a_kernel_are_counted(self):
        self.expect_both(0.0, 2**-6)
        self.assertEqual(self.launched, ["linear bf16 m=18 n=96 k=40 bias residual moments=32",
                                         "linear bf16 m=18 n=72 k=96 norm=moments:32 eps=1e-06 bias act=gelu params=fp32"])


if torch is not None:
    PROBLEM_OF = linear_ops._problem_of


if __name__ == "__main__":
    unittest.main()
