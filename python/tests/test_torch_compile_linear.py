# python/tests/test_torch_compile_linear.py -- vitune.compile() on linear layers: what is fused, the answers.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import unittest
from unittest import mock

import vitune

from .linear_cases import LinearCase, Mlp, Tail, bf16
from .support import torch
from .test_torch_compile import vit, without_inductor

import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

from vitune._compile import backend
from vitune._compile.patterns import layouts, linear as linear_pattern, match as match_module
from vitune._ops import attention as attention_ops, linear as linear_ops

try:
    import timm
except ImportError:
    timm = None
try:
    import transformers
except ImportError:
    transformers = None


class PatternTest(LinearCase):
    def test_what_follows_a_layer_is_its_epilogue(self):
        cases = {
            "linear and gelu": lambda y, r, g: F.gelu(y), "linear and gelu_tanh": lambda y, r, g: F.gelu(y, approximate="tanh"),
            "linear and relu": lambda y, r, g: F.relu(y, inplace=True), "linear and silu": lambda y, r, g: F.silu(y),
            "linear and quick_gelu": lambda y, r, g: y * torch.sigmoid(1.702 * y),
            "linear and residual": lambda y, r, g: r + F.dropout(y, 0.0, True),
            "linear, LayerScale and residual": lambda y, r, g: F.dropout(F.dropout(y, 0.3, False) * g, 0.1, False) + r,
            "linear and LayerScale": lambda y, r, g: g * y,
            "linear, gelu, LayerScale and residual": lambda y, r, g: torch.add(r, F.gelu(y) * g)}
        x, r = bf16(2, 5, 24), bf16(2, 5, 40)
        for name, after in cases.items():
            with self.subTest(name):
                self.assertEqual(self.calls(Tail(after), x, r), [(name, True)])
                self.assertEqual(without_inductor.calls, [torch.ops.vitune.linear_or_torch.default])

    def test_a_table_of_positions_repeats(self):
        tail = Tail(lambda y, r, g: y + r)
        self.assertEqual(self.calls(tail, bf16(3, 5, 24), bf16(1, 5, 40)), [("linear and residual", True)])
        self.assertIn("residual period=5", self.launched[-1])
        self.assertEqual(self.calls(tail, bf16(3, 5, 24), bf16(5, 40)), [("linear and residual", True)])

    def test_what_cannot_be_its_epilogue_stays(self):
        x, r = bf16(2, 5, 24), bf16(2, 5, 40)
        cases = {"of another shape": (lambda y, r, g: y + r[:, :1], x), "of one row": (lambda y, r, g: y + g, x),
                 "which grows": (lambda y, r, g: y[:1] + r, x), "used twice": (lambda y, r, g: F.gelu(y) + y, x),
                 "of itself": (lambda y, r, g: y + y, x),
                 "other slope": (lambda y, r, g: y * torch.sigmoid(1.7 * y), x), "dropout": (lambda y, r, g: F.dropout(y, 1.0, True), x)}
        for name, (after, x) in cases.items():
            with self.subTest(name):
                bound = 0.06
                self.assertEqual(self.calls(Tail(after), x, r, bound=bound)[0], ("linear", True))

    def test_a_sum_of_another_type_is_the_results(self):
        tail = Tail(lambda y, r, g: r + y * g.float())
        self.assertEqual(self.calls(tail, bf16(2, 5, 24), torch.randn(2, 5, 40)), [("linear, LayerScale and residual", True)])
        self.assertIn("params=fp32 residual out=fp32", self.launched[-1])

    def test_memory_that_changes_in_between_is_read_before(self):
        class Changed(Tail):
            def forward(self, x, r):
                x = x + 0
                y = self.layer(x)
                self.after(x)
                return F.gelu(y) + x.sum() * 0
        for change in (lambda x: x.mul_(3), lambda x: F.relu(x, True), lambda x: F.silu(x, inplace=True), lambda x: x[1:].zero_()):
            self.assertEqual(self.calls(Changed(change), bf16(4, 24), bf16(4, 40)), [("linear", True)])

    def test_products_that_addmm_writes(self):
        across, bias = bf16(24, 40, scale=0.2), bf16(40)

        def call(x):
            return F.gelu(torch.addmm(bias.to(x.dtype), x, across.to(x.dtype)))
        self.assertEqual(self.calls(call, bf16(6, 24)), [("linear and gelu", True)])
        self.assertIn(" wt", self.launched[-1])

        def scaled(x):
            return torch.addmm(bias.to(x.dtype), x, across.to(x.dtype), alpha=2)
        self.assertEqual(self.calls(scaled, bf16(6, 24), bound=0.06), [("linear", False)])

    def test_a_norm_before_a_matrix_that_addmm_multiplies_by_stays(self):
        class Turned(nn.Module):
            """transformers' Conv1D behind a norm; of a square matrix both ways round have its shape."""

            def __init__(self, out):
                super().__init__()
                self.norm = nn.LayerNorm(24).bfloat16()
                self.across, self.bias = nn.Parameter(bf16(24, out, scale=0.2)), nn.Parameter(bf16(out))
                nn.init.uniform_(self.norm.weight, 0.5, 2)

            def forward(self, x):
                return F.gelu(torch.addmm(self.bias, self.norm(x), self.across))
        for out in (24, 40):
            with self.subTest(out):
                self.assertEqual(self.calls(Turned(out), bf16(6, 24)), [("linear and gelu", True)])

    def test_types_and_devices_without_kernels_are_told(self):
        tail = Tail(lambda y, r, g: y).float()
        self.assertIn("type float32", self.fused(tail, torch.randn(2, 24), torch.randn(2, 40))[0].reason)
        with mock.patch.object(attention_ops, "is_on_gpu", lambda tensor: False):
            self.assertEqual(self.fused(tail.bfloat16(), bf16(2, 24), bf16(2, 40))[0].reason, "device cpu")

    def test_a_gradient_keeps_it_pytorchs(self):
        tail, x, r = Tail(lambda y, r, g: F.gelu(y)), bf16(2, 24), bf16(2, 40)
        out, report = self.compiled(tail, x, r, replace=["linear"])
        self.assertEqual({call.reason for call in report.calls}, {"a gradient is wanted of it"})
        out.float().sum().backward()
        self.assertIsNotNone(tail.layer.weight.grad)
        self.assertEqual(self.launched, [])

    def test_a_call_without_a_kernel_is_pytorchs_where_the_model_runs(self):
        tail, x, r = Tail(lambda y, r, g: r + F.gelu(y) * g), bf16(2, 3, 24), bf16(2, 3, 40)
        with mock.patch.object(linear_ops, "launch", side_effect=vitune.Unsupported("of the test")), self.assertWarns(
                vitune.torch.FallbackWarning):
            self.assertEqual(self.calls(tail, x, r), [("linear, gelu, LayerScale and residual", True)])
        self.assertEqual(vitune.torch.stats().reasons, {"of the test": 1})

    def test_another_batch_is_the_same_graph(self):
        tail = Tail(lambda y, r, g: r + y)
        compiled = vitune.compile(tail, fullgraph=True, dynamic=True, replace="linear")
        with torch.no_grad():
            for batch in (2, 3, 7):
                x, r = bf16(batch, 5, 24), bf16(batch, 5, 40)
                self.expect_close(compiled(x, r), tail(x, r))
        self.assertEqual(len(vitune.report(compiled).graphs), 1)
        self.assertEqual([text.split()[2] for text in self.launched], ["m=10", "m=15", "m=35"])


