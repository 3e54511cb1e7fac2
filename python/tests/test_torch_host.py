# python/tests/test_torch_host.py -- The PyTorch side without a GPU: fake tensors, and the emulated device.
# SPDX-License-Identifier: Apache-2.0
"""On the emulated device tensors stay on the CPU: only the launch is replaced (torch_staged.py)."""
import contextlib
import os
import unittest
import warnings
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_library, needs_torch, torch

if torch is not None:
    import torch.nn.functional as F
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.autograd import forward_ad
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from vitune._ops import attention as attention_ops

    from .torch_cases import Block, cases, expect_right, packed, reference
    from .torch_staged import eager_and_compiled, launch_staged


@needs_torch
class TorchTest(unittest.TestCase):
    """CPU tensors count as being on the GPU, as far as the package is concerned."""

    def setUp(self):
        torch.manual_seed(1)
        for name, value in (("launch", launch_staged), ("is_on_gpu", lambda tensor: True)):
            patch = mock.patch.object(attention_ops, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        attention_ops.counters.warned.clear()
        vitune.torch.reset_stats()
        attention_ops._plans.clear()


@needs_torch
class CountersTest(TorchTest):
    def test_a_reason_is_one_whichever_the_problem(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for tokens in (15, 16, 17):
                attention_ops.counters.fall_back(f"not prepared: 'linear bf16 m={tokens} n=8 k=8' has no winner")
        self.assertEqual(vitune.torch.stats().reasons, {"not prepared: '...' has no winner": 3})
        self.assertEqual(len(caught), 1)
        self.assertIn("m=15", str(caught[0].message))


@needs_library
@needs_torch
class FakeTensorTest(unittest.TestCase):
    def test_outputs_lie_as_pytorchs_and_the_lse_is_contiguous(self):
        with FakeTensorMode(), torch.no_grad():
            q, k, v = packed(2, 197, 12, 64, device="cuda", dtype=torch.bfloat16)
            out, lse = vitune.attention(q, k, v, return_lse=True)
            torchs = F.scaled_dot_product_attention(q, k, v)  # without a GPU PyTorch chooses its plain backend
        self.assertEqual((tuple(out.shape), out.stride()), ((2, 12, 197, 64), torchs.stride()))
        self.assertEqual((tuple(lse.shape), lse.dtype, lse.device.type), ((2, 12, 197), torch.float32, "cuda"))

    def test_problem_texts_are_read_off_meta_tensors(self):
        kind = {"device": "meta", "dtype": torch.bfloat16}
        q, k, v = packed(32, 197, 12, 64, **kind)
        window = packed(2048, 49, 3, 32, **kind)
        hiera = torch.empty(64, 16, 49, 3, 2, 96, **kind).permute(3, 0, 4, 2, 1, 5).unbind(0)
        bias = torch.empty(1, 3, 49, 49, **kind)
        cases_ = [
            ((q, k, v), {}, "b=32 h=12 nq=197 nk=197 d=64 layout=packed"),
            ((q, k, v), {"is_causal": True}, "b=32 h=12 nq=197 nk=197 d=64 layout=packed causal"),
            (window, {"attn_mask": bias}, "b=2048 h=3 nq=49 nk=49 d=32 layout=packed bias=bf16:1x3x49x49"),
            (window, {"attn_mask": torch.empty(64, 1, 49, 49, device="meta", dtype=torch.bool)},
             "b=2048 h=3 nq=49 nk=49 d=32 layout=packed mask=bool:64x1x49x49"),
            (hiera, {}, "b=49 h=2 nq=16 nk=16 d=96 q=@576,96,28224 k=@576,96,28224 v=@576,96,28224 o=@1536,75264,96"),
        ]
        for tensors, keywords, text in cases_:
            self.assertEqual(vitune.problem_text(*tensors, **keywords), f"attention bf16 {text}")

    def test_cpu_tensors_are_refused_with_what_to_do(self):
        q = torch.randn(1, 1, 4, 8, dtype=torch.bfloat16)
        with self.assertRaisesRegex(vitune.Unsupported, "q is on cpu"):
            vitune.attention(q, q, q)

    def test_a_gradient_is_there_where_one_is_wanted(self):
        with FakeTensorMode():
            q = torch.empty(1, 1, 4, 8, dtype=torch.bfloat16, device="cuda", requires_grad=True)
            out, lse = vitune.attention(q, q, q, return_lse=True)
            self.assertEqual((out.shape, out.requires_grad, tuple(lse.shape)), (q.shape, True, (1, 1, 4)))
            with torch.no_grad():
                self.assertFalse(vitune.attention(q, q, q).requires_grad)

    def test_the_arguments_are_those_of_pytorch(self):
        with FakeTensorMode(), torch.no_grad():
            q = torch.empty(1, 1, 4, 8, dtype=torch.bfloat16, device="cuda")
            vitune.attention(q, q, q, None, 0.0, True, scale=0.5, enable_gqa=True)
            vitune.attention(query=q, key=q, value=q, attn_mask=None, dropout_p=0.0, is_causal=True)
            self.assertIn("causal", vitune.problem_text(q, q, q, None, 0.0, True))
            for call in (vitune.attention, vitune.problem_text, vitune.explain):
                with self.assertRaisesRegex(vitune.InvalidArgument, "say is_causal=True"):
                    call(q, q, q, None, True)
                with self.assertRaisesRegex(vitune.Unsupported, "no dropout"):
                    call(q, q, q, None, 0.1)
                with self.assertRaises(TypeError):
                    call(q, q, q, None, 0.0, True, 0.5)

    def test_types_and_devices_that_contradict_are_named(self):
        half = torch.empty(1, 1, 4, 8, dtype=torch.float16, device="meta")
        cases_ = [
            ((half.float(),) * 3, {}, vitune.Unsupported, "dtype float32"),
            ((half, half.bfloat16(), half), {}, vitune.InvalidArgument, "dtypes float16, bfloat16 and float16"),
            ((half, torch.empty_like(half, device="cpu"), half), {}, vitune.InvalidArgument, "k is on cpu"),
            ((half,) * 3, {"attn_mask": half, "is_causal": True}, vitune.InvalidArgument, "exclude each other"),
            ((half,) * 3, {"attn_mask": half.int()}, vitune.Unsupported, "attn_mask of dtype int32"),
            ((half,) * 3, {"scale": 0.0}, vitune.Unsupported, "scale 0"),
        ]
        for tensors, keywords, error, words in cases_:
            with self.subTest(words), self.assertRaisesRegex(error, words):
                vitune.problem_text(*tensors, **keywords)

    def test_a_fork_leaves_no_lock_held(self):
        locks = (lambda: attention_ops._lock, lambda: attention_ops.counters._lock, lambda: vitune.torch.install_module.attention._lock)
        for lock in locks:
            lock().acquire()  # as another thread may
        child = os.fork()
        if child == 0:
            os._exit(sum(not lock().acquire(timeout=5) for lock in locks))
        for lock in locks:
            lock().release()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


@needs_device
class EmulatedTorchTest(TorchTest):
    def test_every_kind_of_call_is_that_of_the_reference(self):
        for dtype in (torch.bfloat16, torch.float16):
            for name, (q, k, v, keywords) in cases("cpu", dtype).items():
                with self.subTest(name, dtype=dtype), torch.no_grad():
                    copies = [x.clone() for x in (q, k, v)]
                    out, lse = vitune.attention(q, k, v, **keywords, return_lse=True)
                    wanted, wanted_lse = reference(q, k, v, **keywords)
                    expect_right(self, out, wanted, dtype)
                    torch.testing.assert_close(lse.double(), wanted_lse, atol=0.02, rtol=0.01)
                    self.assertTrue(lse.is_contiguous())
                    self.assertTrue(all(torch.equal(a, b) for a, b in zip((q, k, v), copies)), "an input was written")

    def test_window_masks_repeat_over_the_batch(self):
        q, k, v = packed(6, 9, 2, 16, dtype=torch.bfloat16)
        mask = torch.rand(3, 1, 9, 9) > 0.3
        mask[..., 0] = True
        wanted, _ = reference(q, k, v, attn_mask=mask.repeat(2, 1, 1, 1))
        expect_right(self, vitune.attention(q, k, v, mask), wanted, torch.bfloat16)

    def test_the_operator_keeps_what_its_fake_promises(self):
        for name, (q, k, v, keywords) in cases("cpu", torch.bfloat16).items():
            words = {"attn_mask": None, "is_causal": False, "scale": None, "enable_gqa": False, **keywords}
            with self.subTest(name):
                torch.library.opcheck(attention_ops.attention_op, (q, k, v, *words.values(), False),
                                      test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))
                torch.library.opcheck(attention_ops.attention_lse_op, (q, k, v, *words.values()),
                                      test_utils=("test_schema", "test_faketensor"))

    def test_negative_views_are_read_with_their_sign(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        bias = torch.randn(9, 9, dtype=torch.bfloat16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # complex numbers of halves are experimental
            parts = torch.randn(2, 2, 9, 16, dtype=torch.complex32).conj().imag  # the last stride is 2, with the bit
        cases_ = [(torch._neg_view(q), k, v, bias), (q, torch._neg_view(k), v, bias), (q, k, torch._neg_view(v), bias),
                  (q, k, v, torch._neg_view(bias)), (*(parts,) * 3, bias.half())]
        for tensors in cases_:
            self.assertTrue(any(tensor.is_neg() for tensor in tensors))
            copies = [tensor.clone() for tensor in tensors]
            wanted, wanted_lse = reference(*copies[:3], attn_mask=copies[3])
            expect_right(self, vitune.attention(*tensors), wanted, tensors[0].dtype)
            out, lse = vitune.attention(*tensors, return_lse=True)
            expect_right(self, out, wanted, tensors[0].dtype)
            torch.testing.assert_close(lse.double(), wanted_lse, atol=0.02, rtol=0.01)
            with vitune.torch.enabled():
                expect_right(self, F.scaled_dot_product_attention(*tensors), wanted, tensors[0].dtype)
        self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (15, 0))

    def test_forward_mode_derivatives_are_refused_or_torchs(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        tangent = torch.ones_like(q)
        refused = self.assertRaisesRegex(vitune.Unsupported, "no forward-mode derivative")
        for place in range(3):
            with forward_ad.dual_level(), torch.no_grad():
                duals = [forward_ad.make_dual(x, tangent) if i == place else x for i, x in enumerate((q, k, v))]
                with refused:
                    vitune.attention(*duals)
                with torch.inference_mode():  # which ends forward-mode AD too
                    vitune.attention(*duals)
                vitune.attention(q, k, v)
        for call in (vitune.attention, lambda *three: torch.func.vmap(vitune.attention)(*three)):
            with refused:
                torch.func.jvp(lambda x: call(x, k, v), (q,), (tangent,))
        with torch.no_grad(), forward_ad.dual_level():
            dual = forward_ad.make_dual(q, tangent)
            with refused if OPERATORS is None else contextlib.nullcontext():
                torch.ops.vitune.attention(dual, k, v, None, False, None, False, True)
            with refused if OPERATORS is None else contextlib.nullcontext():
                torch.ops.vitune.attention_lse(dual, k, v, None, False, None, False)
        torch._dynamo.reset()
        compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), backend="aot_eager")
        with torch.no_grad(), vitune.torch.enabled():
            compiled(q, k, v)
            # Depending on its version PyTorch keeps the graph, which refuses, or asks again: its own kernel may have none.
            with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
                try:
                    self.assertIsNotNone(forward_ad.unpack_dual(compiled(forward_ad.make_dual(q, tangent), k, v)).tangent)
                except NotImplementedError:
                    pass
        vitune.torch.reset_stats()
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("ignore")
            wanted = torch.func.jvp(lambda x: F.scaled_dot_product_attention(x, k, v), (q,), (tangent,))[1]
            with vitune.torch.enabled():
                got = torch.func.jvp(lambda x: F.scaled_dot_product_attention(x, k, v), (q,), (tangent,))[1]
                with forward_ad.dual_level():
                    out = F.scaled_dot_product_attention(forward_ad.make_dual(q, tangent), k, v)
                    again = forward_ad.unpack_dual(out).tangent
        self.assertGreater(wanted.abs().max().item(), 0)
        torch.testing.assert_close(got, wanted)
        torch.testing.assert_close(again, wanted)
        self.assertEqual(vitune.torch.stats().reasons, {"forward-mode AD: vitune has no derivative": 2})

    def test_enabled_serves_a_model_and_gives_back_afterwards(self):
        block = Block().bfloat16().eval()
        x = torch.randn(2, 9, 32, dtype=torch.bfloat16)
        with torch.no_grad():
            wanted = block(x)
            with vitune.torch.enabled():
                got = block(x)
            block(x)
        torch.testing.assert_close(got, wanted, atol=0.03, rtol=0.03)
        stats = vitune.torch.stats()
        self.assertEqual((stats.served, stats.default, stats.fallbacks), (1, 1, 0))

    def test_a_compiled_model_is_served_in_one_graph(self):
        block = Block().bfloat16().eval()
        x = torch.randn(2, 9, 32, dtype=torch.bfloat16)
        torch._dynamo.reset()
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            wanted = block(x)
            with vitune.torch.enabled():
                got = compiled(x)
                compiled(x)
            self.assertEqual(vitune.torch.stats().served, 2)
            compiled(x)  # compiled anew, since outside of enabled()
        self.assertEqual(vitune.torch.stats().served, 2)
        torch.testing.assert_close(got, wanted, atol=0.03, rtol=0.03)

    def test_attention_compiles_in_one_graph_with_dynamic_shapes(self):
        torch._dynamo.reset()
        function = torch.compile(lambda q, k, v: vitune.attention(q, k, v).transpose(1, 2).flatten(2) * 2, fullgraph=True,
                                 backend="aot_eager", dynamic=True)
        for rows in (9, 12, 17):
            q, k, v = packed(2, rows, 3, 16, dtype=torch.bfloat16)
            with torch.no_grad():
                out = function(q, k, v)
            wanted = reference(q, k, v)[0].transpose(1, 2).flatten(2) * 2
            expect_right(self, out / 2, wanted / 2, torch.bfloat16)
        self.assertEqual(vitune.torch.stats().served, 3)

    def test_what_is_not_served_is_torchs_and_counted_and_warned_about_once(self):
        half = dict(dtype=torch.bfloat16)
        small = torch.randn(1, 2, 4, 16, **half)
        cases_ = [
            ("dropout", (small,) * 3, {"dropout_p": 0.5}),
            ("dtype float32: the kernels take bfloat16 and float16", (small.float(),) * 3, {}),
            ("head size 136 is above 128", (torch.randn(1, 2, 4, 136, **half),) * 3, {}),
            ("head size 12 is no multiple of 8", (torch.randn(1, 2, 4, 12, **half),) * 3, {}),
            ("requires_grad", (small.clone().requires_grad_(),) * 3, {}),
            ("rank 6", (small[None, None],) * 3, {}),
            ("the last dimension of q is not contiguous", (torch.randn(1, 2, 16, 4, **half).mT, small, small), {}),
            ("v has head size 8 and q 16", (small, small, small[..., :8]), {}),
        ]
        for reason, tensors, keywords in cases_:
            with self.subTest(reason), vitune.torch.enabled():
                vitune.torch.reset_stats()
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    out = F.scaled_dot_product_attention(*tensors, **keywords)
                    F.scaled_dot_product_attention(*tensors, **keywords)
                stats = vitune.torch.stats()
                self.assertEqual((stats.served, stats.fallbacks), (0, 2))
                self.assertTrue(next(iter(stats.reasons)).startswith(reason), stats.reasons)
                self.assertEqual([w.category for w in caught], [vitune.torch.FallbackWarning])
                self.assertIn(reason, str(caught[0].message))
                if not keywords:
                    with torch._C.DisableTorchFunction():
                        torch.testing.assert_close(out, F.scaled_dot_product_attention(*tensors))

    def test_a_fallback_inside_a_compiled_model_is_counted_and_right(self):
        torch._dynamo.reset()
        block = Block(heads=1, d=136).bfloat16().eval()
        x = torch.randn(2, 5, 136, dtype=torch.bfloat16)
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            wanted = block(x)
            with vitune.torch.enabled():
                torch.testing.assert_close(compiled(x), wanted)
        self.assertEqual(list(vitune.torch.stats().reasons), ["head size 136 is above 128"])
        self.assertEqual(sum(w.category is vitune.torch.FallbackWarning for w in caught), 1)

    def test_results_that_have_not_qs_shape_are_torchs_compiled_too(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        wide = torch.randn(2, 2, 9, 32, dtype=torch.bfloat16)
        cases_ = [((q, k, v[..., :8]), "v has head size 8 and q 16: the kernels need one head size"),
                  ((q, k, wide), "v has head size 32 and q 16: the kernels need one head size"),
                  ((q[0], k, v), "q, k and v have the ranks 3, 4 and 4: they must agree")]
        for tensors, reason in cases_:
            wanted = F.scaled_dot_product_attention(*tensors)
            for call in eager_and_compiled():
                with self.subTest(reason, call=call), vitune.torch.enabled(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    out = call(*tensors)
                    torch.testing.assert_close(out, wanted)
                    self.assertEqual(list(vitune.torch.stats().reasons), [reason])

    def test_what_only_v_is_wide_in_is_served_compiled_too(self):
        q, k, v = packed(2, 9, 3, 16, dtype=torch.bfloat16)
        for narrow in ((slice(1), slice(None)), (slice(None), slice(1)), (slice(1), slice(1))):
            for call in eager_and_compiled():
                with self.subTest(narrow, call=call), vitune.torch.enabled(), torch.no_grad():
                    expect_right(self, call(q[narrow], k[narrow], v), reference(q[narrow], k[narrow], v)[0], q.dtype)
                    self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (1, 0))

    def test_contradictory_calls_are_answered_or_refused_by_torch(self):
        q = torch.randn(1, 2, 4, 16, dtype=torch.bfloat16)
        no_broadcast = torch.ones(3, 1, 4, 4, dtype=torch.bool)
        with vitune.torch.enabled(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.assertRaises(RuntimeError) as caught:
                F.scaled_dot_product_attention(q, q, q, no_broadcast)
            self.assertNotIsInstance(caught.exception, vitune.VituneError)
        window = torch.ones(2, 1, 4, 4, dtype=torch.bool)
        with vitune.torch.enabled(), warnings.catch_warnings(), self.assertRaises(RuntimeError):
            warnings.simplefilter("ignore")
            F.scaled_dot_product_attention(*(q.repeat(4, 1, 1, 1),) * 3, window)
        self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (0, 2))

    @unittest.skipIf(OPERATORS, "test_torch_native.py")
    def test_what_the_library_refuses_goes_to_torch(self):
        q = torch.randn(1, 2, 4, 16, dtype=torch.bfloat16)

        def refuse(*_):
            raise vitune.VituneError("libnvrtc cannot be opened", 5)
        with mock.patch.object(attention_ops, "launch", refuse), vitune.torch.enabled(), \
                warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = F.scaled_dot_product_attention(q, q, q)
        torch.testing.assert_close(out, F.scaled_dot_product_attention(q, q, q))
        self.assertEqual(vitune.torch.stats().reasons, {"VITUNE_NO_COMPILER: libnvrtc cannot be opened": 1})
        self.assertEqual(len(caught), 1)

    def test_prepare_runs_one_pass_and_says_what_it_did(self):
        block = Block().bfloat16().eval()
        x = torch.randn(2, 9, 32, dtype=torch.bfloat16)
        for sample in (x, (x,), {"x": x}, (x, torch.zeros(9, 9, dtype=torch.bfloat16))):
            stats = vitune.prepare(block, sample)
            self.assertEqual((stats.served, stats.fallbacks), (1, 0))
        self.assertEqual(vitune.torch.stats().served, 4)

    def test_explain_names_the_kernel(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        with mock.patch.object(torch.Tensor, "get_device", lambda self: 0):
            selection = vitune.explain(q, k, v)
        self.assertEqual(selection.problem, vitune.problem_text(q, k, v))
        self.assertEqual(selection.outcome, "default")
        self.assertIn("default", str(selection))

    @unittest.skipIf(OPERATORS, "test_torch_native.py")
    def test_plans_are_made_once_and_do_not_grow_without_end(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        with mock.patch.object(attention_ops, "make_plan", wraps=attention_ops.make_plan) as made:
            for _ in range(3):
                vitune.attention(q, k, v)
            self.assertEqual(made.call_count, 1)
        with mock.patch.object(attention_ops, "_MAX_PLANS", 2):
            for rows in (3, 4, 5, 6, 7):
                vitune.attention(*packed(1, rows, 1, 8, dtype=torch.bfloat16))
        self.assertLessEqual(len(attention_ops._plans), 2)
