# python/tests/test_torch_norm_train_gpu.py -- Norms that train on a GPU: the operators, the race of both passes, captured steps.
# SPDX-License-Identifier: Apache-2.0
import copy
import itertools
import unittest
from unittest import mock

import vitune

from .support import needs_library, needs_torch, torch
from .test_torch_gpu import needs_gpu

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

from vitune._compile import backend
from vitune._ops import norm_training as training

from .test_torch_norm_train import EPS, eager
from . import test_torch_train_gpu as layers
from .test_torch_train_gpu import knows, timm

KNOWS_GRADIENTS = knows("norm_backward bf16 m=64 d=64 weight bias stats")


@needs_library
@needs_torch
@needs_gpu
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of norms")
class OperatorGpuTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(9)
        vitune.torch.reset_stats()

    def operands(self, stream, branch, parameters, m=197, d=768):
        return [tensor.requires_grad_() for tensor in (
            torch.randn(4, m, d, device="cuda").to(branch), torch.randn(4, m, d, device="cuda").to(stream),
            (1 + 0.3 * torch.randn(d, device="cuda")).to(parameters), torch.randn(d, device="cuda").to(parameters))]

    def test_results_and_gradients_are_those_of_fp64(self):
        half, wide, other = torch.bfloat16, torch.float32, torch.float16
        factor = torch.tensor([0.0, 1.25, 1.25, 1.25], device="cuda")
        for (stream, branch, parameters, out), rms, drops, d in itertools.product(
                ((wide, half, wide, half), (wide, wide, wide, half), (half, half, half, None), (other, other, wide, wide), (wide, wide, wide, None)),
                (False, True), (factor, None), (96, 768, 1000, 4096)):
            with self.subTest(stream=stream, branch=branch, parameters=parameters, out=out, rms=rms, drops=drops is not None, d=d):
                x, residual, weight, bias = given = self.operands(stream, branch, parameters, 197 if d < 4096 else 33, d)
                total, got, *_ = training.sum_norm_train(x, residual, drops, weight, bias, EPS, rms, out)
                dy = torch.randn_like(total), torch.randn_like(got)
                ours = torch.autograd.grad((total, got), given, dy)
                wides = [tensor.detach().double().requires_grad_() for tensor in given]
                want = eager(wides[0], wides[1], None if drops is None else drops.double(), *wides[2:], rms)
                theirs = torch.autograd.grad(want, wides, [each.double() for each in dy])
                bound = 2**-6 if half in (stream, branch, out) else 2**-9 if other in (stream, branch, out) else 2**-16
                for mine, right, tensor in zip((total, got, *ours), (*want, *theirs), (total, got, *given), strict=True):
                    self.assertEqual((mine.dtype, mine.shape), (tensor.dtype, tensor.shape))
                    self.assertLessEqual((mine.double() - right).norm().item(), bound * right.norm().item())
        self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_the_same_step_gives_the_same_bits(self):
        given = self.operands(torch.float32, torch.bfloat16, torch.float32)
        dy = torch.randn(4, 197, 768, device="cuda"), torch.randn(4, 197, 768, device="cuda", dtype=torch.bfloat16)
        first, again = (torch.autograd.grad(training.sum_norm_train(given[0], given[1], None, *given[2:], EPS, False, torch.bfloat16)[:2],
                                            given, dy) for _ in range(2))
        self.assertTrue(all(map(torch.equal, first, again)))

    def test_the_operators_pass_opcheck(self):
        x, residual, weight, bias = self.operands(torch.float32, torch.bfloat16, torch.float32, 9, 96)
        checks = ("test_schema", "test_autograd_registration", "test_faketensor")
        factor = torch.rand(4, device="cuda")
        for rms in (False, True):
            torch.library.opcheck(training.norm_train, (residual, weight, bias, EPS, rms, torch.bfloat16), test_utils=checks)
            torch.library.opcheck(training.sum_norm_train, (x, residual, factor, weight, bias, EPS, rms, torch.bfloat16), test_utils=checks)
        statistics = torch.randn(4, 9, device="cuda"), torch.rand(4, 9, device="cuda")
        torch.library.opcheck(training.norm_backward, (x.detach(), residual.detach(), *statistics, weight.detach(), residual.detach(), factor,
                                                       torch.bfloat16, torch.float32, True, True), test_utils=checks)


@needs_library
@needs_torch
@needs_gpu
@unittest.skipIf(timm is None, "timm is not installed")
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of norms")
class StepGpuTest(unittest.TestCase):
    setUp, step, gradients, expect_eagers = (getattr(layers.StepGpuTest, name) for name in ("setUp", "step", "gradients", "expect_eagers"))

    def test_both_passes_are_raced_and_put_in_where_they_won(self):
        with mock.patch.object(backend, "_times", {}):
            compiled = vitune.compile(copy.deepcopy(self.model), training=True)
            self.expect_eagers(compiled)
        calls = [call for call in vitune.report(compiled).calls if call.operator == "norm_train"]
        self.assertEqual([call.module for call in calls], ["blocks.0.norm1", "blocks.0.norm2", "blocks.1.norm1", "blocks.1.norm2", "norm"])
        for call in calls:
            self.assertIsNotNone(call.times, call)
            self.assertEqual(call.times.wrong, "", call)
            self.assertEqual(call.replaced, call.times.won, call)

    def test_a_step_is_right_in_each_mode_and_as_one_captured_graph(self):
        for mode, replace in itertools.product((None, "reduce-overhead"), (["norm_train"], ["norm_train", "linear_train"])):
            with self.subTest(mode, replace=replace):
                torch._dynamo.reset()
                vitune.torch.reset_stats()
                compiled = vitune.compile(copy.deepcopy(self.model), mode=mode, replace=replace)
                for _ in range(3):
                    self.gradients(compiled)
                self.expect_eagers(compiled)
                calls = [call for call in vitune.report(compiled).calls if call.operator == "norm_train"]
                self.assertEqual([call.replaced for call in calls], [True] * 5)
                self.assertEqual(vitune.torch.stats().fallbacks, 0)
        torch._dynamo.reset()
        compiled = vitune.compile(copy.deepcopy(self.model), replace=["norm_train"])
        _, want = self.gradients(compiled)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.gradients(compiled)
        torch.cuda.current_stream().wait_stream(stream)
        compiled.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(compiled)
        graph.replay()
        torch.cuda.synchronize()
        for mine, right in zip((parameter.grad for parameter in compiled.parameters()), want, strict=True):  # attention's are PyTorch's
            self.assertLessEqual((mine - right).norm().item(), 1e-3 * right.norm().item() + 1e-9)


if __name__ == "__main__":
    unittest.main()
