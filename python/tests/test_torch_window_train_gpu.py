# python/tests/test_torch_window_train_gpu.py -- Attention in windows that trains on a GPU: the operators, the race of both passes, steps of whole models.
# SPDX-License-Identifier: Apache-2.0
import copy
import itertools
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_library, needs_torch, torch
from .test_torch_gpu import needs_gpu

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("windows that train are not the operators' library's: once is enough")

import torch.nn.functional as F
from torch import nn

from vitune._compile import backend
from vitune._ops import window_attention_training as training
from vitune._ops.window_attention import Windows, partitioned, reversed_

from . import test_torch_train_gpu as layers
from .test_torch_train_gpu import knows, timm

KNOWS_GRADIENTS = knows("window_attention_backward bf16 b=1 image=14x14 window=7x7 h=1 d=32")
OP = torch.ops.vitune.window_attention_train

#: Image, Windows' fields, heads, head size, windows of the bias, rows of its table (0: a bias that is shared), whether padding is given.
CASES = {
    "Swin": ((28, 28), ((7, 7),), 3, 32, 1, 169, False), "Swin, shifted": ((28, 28), ((7, 7), (3, 3)), 3, 32, 16, 169, False),
    "Swin, padded": ((25, 30), ((7, 7), (3, 3)), 3, 32, 20, 169, True), "padded first": ((25, 30), ((7, 7), (3, 3), False, True), 3, 32, 20, 169, True),
    "Swin-B at 384": ((24, 24), ((12, 12), (6, 6)), 4, 32, 4, 529, False), "MaxViT, blocks": ((28, 28), ((7, 7),), 2, 32, 1, 0, False),
    "MaxViT, grids": ((28, 28), ((7, 7), (0, 0), True), 2, 32, 1, 0, False), "Twins": ((25, 25), ((7, 7),), 2, 32, 0, 0, True),
    "large heads": ((16, 16), ((8, 8), (4, 4)), 2, 64, 4, 225, False),
}