class NormTest(LinearCase):
    def test_a_norm_is_folded_into_the_layer(self):
        x = bf16(2, 5, 32) * 2 + 3
        for norm, name in ((nn.LayerNorm(32), "layer_norm"), (nn.LayerNorm(32, bias=False), "layer_norm"),
                           (nn.LayerNorm(32, elementwise_affine=False), "layer_norm"), (nn.RMSNorm(32), "rms_norm"),
                           (nn.RMSNorm(32, eps=1e-3), "rms_norm")):
            for bias in (True, False):
                with self.subTest(name, norm=norm, bias=bias):
                    self.assertEqual(self.calls(Mlp(norm=norm, bias=bias), x, bound=0.05), [(f"{name}, linear and gelu", True)])
                    self.assertIn(f"norm={name.removesuffix('_norm')} bias act=gelu params=fp32", self.launched[-1])
                    self.assertFalse({F.layer_norm, F.linear, F.gelu} & set(without_inductor.calls))

    def test_a_norm_in_front_of_many_rows_stays_there(self):
        with mock.patch.object(linear_pattern, "_MOST_FOLDED", 9):
            self.assertEqual(self.calls(Mlp(), bf16(2, 5, 32)), [("linear and gelu", True)])
            self.assertEqual(self.calls(Mlp(), bf16(3, 3, 32), bound=0.05), [("layer_norm, linear and gelu", True)])

    def test_a_bias_that_is_made_at_every_call_is_added_to_what_is_folded(self):
        class Halves(Mlp):
            def __init__(self):
                super().__init__()
                self.part = nn.Parameter(bf16(24))

            def forward(self, x):
                return F.linear(self.norm(x), self.layer.weight, torch.cat([self.part, torch.zeros_like(self.part)]))
        model, x = Halves(), bf16(2, 5, 32)
        self.assertEqual(self.calls(model, x, bound=0.05), [("layer_norm and linear", True)])

    def test_a_norm_of_other_use_is_not(self):
        class Shared(Mlp):
            def forward(self, x):
                y = self.norm(x)
                return self.layer(y).sum(-1, keepdim=True) + y
        self.assertEqual(self.calls(Shared(), bf16(2, 5, 32), bound=0.2), [("linear", True)])

    def test_weights_that_are_no_parameters_are_not_folded(self):
        weight = bf16(48, 32, scale=0.2)

        def call(x, weight):
            return F.linear(F.layer_norm(x, (32,)), weight)
        call_ = self.fused(call, bf16(3, 32), weight)[0]
        self.assertEqual((call_.call, call_.tried[0].call, call_.tried[0].reason),
                         ("linear", "layer_norm and linear", "its weights are no parameters of the model"))

    def test_parameters_without_versions_are_not_folded(self):
        with torch.inference_mode():
            model, x = Mlp(), bf16(3, 32)
            torch._dynamo.reset()
            got, report = self.compiled(model, x, replace=["linear"])
            self.expect_close(got, model(x), 0.05)
        call = next(call for call in report.calls if call.operator == "linear")
        self.assertEqual((call.call, call.tried[0].reason[:30]), ("linear and gelu", "its parameters were made in in"))

    def test_a_model_that_changes_its_own_weights_is_not_folded(self):
        class Restless(Mlp):
            def forward(self, x):
                self.layer.weight.mul_(1.5)
                return super().forward(x)
        model, x = Restless(), bf16(3, 32)
        with torch.no_grad():
            compiled = vitune.compile(model, fullgraph=True, replace="linear")
            for _ in range(2):
                got = compiled(x)
                self.expect_close(got, Mlp.forward(model, x), 0.05)
        call = vitune.report(compiled).calls[1]
        self.assertIn("changes its parameters", (call.tried or (call,))[0].reason)

    def test_a_graph_that_cannot_be_traced_has_nothing_prepared(self):
        model, x = Mlp(), bf16(3, 32)
        with torch.no_grad(), mock.patch.object(layouts.Layouts, "check", side_effect=RuntimeError("of the test")):
            compiled = vitune.compile(model, fullgraph=True, replace="linear")
            self.expect_close(compiled(x), model(x))
        graph, = vitune.report(compiled).graphs
        self.assertIn("of the test", graph.error)
        self.assertFalse(any(call.replaced for call in graph.calls))
        self.assertEqual((self.launched, backend._backends[compiled].store._made), ([], {}))

    def test_a_layer_under_autocast_is_of_autocasts_type(self):
        model, x, r = Tail(lambda y, r, g: r + y * g).float(), torch.randn(2, 5, 24), torch.randn(2, 5, 40)
        def answer(call):  # autocast itself keeps what it cast until it ends
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                return call(x, r)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            want = model(x, r)
            got, report = self.compiled(model, x, r, replace=["linear"])
            self.assertEqual([(call.call, call.replaced) for call in report.calls], [("linear, LayerScale and residual (autocast)", True)])
            self.expect_close(got, want)
            self.assertEqual(self.launched[-1], "linear bf16 m=10 n=40 k=24 bias scale params=fp32 residual out=fp32")
            self.assertNotIn("to", [node for node in without_inductor.calls if isinstance(node, str)])
        compiled = vitune.compile(model, replace="linear")
        for factor in (1, -1, 2):
            with torch.no_grad():
                model.layer.weight.mul_(factor)
            self.expect_close(answer(compiled), answer(model))


