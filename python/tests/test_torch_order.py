# python/tests/test_torch_order.py -- The result of attention lies in memory as PyTorch's own does: view() works with vitune as without.
# SPDX-License-Identifier: Apache-2.0
"""Beside PyTorch itself: what it answers on the CPU, and what its backends for GPUs tell compilers that they answer. On a GPU
test_torch_gpu.py takes the same table."""
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitune._ops import attention as attention_ops, order as result_order

from .test_torch_host import TorchTest
from .torch_cases import fresh, in_order, layouts, packed, strides_that_matter

_sdpa = torch.ops.aten.scaled_dot_product_attention.default


def words_of(keywords):
    return {"attn_mask": None, "is_causal": False, "scale": None, "enable_gqa": False, **keywords}


@needs_torch
class BackendTest(unittest.TestCase):
    """What PyTorch's operator of each backend says of tensors without a device."""

    def result_of(self, backend, q, k, v):
        aten = torch.ops.aten
        if backend is SDPBackend.FLASH_ATTENTION:
            return aten._scaled_dot_product_flash_attention(q, k, v)[0]
        if backend is SDPBackend.CUDNN_ATTENTION:
            return aten._scaled_dot_product_cudnn_attention(q, k, v, None, False)[0]
        if backend is SDPBackend.EFFICIENT_ATTENTION:
            return aten._scaled_dot_product_efficient_attention(q, k, v, None, False)[0]
        return aten._scaled_dot_product_attention_math(q, k, v)[0]

    def test_the_order_of_each_backend_is_that_of_its_operator(self):
        for name, (q, k, v, keywords) in layouts("meta", torch.bfloat16).items():
            if q.dim() != 4 or keywords or k.shape[0] != q.shape[0]:
                continue
            for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
                with self.subTest(name, backend=backend):
                    torchs = self.result_of(backend, q, k, v)
                    strides = result_order.strides(result_order.of_backend(backend.value), q, q.shape, v)
                    ours = q.new_empty_strided(q.shape, strides)
                    self.assertEqual(strides_that_matter(ours), strides_that_matter(torchs))

    def test_where_q_has_rows_outside_all_but_the_plain_backend_agree(self):
        outside = 0
        for name, (q, _, v, _) in layouts("meta", torch.bfloat16).items():
            if q.dim() == 4 and result_order.has_rows_outside(q):
                as_q, rows = (strides_that_matter(q.new_empty_strided(q.shape, result_order.strides(order, q, q.shape, v)))
                              for order in (result_order.OF_Q, result_order.ROWS))
                with self.subTest(name):
                    self.assertEqual(as_q, rows)
                outside += 1
        self.assertGreater(outside, 10)

    def test_a_problem_has_the_order_of_the_backend_that_pytorch_chooses(self):
        q, k, v = fresh(2, 3, 16, 32, dtype=torch.bfloat16)
        for backend, strides in ((SDPBackend.FLASH_ATTENTION, (1536, 512, 32, 1)), (SDPBackend.EFFICIENT_ATTENTION, (1536, 32, 96, 1)),
                                 (SDPBackend.CUDNN_ATTENTION, (1536, 512, 32, 1)), (SDPBackend.MATH, (1536, 512, 32, 1))):
            with self.subTest(backend), mock.patch.object(torch, "_fused_sdp_choice", return_value=backend.value):
                self.assertEqual(attention_ops.make_plan(q, k, v, None, False, None, False, False, True).wanted_strides, strides)
        heads_outermost = in_order((1, 0, 2, 3), 2, 3, 16, 32, dtype=torch.bfloat16)
        for backend, strides in ((SDPBackend.CUDNN_ATTENTION, (512, 1024, 32, 1)), (SDPBackend.EFFICIENT_ATTENTION, (1536, 32, 96, 1)),
                                 (SDPBackend.MATH, (1536, 512, 32, 1))):
            with self.subTest(backend), mock.patch.object(torch, "_fused_sdp_choice", return_value=backend.value):
                plan = attention_ops.make_plan(*(heads_outermost,) * 3, None, False, None, False, False, True)
                self.assertEqual(plan.wanted_strides, strides)


