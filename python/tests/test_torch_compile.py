# python/tests/test_torch_compile.py -- vitune.compile() on models of timm: what is replaced, what stays, the answers, the cache's key.
# SPDX-License-Identifier: Apache-2.0
"""Launches go to the emulated device (torch_staged.py). Winners are tuned there, for a database of these tests' own; where a
test is not about Inductor, aot_eager stands in for it, since its C++ takes long to build."""
import contextlib
import dataclasses
import unittest
import warnings
from unittest import mock

import vitune

from .support import FOLDER, needs_device, needs_torch, torch
from .test_torch_host import TorchTest

if torch is not None:
    import torch.nn.functional as F
    from torch._dynamo.backends.debugging import aot_eager
    from torch._dynamo.utils import counters

    from vitune._compile import backend
    from vitune._compile.graph import benchmark
    from vitune._compile.patterns import attention as attention_pattern, linear_pair as linear_pair_pattern
    from vitune._ops import attention as attention_ops, group_norm as group_norm_ops, norm as norm_ops, repeating_mask

    from .test_torch_norm import launch_groups_staged
    from .test_torch_norm import launch_staged as launch_norm_staged
    from .torch_cases import packed

    #: Layers one by one: pairs of them have tests of their own.
    ONE_BY_ONE = tuple(each for each in backend.PATTERNS if each is not linear_pair_pattern.linear_pair)

try:
    import timm
except ImportError:
    timm = None

DATABASE = FOLDER / "compile.db"
#: Problems of the ViT below: attention, and the norms around it.
TUNED = ("attention bf16 b=2 h=3 nq=5 nk=5 d=64 layout=packed", "norm bf16 m=10 d=192 weight bias residual sum eps=1e-06",
         "norm bf16 m=10 d=192 weight bias eps=1e-06", "group_norm bf16 n=2 c=8 l=15 g=4 weight bias params=bf16 silu eps=1e-05",
         "norm bf16 m=6 d=32 rms weight x=@32 eps=1.1920928955078125e-07")


def without_inductor(module, inputs, config_patches=None):
    without_inductor.calls = [node.target for node in module.graph.nodes if node.op == "call_function"]
    return aot_eager(module, inputs)