@unittest.skipIf(timm is None, "timm is not installed")
class ModelTest(LinearCase):
    def count(self, model, x, bound=0.06, **keywords):
        found = {}
        for call in self.fused(model, x, bound=bound, **keywords):
            self.assertTrue(call.replaced, call)
            found[call.call] = found.get(call.call, 0) + 1
        return found

    def test_a_vit(self):
        found = self.count(vit().bfloat16(), bf16(2, 3, 32, 32))
        self.assertEqual(found, {"patch embedding": 1, "layer_norm and linear": 2, "linear and residual": 4,
                                 "layer_norm, linear and gelu": 2, "linear": 1})
        self.assertFalse({F.linear, F.gelu, torch.conv2d} & set(without_inductor.calls))
        self.assertEqual(without_inductor.calls.count(F.layer_norm), 1)  # before the head, of class tokens alone

    def test_tokens_without_a_class_are_laid_out_once(self):
        model = vit(class_token=False, global_pool="avg").bfloat16()
        targets, operands = [], []

        def keep(module, inputs, config_patches=None):
            ours = [node for node in module.graph.nodes if node.target is torch.ops.vitune.linear_or_torch.default]
            targets.append([node.target for node in module.graph.nodes])
            operands.append([match_module.value_of(each) for node in ours for each in (node.args[0], node.args[4]) if each is not None])
            return without_inductor(module, inputs, config_patches)
        with mock.patch.object(backend, "compile_fx", keep):
            calls = self.fused(model, bf16(2, 3, 32, 32), bound=0.06)
        self.assertTrue(all(call.replaced for call in calls), calls)
        self.assertGreater(len(operands[0]), targets[0].count(torch.ops.vitune.linear_or_torch.default))
        self.assertEqual({value.stride(-1) for value in operands[0]}, {1})
        with mock.patch.object(backend, "compile_fx", keep), torch.no_grad():
            torch._dynamo.reset()
            self.compiled(model, bf16(2, 3, 32, 32), replace=[])
        self.assertNotIn("contiguous", targets[1])

    def test_dinov2_has_layer_scale(self):
        model = timm.create_model("vit_small_patch14_dinov2", img_size=28, depth=2, init_values=0.5).eval()
        found = self.count(model.bfloat16(), bf16(2, 3, 28, 28))
        self.assertEqual(found, {"patch embedding": 1, "layer_norm and linear": 2, "linear, LayerScale and residual": 4,
                                 "layer_norm, linear and gelu": 2})

    def test_images_that_are_no_whole_number_of_patches(self):
        model = timm.create_model("vit_small_patch14_dinov2", img_size=(33, 30), depth=1).eval()
        found = self.count(model.bfloat16(), bf16(2, 3, 33, 30))
        self.assertEqual(found["patch embedding"], 1)
        self.assertNotIn(torch.conv2d, without_inductor.calls)
        self.assertIn("linear bf16 m=8 n=384 k=592 bias", self.launched)  # 588 pixels, rows of 16 bytes

    def test_a_position_embedding_of_the_patches_alone(self):
        model = timm.create_model("deit3_small_patch16_224", img_size=32, depth=1).eval()
        found = self.count(model.bfloat16(), bf16(2, 3, 32, 32))
        self.assertEqual(found["patch embedding and residual"], 1)
        self.assertIn("linear bf16 m=8 n=384 k=768 bias residual period=4", self.launched)

    def test_beit_makes_its_bias_of_two(self):
        model = timm.create_model("beit_base_patch16_224", img_size=32, embed_dim=64, depth=1, num_heads=1).eval()
        for parameter in (model.blocks[0].attn.q_bias, model.blocks[0].attn.v_bias):
            nn.init.normal_(parameter)
        found = self.count(model.bfloat16(), bf16(2, 3, 32, 32))
        self.assertEqual(found, {"patch embedding": 1, "layer_norm and linear": 1, "linear, LayerScale and residual": 2,
                                 "layer_norm, linear and gelu": 1, "linear": 1})

    def test_swins_blocks(self):
        model = timm.create_model("swin_tiny_patch4_window7_224", img_size=56, depths=(2, 1), embed_dim=32, num_heads=(1, 2)).eval()
        found = self.count(model.bfloat16(), bf16(2, 3, 56, 56))
        self.assertEqual(found, {"patch embedding": 1, "linear": 7, "layer_norm, linear and gelu": 3, "linear and residual": 3,
                                 "layer_norm and linear": 1})  # the last one merges patches

    @unittest.skipIf(transformers is None, "transformers is not installed")
    def test_a_vit_of_transformers(self):
        config = transformers.ViTConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, image_size=32)
        model = transformers.ViTModel(config, add_pooling_layer=False).eval().bfloat16()

        class Answer(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, x):
                return self.model(x).last_hidden_state
        found = self.count(Answer(), bf16(2, 3, 32, 32))
        self.assertEqual(found, {"patch embedding": 1, "linear": 6, "linear and residual": 4, "layer_norm, linear and gelu": 2})

    def test_a_model_under_autocast(self):
        model, x = vit(), torch.randn(2, 3, 32, 32)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            want = model(x)
            got, report = self.compiled(model, x, replace=["linear"])
        self.expect_close(got, want)
        calls = [call for call in report.calls if call.operator == "linear"]
        self.assertEqual([call.call for call in calls if not call.replaced], [])
        self.assertEqual(sum(call.call == "linear and gelu (autocast)" for call in calls), 2)
        self.assertEqual(report.graphs[0].error, "")

    def test_attention_is_replaced_beside_it(self):
        model, x = vit().bfloat16(), bf16(2, 3, 32, 32)
        with torch.no_grad():
            got, report = self.compiled(model, x, replace=["linear", "attention"])
            self.expect_close(got, model(x), 0.06)
        self.assertEqual(sum(call.replaced for call in report.calls if call.operator == "attention"), 2)


