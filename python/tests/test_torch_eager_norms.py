# python/tests/test_torch_eager_norms.py -- Norms that train in eager mode while vitune is installed: which are served, and their gradients.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import unittest
from unittest import mock

import vitune

from .support import needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F

from vitune._dropin import layer_norm as dropin_layer_norm, rms_norm as dropin_rms_norm
from vitune._ops import attention as attention_ops, norm as norm_ops, norm_training

from .training_staged import BOUND, TrainingTest, in_fp64, leaf


class Mine(torch.Tensor):
    pass


@needs_device
@needs_torch
class NormsTest(TrainingTest):
    def _is_right(self, call, given, asked, dtype):
        """Result and gradients of a norm while vitune is installed are those of fp64, and the operators of libvitune that it asks for."""
        with vitune.torch.enabled(training=True):
            got = call(*given)
            dy = torch.randn_like(got)
            wanted = [tensor for tensor in given if tensor is not None and tensor.requires_grad]
            ours = torch.autograd.grad(got, wanted, dy)
        self.assertEqual(self.operators_asked(), asked)
        wide = in_fp64(given)
        want = call(*wide)
        theirs = torch.autograd.grad(want, [tensor for tensor in wide if tensor is not None and tensor.requires_grad], dy.double())
        self.assertEqual((got.dtype, got.shape, got.is_contiguous()), (dtype, want.shape, True))
        self.expect_near(got, want, BOUND[dtype])
        for mine, right, of in zip(ours, theirs, wanted, strict=True):
            self.assertEqual(mine.dtype, of.dtype)
            self.expect_near(mine, right, 2 * max(BOUND[dtype], BOUND[of.dtype]))

    def test_gradients_are_those_of_fp64(self):
        both = ["norm", "norm_backward"]
        for dtype in (torch.bfloat16, torch.float32):
            x, weight, bias = (leaf(*shape, dtype=dtype) for shape in ((2, 7, 96), (96,), (96,)))
            frozen = weight.detach()
            wide = [tensor.detach().float().requires_grad_() for tensor in (weight, bias)]
            plain = x.detach()
            for name, given in {"all": (x, weight, bias), "no bias": (x, weight, None), "nothing but x": (x, None, None), "frozen": (x, frozen, bias),
                                "parameters alone": (plain, weight, bias), "wide parameters": (x, *wide)}.items():
                with self.subTest(name, dtype=dtype):
                    self._is_right(lambda x, w, b: F.layer_norm(x, (96,), w, b, 1e-6), given, both, dtype)
            with self.subTest("rms", dtype=dtype):
                self._is_right(lambda x, w: F.rms_norm(x, (96,), w, 1e-6), (x, weight), both, dtype)
        x = torch.randn(3, 40, 5).transpose(1, 2)[:, 1:].requires_grad_()  # a leaf that does not lie row after row
        self._is_right(lambda x: F.layer_norm(x, (40,)), (x,), both, torch.float32)

    def test_autocast_gives_fp32_as_pytorchs_does(self):
        x, weight, bias = leaf(2, 7, 32, dtype=torch.bfloat16), leaf(32, dtype=torch.float32), leaf(32, dtype=torch.float32)
        torch.set_autocast_enabled("cuda", True)
        self.addCleanup(torch.set_autocast_enabled, "cuda", False)
        self._is_right(lambda x, w, b: F.layer_norm(x, (32,), w, b), (x, weight, bias), ["norm", "norm_backward"], torch.float32)

    def test_modules_train_and_are_counted(self):
        layers = torch.nn.Sequential(torch.nn.LayerNorm(32), torch.nn.RMSNorm(32), torch.nn.LayerNorm(32))
        x, dy = torch.randn(4, 32), torch.randn(4, 32)
        layers(x).backward(dy)
        want = [parameter.grad for parameter in layers.parameters()]
        layers.zero_grad()
        with vitune.torch.enabled(training=True):
            layers(x).backward(dy)
        self.assertEqual(self.counts(), (0, 0, 3))
        for parameter, right in zip(layers.parameters(), want, strict=True):
            self.expect_near(parameter.grad, right, 1e-5)

    def test_only_what_was_asked_for_is_served(self):
        norm, x = torch.nn.LayerNorm(32), torch.randn(4, 32)
        for training, captures, served in ((None, False, 0), (None, True, 1), (True, False, 1), (True, True, 1), (False, True, 0)):
            for norms in (True, False):
                with self.subTest(training=training, captures=captures, norms=norms):
                    self.captures = captures
                    with vitune.torch.enabled(training=training, norms=norms):
                        norm(x)
                    self.assertEqual(self.counts(), (0, 0, served if norms else 0))
        self.captures = True
        with vitune.torch.enabled(training=False), vitune.torch.enabled(training=True):
            held = F.layer_norm
            norm(x)
        norm(x)
        held(x, (32,), norm.weight)
        self.assertEqual(self.counts(), (0, 0, 1))
        self.assertEqual((F.layer_norm, F.rms_norm), (dropin_layer_norm.original, dropin_rms_norm.original))

    def test_the_innermost_that_says_something_decides(self):
        norm, x, self.captures = torch.nn.LayerNorm(32), torch.randn(4, 32), True
        for asked, served in (((None, False), 0), ((True, False), 0), ((False, None), 0), ((False, True), 1), ((True, False, None), 0),
                              ((False, True, False), 0), ((False, True, None), 1), ((None, None), 1)):
            with self.subTest(asked), contextlib.ExitStack() as inside:
                vitune.torch.install(training=asked[0])
                inside.callback(vitune.torch.uninstall)
                with contextlib.ExitStack() as stack:
                    for training in asked[1:]:
                        stack.enter_context(vitune.torch.enabled(training=training))
                    norm(x)
                    self.assertEqual(self.counts()[2], served)
                norm(x)
                self.assertEqual(self.counts()[2], asked[0] is not False)
        one, other = vitune.torch.enabled(training=True), vitune.torch.enabled(training=False)
        for each in (one, other, one):  # threads enter and leave in any order
            each.__enter__()
        found = []
        for each in (one, one, other):
            norm(x)
            found.append(self.counts()[2])
            each.__exit__()
        norm(x)
        self.assertEqual((found, self.counts()[2]), ([1, 0, 0], 0))

    def test_what_is_left_to_pytorch_has_its_results(self):
        x, weight = leaf(4, 6, 32, dtype=torch.bfloat16), leaf(32, dtype=torch.bfloat16)
        dual = torch.autograd.forward_ad
        cases = {
            "no gradient is wanted": lambda: F.layer_norm(x.detach(), (32,)), "two dimensions": lambda: F.layer_norm(x, (6, 32)),
            "fp64": lambda: F.layer_norm(x.double(), (32,)), "no row": lambda: F.layer_norm(x[:0], (32,)),
            "a subclass": lambda: F.layer_norm(x, (32,), weight.as_subclass(Mine)),
            "vmap": lambda: torch.func.vmap(lambda row: F.layer_norm(row, (32,), weight))(x),
            "grad": lambda: torch.func.grad(lambda row: F.layer_norm(row, (32,)).square().sum())(x.detach()),
            "too many columns": lambda: F.layer_norm(leaf(2, 8200, dtype=torch.bfloat16), (8200,)),
        }
        for name, call in cases.items():
            with self.subTest(name):
                torch.manual_seed(1)
                want = call()
                torch.manual_seed(1)
                with vitune.torch.enabled(training=True):
                    got = call()
                self.assertEqual(type(got), type(want))
                self.assertTrue(torch.equal(got, want))
        with vitune.torch.enabled(training=True), dual.dual_level():
            out = F.layer_norm(dual.make_dual(x.detach().float(), torch.ones(4, 6, 32)), (32,))
            self.assertIsNotNone(dual.unpack_dual(out).tangent)
        self.assertEqual(self.counts(), (0, 0, 0))

    def test_sizes_that_are_no_integers_are_refused_as_by_pytorch(self):
        x = leaf(2, 7, 32, dtype=torch.float32)
        with vitune.torch.enabled(training=True):
            for norm in (F.layer_norm, F.rms_norm):
                for shape in ((32.0,), [32.0]):
                    with self.assertRaises(TypeError):
                        norm(x, shape)

    def test_second_derivatives_are_pytorchs(self):
        x, weight, bias = (leaf(*shape, dtype=torch.float32) for shape in ((3, 16), (16,), (16,)))
        scales, found = torch.linspace(-1, 1, 16), []
        for training in (True, False):
            with vitune.torch.enabled(training=training):
                for call in (lambda: F.layer_norm(x, (16,), weight, bias), lambda: F.rms_norm(x, (16,), weight),
                             lambda: F.layer_norm(F.layer_norm(x, (16,), weight, bias).tanh() * scales, (16,), weight, bias),
                             lambda: F.layer_norm(x, (16,), weight * x.mean(0), bias)):
                    first, of_weight = torch.autograd.grad(call().pow(3).sum(), (x, weight), create_graph=True)
                    found.append((first, of_weight, *torch.autograd.grad(first.pow(2).sum(), (x, weight))))
        for mine, right in zip(found[:4], found[4:], strict=True):
            for one, other in zip(mine, right):
                self.expect_near(one, other, 1e-5)
        # The second pass goes through the first one's graph too, by the way of what it was given.
        self.assertEqual(self.operators_asked(), [*["norm", "norm_backward"] * 2, "norm", "norm", "norm_backward", "norm_backward", "norm", "norm_backward"])

    def test_a_negated_gradient_has_its_sign(self):
        x, weight = leaf(4, 32, dtype=torch.float32), leaf(32, dtype=torch.float32)
        dy = torch._neg_view(torch.randn(4, 32))
        with vitune.torch.enabled(training=True):
            for _ in range(4):
                out = F.layer_norm(x, (32,), weight)
                for mine, right in zip(torch.autograd.grad(out, [x, weight], dy, retain_graph=True),
                                       torch.autograd.grad(out, [x, weight], dy.resolve_neg()), strict=True):
                    self.expect_near(mine, right, 1e-6)

    def test_what_is_raised_in_a_pass_arrives_as_it_is(self):
        def raising(*given):
            raise error
        x, weight = leaf(4, 40, dtype=torch.float32), leaf(40, dtype=torch.float32)
        with vitune.torch.enabled(training=True):
            for error in (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), KeyboardInterrupt()):
                with mock.patch.object(norm_ops, "launch", raising), self.assertRaises(type(error)):
                    F.layer_norm(x, (40,), weight)
                out = F.layer_norm(x, (40,), weight)
                with mock.patch.object(norm_training, "launch", raising), self.assertRaises(type(error)):
                    out.backward(torch.ones_like(out))

    def test_several_gradients_at_once_are_pytorchs(self):
        x, weight = leaf(3, 16, dtype=torch.float32), leaf(16, dtype=torch.float32)
        several = torch.randn(4, 3, 16)
        ours, theirs = [], []
        for training, found in ((True, ours), (False, theirs)):
            with vitune.torch.enabled(training=training):
                found += torch.autograd.grad(F.layer_norm(x, (16,), weight), (x, weight), several, is_grads_batched=True)
        for mine, right in zip(ours, theirs, strict=True):
            self.expect_near(mine, right, 1e-5)

    def test_a_kept_graph_hooks_and_changes_in_place_are_as_pytorchs(self):
        x, weight = leaf(3, 16, dtype=torch.float32), leaf(16, dtype=torch.float32)
        packed = []
        with vitune.torch.enabled(training=True):
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: packed.append(tensor.shape) or tensor.clone(), lambda tensor: tensor):
                out = F.layer_norm(x * 1, (16,), weight)
            self.assertGreater(len(packed), 1)
            first, again = (torch.autograd.grad(out.square().sum(), (x, weight), retain_graph=True) for _ in range(2))
            self.assertTrue(all(map(torch.equal, first, again)))
            torch.autograd.grad(out.sum(), x)
            with self.assertRaisesRegex(RuntimeError, "second time"):
                torch.autograd.grad(out.sum(), x)
            for changed in (0, 1):
                given = [x * 1, weight * 1]
                out = F.layer_norm(given[0], (16,), given[1])
                with torch.no_grad():
                    given[changed].add_(1)
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    out.sum().backward()

    def test_what_libvitune_refuses_is_pytorchs(self):
        norm, x = torch.nn.LayerNorm(32), torch.randn(4, 32)

        def refuse(problem):
            raise vitune.Unsupported(f"'{problem.text}' has no kernel")
        with vitune.torch.enabled(training=True), mock.patch.object(type(attention_ops.context_of(0)), "workspace_bytes", staticmethod(refuse)):
            norm(x).sum().backward()
        self.assertEqual(self.counts(), (0, 0, 0))
        self.assertIsNotNone(norm.weight.grad)

    def test_compilers_and_scripts_see_pytorchs(self):
        norm, x = torch.nn.RMSNorm(16), torch.randn(3, 16)
        with vitune.torch.enabled(training=True):
            torch._dynamo.reset()
            for call in (torch.compile(norm, fullgraph=True, backend="aot_eager"), torch.jit.script(torch.nn.LayerNorm(16))):
                call(x).sum().backward()
        self.assertEqual(self.counts(), (0, 0, 0))


if __name__ == "__main__":
    unittest.main()
