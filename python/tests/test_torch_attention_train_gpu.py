# python/tests/test_torch_attention_train_gpu.py -- Attention that trains on a GPU: the operators, the race of both passes, captured steps.
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

import torch.nn.functional as F

from vitune._compile import backend
from vitune._ops import attention_training as training
from vitune._ops.order import ROWS

from . import test_torch_train_gpu as layers
from .test_torch_train_gpu import knows, timm

KNOWS_GRADIENTS = knows("attention_backward bf16 b=1 h=1 n=64 d=64")


def heads(b, h, n, d, dtype):
    return torch.randn(b, n, h, d, device="cuda", dtype=dtype).transpose(1, 2)


#: Batch, heads of q and of k, rows of q and of k, head size; what the call says; shape and type of a bias with a gradient, or a mask's shape.
CASES = {
    "ViT-B": ((4, 12, 12, 197, 197, 64), {}, None), "So400m": ((2, 16, 16, 300, 300, 72), {}, None), "windows": ((64, 4, 4, 49, 49, 32), {}, None),
    "text": ((4, 8, 8, 77, 77, 64), {"is_causal": True}, None), "one query": ((4, 8, 8, 1, 257, 40), {"scale": 0.2}, None),
    "grouped": ((2, 8, 2, 130, 130, 128), {}, None), "BEiT": ((4, 12, 12, 197, 197, 64), {}, ((1, 12, 197, 197), torch.float32)),
    "shifted windows": ((64, 3, 3, 49, 49, 32), {}, ((16, 3, 49, 49), torch.float32)),
    "a bias of 16 bits": ((4, 4, 4, 100, 130, 64), {}, ((4, 1, 100, 130), None)), "a bias of keys": ((4, 4, 4, 64, 80, 64), {}, ((1, 80), None)),
    "padding": ((4, 8, 8, 100, 120, 64), {}, ((4, 1, 1, 120), torch.bool)),
}


