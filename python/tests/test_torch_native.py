# python/tests/test_torch_native.py -- What only the operators' library does, and that it does what ctypes does.
# SPDX-License-Identifier: Apache-2.0
"""Needs VITUNE_TEST_OPERATORS (support.py): `make python-test` sets it where the library was built. test_torch_host.py runs
with it, too."""
import os
import subprocess
import sys
import threading
import unittest
import warnings

import vitune

from .support import OPERATORS, ROOT, needs_device, needs_torch, torch

if torch is not None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from vitune._ops import attention as attention_ops
    from vitune._ops.order import ROWS

    from .test_torch_host import TorchTest
    from .torch_cases import cases, expect_right, packed, reference
else:
    TorchTest = unittest.TestCase


@unittest.skipUnless(OPERATORS, "no operators' library was named")
@needs_device
@needs_torch
class NativeTest(TorchTest):
    def test_the_operators_are_the_librarys(self):
        self.assertIsNotNone(attention_ops.library)
        schema = str(torch.ops.vitune.attention.default._schema)
        self.assertEqual(schema, "vitune::attention(Tensor q, Tensor k, Tensor v, Tensor? attn_mask, bool is_causal,"
                                 " float? scale, bool enable_gqa, bool fall_back, int order=0) -> Tensor")
        with torch._C._DisableTorchDispatch():
            self.assertFalse(torch._C._dispatch_has_kernel_for_dispatch_key("vitune::attention", "AutogradCUDA"))

    def test_layouts_are_those_of_python(self):
        for name, (q, k, v, keywords) in cases("cpu", torch.bfloat16).items():
            words = {"attn_mask": None, "is_causal": False, "scale": None, "enable_gqa": False, **keywords}
            with self.subTest(name):
                plan = attention_ops.make_plan(q, k, v, *words.values(), False, True)
                out = vitune.attention(q, k, v, **keywords)
                self.assertEqual((tuple(out.shape), out.stride()), (plan.out_shape, plan.wanted_strides))

    def test_refusals_are_those_of_python_word_for_word(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        wide = torch.randn(2, 2, 9, 136, dtype=torch.bfloat16)
        rows = torch.randn(7, 9, 2, 2, 16, dtype=torch.bfloat16).permute(3, 0, 2, 1, 4)
        cases_ = [
            ((q.float(), k.float(), v.float()), {}), ((q, k.half(), v), {}), ((q, k, v[0]), {}), ((q[0, 0, 0],) * 3, {}),
            ((q[None, None],) * 3, {}), ((q, k[..., :8], v), {}), ((q, k[:, :, :5], v), {}), ((q, k, v[..., :8]), {}),
            ((q[0, 0], k[0, 0], v[0, 0]), {"enable_gqa": True}), ((wide,) * 3, {}), ((q[..., :12],) * 3, {}),
            ((q.mT.contiguous().mT, k, v), {}), ((q, k, v.repeat(3, 1, 1, 1)), {}), ((q, k, v), {"scale": 0.0}),
            ((torch.cat([q] * 3, 1), k, v), {"enable_gqa": False}), ((torch.cat([q, q[:, :1]], 1), k, v), {"enable_gqa": True}),
            ((q, k, v), {"attn_mask": torch.zeros(9, 9, dtype=torch.int32)}), ((q, k, v), {"attn_mask": q.new_zeros(9, 8)}),
            ((q, k, v), {"attn_mask": q.new_zeros(9, 9), "is_causal": True}), ((q, k, v), {"attn_mask": q.new_zeros(5, 1, 9, 9)}),
            ((rows[0], rows[1], rows[0][:, [1, 0]]), {"attn_mask": q.new_zeros(3, 7, 1, 9, 9)}),
        ]
        for tensors, keywords in cases_:
            words = {"attn_mask": None, "is_causal": False, "scale": None, "enable_gqa": False, **keywords}
            with self.subTest([tuple(x.shape) for x in tensors], **keywords):
                with self.assertRaises(vitune.VituneError) as wanted:
                    attention_ops.make_plan(*tensors, *words.values(), False, True)
                with self.assertRaises(vitune.VituneError) as got:
                    vitune.attention(*tensors, **keywords)
                self.assertEqual((type(got.exception), str(got.exception)), (type(wanted.exception), str(wanted.exception)))

    def test_a_refusal_of_libvitune_is_its_sentence(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        with self.assertRaisesRegex(vitune.Unsupported, "scale=nan"):
            vitune.attention(q, k, v, scale=float("nan"))
        with self.assertRaises(RuntimeError) as other:  # no kernel of that device: PyTorch's error stays PyTorch's
            vitune.attention(*(x.to_sparse() for x in (q, k, v)))
        self.assertNotIsInstance(other.exception, vitune.VituneError)

    def test_what_the_library_refuses_goes_to_torch_eager_and_compiled(self):
        program = ("from tests import support, torch_staged\n"
                   "import torch, warnings, vitune, vitune.torch\n"
                   "from vitune._ops import attention as attention_ops\n"
                   "import torch.nn.functional as F\n"
                   "attention_ops.is_on_gpu = lambda tensor: True\n"
                   "q = torch.randn(1, 2, 4, 16, dtype=torch.bfloat16)\n"
                   "want = F.scaled_dot_product_attention(q, q, q)\n"
                   "attend = lambda q: F.scaled_dot_product_attention(q, q, q)\n"
                   "with vitune.torch.enabled(), torch.no_grad(), warnings.catch_warnings(record=True) as caught:\n"
                   "    warnings.simplefilter('always')\n"
                   "    eager, compiled = attend(q), torch.compile(attend, backend='aot_eager', fullgraph=True)(q)\n"
                   "assert torch.equal(eager, want) and torch.equal(compiled, want)\n"
                   "stats = vitune.torch.stats()\n"
                   "assert (stats.served, stats.fallbacks, len(stats.reasons)) == (0, 2, 1), stats\n"
                   "assert next(iter(stats.reasons)).startswith('VITUNE_DISABLED: '), stats\n"
                   "assert sum(w.category is vitune.torch.FallbackWarning for w in caught) == 1, caught\n")
        # support.py takes VITUNE_DISABLE away from itself.
        program = program.replace("from vitune._ops import attention as attention_ops\n", "from vitune._ops import attention as attention_ops\n"
                                                                    "import os; os.environ['VITUNE_DISABLE'] = '1'\n")
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "python", env=dict(os.environ), capture_output=True,
                              text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])

    def test_a_fallback_has_the_strides_that_compilers_were_promised(self):
        q, k, v = packed(2, 9, 2, 136, dtype=torch.bfloat16)  # a head size that no kernel takes
        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torchs = torch.ops.aten.scaled_dot_product_attention.default(q, k, v)
            out = attention_ops.attention_op(q, k, v, None, False, None, False, True)
            rows = attention_ops.attention_op(q, k, v, None, False, None, False, True, ROWS)
        self.assertEqual(out.stride(), torchs.stride())
        self.assertEqual(rows.stride(), (2 * 9 * 136, 136, 2 * 136, 1))
        self.assertTrue(torch.equal(out, torchs) and torch.equal(rows, torchs))

    def test_shapes_that_no_kernel_takes_are_torchs_by_the_drop_in(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        wide = torch.randn(2, 2, 9, 136, dtype=torch.bfloat16)
        cases_ = [((q, k, v[..., :8]), {}), ((q, k, torch.cat([v, v], -1)), {"is_causal": True}), ((wide,) * 3, {}),
                  ((q[..., :12],) * 3, {}), ((q, k[0], v[0]), {}), ((q[None, None],) * 3, {})]
        for tensors, keywords in cases_:
            with self.subTest([tuple(x.shape) for x in tensors], **keywords), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted = torch.nn.functional.scaled_dot_product_attention(*tensors, **keywords)
                before = vitune.torch.stats()
                with vitune.torch.enabled():
                    outs = [torch.nn.functional.scaled_dot_product_attention(*tensors, **keywords) for _ in range(2)]
                done = vitune.torch.stats() - before
                self.assertTrue(all(torch.equal(out, wanted) for out in outs))
                self.assertEqual((done.served, done.fallbacks, len(done.reasons)), (0, 2, 1))

    def test_operands_of_several_ranks_are_torchs_by_the_drop_in(self):
        attend = torch.nn.functional.scaled_dot_product_attention
        for of_q, of_kv in (((3, 5, 16), (2, 3, 7, 16)), ((2, 1, 5, 16), (3, 7, 16)), ((3, 5, 16), (1, 3, 7, 16)),
                            ((2, 1, 5, 136), (3, 7, 136)), ((2, 1, 3, 5, 16), (1, 2, 4, 3, 7, 16)),
                            ((1, 2, 4, 3, 5, 16), (2, 4, 3, 7, 16))):
            q, k, v = (torch.randn(*shape, dtype=torch.bfloat16) for shape in (of_q, of_kv, of_kv))
            with self.subTest(q=of_q, k=of_kv), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want = attend(q, k, v)
                with vitune.torch.enabled():
                    torch.testing.assert_close(torch.nn.functional.scaled_dot_product_attention(q, k, v), want)

    def test_a_bias_that_autocast_left_wide_falls_back_in_the_type_of_q(self):
        q, k, v = (torch.randn(2, 3, 5, 136, dtype=torch.bfloat16) for _ in range(3))  # no kernel takes 136
        bias = torch.randn(1, 3, 5, 5).expand(2, 3, 5, 5)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = torch.ops.vitune.attention(q, k, v, bias, False, None, False, True)
            want = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias.bfloat16())
        torch.testing.assert_close(got, want)

    def test_modes_and_subclasses_that_watch_pytorchs_calls_see_them(self):
        class Watch(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                seen.append(function)
                return function(*args, **(kwargs or {}))

        class Marked(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                seen.append(function)
                return super().__torch_function__(function, types, args, kwargs or {})
        functional, seen = torch.nn.functional, []
        attend = functional.scaled_dot_product_attention
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        with torch.no_grad(), vitune.torch.enabled():
            with Watch():
                functional.scaled_dot_product_attention(q, k, v)
                functional.layer_norm(q, (16,))
            self.assertIn(attend, seen)
            self.assertIn("layer_norm", [function.__name__ for function in seen])  # the one that stands at its name
            seen.clear()
            functional.scaled_dot_product_attention(q.as_subclass(Marked), k, v)
            self.assertIn(attend, seen)
            vitune.torch.reset_stats()
            with torch.device("cpu"):  # a mode too, that changes what makes tensors alone
                functional.scaled_dot_product_attention(q, k, v)
        self.assertEqual(vitune.torch.stats().served, 1)

    def test_the_operators_of_the_usual_call_pass_opcheck(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        for op in (torch.ops.vitune.attend.default, torch.ops.vitune.attend_or_torch.default):
            for mask in (None, torch.randn(2, 1, 9, 9)):
                torch.library.opcheck(op, (q, k, v, mask))

    def test_nested_tensors_and_autocast_are_pytorchs_matter(self):
        q = torch.nested.nested_tensor([torch.randn(2, n, 16, dtype=torch.bfloat16) for n in (3, 5)])
        x = torch.randn(1, 2, 4, 16, dtype=torch.bfloat16)
        attend = torch.nn.functional.scaled_dot_product_attention
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with vitune.torch.enabled():
                try:
                    self.assertTrue(torch.nn.functional.scaled_dot_product_attention(q, q, q).is_nested)
                except RuntimeError as error:  # a PyTorch without it
                    with self.assertRaisesRegex(RuntimeError, str(error)[:30]):
                        attend(q, q, q)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    out = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        torch.testing.assert_close(out, attend(x, x, x), atol=0.02, rtol=0.02)

    def test_threads_may_attend_at_once(self):
        wrong = []

        def attend(rows):
            q, k, v = packed(1, rows, 1, 8, dtype=torch.bfloat16)
            for _ in range(5):
                try:
                    expect_right(self, vitune.attention(q, k, v), reference(q, k, v)[0], torch.bfloat16)
                except Exception as error:  # an assertion of another thread would be lost
                    wrong.append(error)
        threads = [threading.Thread(target=attend, args=(rows,)) for rows in (3, 4, 5, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(vitune.torch.stats().served, 20)