@needs_device
@needs_torch
class OrderTest(TorchTest):
    def test_results_lie_as_pytorchs_by_the_drop_in_and_the_function(self):
        for name, (q, k, v, keywords) in layouts("cpu", torch.bfloat16).items():
            with self.subTest(name), torch.no_grad():
                torchs = _sdpa(q, k, v, keywords.get("attn_mask"), 0.0, keywords.get("is_causal", False),
                               enable_gqa=keywords.get("enable_gqa", False))
                ours = vitune.attention(q, k, v, **keywords)
                with vitune.torch.enabled():
                    drop_in = F.scaled_dot_product_attention(q, k, v, **keywords)
                lse = vitune.attention(q, k, v, **keywords, return_lse=True)
                for out in (ours, drop_in, lse[0]):
                    self.assertEqual(strides_that_matter(out), strides_that_matter(torchs))
                    torch.testing.assert_close(out, torchs, atol=0.03, rtol=0.03)
                self.assertTrue(lse[1].is_contiguous())
        self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_an_order_that_is_asked_for_is_given(self):
        for name, (q, k, v, keywords) in layouts("cpu", torch.bfloat16).items():
            for order in (result_order.CONTIGUOUS, result_order.ROWS, result_order.OF_Q):
                words = words_of(keywords).values()
                with self.subTest(name, order=order), torch.no_grad():
                    out = torch.ops.vitune.attention(q, k, v, *words, False, order)
                    promised = result_order.empty_result(q, k, v, *words, order)
                    self.assertEqual((out.shape, out.stride()), (promised.shape, promised.stride()))
                    torch.testing.assert_close(out, _sdpa(q, k, v, keywords.get("attn_mask"), 0.0, keywords.get("is_causal", False),
                                                          enable_gqa=keywords.get("enable_gqa", False)), atol=0.03, rtol=0.03)

    def test_what_falls_back_lies_as_it_was_promised(self):
        q, k, v = packed(2, 9, 2, 136, dtype=torch.bfloat16)  # a head size that no kernel takes
        for order in (result_order.TORCHS, result_order.CONTIGUOUS, result_order.ROWS, result_order.OF_Q):
            out = torch.ops.vitune.attention(q, k, v, None, False, None, False, True, order)
            promised = result_order.empty_result(q, k, v, None, False, None, False, order)
            self.assertEqual(out.stride(), promised.stride())
            torch.testing.assert_close(out, _sdpa(q, k, v))

    def test_views_of_the_result_that_pytorch_allows_are_allowed_eager_and_compiled(self):
        def entries(q, k, v):
            return F.scaled_dot_product_attention(q, k, v).view(6, 16, 32)

        def rows(q, k, v):
            return F.scaled_dot_product_attention(q, k, v).view(2, 48, 32)

        def flat(q, k, v):
            return F.scaled_dot_product_attention(q, k, v).view(-1)

        def in_place(q, k, v):
            out = F.scaled_dot_product_attention(q, k, v)
            out.view(6, 16, 32).mul_(2)
            return out

        def joined(q, k, v):
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).view(2, 16, 96)

        def windows(q, k, v):
            return F.scaled_dot_product_attention(q[None], k[None], v[None]).view(2, 48, 32)
        contiguous, views = fresh(2, 3, 16, 32, dtype=torch.bfloat16), packed(2, 16, 3, 32, dtype=torch.bfloat16)
        for call, operands in ((entries, contiguous), (rows, contiguous), (flat, contiguous), (in_place, contiguous), (joined, views),
                               (windows, views)):
            for how in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
                torch._dynamo.reset()
                with self.subTest(call.__name__, how=how), torch.no_grad():
                    want = call(*operands)
                    with vitune.torch.enabled():
                        got = how(*operands)
                    self.assertEqual(got.stride(), want.stride())
                    torch.testing.assert_close(got, want, atol=0.05, rtol=0.05)
        self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (12, 0))

    def test_a_compiled_call_keeps_its_order_where_other_backends_are_allowed_later(self):
        q, k, v = packed(2, 16, 3, 32, dtype=torch.bfloat16)
        compiled = torch.compile(lambda *three: F.scaled_dot_product_attention(*three) * 1, backend="aot_eager", dynamic=True)
        with torch.no_grad(), vitune.torch.enabled():
            wanted = compiled(q, k, v).stride()
            with mock.patch.object(result_order, "asked", side_effect=AssertionError("asked again")):
                self.assertEqual(compiled(q, k, v).stride(), wanted)

    def test_an_exported_program_has_the_order_and_no_operator_more(self):
        class Attend(torch.nn.Module):
            def forward(self, q, k, v):
                return F.scaled_dot_product_attention(q, k, v)
        operands = {"contiguous": (fresh(2, 3, 16, 32, dtype=torch.bfloat16), result_order.CONTIGUOUS),
                    "packed": (packed(2, 16, 3, 32, dtype=torch.bfloat16), result_order.ROWS)}
        for name, (three, order) in operands.items():
            for dynamic in (None, ({2: torch.export.Dim("rows", min=4)},) * 3):
                with self.subTest(name, dynamic=dynamic is not None), torch.no_grad(), vitune.torch.enabled():
                    program = torch.export.export(Attend(), three, dynamic_shapes=dynamic, strict=False)
                    calls = [node for node in program.graph.nodes if str(node.target).startswith("vitune")]
                    self.assertEqual([call.target for call in calls], [torch.ops.vitune.attention.default])
                    self.assertEqual(calls[0].args[-1], order)

    def test_the_users_switches_decide_at_each_call(self):
        q, k, v = packed(2, 16, 3, 32, dtype=torch.bfloat16)
        mask = torch.zeros(16, 16, dtype=torch.bfloat16, requires_grad=False)
        for allowed in ([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], [SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]):
            with self.subTest(allowed), sdpa_kernel(allowed), torch.no_grad():
                torchs = _sdpa(q, k, v, mask)
                with vitune.torch.enabled():
                    out = F.scaled_dot_product_attention(q, k, v, mask)
                self.assertEqual(strides_that_matter(out), strides_that_matter(torchs))
                self.assertEqual(strides_that_matter(vitune.attention(q, k, v, mask)), strides_that_matter(torchs))
        self.assertNotEqual(strides_that_matter(torchs), strides_that_matter(_sdpa(q, k, v, mask)))  # the second was the plain one's

    @unittest.skipIf(OPERATORS, "the library asks by itself")
    def test_pytorch_is_asked_once_where_its_switches_change_nothing(self):
        with mock.patch.object(torch, "_fused_sdp_choice", return_value=SDPBackend.CUDNN_ATTENTION.value) as asked, torch.no_grad():
            for _ in range(3):
                vitune.attention(*packed(2, 16, 3, 32, dtype=torch.bfloat16))
            self.assertEqual(asked.call_count, 1)
            for _ in range(3):
                vitune.attention(*fresh(2, 3, 16, 32, dtype=torch.bfloat16))
            self.assertGreaterEqual(asked.call_count, 4)
