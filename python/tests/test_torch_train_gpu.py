# python/tests/test_torch_train_gpu.py -- Linear layers that train on a GPU: the operators, the race of both passes, captured steps.
# SPDX-License-Identifier: Apache-2.0
import copy
import unittest
from unittest import mock

import vitune

from .support import needs_library, needs_torch, torch
from .test_torch_gpu import needs_gpu

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F

from vitune._compile import backend
from vitune._ops import training

from .test_torch_train import eager, edges_of_relu, mlp

try:
    import timm
except ImportError:
    timm = None


def knows(problem):
    try:
        vitune.Problem(problem)
    except vitune.VituneError:
        return False
    return True


#: Older libraries know no gradients: then PyTorch answers.
KNOWS_GRADIENTS = knows("linear_weight_grad bf16 m=64 n=64 k=64 bias") and knows("linear bf16 m=64 n=64 k=64 dact=gelu wt")


@needs_library
@needs_torch
@needs_gpu
class OperatorGpuTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        vitune.torch.reset_stats()

    def operands(self, dtype, parameters, m=197, k=192, n=768):
        scaled = ((torch.randn(*shape, device="cuda") * scale).to(kind) for shape, scale, kind in (
            ((4, m, k), 1.0, dtype), ((n, k), k**-0.5, parameters), ((n,), 0.1, parameters), ((k, n), n**-0.5, parameters), ((k,), 0.1, parameters)))
        return [tensor.requires_grad_() for tensor in scaled]

    def test_gradients_are_those_of_fp64_whoever_answers(self):
        """Of operands as they are multiplied, in x's type: fp32 parameters in fp64 would have other signs of what relu is given, where
        that is near 0, and eager mode's gradients would be as far from theirs."""
        for dtype in (torch.bfloat16, torch.float16):
            for parameters in (dtype, torch.float32):
                for activation in training.ACTIVATIONS:
                    with self.subTest(dtype=dtype, parameters=parameters, activation=activation):
                        given = self.operands(dtype, parameters)
                        got = mlp(*given, activation)
                        dy = torch.randn_like(got)
                        wide = [tensor.detach().to(dtype).double().requires_grad_() for tensor in given]
                        want = eager(*wide, activation)
                        ours, theirs = torch.autograd.grad(got, given, dy), torch.autograd.grad(want, wide, dy.double())
                        bound = 2**-6 if dtype == torch.bfloat16 else 2**-9
                        for mine, right, tensor in zip((got, *ours), (want, *theirs), (got, *given)):
                            self.assertEqual((mine.dtype, mine.shape), (tensor.dtype, tensor.shape))
                            self.assertLessEqual((mine.double() - right).norm().item(), bound * right.norm().item())
        if KNOWS_GRADIENTS:
            self.assertEqual(vitune.torch.stats().fallbacks, 0)

    @unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients")
    def test_relus_gradient_is_0_where_its_stored_argument_is_not_above_0(self):
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype):
                dy, pre = edges_of_relu(dtype, "cuda")
                got = training.linear_act_input_grad(dy, torch.eye(16, dtype=dtype, device="cuda"), pre, "relu")
                self.assertTrue(torch.equal(got, torch.ops.aten.threshold_backward(dy, F.relu(pre), 0)))
        self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_the_same_step_gives_the_same_bits(self):
        given = self.operands(torch.bfloat16, torch.float32)
        dy = torch.randn_like(given[0])
        first, again = (torch.autograd.grad(mlp(*given, "gelu"), given, dy) for _ in range(2))
        self.assertTrue(all(map(torch.equal, first, again)))

    def test_the_operators_pass_opcheck(self):
        x, first, bias, second, last = self.operands(torch.bfloat16, torch.float32, 9, 64, 128)
        w16, v16 = first.detach().bfloat16(), second.detach().bfloat16()
        checks = ("test_schema", "test_autograd_registration", "test_faketensor")  # results of two runs of AOT differ by nothing else
        torch.library.opcheck(training.linear_train, (x, first, w16, bias), test_utils=checks)
        torch.library.opcheck(training.linear_act_train, (x, first, w16, bias, "gelu"), test_utils=checks)
        pre, out = (tensor.detach() for tensor in training.linear_act_train(x, first, w16, bias, "gelu"))
        torch.library.opcheck(training.act_linear_train, (pre.requires_grad_(), out, second, v16, last, "gelu"), test_utils=checks)
        dy = torch.randn_like(x)
        torch.library.opcheck(training.linear_act_input_grad, (dy.detach(), v16, pre.detach(), "gelu"), test_utils=checks)
        torch.library.opcheck(training.linear_weight_grad, (dy.detach(), out, torch.float32, True), test_utils=checks)


@needs_library
@needs_torch
@needs_gpu
@unittest.skipIf(timm is None, "timm is not installed")
class StepGpuTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(8)
        torch._dynamo.reset()
        self.model = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=100).train().cuda()
        self.images, self.labels = torch.randn(16, 3, 224, 224, device="cuda"), torch.arange(16, device="cuda")

    def step(self, model):
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(self.images).float(), self.labels)
        loss.backward()
        return loss

    def gradients(self, model):
        model.zero_grad(set_to_none=True)
        return self.step(model).item(), [parameter.grad.clone() for parameter in model.parameters()]

    def expect_eagers(self, compiled):
        (loss, grads), (want, wants) = self.gradients(compiled), self.gradients(copy.deepcopy(self.model))
        self.assertAlmostEqual(loss, want, delta=0.02)
        for mine, right in zip(grads, wants, strict=True):
            self.assertEqual(mine.dtype, torch.float32)
            self.assertLessEqual((mine - right).norm().item(), 0.03 * right.norm().item() + 1e-9)

    @unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients")
    def test_both_passes_are_raced_and_put_in_where_they_won(self):
        with mock.patch.object(backend, "_times", {}):
            compiled = vitune.compile(copy.deepcopy(self.model), training=True)
            self.expect_eagers(compiled)
        calls = [call for call in vitune.report(compiled).calls if call.trains]
        self.assertEqual({call.module.rpartition(".")[2] for call in calls} >= {"qkv", "proj", "fc1", "head"}, True)
        for call in (each for call in calls for each in (call, *call.tried)):
            self.assertIsNotNone(call.times, call)
            self.assertEqual(call.times.wrong, "", call)
            self.assertEqual(call.replaced, call.times.won, call)

    @unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients")
    def test_a_step_is_right_in_each_mode_and_as_one_captured_graph(self):
        for mode in (None, "reduce-overhead"):
            with self.subTest(mode):
                torch._dynamo.reset()
                compiled = vitune.compile(copy.deepcopy(self.model), mode=mode, replace=["linear_train"])
                for _ in range(3):
                    self.gradients(compiled)
                self.expect_eagers(compiled)
                self.assertTrue(all(call.replaced for call in vitune.report(compiled).calls if call.operator == "linear_train"))
        torch._dynamo.reset()
        compiled = vitune.compile(copy.deepcopy(self.model), replace=["linear_train"])
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