class Call:
    """Operands on the GPU, and what both sides make of them."""

    def __init__(self, case, dtype, interleaved, bias_dtype):
        image, fields, heads, d, bias_windows, rows, padded = CASES[case]
        self.windows, self.interleaved, self.dtype, self.bias_dtype = Windows(*fields), interleaved, dtype, bias_dtype
        n = self.windows.window[0] * self.windows.window[1]
        self.qkv = torch.randn(4, *image, *((heads, 3) if interleaved else (3, heads)), d, device="cuda", dtype=dtype, requires_grad=True)
        self.padding = torch.randn(3, heads, d, device="cuda", requires_grad=True) if padded else None
        self.parameter = self.index = self.masks = None
        if bias_windows:
            self.masks = torch.where(torch.rand(bias_windows, 1, n, n, device="cuda") < 0.8, 0.0, -100.0)
            self.parameter = torch.randn(*((rows, heads) if rows else (1, heads, n, n)), device="cuda", requires_grad=True)
            self.index = torch.randint(0, rows, (n, n), device="cuda", dtype=torch.int32) if rows else None

    @property
    def wanted(self):
        return [each for each in (self.qkv, self.parameter, self.padding) if each is not None]

    def bias_of(self, parameter):
        if parameter is None:
            return None
        return (parameter if self.index is None else parameter[self.index.long()].permute(2, 0, 1).unsqueeze(0)) + self.masks

    def ours(self):
        bias = None if self.parameter is None else self.bias_of(self.parameter.detach()).to(self.bias_dtype)
        filler = None if self.padding is None else self.padding.detach().to(self.dtype)
        return OP(self.qkv, self.windows.window, self.windows.shift, bias, self.parameter, self.index, self.padding, filler, None, self.interleaved,
                  *self.windows[2:])

    def right(self):
        """In fp64, of operands as they are read; and what gradients are wanted of."""
        qkv, parameter, padding = wide = [None if each is None else each.detach().double().requires_grad_() for each in (
            self.qkv, self.parameter, self.padding)]
        bias = self.bias_of(parameter)
        if bias is not None:
            bias = bias + (bias.detach().to(self.bias_dtype).double() - bias.detach())
        if padding is not None:
            padding = padding + (padding.detach().to(self.dtype).double() - padding.detach())
        turned = qkv.transpose(3, 4) if self.interleaved else qkv
        q, k, v = partitioned(turned, self.windows, padding).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) * q.shape[-1]**-0.5
        if bias is not None:
            scores = scores + bias.repeat(q.shape[0] // bias.shape[0], 1, 1, 1)
        out = reversed_((scores.softmax(-1) @ v).transpose(1, 2), self.windows, turned.shape[1:3])
        return out, [each for each in wide if each is not None]


@needs_library
@needs_torch
@needs_gpu
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of windows")
class OperatorGpuTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)
        vitune.torch.reset_stats()

    def test_results_and_gradients_are_those_of_fp64(self):
        kinds = itertools.product((torch.bfloat16, torch.float16), (False, True), (None, torch.float32))
        for name, (dtype, interleaved, bias_dtype) in itertools.product(CASES, kinds):
            with self.subTest(name, dtype=dtype, interleaved=interleaved, bias=bias_dtype):
                call = Call(name, dtype, interleaved, bias_dtype or dtype)
                out, (right, wide) = call.ours(), call.right()
                dout = torch.randn_like(out)
                grads, rights = torch.autograd.grad(out, call.wanted, dout), torch.autograd.grad(right, wide, dout.double())
                bound = 2**-6 if dtype == torch.bfloat16 else 2**-9
                for mine, want, tensor in zip((out, *grads), (right, *rights), (out, *call.wanted), strict=True):
                    self.assertEqual((mine.dtype, mine.shape, mine.is_contiguous()), (tensor.dtype, tensor.shape, True))
                    self.assertLessEqual((mine.double() - want).norm().item(), bound * want.norm().item())
        self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_the_same_call_gives_the_same_bits(self):
        for name in CASES:
            with self.subTest(name):
                call = Call(name, torch.bfloat16, False, torch.bfloat16)
                out = call.ours()
                dout = torch.randn_like(out)
                first, *others = (torch.autograd.grad(out, call.wanted, dout, retain_graph=True) for _ in range(5))
                self.assertTrue(all(all(map(torch.equal, first, other)) for other in others))

    def test_the_operators_pass_opcheck(self):
        checks = ("test_schema", "test_autograd_registration", "test_faketensor")
        call = Call("Swin, padded", torch.bfloat16, False, torch.bfloat16)
        bias, filler = call.bias_of(call.parameter.detach()).bfloat16(), call.padding.detach().bfloat16()
        windows = call.windows.window, call.windows.shift
        torch.library.opcheck(OP.default, (call.qkv, *windows, bias, call.parameter, call.index, call.padding, filler, None, False, False, False),
                              test_utils=checks)
        torch.library.opcheck(training.window_attention_backward, (
            torch.randn_like(call.ours().detach()), call.qkv.detach(), *windows, bias, call.index, filler, None, False, False, False, 0, 169),
            test_utils=checks)


#: Models, of how many places, and the size of their images.
MODELS = {"Swin": (lambda: a_model("swin_tiny_patch4_window7_224", depths=(2, 2), embed_dim=96, num_heads=(3, 6)), 4, 224),
          "Swin, written out": (lambda: a_model("swin_tiny_patch4_window7_224", False, depths=(2, 2), embed_dim=96, num_heads=(3, 6)), 4, 224),
          "Swin, padded": (lambda: a_model("swin_tiny_patch4_window7_224", img_size=200, depths=(2,), num_heads=(3,), always_partition=True), 2, 200),
          "MaxViT": (lambda: a_model("maxvit_tiny_tf_224", depths=(1, 1), embed_dim=(64, 128), stem_width=32), 4, 224),
          "Twins": (lambda: a_model("twins_svt_small", depths=(2, 2), embed_dims=(64, 128), num_heads=(2, 4), mlp_ratios=(4, 4), sr_ratios=(8, 4),
                                    wss=(7, 7)), 2, 224)}


def a_model(name, fused=True, **keywords):
    was = timm.layers.config._USE_FUSED_ATTN
    timm.layers.set_fused_attn(fused, experimental=True)
    try:
        model = timm.create_model(name, num_classes=100, **keywords).train().cuda()
    finally:
        timm.layers.config._USE_FUSED_ATTN = was
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith(("bias_table", "qkv.bias")):
            nn.init.normal_(parameter, std=0.5)
    return model