@needs_library
@needs_torch
@needs_gpu
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of attention")
class OperatorGpuTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)
        vitune.torch.reset_stats()

    def case(self, name, dtype):
        (b, h, kv, nq, nk, d), words, given = CASES[name]
        tensors = [heads(b, h, nq, d, dtype), *(heads(b, kv, nk, d, dtype) for _ in range(2))]
        if given is None:
            return [tensor.requires_grad_() for tensor in tensors], None, words
        shape, kind = given
        mask = (torch.rand(shape, device="cuda") < 0.8).index_fill(-1, torch.tensor([0], device="cuda"), True) if kind == torch.bool else \
            torch.randn(shape, device="cuda").to(kind or dtype).requires_grad_()
        return [tensor.requires_grad_() for tensor in tensors], mask, words

    def test_results_and_gradients_are_those_of_fp64(self):
        for name, dtype in itertools.product(CASES, (torch.bfloat16, torch.float16)):
            with self.subTest(name, dtype=dtype):
                given, mask, words = self.case(name, dtype)
                out, _ = training.attention_train(*given, mask, words.get("is_causal", False), words.get("scale"), ROWS)
                wanted = [*given, *([mask] if mask is not None and mask.requires_grad else [])]
                dout = torch.randn_like(out)
                grads = torch.autograd.grad(out, wanted, dout)
                wide = [tensor.detach().double().requires_grad_() for tensor in wanted]
                q, k, v, *biases = wide
                every = mask if not biases else biases[0]
                if every is not None and every.dim() == 4 and 1 < every.shape[0] < q.shape[0]:
                    every = every.repeat(q.shape[0] // every.shape[0], 1, 1, 1)
                group = q.shape[1] // k.shape[1]
                want = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), every, **words)
                bound = 2**-6 if dtype == torch.bfloat16 else 2**-9
                for mine, right, tensor in zip((out, *grads), (want, *torch.autograd.grad(want, wide, dout.double())), (out, *wanted), strict=True):
                    self.assertEqual((mine.dtype, mine.shape), (tensor.dtype, tensor.shape))
                    self.assertLessEqual((mine.double() - right).norm().item(), bound * right.norm().item())
        self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_a_projection_has_one_gradient_and_the_same_step_the_same_bits(self):
        qkv = torch.randn(4, 197, 3, 12, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        bias = torch.randn(1, 12, 197, 197, device="cuda", requires_grad=True)
        dout = heads(4, 12, 197, 64, torch.bfloat16)
        first, again = (torch.autograd.grad(training.attention_qkv_train(qkv, bias, False, None, ROWS)[0], (qkv, bias), dout) for _ in range(2))
        self.assertTrue(all(map(torch.equal, first, again)))
        q, k, v = training.unpacked(qkv)
        apart = torch.autograd.grad(training.attention_train(q, k, v, bias, False, None, ROWS)[0], (qkv, bias), dout)
        for mine, right in zip(first, apart):
            self.assertLessEqual((mine.double() - right.double()).norm().item(), 2**-7 * right.double().norm().item())
        self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_the_operators_pass_opcheck(self):
        checks = ("test_schema", "test_autograd_registration", "test_faketensor")
        given, bias, _ = self.case("a bias of 16 bits", torch.bfloat16)
        torch.library.opcheck(training.attention_train, (*given, bias, False, None, ROWS), test_utils=checks)
        out, lse = (t.detach() for t in training.attention_train(*given, bias, False, None, ROWS))
        torch.library.opcheck(training.attention_backward, (out, *(t.detach() for t in (*given, bias)), out, lse, False, None, True), test_utils=checks)
        qkv = torch.randn(2, 9, 3, 2, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        torch.library.opcheck(training.attention_qkv_train, (qkv, None, True, None, ROWS), test_utils=checks)


@needs_library
@needs_torch
@needs_gpu
@unittest.skipIf(timm is None, "timm is not installed")
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of attention")
class StepGpuTest(unittest.TestCase):
    setUp, step, gradients, expect_eagers = (getattr(layers.StepGpuTest, name) for name in ("setUp", "step", "gradients", "expect_eagers"))

    def test_both_passes_are_raced_and_put_in_where_they_won(self):
        for name in ("vit_tiny_patch16_224", "beit_base_patch16_224"):
            self.model = timm.create_model(name, depth=2, embed_dim=192, num_heads=3, num_classes=100).train().cuda()
            with self.subTest(name), mock.patch.object(backend, "_times", {}):
                torch._dynamo.reset()
                compiled = vitune.compile(copy.deepcopy(self.model), training=True)
                self.expect_eagers(compiled)
                calls = [call for call in vitune.report(compiled).calls if call.operator == "attention_train"]
                self.assertEqual([call.module for call in calls], ["blocks.0.attn", "blocks.1.attn"])
                for call in calls:
                    self.assertIsNotNone(call.times, call)
                    self.assertEqual(call.times.wrong, "", call)
                    self.assertEqual(call.replaced, call.times.won, call)

    def test_a_race_leaves_eager_gradients_right(self):
        # A size that no other test has: PyTorch 2.11 keeps cuDNN's plans without the strides of the result's gradient.
        self.model = timm.create_model("vit_tiny_patch16_224", img_size=208, depth=2, embed_dim=320, num_heads=5, num_classes=100).train().cuda()
        self.images = torch.randn(16, 3, 208, 208, device="cuda")
        self.gradients(vitune.compile(copy.deepcopy(self.model), training=True))
        _, grads = self.gradients(self.model)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            _, wants = self.gradients(copy.deepcopy(self.model))
        for mine, right in zip(grads, wants, strict=True):
            self.assertLessEqual((mine - right).norm().item(), 0.03 * right.norm().item() + 1e-9)

    def test_a_step_is_right_in_each_mode_and_as_one_captured_graph(self):
        names = ["attention_train", "norm_train", "linear_train"]
        for mode, replace in itertools.product((None, "reduce-overhead"), (names[:1], names)):
            with self.subTest(mode, replace=replace):
                torch._dynamo.reset()
                vitune.torch.reset_stats()
                compiled = vitune.compile(copy.deepcopy(self.model), mode=mode, replace=replace)
                for _ in range(3):
                    self.gradients(compiled)
                self.expect_eagers(compiled)
                calls = [call for call in vitune.report(compiled).calls if call.operator == "attention_train"]
                self.assertEqual([call.replaced for call in calls], [True] * 2)
                self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_a_step_that_is_captured_has_eager_modes_losses(self):
        def loss(model, images, labels):
            with torch.autocast("cuda", torch.bfloat16):
                return F.cross_entropy(model(images).float(), labels)
        losses = []
        for compiles in (True, False):
            model = copy.deepcopy(self.model)
            optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3, device="cuda"), capturable=True)
            compiled = vitune.compile(model, replace=["attention_train", "norm_train", "linear_train"]) if compiles else model
            train = vitune.train_step(compiled, loss, optimizer, **({} if compiles else {"compile": False}))
            losses.append([train(self.images, self.labels).item() for _ in range(6)])
            if compiles:
                self.assertEqual(sum(call.replaced for call in vitune.report(compiled).calls if call.operator == "attention_train"), 2)
        for mine, right in zip(*losses):
            self.assertAlmostEqual(mine, right, delta=0.03 * abs(right))


if __name__ == "__main__":
    unittest.main()