@needs_device
@needs_torch
class CompileCase(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not DATABASE.exists():
            vitune.tune(*TUNED, budget=1, jobs=1, database=DATABASE, quiet=True)
        cls.tuned = vitune.Context(0, database=DATABASE, shipped_database="")
        cls.untuned = vitune.Context(0, database=FOLDER / "empty.db", shipped_database="")
        for op in (norm_ops.norm_op, group_norm_ops.group_norm_op, repeating_mask.attention_repeating_mask_op):
            op.register_kernel("cpu")(op._init_fn)

    @classmethod
    def tearDownClass(cls):
        cls.tuned.close()
        cls.untuned.close()

    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.context = self.tuned
        for module, name, value in (
                (attention_ops, "context_of", lambda device: self.context), (norm_ops, "launch", launch_norm_staged),
                (group_norm_ops, "launch", launch_groups_staged), (backend, "compile_fx", without_inductor),
                (backend, "PATTERNS", ONE_BY_ONE)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def compiled(self, model, *arguments, **keywords):
        """What a model answers once compiled, and the report."""
        compiled = vitune.compile(model, fullgraph=True, **keywords)
        return compiled(*arguments), vitune.report(compiled)

    def expect_close(self, got, want, bound=0.03):
        torch.testing.assert_close(got, want, atol=bound, rtol=bound)


def vit(**keywords):
    return timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, **keywords).eval()


def served_by_nearest(desc, device):
    """As if a winner of another problem served what is asked."""
    return dataclasses.replace(attention_ops.context_of(device).query(desc), outcome="nearest")


@unittest.skipIf(timm is None, "timm is not installed")
class TimmTest(CompileCase):
    def test_attention_of_a_vit_is_its_winners(self):
        model, x = vit().bfloat16(), torch.randn(2, 3, 32, 32, dtype=torch.bfloat16)
        with torch.inference_mode():
            want = model(x)
            got, report = self.compiled(model, x)
        self.expect_close(got, want)
        self.assertEqual(vitune.torch.stats().served, 2)
        attention = [call for call in report.calls if call.operator == "attention"]
        self.assertEqual([(call.module, call.replaced) for call in attention], [("blocks.0.attn", True), ("blocks.1.attn", True)])
        self.assertEqual(attention[0].selection.outcome, "exact")
        norms = [call for call in report.calls if call.operator == "norm"]
        self.assertEqual([(call.call, call.replaced) for call in norms],
                         [("layer_norm", False)] + [("layer_norm of a sum", False)] * 4)
        self.assertIn("not known to be faster", norms[0].reason)
        text = str(report)
        self.assertIn("graph of [2, 3, 32, 32]: 2 of 17 known calls replaced\n", text)
        self.assertRegex(text, r"2 x scaled_dot_product_attention: replaced\n +[\d.]+ us cold, [\d.]+ warm: attention bf16 b=2")

    def test_what_was_never_tuned_stays_inductors(self):
        self.context = self.untuned
        model, x = vit().bfloat16(), torch.randn(2, 3, 32, 32, dtype=torch.bfloat16)
        with torch.inference_mode():
            want = torch.compile(model, backend="aot_eager")(x)
            got, report = self.compiled(model, x)
        self.assertTrue(torch.equal(got, want))
        self.assertFalse(any(call.replaced for call in report.calls))
        self.assertTrue(all("never tuned" in call.reason for call in report.calls if call.operator in ("attention", "linear")))
        self.assertIn("attention bf16 b=2 h=3 nq=5", str(report))
        self.assertEqual(sum(problem == TUNED[0] for problem in report.untuned), 1)

    def test_norms_are_replaced_where_asked_for(self):
        model, x = vit().bfloat16(), torch.randn(2, 3, 32, 32, dtype=torch.bfloat16)
        with torch.inference_mode():
            want = model(x)
            got, report = self.compiled(model, x, replace=["norm"])
        self.expect_close(got, want)
        self.assertEqual([(call.call, call.replaced, call.reason[:10]) for call in report.calls if call.operator == "norm"],
                         [("layer_norm", True, "")] + [("layer_norm of a sum", True, "")] * 3 + [
                             ("layer_norm of a sum", False, "it was nev")])
        self.assertEqual(vitune.torch.stats().served, 0)

    def swin(self, name="swin_tiny_patch4_window7_224", **keywords):
        model = timm.create_model(name, depths=(2, 1), embed_dim=32, num_heads=(1, 2), **keywords).eval()
        torch.nn.init.normal_(next(p for name, p in model.named_parameters() if "relative_position" in name or "cpb_mlp" in name))
        return model.bfloat16()

    def expect_windows(self, model, x, call, bound=0.03):
        with torch.inference_mode():
            want = model.float()(x.float()).bfloat16()
            with mock.patch.object(attention_pattern, "selected", served_by_nearest):
                got, report = self.compiled(model.bfloat16(), x)
        self.expect_close(got, want, bound)
        found = [c for c in report.calls if c.operator == "attention"]
        self.assertEqual([(c.call, c.replaced) for c in found], [(call, True)] * 3, report)
        self.assertEqual(vitune.torch.stats().served, 3)
        # The second block is shifted: 4 windows have masks of their own, whatever the number of images.
        return [c.selection.problem.split(" bias=")[1].split()[0] for c in found]

    def test_attention_of_swin_reads_its_windows_masks_where_they_lie(self):
        vitune.torch.install_module.timm.enter()
        self.addCleanup(vitune.torch.install_module.timm.leave)
        x = torch.randn(2, 3, 56, 56, dtype=torch.bfloat16)
        problems = self.expect_windows(self.swin(img_size=56), x, "scaled_dot_product_attention")
        self.assertEqual(problems, ["bf16:1x1x49x49", "bf16:4x1x49x49", "bf16:1x2x49x49"])

    def test_attention_that_swin_writes_out_is_found(self):
        x = torch.randn(2, 3, 56, 56, dtype=torch.bfloat16)
        problems = self.expect_windows(self.swin(img_size=56), x, "softmax between two products")
        self.assertEqual(problems, ["bf16:1x1x49x49", "bf16:4x1x49x49", "bf16:1x2x49x49"])

    def test_attention_of_swin_v2_with_a_factor_for_each_head(self):
        x = torch.randn(2, 3, 64, 64, dtype=torch.bfloat16)
        problems = self.expect_windows(self.swin("swinv2_tiny_window8_256", img_size=64), x, "softmax between two products", 0.1)
        self.assertEqual(problems, ["bf16:1x1x64x64", "bf16:4x1x64x64", "bf16:1x2x64x64"])

    def test_swin_of_any_batch_is_one_graph(self):
        model = self.swin(img_size=56)
        compiled = vitune.compile(model, fullgraph=True, dynamic=True)
        with torch.inference_mode(), mock.patch.object(attention_pattern, "selected", served_by_nearest):
            for batch in (2, 3):
                x = torch.randn(batch, 3, 56, 56, dtype=torch.bfloat16)
                self.expect_close(compiled(x), model(x), 0.05)
        self.assertEqual((len(vitune.report(compiled).graphs), vitune.torch.stats().served), (1, 6))

    def test_a_training_step_without_winners_is_inductors_alone(self):
        model, x = vit().bfloat16(), torch.randn(2, 3, 32, 32, dtype=torch.bfloat16)
        want = torch.autograd.grad(model(x).float().sum(), model.blocks[0].attn.qkv.weight)[0]
        out, report = self.compiled(model, x)
        got = torch.autograd.grad(out.float().sum(), model.blocks[0].attn.qkv.weight)[0]
        self.expect_close(got, want, 0.1)
        self.assertEqual({call.reason for call in report.calls if not call.trains}, {"a gradient is wanted of it"})
        self.assertEqual({(call.call.partition(" ")[0], call.replaced) for call in report.calls if call.trains}, {("linear", False),
                                                                                                               ("linear,", False)})
        self.assertEqual(vitune.torch.stats().served, 0)

    def test_one_graph_for_every_batch(self):
        model = vit().bfloat16()
        compiled = vitune.compile(model, fullgraph=True, dynamic=True)
        with torch.inference_mode():
            for batch in (2, 3, 5):
                x = torch.randn(batch, 3, 32, 32, dtype=torch.bfloat16)
                self.expect_close(compiled(x), model(x))
        report = vitune.report(compiled)
        self.assertEqual(len(report.graphs), 1)
        self.assertEqual([call.replaced for call in report.calls if call.operator == "attention"], [True, True])
        self.assertEqual({call.reason[:12] for call in report.calls if call.operator == "norm"}, {"not known to"})
        self.assertEqual(vitune.torch.stats().served, 6)

    def test_autocast_attends_in_its_own_type(self):
        model, x = vit(), torch.randn(2, 3, 32, 32)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            want = model(x)
            got, report = self.compiled(model, x)
        self.expect_close(got, want)
        self.assertEqual([call.replaced for call in report.calls if call.operator == "attention"], [True, True])


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
        bias = torch.randn(2, 1, 5, 5, dtype=torch.bfloat16)
        factor = torch.tensor([1.0, 10.0, 30.0], dtype=torch.bfloat16).view(3, 1, 1)
        for call in (by_hand, transformers_eager, copied, flat, factor_per_head):
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
        with self.assertRaisesRegex(vitune.InvalidArgument, "replace has gelu: the operators are attention, group_norm, linear, linear_train, norm"):
            vitune.compile(torch.nn.Identity(), replace="gelu")
        with self.assertRaisesRegex(vitune.InvalidArgument, "what vitune.compile"):
            vitune.report(torch.compile(torch.nn.Identity()))
        self.assertIn("call the model once", str(vitune.report(vitune.compile(torch.nn.Identity()))))


class RaceTest(CompileCase):
    """A race that would be on a GPU, with times of the test's own."""

    def setUp(self):
        super().setUp()
        self.raced, self.times = [], benchmark.Times(10.0, 20.0)
        for name, value in (("can_race", lambda device: True), ("race", self.race)):
            patch = mock.patch.object(benchmark, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        for patch in (mock.patch.object(backend, "_times", {}), mock.patch.object(attention_pattern, "selected", served_by_nearest)):
            patch.start()
            self.addCleanup(patch.stop)

    def race(self, ours, theirs, device):
        self.raced.append((ours(), theirs()))
        if isinstance(self.times, Exception):
            raise self.times
        return self.times

    def attend(self, call=F.scaled_dot_product_attention if torch is not None else None, qkv=None, **keywords):
        torch._dynamo.reset()
        with torch.no_grad():
            _, report = self.compiled(lambda q, k, v: call(q, k, v), *(qkv or packed(2, 5, 3, 64, dtype=torch.bfloat16)), **keywords)
        return report.calls[0]

    def test_who_loses_is_left_out_and_both_times_are_told(self):
        self.assertTrue(self.attend().replaced)
        for ours, theirs, replaced in ((20.0, 10.0, False), (10.2, 10.0, True), (10.4, 10.0, False)):
            with self.subTest(ours), mock.patch.object(backend, "_times", {}):
                self.times = benchmark.Times(ours, theirs)
                call = self.attend()
                self.assertEqual((call.replaced, call.times), (replaced, self.times))
                self.assertIn(f"{ours} us here, PyTorch's {theirs}; ", str(call))
                self.assertEqual("PyTorch's was faster" in call.reason, not replaced)

    def test_what_cannot_be_raced_is_replaced_as_ever(self):
        self.times = torch.OutOfMemoryError("of the test")
        call = self.attend()
        self.assertEqual((call.replaced, call.times, len(self.raced)), (True, None, 1))

    def test_who_names_an_operator_is_not_asked_for_times(self):
        self.assertEqual((self.attend(replace="attention").replaced, self.raced), (True, []))

    def test_a_problem_is_raced_once(self):
        q, k, v = packed(2, 5, 3, 64, dtype=torch.bfloat16)
        self.attend(lambda q, k, v: F.scaled_dot_product_attention(q, k, v) + F.scaled_dot_product_attention(q, k, v) * 2)
        self.attend()
        self.assertEqual(len(self.raced), 1)
        self.attend(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        self.assertEqual(len(self.raced), 2)

    def test_both_sides_are_the_same_attention_of_finite_numbers(self):
        bias, masks = torch.randn(1, 3, 5, 5, dtype=torch.bfloat16), torch.randn(4, 5, 5, dtype=torch.bfloat16)
        keep = torch.rand(1, 1, 5, 5) > 0.5
        heads = torch.nn.MultiheadAttention(32, 2, batch_first=True).bfloat16().eval()
        sdpa = F.scaled_dot_product_attention

        def windows(q, k, v):
            return sdpa(q, k, v, bias + masks.view(1, 4, 1, 5, 5).expand(2, -1, 3, -1, -1).reshape(-1, 3, 5, 5))
        x = torch.randn(2, 9, 32, dtype=torch.bfloat16)
        cases = {"plain": (sdpa, None), "causal": (lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.3), None),
                 "mask": (lambda q, k, v: sdpa(q, k, v, keep.expand(2, 3, 5, 5)), None),
                 "shared heads": (lambda q, k, v: sdpa(q, k[:, :1], v[:, :1], enable_gqa=True), None),
                 "windows": (windows, packed(8, 5, 3, 64, dtype=torch.bfloat16)),
                 "written out": (lambda q, k, v: ((q * 0.3) @ k.mT + bias).softmax(-1) @ v, None),
                 "heads": (lambda x, *_: heads(x, x, x, need_weights=False)[0], (x, x, x))}
        for name, (call, qkv) in cases.items():
            with self.subTest(name):
                self.assertTrue(self.attend(call, qkv).replaced)
                ours, theirs = self.raced[-1]
                self.assertTrue(ours.isfinite().all() and ours.std() > 0.05)
                self.expect_close(ours, theirs)
        self.assertEqual(len(self.raced), len(cases))

    def test_tensors_made_up_lie_as_they_did_and_leave_the_users_chance_alone(self):
        like = torch.empty_strided((2, 3, 4), (40, 0, 2), dtype=torch.bfloat16, device="meta")
        before = torch.get_rng_state()
        with benchmark.apart():
            made, flags = (benchmark.sample(each, torch.device("cpu")) for each in (like, like.bool()))
        self.assertEqual((made.shape, made.stride(), made.dtype), (like.shape, like.stride(), like.dtype))
        self.assertTrue(made.std() > 0.1 and flags.all())
        self.assertTrue(torch.equal(torch.get_rng_state(), before))


class _Gpu:
    """A host that queues work and a GPU that does it: what benchmark.race() asks of torch.cuda. All in milliseconds."""

    def __init__(self):
        self.host, self.free, self.graph, gpu = 0.0, 0.0, None, self  # free: when all that is queued is done

        class Event:
            def __init__(self, enable_timing):
                pass

            def record(self, stream):
                self.at = gpu.queued(0.0)

            def synchronize(self):
                gpu.host = max(gpu.host, self.at)

            def query(self):
                return self.at <= gpu.host

            def elapsed_time(self, end):
                return end.at - self.at

        class Graph:
            def capture_begin(self, capture_error_mode):
                gpu.graph, self.calls, self.launch = self, [], 0.0

            def capture_end(self):
                gpu.graph = None

            def replay(self):
                gpu.host += self.launch
                for ms in self.calls:
                    gpu.queued(ms)
        self.stands_in = {"Event": Event, "CUDAGraph": Graph, "Stream": mock.MagicMock(), "current_stream": mock.MagicMock(),
                          "stream": contextlib.nullcontext, "device": contextlib.nullcontext,
                          "_sleep": lambda cycles: self.queued(cycles / 2e6)}

    def queued(self, ms):
        """When what the host queues now is done."""
        self.free = max(self.free, self.host) + ms
        return self.free

    def call(self, us, first_ms=0.0, launch_us=0.0):
        """A kernel of so many microseconds, and the host's for its launch in a graph; its first call takes longer, and cannot be
        captured."""
        calls = []

        def run():
            calls.append(us)
            if self.graph is not None:
                self.graph.calls.append(us / 1e3)
                self.graph.launch += launch_us / 1e3
            else:
                self.host += first_ms if len(calls) == 1 else 0.03
                self.queued(us / 1e3)
        run.calls = calls
        return run


@unittest.skipIf(torch is None, "PyTorch is not installed")
class RaceTimesTest(unittest.TestCase):
    def setUp(self):
        self.gpu = _Gpu()
        patch = mock.patch.multiple(torch.cuda, **self.gpu.stands_in)
        patch.start()
        self.addCleanup(patch.stop)

    def test_times_are_those_of_the_gpu_alone_per_call(self):
        fast, slow = self.gpu.call(5.0, first_ms=90.0), self.gpu.call(2000.0)
        times = benchmark.race(fast, slow, torch.device("cuda:0"))
        self.assertAlmostEqual(times.ours_us, 5.0)
        self.assertAlmostEqual(times.theirs_us, 2000.0)
        self.assertFalse(times.lost)
        self.assertEqual((len(fast.calls), len(slow.calls)), (3 + 32, 3 + 1))  # a graph of a millisecond, by the time with the host's

    def test_what_the_host_takes_to_launch_a_graph_is_hidden_as_in_a_model(self):
        for launch_us in (3.0, 60.0):
            ours, theirs = self.gpu.call(5.0, launch_us=launch_us), self.gpu.call(6.0, launch_us=1.0)
            times = benchmark.race(ours, theirs, torch.device("cuda:0"))
            self.assertAlmostEqual(times.ours_us, 5.0)
            self.assertAlmostEqual(times.theirs_us, 6.0)

    def test_what_is_slow_until_the_gpu_has_its_clocks_does_not_count(self):
        slow, replays = [], 0
        inner = self.gpu.stands_in["CUDAGraph"]

        class Graph(inner):
            def replay(graph):
                nonlocal replays
                replays += 1
                super().replay()
                if replays <= 16:
                    self.gpu.queued(5.0)
                    slow.append(replays)
        with mock.patch.object(torch.cuda, "CUDAGraph", Graph):
            times = benchmark.race(self.gpu.call(5.0), self.gpu.call(8.0), torch.device("cuda:0"))
        self.assertEqual(len(slow), 16)
        self.assertAlmostEqual(times.ours_us, 5.0)
        self.assertAlmostEqual(times.theirs_us, 8.0)

    def test_a_call_that_cannot_be_captured_ends_its_capture(self):
        def refused():
            if self.gpu.graph is not None:
                raise RuntimeError("not permitted when stream is capturing")
        with self.assertRaisesRegex(RuntimeError, "not permitted"):
            benchmark.race(refused, self.gpu.call(1.0), torch.device("cuda:0"))
        self.assertIsNone(self.gpu.graph)


class InductorTest(CompileCase):
    """With Inductor itself."""

    def setUp(self):
        super().setUp()
        from torch._inductor.compile_fx import compile_fx

        backend.compile_fx = compile_fx  # its patch ends with the test
        counters.clear()

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_a_vit_by_inductor_answers_as_the_model_does(self):
        model, x = vit().bfloat16(), torch.randn(2, 3, 32, 32, dtype=torch.bfloat16)
        with torch.inference_mode():
            want = model(x)
            got, _ = self.compiled(model, x)
        self.expect_close(got, want)
        self.assertEqual(vitune.torch.stats().served, 2)

    def test_winners_are_a_part_of_the_cached_graphs_key(self):
        q, k, v = packed(2, 5, 3, 64, dtype=torch.bfloat16)

        def call(q, k, v):
            return F.scaled_dot_product_attention(q, k, v) * 2
        selected = attention_pattern.selected

        def hits(config):
            torch._dynamo.reset()
            counters.clear()
            with mock.patch.object(attention_pattern, "selected", lambda *a: dataclasses.replace(selected(*a), config=config)):
                got, report = self.compiled(call, q, k, v)
            self.assertTrue(report.calls[0].replaced)
            self.expect_close(got, call(q, k, v), 0.06)
            return counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
        with torch.no_grad(), torch._inductor.utils.fresh_cache(), torch._inductor.config.patch(fx_graph_cache=True):
            self.assertEqual([hits("one") > 0, hits("one") > 0, hits("another") > 0, hits("another") > 0],
                             [False, True, False, True])

    def test_modes_and_options_are_inductors(self):
        seen = []
        with mock.patch.object(backend, "compile_fx", lambda module, inputs, config_patches: seen.append(config_patches) or module):
            for keywords in ({}, {"mode": "reduce-overhead"}, {"mode": "max-autotune", "options": {"epilogue_fusion": False}}):
                torch._dynamo.reset()
                self.compiled(lambda x: x * 2, torch.randn(3), **keywords)
        self.assertEqual(seen, [{}, torch._inductor.list_mode_options("reduce-overhead"),
                                {**torch._inductor.list_mode_options("max-autotune"), "epilogue_fusion": False}])
        with self.assertRaisesRegex(RuntimeError, "mode"):
            vitune.compile(torch.nn.Identity(), mode="fastest")


if __name__ == "__main__":
    unittest.main()