@needs_library
@needs_torch
@needs_gpu
@unittest.skipIf(timm is None, "timm is not installed")
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of windows")
class StepGpuTest(unittest.TestCase):
    setUp, step, gradients = (getattr(layers.StepGpuTest, name) for name in ("setUp", "step", "gradients"))

    def take(self, name):
        make, places, size = MODELS[name]
        self.model, self.images = make(), torch.randn(16, 3, size, size, device="cuda")
        torch._dynamo.reset()
        vitune.torch.reset_stats()
        return places

    def expect_eagers(self, compiled):
        """Gradients no further from those in fp32 than eager mode's under autocast are, and a little."""
        (loss, grads), (want, wants) = self.gradients(compiled), self.gradients(copy.deepcopy(self.model))
        self.assertAlmostEqual(loss, want, delta=0.02)
        model = copy.deepcopy(self.model)
        F.cross_entropy(model(self.images).float(), self.labels).backward()
        for (name, parameter), mine, theirs in zip(model.named_parameters(), grads, wants, strict=True):
            right = parameter.grad
            self.assertEqual(mine.dtype, torch.float32)
            off, size = (theirs - right).norm().item(), right.norm().item()
            self.assertLessEqual((mine - right).norm().item(), 1.5 * off + 0.01 * size + 1e-6, name)

    def windows(self, compiled):
        return [call for call in vitune.report(compiled).calls if call.operator == "window_attention_train"]

    def test_both_passes_are_raced_and_put_in_where_they_won(self):
        for name in MODELS:
            with self.subTest(name), mock.patch.object(backend, "_times", {}):
                places = self.take(name)
                compiled = vitune.compile(copy.deepcopy(self.model), training=True)
                self.expect_eagers(compiled)
                calls = self.windows(compiled)
                self.assertEqual(len(calls), places)
                for call in calls:
                    self.assertIsNotNone(call.times, call)
                    self.assertEqual(call.times.wrong, "", call)
                    self.assertEqual(call.replaced, call.times.won, call)
                self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_a_step_is_right_in_each_mode(self):
        names = ["window_attention_train", "norm_train", "linear_train"]
        for model, mode, replace in itertools.product(MODELS, (None, "reduce-overhead"), (names[:1], names)):
            with self.subTest(model, mode=mode, replace=replace):
                places = self.take(model)
                compiled = vitune.compile(copy.deepcopy(self.model), mode=mode, replace=replace)
                for _ in range(3):
                    self.gradients(compiled)
                self.expect_eagers(compiled)
                self.assertEqual([call.replaced for call in self.windows(compiled)], [True] * places)
                self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_two_runs_of_a_whole_step_give_the_same_bits(self):
        names = ["window_attention_train", "norm_train", "linear_train"]
        for name in ("Swin", "Swin, padded", "Twins"):
            with self.subTest(name):
                places = self.take(name)
                torch.use_deterministic_algorithms(True, warn_only=True)  # of what is not vitune's
                self.addCleanup(torch.use_deterministic_algorithms, False)
                compiled = vitune.compile(copy.deepcopy(self.model), replace=names)
                (loss, first), *others = (self.gradients(compiled) for _ in range(4))
                self.assertEqual([call.replaced for call in self.windows(compiled)], [True] * places)
                for other_loss, other in others:
                    self.assertEqual(other_loss, loss)
                    unequal = [key for (key, _), mine, again in zip(self.model.named_parameters(), first, other) if not torch.equal(mine, again)]
                    self.assertEqual(unequal, [])

    def test_checkpointed_blocks_train(self):
        places = self.take("Swin, padded")
        self.model.set_grad_checkpointing()
        compiled = vitune.compile(copy.deepcopy(self.model), replace=["window_attention_train"])
        self.expect_eagers(compiled)
        self.assertEqual([call.replaced for call in self.windows(compiled)], [True] * places)

    def test_a_step_that_is_captured_has_eager_modes_losses(self):
        def loss(model, images, labels):
            with torch.autocast("cuda", torch.bfloat16):
                return F.cross_entropy(model(images).float(), labels)
        for name in ("Swin", "Swin, padded"):
            places = self.take(name)
            losses = []
            for compiles in (True, False):
                model = copy.deepcopy(self.model)
                optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3, device="cuda"), capturable=True)
                compiled = vitune.compile(model, replace=["window_attention_train", "norm_train", "linear_train"]) if compiles else model
                train = vitune.train_step(compiled, loss, optimizer, **({} if compiles else {"compile": False}))
                losses.append([train(self.images, self.labels).item() for _ in range(6)])
                if compiles:
                    self.assertEqual(sum(call.replaced for call in self.windows(compiled)), places)
            for mine, right in zip(*losses):
                self.assertAlmostEqual(mine, right, delta=0.03 * abs(right))


if __name__ == "__main__":
    unittest.main()
