# python/tests/test_torch_compile.py -- vitune.compile() on models of timm: what is replaced, what stays, the answers, the cache's key.
# SPDX-License-Identifier: Apache-2.0
"""Launches go to the emulated device (torch_staged.py). Winners are tuned there, for a database of these tests' own; where a
test is not about Inductor, aot_eager stands in for it, since its C++ takes long to build."""
import dataclasses
import unittest
from unittest import mock

import vitune

from .support import FOLDER, needs_device, needs_torch, torch
from .test_torch_host import TorchTest

if torch is not None:
    import torch.nn.functional as F
    from torch._dynamo.backends.debugging import aot_eager
    from torch._dynamo.utils import counters

    from vitune._compile import backend
    from vitune._compile.patterns import attention as attention_pattern, dead_rows, every, linear_pair as linear_pair_pattern
    from vitune._ops import attention as attention_ops, group_norm as group_norm_ops, norm as norm_ops, repeating_mask

    from .test_torch_norm import launch_groups_staged
    from .test_torch_norm import launch_staged as launch_norm_staged
    from .torch_cases import packed

    #: Layers one by one: pairs of them have tests of their own.
    ONE_BY_ONE = tuple(each for each in every.PATTERNS if each is not linear_pair_pattern.linear_pair)

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
    #: Whether rows that nothing reads are left out: the last block is as the others without that.
    leaves_rows_out = False

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
                (every, "PATTERNS", ONE_BY_ONE),
                (dead_rows, "leave_out", dead_rows.leave_out if self.leaves_rows_out else lambda module: None)):
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
        self.assertEqual({(call.call.partition(" ")[0], call.replaced) for call in report.calls if call.trains},
                         {("linear", False), ("linear,", False), ("layer_norm", False), ("scaled_dot_product_attention", False), ("patch", False)})
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
