# python/tests/test_torch_compile_attention.py -- Attention and norms in vitune.compile(): what is found, with which words, and what is left alone.
# SPDX-License-Identifier: Apache-2.0
import unittest
import warnings
from unittest import mock

import vitune

from .support import torch
from .test_torch_compile import CompileCase, served_by_nearest, without_inductor

if torch is not None:
    import torch.nn.functional as F

    from vitune._compile.patterns import attention as attention_pattern
    from vitune._ops import attention as attention_ops

    from .torch_cases import packed


class RewriteTest(CompileCase):
    def setUp(self):
        super().setUp()
        self.q, self.k, self.v = packed(2, 5, 3, 64, dtype=torch.bfloat16)

    def test_every_argument_reaches_the_operator(self):
        mask = torch.rand(2, 1, 5, 5) > 0.3
        mask[..., 0] = True
        calls = [lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask), lambda q, k, v: F.scaled_dot_product_attention(
            query=q, key=k, value=v, is_causal=True, scale=0.3), lambda q, k, v: F.scaled_dot_product_attention(
                q, k[:, :1], v[:, :1], None, 0.0, enable_gqa=True)]
        for call in calls:
            with torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
                torch._dynamo.reset()
                vitune.torch.reset_stats()
                got, report = self.compiled(call, self.q, self.k, self.v)
                self.assertTrue(report.calls[0].replaced, report)
                self.expect_close(got, call(self.q, self.k, self.v))
                self.assertEqual(vitune.torch.stats().served, 1)

    def test_a_scale_that_dynamo_holds_for_dynamic_is_the_calls(self):
        def call(q, k, v, scale):
            return F.scaled_dot_product_attention(q, k, v, scale=scale)
        with torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
            compiled = vitune.compile(call, fullgraph=True, dynamic=True)
            for scale in (0.3, 2.0):
                self.expect_close(compiled(self.q, self.k, self.v, scale), call(self.q, self.k, self.v, scale))
        self.assertTrue(all(c.replaced for c in vitune.report(compiled).calls), vitune.report(compiled))

    def test_reasons_are_told(self):
        q = self.q
        wide = torch.randn(1, 2, 4, 136, dtype=torch.bfloat16)
        cases = [((q.float(),) * 3, {}, "float32"), ((wide,) * 3, {}, "136"), ((q,) * 3, {"dropout_p": 0.5}, "dropout"),
                 ((q, q, q[..., :8]), {}, "one head size")]
        for tensors, keywords, words in cases:
            with self.subTest(words), torch.no_grad():
                torch._dynamo.reset()
                _, report = self.compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **keywords), *tensors)
                self.assertFalse(report.calls[0].replaced)
                self.assertIn(words, report.calls[0].reason)
        with torch.no_grad(), mock.patch.object(attention_ops, "is_on_gpu", lambda tensor: False):
            torch._dynamo.reset()
            _, report = self.compiled(lambda q: F.layer_norm(F.scaled_dot_product_attention(q, q, q), (64,)), q)
        self.assertEqual([call.reason for call in report.calls], ["device cpu"] * 2)

    def test_what_needs_no_gradient_inside_of_a_training_step_is_replaced(self):
        weight = torch.randn(64, 64, dtype=torch.bfloat16, requires_grad=True)

        def step(q, k, v):
            with torch.no_grad():
                teacher = F.scaled_dot_product_attention(q @ weight, k, v)
            return teacher, F.scaled_dot_product_attention(q @ weight, k, v)
        (teacher, student), report = self.compiled(step, self.q, self.k, self.v)
        self.assertEqual([call.replaced for call in report.calls], [False, False])  # q @ weight is not packed: never tuned
        with mock.patch.object(attention_pattern, "selected", served_by_nearest):
            torch._dynamo.reset()
            (teacher, student), report = self.compiled(step, self.q, self.k, self.v)
        self.assertEqual([call.replaced for call in report.calls], [True, False])
        self.assertEqual((teacher.requires_grad, student.requires_grad), (False, True))
        self.expect_close(teacher, student.detach(), 0.1)

    def test_a_softmax_between_products_is_taken_as_it_is_written(self):
        def by_hand(q, k, v):
            return (torch.softmax((q * 0.5) @ k.mT, dim=-1)) @ v

        def transformers_eager(q, k, v):
            weights = F.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.25 + bias, dim=-1, dtype=torch.float32).to(q.dtype)
            return torch.matmul(F.dropout(weights, p=0.1, training=False), v).transpose(1, 2).contiguous()

        def copied(q, k, v):
            return (q @ k.transpose(-2, -1).contiguous()).softmax(dim=3) @ v

        def flat(q, k, v):
            return torch.bmm(torch.bmm(q[0], k[0].transpose(1, 2)).softmax(-1), v[0])

        def factor_per_head(q, k, v):
            return (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * factor).softmax(-1) @ v

        def the_other_way_round(q, k, v):
            return (bias + 0.25 * (q @ k.mT)).softmax(-1) @ v
        bias = torch.randn(2, 1, 5, 5, dtype=torch.bfloat16)
        factor = torch.tensor([1.0, 10.0, 30.0], dtype=torch.bfloat16).view(3, 1, 1)
        for call in (by_hand, transformers_eager, copied, flat, factor_per_head, the_other_way_round):
            with self.subTest(call.__name__), torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
                torch._dynamo.reset()
                vitune.torch.reset_stats()
                got, report = self.compiled(call, self.q, self.k, self.v)
                self.assertEqual([c.replaced for c in report.calls], [True], report)
                self.expect_close(got, call(self.q, self.k, self.v))
                self.assertEqual(vitune.torch.stats().served, 1)

    def test_pytorchs_multi_head_attention_is_opened(self):
        x = torch.randn(2, 9, 32, dtype=torch.bfloat16)
        for batch_first in (True, False):
            heads = torch.nn.MultiheadAttention(32, 2, batch_first=batch_first).bfloat16().eval()
            torch.nn.init.normal_(heads.in_proj_weight)
            torch.nn.init.normal_(heads.in_proj_bias)

            def call(x):
                return heads(x, x, x, need_weights=False)[0]
            with self.subTest(batch_first=batch_first), torch.no_grad(), mock.patch.object(
                    attention_pattern, "selected", served_by_nearest):
                vitune.torch.reset_stats()
                torch._dynamo.reset()
                got, report = self.compiled(call, x)
                self.assertEqual([(c.call, c.replaced) for c in report.calls], [("multi-head attention", True)], report)
                self.expect_close(got, call(x), 0.1)
                self.assertEqual((vitune.torch.stats().served, without_inductor.calls.count(F.linear)), (1, 2))
                for other in (lambda x: heads(x, x, x), lambda x: heads(x, x + 1, x, need_weights=False)[0]):
                    torch._dynamo.reset()
                    _, report = self.compiled(other, x)
                    self.assertEqual([c.replaced for c in report.calls], [False], report)

    def test_a_fused_encoder_layer_says_how_it_is_opened(self):
        layer = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).bfloat16().eval()
        x = torch.randn(2, 9, 32, dtype=torch.bfloat16)
        with torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
            want, report = self.compiled(layer, x)
            self.assertIn("set_fastpath_enabled(False)", report.calls[0].reason)
            torch.backends.mha.set_fastpath_enabled(False)
            self.addCleanup(torch.backends.mha.set_fastpath_enabled, True)
            got, report = self.compiled(layer, x)
        self.expect_close(got, want)
        self.assertEqual([c.replaced for c in report.calls if c.operator == "attention"], [True])

    def test_masks_of_windows_belong_to_their_windows(self):
        bias, masks = torch.randn(1, 3, 5, 5, dtype=torch.bfloat16), 3 * torch.randn(4, 5, 5, dtype=torch.bfloat16)
        q, k, v = packed(8, 5, 3, 64, dtype=torch.bfloat16)  # 2 images of 4 windows

        def repeated(q, k, v):
            mask = bias + masks.view(1, 4, 1, 5, 5).expand(q.shape[0] // 4, -1, 3, -1, -1).reshape(-1, 3, 5, 5)
            return F.scaled_dot_product_attention(q, k, v, mask)

        def unfused_attention(q, k, v):
            scores = (q * 64 ** -0.5) @ k.transpose(-2, -1) + bias
            scores = scores.view(-1, 4, 3, 5, 5) + masks.unsqueeze(1).unsqueeze(0)
            return scores.view(-1, 3, 5, 5).softmax(dim=-1) @ v
        want = repeated(q, k, v)
        self.assertGreater((want - F.scaled_dot_product_attention(q, k, v, bias)).abs().max(), 0.5)
        for call in (repeated, unfused_attention):
            with self.subTest(call.__name__), torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
                torch._dynamo.reset()
                got, report = self.compiled(call, q, k, v)
                self.expect_close(got, want)
                self.assertIn("bias=bf16:4x3x5x5", report.calls[0].selection.problem)
        self.assertEqual(vitune.torch.stats().served, 2)

    def test_a_softmax_that_is_something_else_is_left_alone(self):
        def talking_heads(q, k, v):
            return ((q @ k.mT).permute(0, 2, 3, 1) @ mix).permute(0, 3, 1, 2).softmax(-1) @ v

        def shown(q, k, v):
            weights = (q @ k.mT).softmax(-1)
            return weights @ v, weights

        def other_axis(q, k, v):
            return (q @ k.mT).softmax(-2) @ v

        def scaled_mask(q, k, v):
            return ((q @ k.mT + 1.0) * 0.1).softmax(-1) @ v

        def classifier(q, k, v):
            return (q @ k.mT).softmax(-1)

        def changed(q, k, v):
            q, v = q + 1, v + 1
            scores = q @ k.mT
            v.mul_(2)
            return scores.softmax(-1) @ v

        mix = torch.randn(3, 3, dtype=torch.bfloat16)
        for call, reasons in ((talking_heads, []), (shown, ["its weights or scores are used elsewhere"]), (other_axis, []),
                              (scaled_mask, []), (classifier, []), (changed, ["something between"])):
            with self.subTest(call.__name__), torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
                torch._dynamo.reset()
                _, report = self.compiled(call, self.q, self.k, self.v)
                self.assertEqual([c.reason[:len(r)] for c, r in zip(report.calls, reasons)], reasons)
                self.assertEqual((len(report.calls), any(c.replaced for c in report.calls)), (len(reasons), False))

    def test_arguments_by_name_are_found_too(self):
        def by_name(q, k, v):
            return torch.matmul(input=F.softmax(input=q @ k.mT, dim=-1), other=v)
        with torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
            got, report = self.compiled(by_name, self.q, self.k, self.v)
        self.assertEqual([c.replaced for c in report.calls], [True])
        self.expect_close(got, by_name(self.q, self.k, self.v))

    def test_a_factor_of_queries_is_the_scale(self):
        def scaled(q, k, v):
            return (0.3 * q @ k.mT).softmax(-1) @ v

        def scaled_twice(q, k, v):
            return (q * 0.3 @ k.mT * 0.5).softmax(-1) @ v

        def seen(q, k, v):
            q = q * 0.3
            return (q @ k.mT).softmax(-1) @ v + q

        def written(q, k, v):
            q = q + 0
            scores = q * 0.3 @ k.mT
            q.mul_(2)
            return scores.softmax(-1) @ v + q

        def keys_written(q, k, v):
            k = k + 0
            turned = k.transpose(-2, -1).contiguous()
            k.zero_()
            return ((q * 0.3) @ turned).softmax(-1) @ v + k

        def keys_overwritten(q, k, v):
            k = k + 0
            turned = k.transpose(-2, -1)
            k.mul_(2)
            return ((q * 0.3) @ turned).softmax(-1) @ v

        def negative(q, k, v):
            return (q * -0.3 @ k.mT).softmax(-1) @ v

        def tiny(q, k, v):
            return (q * 1e-30 @ k.mT).softmax(-1) @ v

        for call, scale in ((scaled, 0.3), (scaled_twice, 0.15), (seen, 1.0), (written, None), (keys_written, None), (keys_overwritten, 0.3),
                            (negative, 1.0), (tiny, 1.0)):
            with self.subTest(call.__name__), torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
                torch._dynamo.reset()
                scales = []
                build = attention_pattern.Attend.build
                with mock.patch.object(attention_pattern.Attend, "build", lambda of, graph: scales.append(of.scale) or build(of, graph)):
                    got, report = self.compiled(call, self.q, self.k, self.v)
                self.assertEqual([c.replaced for c in report.calls], [scale is not None])
                self.assertEqual(scales, [] if scale is None else [scale])
                self.expect_close(got, call(self.q, self.k, self.v))

    def test_a_factor_of_wider_queries_is_no_scale(self):
        def scaled(q, k, v):
            return (q * 1e-5 @ k.mT).softmax(-1) @ v
        q, k, v = (x.float() for x in (1e5 * self.q, self.k, self.v))
        with torch.no_grad(), torch.autocast("cpu", torch.float16), mock.patch.object(attention_pattern, "selected", served_by_nearest):
            torch._dynamo.reset()
            got, _ = self.compiled(scaled, q, k, v)
            self.assertTrue(got.isfinite().all())
            self.expect_close(got, scaled(q, k, v))

    def test_windows_that_no_kernel_serves_are_pytorchs(self):
        mask = torch.randn(2, 1, 5, 5)
        q, k, v = torch.cat([self.q] * 3), torch.cat([self.k] * 3), torch.cat([self.v] * 3)
        want = F.scaled_dot_product_attention(q, k, v, mask.repeat(3, 1, 1, 1).bfloat16())
        refused = mock.patch.object(attention_ops, "run", side_effect=vitune.Unsupported("of the test"))
        with torch.no_grad(), refused, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = torch.ops.vitune.attention_repeating_mask(q, k, v, mask, None)
        self.expect_close(out, want)
        self.assertEqual((out.stride(), vitune.torch.stats().reasons), ((960, 64, 192, 1), {"of the test": 1}))

    def test_somebodys_operator_costs_the_call_that_reaches_it_alone(self):
        @torch.library.custom_op("vitune_test::somebodys", mutates_args=())
        def somebodys(x: torch.Tensor) -> torch.Tensor:
            return x.clone()
        somebodys.register_fake(lambda x: torch.empty_like(x))

        def model(q, k, v):
            outs = [F.scaled_dot_product_attention(q, k * scale, v) for scale in range(1, 6)]
            outs[2] = torch.ops.vitune_test.somebodys(outs[2])
            return sum(out.transpose(1, 2).reshape(2, 9, 48) for out in outs)

        def views(q, k, v):  # contiguous operands: PyTorch's result is contiguous, ours has rows outside of heads
            outs = [F.scaled_dot_product_attention(q, k * scale, v) for scale in range(1, 6)]
            return sum(out.transpose(1, 2).reshape(2, 9, 48) for out in outs) + outs[1].view(6, 9, 16).sum() + outs[4].view(-1).sum()

        def aliases(q, k, v):
            out, other = (F.scaled_dot_product_attention(q, k * scale, v) for scale in (1, 2))
            out.flatten(0, 1).mul_(2)
            return out.transpose(1, 2) + other.transpose(1, 2)
        q, k, v = (torch.randn(2, 3, 9, 16, dtype=torch.bfloat16) for _ in range(3))
        places = {model: ("vitune_test::somebodys", [2]), views: ("view", [1, 4]), aliases: ("flatten", [0])}
        for call, (place, left) in places.items():
            with self.subTest(call.__name__), torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
                torch._dynamo.reset()
                vitune.torch.reset_stats()
                want = call(q, k, v)
                got, report = self.compiled(call, q, k, v)
                self.expect_close(got, want, 0.1)
                self.assertEqual(got.stride(), want.stride())
                calls = report.calls
                self.assertEqual([i for i, each in enumerate(calls) if not each.replaced], left)
                self.assertEqual(vitune.torch.stats().served, len(calls) - len(left))
                for i in left:
                    self.assertRegex(calls[i].reason, f"^it reaches .*{place}")
                self.assertEqual(report.graphs[0].error, "")
                self.assertIn(f"{len(calls) - len(left)} of {len(calls)} known calls replaced", str(report))

    def test_a_view_that_ours_does_not_allow_leaves_the_graph_as_it_was(self):
        def call(q, k, v):  # of rank 5, ours is in v's order, PyTorch's is contiguous
            return F.layer_norm(F.scaled_dot_product_attention(q, k, v).view(2, 54, 16), (16,))
        q, k, v = torch.randn(2, 3, 9, 3, 2, 16, dtype=torch.bfloat16).permute(3, 0, 1, 4, 2, 5).unbind(0)
        with torch.no_grad(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
            want = call(q, k, v)
            got, report = self.compiled(call, q, k, v)
        self.expect_close(got, want)
        self.assertRegex(report.calls[0].reason, "^it reaches view: ")
        self.assertFalse(report.calls[0].replaced)
        self.assertEqual(vitune.torch.stats().served, 0)

    def test_norms_of_every_kind(self):
        def rms(x, w):
            return F.rms_norm(x, (32,), w) * 2

        def group(x, w, b):
            return F.silu(F.group_norm(x, 4, w, b), inplace=True) + 1
        x, w = torch.randn(2, 3, 32, dtype=torch.bfloat16), torch.randn(32, dtype=torch.bfloat16)
        image, p = torch.randn(2, 8, 3, 5, dtype=torch.bfloat16), torch.randn(8, dtype=torch.bfloat16)
        with torch.no_grad():
            for call, arguments, name in ((rms, (x, w), "rms_norm"), (group, (image, p, p), "group_norm and silu")):
                torch._dynamo.reset()
                got, report = self.compiled(call, *arguments, replace=["norm", "group_norm"])
                self.assertEqual([(c.call, c.replaced) for c in report.calls], [(name, True)], report)
                self.expect_close(got, call(*arguments))
                self.assertFalse(self.compiled(call, *arguments)[1].calls[0].replaced)

    def test_a_sum_that_is_changed_before_its_norm_is_not_taken(self):
        def call(x, y, w, b):
            total = x + y
            total.add_(1)
            return F.layer_norm(total, (192,), w, b, 1e-6), total
        arguments = [torch.randn(10, 192, dtype=torch.bfloat16) for _ in range(2)] + [torch.randn(192).bfloat16() for _ in range(2)]
        with torch.no_grad():
            want = call(*arguments)
            got, report = self.compiled(call, *arguments, replace=["norm"])
        self.assertEqual([(c.call, c.replaced) for c in report.calls], [("layer_norm", True)])
        for ours, theirs in zip(got, want):
            self.expect_close(ours, theirs)

    def test_what_the_drop_in_serves_is_vitunes_already(self):
        with torch.no_grad(), vitune.torch.enabled():
            _, report = self.compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), self.q, self.k, self.v)
        self.assertEqual([(c.call, c.reason) for c in report.calls], [("vitune.attention", "it is vitune's already")])
        self.assertEqual(vitune.torch.stats().served, 1)

    def test_a_pattern_that_fails_keeps_no_program_from_being_compiled(self):
        with torch.no_grad(), mock.patch.object(attention_pattern, "selected", side_effect=ZeroDivisionError("of the test")):
            out, report = self.compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), self.q, self.k, self.v)
        self.assertEqual([(c.replaced, c.reason) for c in report.calls], [(False, "ZeroDivisionError: of the test")])
        self.expect_close(out, F.scaled_dot_product_attention(self.q, self.k, self.v))

    def test_options_of_dynamo_reach_it(self):
        asked = []
        options = {"guard_filter_fn": lambda guards: asked.append(len(guards)) or [True] * len(guards)}
        out, _ = self.compiled(lambda x: x * 2, torch.ones(3), options=options)
        self.assertEqual((out.tolist(), len(asked)), ([2.0] * 3, 1))
        self.assertIn("guard_filter_fn", options)  # the caller's own is left as it was

    def test_wrong_words_say_what_there_is(self):
        with self.assertRaisesRegex(vitune.InvalidArgument, "replace has gelu: the operators are attention, attention_train, group_norm, "
                                    "linear, linear_train, norm, norm_train, packed_attention, window_attention"):
            vitune.compile(torch.nn.Identity(), replace="gelu")
        with self.assertRaisesRegex(vitune.InvalidArgument, "what vitune.compile"):
            vitune.report(torch.compile(torch.nn.Identity()))
        self.assertIn("call the model once", str(vitune.report(vitune.compile(torch.nn.Identity()))))


if __name__ == "__main__":
    unittest.main()