class InductorTest(LinearCase):
    """With Inductor itself."""

    def setUp(self):
        super().setUp()
        from torch._inductor.compile_fx import compile_fx

        backend.compile_fx = compile_fx  # its patch ends with the test
        counters.clear()

    def hits(self):
        return counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]

    def test_prepared_weights_are_inputs_that_inductors_cache_knows(self):
        x = bf16(2, 5, 32)
        nearest = linear_pattern.selected
        # The key of a kernel that is compiled at its first call is not known before.
        selected = mock.patch.object(linear_pattern, "selected", lambda *a: dataclasses.replace(nearest(*a), kernel_key="test"))
        with torch.no_grad(), selected, torch._inductor.utils.fresh_cache(), torch._inductor.config.patch(fx_graph_cache=True):
            for model in (Mlp(), Mlp()):
                torch._dynamo.reset()
                counters.clear()
                compiled = vitune.compile(model, fullgraph=True, replace="linear")
                self.expect_close(compiled(x), model(x), 0.06)
                model.layer.weight.mul_(-1)
                self.expect_close(compiled(x), model(x), 0.06)
            self.assertEqual(len(self.launched), 4)
            self.assertGreater(self.hits(), 0)  # of the second model, which has weights of its own

    def test_they_are_static_as_parameters_are(self):
        seen = []

        def inner(module, inputs, **keywords):
            seen.append((len(inputs), list(torch._guards.TracingContext.get().fw_metadata.static_input_indices)))
            return compile_fx_inner(module, inputs, **keywords)
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner
        backend.compile_fx = lambda module, inputs, config_patches: compile_fx(module, inputs, inner, config_patches)
        with torch.no_grad(), torch._inductor.utils.fresh_cache():
            vitune.compile(Mlp(), replace="linear")(bf16(3, 32))
        (count, static), = seen
        self.assertEqual((count, len(static)), (8, 7))  # x is not; four parameters and what was made of them are


if __name__ == "__main__":
    unittest.main()
