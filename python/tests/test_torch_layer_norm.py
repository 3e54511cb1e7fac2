# python/tests/test_torch_layer_norm.py -- layer_norm while vitune is installed: which calls are served, and that answers stay.
# SPDX-License-Identifier: Apache-2.0
import unittest
import warnings
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch

if torch is not None:
    import torch.nn.functional as F

    from vitune._dropin import layer_norm as dropin_layer_norm, lone_norms
    from vitune._runtime.counters import counters

    from .test_torch_host import TorchTest
else:
    TorchTest = unittest.TestCase


@unittest.skipUnless(OPERATORS, "no operators' library was named")
@needs_device
@needs_torch
class LayerNormTest(TorchTest):
    def setUp(self):
        super().setUp()
        torch.manual_seed(5)
        vitune.torch.reset_stats()

    def _is_served(self, call, served=1):
        """The answer, of which as many norms are vitune's; PyTorch's beside it."""
        with torch.no_grad():
            want = call()
            before = vitune.torch.stats()
            with vitune.torch.enabled():
                got = call()
        after = vitune.torch.stats() - before
        self.assertEqual((after.norms, after.served, after.fallbacks), (served, 0, 0))
        self.assertEqual((got.shape, got.stride(), got.dtype), (want.shape, want.stride(), want.dtype))
        return got, want

    def _is_right(self, call):
        got, want = self._is_served(call)
        step = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2**-18}[want.dtype]
        self.assertLessEqual((got.double() - want.double()).abs().max(), step * max(1, want.double().abs().max()))

    def test_norms_over_the_last_dimension_are_served(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for shape in ((3, 40), (2, 7, 96), (2, 3, 5, 24), (1, 1, 33), (8,)):
                with self.subTest(dtype=dtype, shape=shape):
                    x = torch.randn(shape).to(dtype)
                    weight, bias = (torch.randn(shape[-1]).to(dtype) for _ in range(2))
                    self._is_right(lambda: F.layer_norm(x, shape[-1:], weight, bias, 1e-6))
                    self._is_right(lambda: F.layer_norm(x, shape[-1:], weight))
                    self._is_right(lambda: F.layer_norm(x, shape[-1:]))

    def test_parameters_may_be_wider_and_rows_apart(self):
        x = torch.randn(2, 7, 64, dtype=torch.bfloat16)
        self._is_right(lambda: F.layer_norm(x[..., 8:40], (32,), torch.ones(32), torch.zeros(32)))
        self._is_right(lambda: F.layer_norm(x[:, 0], (64,)))  # a class token
        self._is_right(lambda: F.layer_norm(x[..., 1:34], (33,)))  # rows aligned to 2 bytes

    def test_what_lies_otherwise_is_copied_first_as_by_pytorch(self):
        x = torch.randn(4, 6, 9, dtype=torch.bfloat16)
        tokens = torch.randn(2, 24, 5, 3, dtype=torch.float16).flatten(2).transpose(1, 2)  # of a convolution
        for name, at in {"columns apart": x.transpose(1, 2), "rows in no order": x.permute(1, 0, 2), "tokens": tokens,
                         "a view": x[1:, :, 1:].transpose(1, 2), "channels last": tokens[None].permute(0, 2, 3, 1)}.items():
            with self.subTest(name):
                before = at.clone()
                weight = torch.randn(at.shape[-1], dtype=at.dtype)
                self._is_right(lambda: F.layer_norm(at, tuple(at.shape[-1:]), weight))
                self.assertTrue(torch.equal(at, before))

    def test_modules_are_served(self):
        norm = torch.nn.LayerNorm(48, eps=1e-6).bfloat16()
        norm.weight.data.normal_()
        x = torch.randn(2, 5, 48, dtype=torch.bfloat16)
        self._is_right(lambda: norm(x))
        with torch.inference_mode(), vitune.torch.enabled():
            self.assertTrue(norm(x).is_inference())

    def test_what_the_kernels_do_not_take_is_pytorchs_and_not_counted(self):
        x = torch.randn(4, 6, 8, dtype=torch.bfloat16)
        wide = torch.randn(2, 8200, dtype=torch.bfloat16)
        cases = {
            "two dimensions": lambda: F.layer_norm(x, (6, 8)),
            "fp64": lambda: F.layer_norm(x.double(), (8,)),
            "no row": lambda: F.layer_norm(x[:0], (8,)),
            "too many columns": lambda: F.layer_norm(wide, (8200,)),
            "a list": lambda: F.layer_norm(x, [8]),
        }
        for name, call in cases.items():
            with self.subTest(name):
                got, want = self._is_served(call, served=0)
                self.assertTrue(torch.equal(got, want))

    def test_errors_are_pytorchs(self):
        x, weight = torch.randn(4, 8, dtype=torch.bfloat16), torch.randn(7, dtype=torch.bfloat16)
        for call in (lambda: F.layer_norm(x, (8,), weight), lambda: F.layer_norm(x, (7,)), lambda: F.layer_norm(x, ()),
                     lambda: F.layer_norm(x, (8.0,))):
            messages = []
            for form in (vitune.torch.enabled(norms=False), vitune.torch.enabled()):
                with torch.no_grad(), form, self.assertRaises((RuntimeError, TypeError)) as caught:
                    call()
                messages.append(str(caught.exception))
            self.assertEqual(*messages)

    def test_autocast_and_gradients_are_pytorchs(self):
        x = torch.randn(4, 8, dtype=torch.bfloat16)
        weight = torch.ones(8, dtype=torch.bfloat16, requires_grad=True)
        with vitune.torch.enabled():
            F.layer_norm(x, (8,), weight).sum().backward()
            self.assertIsNotNone(weight.grad)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                F.layer_norm(x, (8,), weight)
            with torch.no_grad():
                torch.func.vmap(lambda row: F.layer_norm(row, (8,)))(x)
        self.assertEqual(vitune.torch.stats().norms, 0)

    def test_only_where_it_is_wanted_and_undone(self):
        x = torch.randn(4, 8, dtype=torch.bfloat16)
        with torch.no_grad():
            with vitune.torch.enabled(norms=False):
                F.layer_norm(x, (8,))
            self.assertEqual(vitune.torch.stats().norms, 0)
            with vitune.torch.enabled():
                held = F.layer_norm
                held(x, (8,))
            self.assertEqual(vitune.torch.stats().norms, 1)
            held(x, (8,))  # a name that outlives the context
            self.assertEqual(vitune.torch.stats().norms, 1)
        self.assertIs(F.layer_norm, dropin_layer_norm.original)

    def test_compilers_and_scripts_see_pytorchs(self):
        norm, x = torch.nn.LayerNorm(16).eval(), torch.randn(3, 16)
        want = norm(x)
        with torch.no_grad(), vitune.torch.enabled():
            torch._dynamo.reset()
            compiled = torch.compile(norm, fullgraph=True, backend="aot_eager")
            for call in (compiled, torch.jit.script(norm), torch.fx.symbolic_trace(norm)):
                torch.testing.assert_close(call(x), want)
            exported = torch.export.export(norm, (x,))
        self.assertIn("aten.layer_norm", str(exported.graph))

    def test_the_operator_passes_opcheck(self):
        x, weight = torch.randn(3, 24, dtype=torch.float16), torch.ones(24, dtype=torch.float16)
        torch.library.opcheck(torch.ops.vitune.layer_norm_or_torch.default, (x, weight, None, 1e-5),
                              test_utils=("test_schema", "test_faketensor"))


@unittest.skipUnless(OPERATORS, "no operators' library was named")
@needs_device
@needs_torch
class LoneNormsTest(TorchTest):
    """Norms in a program without attention."""

    def setUp(self):
        super().setUp()
        for name, value in (("PATIENCE", 6), ("left", 6), ("LOOKED_AT", 3), ("_looked_at", 0), ("SMALL", 1000), ("_attention", counters.served)):
            patch = mock.patch.object(lone_norms, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(setattr, lone_norms, "aside", False)

    def _call(self, count, columns=8):
        """Whether vitune's function stands there after so many norms; and how many it served."""
        x, before = torch.randn(4, columns, dtype=torch.bfloat16), vitune.torch.stats().norms
        with torch.no_grad():
            for _ in range(count):
                F.layer_norm(x, (columns,))
        return F.layer_norm is dropin_layer_norm.layer_norm, vitune.torch.stats().norms - before

    def _attend(self):
        q = torch.randn(1, 2, 16, 64, dtype=torch.bfloat16)
        with torch.no_grad():
            F.scaled_dot_product_attention(q, q, q)

    def test_after_a_while_small_norms_without_attention_are_pytorchs_until_attention_is_served(self):
        with vitune.torch.enabled():
            self.assertEqual(self._call(7), (True, 7))
            self.assertEqual(self._call(4), (False, 1))
            self.assertIn("once attention is", str(vitune.torch.stats()))
        self.assertEqual(vitune.torch.stats().missed, "")
        with vitune.torch.enabled():
            self.assertEqual(self._call(2), (False, 0))  # of a block that is entered again too
            self._attend()
            self._attend()
            self.assertEqual(self._call(2), (True, 2))
            self.assertEqual(vitune.torch.stats().missed, "")
        self.assertIs(F.layer_norm, dropin_layer_norm.original)

    def test_attention_that_falls_back_brings_no_norms_back(self):
        q = torch.randn(1, 2, 16, 136, dtype=torch.bfloat16)
        with vitune.torch.enabled(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(self._call(10), (False, 8))
            for _ in range(3):
                F.scaled_dot_product_attention(q, q, q)
            self.assertEqual(self._call(2), (False, 0))

    def test_compilers_see_nothing_of_it(self):
        def attends(q):
            return F.scaled_dot_product_attention(q, q, q)
        q = torch.randn(1, 2, 16, 64, dtype=torch.bfloat16)
        with vitune.torch.enabled(), torch.no_grad():
            torch._dynamo.reset()
            before = torch.compile(attends, backend="eager", fullgraph=True)
            before(q)
            self.assertFalse(self._call(30)[0])
            torch.testing.assert_close(before(q), attends(q))
            self.assertFalse(self._call(30)[0])
            torch._dynamo.reset()
            after = torch.compile(attends, backend="eager", fullgraph=True)(q)
            torch.testing.assert_close(after, attends(q))

    def test_whoever_asks_for_training_has_them_back(self):
        with vitune.torch.enabled():
            self.assertEqual(self._call(10), (False, 8))
            with vitune.torch.enabled(training=True):
                self.assertIs(F.layer_norm, dropin_layer_norm.layer_norm)
                self.assertEqual(self._call(20), (True, 20))

    def test_norms_beside_attention_stay(self):
        with vitune.torch.enabled():
            for _ in range(5):
                self._attend()
                self.assertEqual(self._call(8), (True, 8))

    def test_one_large_norm_in_a_pass_is_enough_to_stay(self):
        with vitune.torch.enabled():
            for _ in range(20):
                self.assertEqual(self._call(2), (True, 2))
                self.assertEqual(self._call(1, columns=256), (True, 1))

    def test_large_norms_those_of_a_capture_and_of_whoever_asked_for_training_stay(self):
        with vitune.torch.enabled():
            self.assertEqual(self._call(20, columns=256), (True, 20))
            with mock.patch.object(lone_norms.training, "is_capturing", lambda: True):
                self.assertEqual(self._call(20), (True, 20))
        with vitune.torch.enabled(training=True):
            self.assertEqual(self._call(20), (True, 20))
