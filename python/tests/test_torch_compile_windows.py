# python/tests/test_torch_compile_windows.py -- vitune.compile() on models that attend in windows: what is left of their copies.
# SPDX-License-Identifier: Apache-2.0
"""Launches go to the emulated device; aot_eager stands in for Inductor, which is not what is tested."""
import collections
import dataclasses
import unittest
import warnings
from unittest import mock

import vitune

from .support import FOLDER, OPERATORS, needs_device, needs_torch, torch
from .test_torch_host import TorchTest

if torch is not None:
    import torch.nn.functional as F
    from torch import nn
    from torch._dynamo.backends.debugging import aot_eager

    from vitune._compile import backend
    from vitune._compile.patterns import attention as attention_pattern, benchmark, every, layouts, linear as linear_pattern, windows as windows_pattern
    from vitune._ops import (attention as attention_ops, linear as linear_ops, repeating_mask,
                             window_attention as window_attention_ops)
    from vitune._runtime import command as _command

    from .test_torch_compile import ONE_BY_ONE
    from .test_torch_linear import launch_staged as launch_linear_staged
    from .test_torch_windows import launch_windows_staged

try:
    import timm
except ImportError:
    timm = None


def served_by_nearest(problem, device):
    """As if a winner of another problem served what is asked."""
    query = vitune.Problem(problem) if isinstance(problem, str) else problem
    return dataclasses.replace(attention_ops.context_of(device).query(query), outcome="nearest")


def partition(x, size):
    """As timm's window_partition()."""
    images, rows, columns, channels = x.shape
    x = x.view(images, rows // size, size, columns // size, size, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, channels)


def reverse(x, size, rows, columns):
    """As timm's window_reverse()."""
    x = x.view(-1, rows // size, columns // size, size, size, x.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, rows, columns, x.shape[-1])


if torch is not None:
    class Block(nn.Module):
        """A block of Swin as short as can be; `between` sees the windows on their way."""

        def __init__(self, size=2, shift=1, pads_first=False):
            super().__init__()
            self.qkv, self.proj = nn.Linear(32, 96), nn.Linear(32, 32)
            self.size, self.shift, self.pads_first = size, shift, pads_first
            self.bias = nn.Parameter(torch.randn(1, 2, size * size, size * size))

        def between(self, x, windows):
            return windows

        def mask(self, batch):
            return self.bias

        def split(self, qkv):
            return qkv.reshape(-1, self.size ** 2, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)

        def forward(self, x):
            rows, columns = x.shape[1:3]
            pads = (0, 0, 0, -columns % self.size, 0, -rows % self.size)
            back = self.shift, self.shift
            moved = x
            for move in "pr" if self.pads_first else "rp":
                moved = F.pad(moved, pads) if move == "p" else torch.roll(moved, (-self.shift, -self.shift), (1, 2))
            windows = self.between(x, partition(moved, self.size))
            q, k, v = self.split(self.qkv(windows))
            out = F.scaled_dot_product_attention(q, k, v, self.mask(q.shape[0]))
            out = self.proj(out.transpose(1, 2).reshape(windows.shape))
            out = reverse(out, self.size, rows + pads[5], columns + pads[3])
            if self.pads_first:
                return torch.roll(out, back, (1, 2))[:, :rows, :columns].contiguous()
            return torch.roll(out[:, :rows, :columns].contiguous(), back, (1, 2))


@needs_device
@needs_torch
class CompileWindowsCase(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.context = vitune.Context(0, database=FOLDER / "no_winners.db", shipped_database="")
        op = window_attention_ops.window_attention_op
        op.register_kernel("cpu")(op._init_fn)

    @classmethod
    def tearDownClass(cls):
        cls.context.close()

    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.graphs = []
        for module, name, value in (
                (attention_ops, "context_of", lambda device: self.context), (window_attention_ops, "launch", launch_windows_staged),
                (windows_pattern, "selected", served_by_nearest), (backend, "compile_fx", self.without_inductor),
                (every, "PATTERNS", ONE_BY_ONE)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def without_inductor(self, module, inputs, config_patches=None):
        self.graphs.append([node for node in module.graph.nodes if node.op.startswith("call")])
        self.orders = {node: windows_pattern._order_of(node) for node in self.graphs[-1]}  # values go once it is compiled
        return aot_eager(module, inputs)

    def left(self, name):
        """Calls of a function or method of this name in the last graph."""
        return sum(getattr(node.target, "__name__", node.target) == name for node in self.graphs[-1])

    def compiled(self, model, x, bound=0.02, **keywords):
        """Expects the model's answers, the right ones; the calls that attend."""
        model = model.eval()
        with torch.inference_mode():
            want = model.float()(x.float())
            compiled = vitune.compile(model.bfloat16(), fullgraph=True, **keywords)
            got = compiled(x)
        self.assertLess((got.float() - want).abs().max().item(), bound * max(1.0, want.abs().max().item()))
        report = vitune.report(compiled)
        self.assertEqual(report.graphs[0].error, "")
        return [call for call in report.calls if call.operator in ("attention", "window_attention")]

    def expect_no_copy(self, patches=0):
        """Of windows; patch embeddings, `patches` of them, move pixels as the partition into a grid does."""
        for name in ("roll", "scaled_dot_product_attention", "softmax"):
            self.assertEqual(self.left(name), 0, name)
        moves = (windows_pattern._BLOCK, windows_pattern._GRID, windows_pattern._GRID_BACK)
        found = [node for node in self.graphs[-1] if self.orders[node] in moves]
        embeds = [node for node in found if all(next(iter(user.users)).target is torch.ops.vitune.linear_or_torch.default for user in node.users)]
        self.assertEqual((len(found), len(embeds)), (patches, patches), found)

    def expect_windows(self, model, x, problems, **keywords):
        """Expects that each of these attends in place, and that no copy is left."""
        calls = self.compiled(model, x, **keywords)
        self.assertEqual([(call.operator, call.replaced, call.reason) for call in calls], [("window_attention", True, "")] * len(problems))
        served = [call.selection.problem.removeprefix("window_attention bf16 ") for call in calls]
        self.assertEqual(served, problems)
        self.expect_no_copy()
        self.assertEqual(vitune.torch.stats().served, len(problems))


class CompileWindowsTest(CompileWindowsCase):
    @unittest.skipIf(timm is None, "timm is not installed")
    def test_swin_keeps_no_copy_of_its_windows(self):
        problems = ["b=2 image=14x14 window=7x7 h=1 d=32 bias=bf16:1x1x49x49",
                    "b=2 image=14x14 window=7x7 shift=3x3 h=1 d=32 bias=bf16:4x1x49x49",
                    "b=2 image=7x7 window=7x7 h=2 d=32 bias=bf16:1x2x49x49"]
        x = torch.randn(2, 3, 56, 56, dtype=torch.bfloat16)
        for fused, dynamic in ((True, None), (True, True), (False, None)):
            with self.subTest(fused=fused, dynamic=dynamic):
                torch._dynamo.reset()
                vitune.torch.reset_stats()
                with mock.patch("timm.models.swin_transformer.use_fused_attn", lambda experimental: fused):
                    model = timm.create_model("swin_tiny_patch4_window7_224", img_size=56, depths=(2, 1), embed_dim=32, num_heads=(1, 2))
                nn.init.normal_(next(p for name, p in model.named_parameters() if "relative_position" in name))
                self.expect_windows(model, x, problems, dynamic=dynamic)
                self.assertEqual(self.left("contiguous"), 3)  # of the relative positions' biases

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_padding_is_what_the_projection_makes_of_zeros(self):
        model = timm.models.swin_transformer.SwinTransformerBlock(32, (9, 5), 2, window_size=4, shift_size=2, always_partition=True)
        nn.init.normal_(model.attn.qkv.bias)
        x = torch.randn(2, 9, 5, 32, dtype=torch.bfloat16)
        self.expect_windows(model, x, ["b=2 image=9x5 window=4x4 shift=2x2 h=2 d=16 padding bias=bf16:6x2x16x16"], bound=0.03)

    def test_images_that_are_padded_before_they_are_rolled(self):
        x = torch.randn(2, 5, 7, 32, dtype=torch.bfloat16)
        self.expect_windows(Block(pads_first=True), x, ["b=2 image=5x7 window=2x2 shift=1x1 h=2 d=16 padding pad_first "
                                                        "bias=bf16:1x2x4x4"])

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_blocks_and_grids_of_maxvit_and_groups_of_twins(self):
        from timm.models.maxxvit import MaxxVitTransformerCfg, PartitionAttentionCl
        from timm.models.twins import LocallyGroupedAttn
        x = torch.randn(2, 8, 6, 32, dtype=torch.bfloat16)
        for kind, head_first in (("block", False), ("grid", True)):
            with self.subTest(kind):
                torch._dynamo.reset()
                vitune.torch.reset_stats()
                cfg = MaxxVitTransformerCfg(dim_head=16, window_size=(4, 2), grid_size=(4, 2), head_first=head_first, rel_pos_type="bias")
                words = " layout=interleaved" * head_first + " grid" * (kind == "grid")
                self.expect_windows(PartitionAttentionCl(32, kind, cfg), x, [f"b=2 image=8x6 window=4x2 h=2 d=16{words} "
                                                                            "bias=bf16:1x2x8x8"], bound=0.03)

        class Twins(nn.Module):
            def __init__(self):
                super().__init__()
                self.attn = LocallyGroupedAttn(32, 2, ws=3)

            def forward(self, x):
                return self.attn(x, (7, 6))
        torch._dynamo.reset()
        vitune.torch.reset_stats()
        self.expect_windows(Twins(), torch.randn(2, 42, 32, dtype=torch.bfloat16), ["b=2 image=7x6 window=3x3 h=2 d=16 padding"])

    def expect_left(self, model, x, reason):
        calls = self.compiled(model, x)
        windows = [call for call in calls if call.operator == "window_attention"]
        self.assertEqual([call.replaced for call in windows], [False] * bool(reason))
        if reason:
            self.assertRegex(windows[0].reason, reason)
        self.assertEqual((self.left("roll"), self.left("window_attention.default")), (2, 0))
        return calls

    def test_what_cannot_be_in_place_is_left_with_the_reason(self):
        x = torch.randn(2, 4, 6, 32, dtype=torch.bfloat16)

        class Used(Block):
            def forward(self, x):
                rows = partition(torch.roll(x, (-1, -1), (1, 2)), 2)
                q, k, v = self.qkv(rows).reshape(-1, 4, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
                out = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows.shape))
                return torch.roll(reverse(out, 2, *x.shape[1:3]), (1, 1), (1, 2)) + rows.view(x.shape)

        class Bool(Block):
            def mask(self, batch):
                return self.bias > -9

        class EachImage(Block):
            def mask(self, batch):
                return self.bias.repeat(batch, 1, 1, 1)

        class Changed(Block):
            def forward(self, x):
                x = x.clone()
                rows = partition(torch.roll(x, (-1, -1), (1, 2)), 2)
                x.mul_(2)
                q, k, v = self.qkv(rows).reshape(-1, 4, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
                out = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows.shape))
                return torch.roll(reverse(out, 2, *x.shape[1:3]), (1, 1), (1, 2)) + x

        class Other(Block):  # not rolled back by as much
            def forward(self, x):
                rows = partition(torch.roll(x, (-1, -1), (1, 2)), 2)
                q, k, v = self.qkv(rows).reshape(-1, 4, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
                out = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows.shape))
                return torch.roll(reverse(out, 2, *x.shape[1:3]), (1, 2), (1, 2))

        class Mixed(Block):  # a norm over what is next to each other in a window
            def between(self, x, windows):
                return windows - windows.mean(1, keepdim=True)

        class Normed(Block):  # SwinV2's
            def split(self, qkv):
                q, k, v = super().split(qkv)
                return F.normalize(q, dim=-1), F.normalize(k, dim=-1), v

        class Mixing(Block):
            def split(self, qkv):
                return super().split(qkv)[::-1]
        for model, reason in ((Used(), "used elsewhere"), (Bool(), "of bool"), (EachImage(), "not one for all images"),
                              (Changed(), "changes a tensor"), (Other(), "does not go back"), (Mixed(), ""), (Normed(), "no views"),
                              (Mixing(), "not \\[3, heads, d\\]")):
            with self.subTest(type(model).__name__):
                torch._dynamo.reset()
                self.expect_left(model, x, reason)

    def test_what_was_never_tuned_in_place_attends_as_before(self):
        def never(text, device):
            return self.context.query(vitune.Problem(text))
        x = torch.randn(2, 4, 6, 32, dtype=torch.bfloat16)
        with mock.patch.object(windows_pattern, "selected", never), mock.patch.object(attention_pattern, "selected", served_by_nearest):
            calls = self.expect_left(Block(), x, "never tuned")
        self.assertEqual([(call.operator, call.replaced) for call in calls], [("window_attention", False), ("attention", True)])

    def test_it_is_raced_against_attention_alone(self):
        raced, x = [], torch.randn(2, 4, 6, 32, dtype=torch.bfloat16)

        def race(ours, theirs, device):
            raced.append((ours(), theirs()))
            return benchmark.Times(20.0, 10.0)
        with mock.patch.object(benchmark, "can_race", lambda device: True), mock.patch.object(benchmark, "race", race):
            self.expect_left(Block(), x, "attention alone was faster when both were timed here")
        ours, theirs = raced[0]
        self.assertEqual((tuple(ours.shape), tuple(theirs.shape)), ((2, 4, 6, 2, 16), (12, 2, 4, 16)))
        self.assertTrue(ours.isfinite().all() and ours.std() > 0.05)


if torch is not None:
    class Encoder(Block):
        """A block as models have it: a norm before attention, the residual behind it, and a part of the feed-forward network."""

        def __init__(self, is_sequence=False, **keywords):
            super().__init__(**keywords)
            self.norm1, self.norm2, self.fc = nn.LayerNorm(32), nn.LayerNorm(32), nn.Linear(32, 48)
            self.is_sequence = is_sequence
            for norm in (self.norm1, self.norm2):
                nn.init.normal_(norm.weight, 1.0, 0.3)

        def forward(self, x):
            if not self.is_sequence:
                x = x + super().forward(self.norm1(x))
            else:  # Twins and DaViT keep [B, N, C]
                shape, x = x.shape, x.flatten(1, 2)
                x = x + super().forward(self.norm1(x).view(shape)).reshape(x.shape)
            return F.gelu(self.fc(self.norm2(x)))


@unittest.skipIf(OPERATORS, "linear layers are not the operators' library's: once is enough")
class LayersCase(CompileWindowsCase):
    """What the patterns of linear layers find once windows are in place."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for op in (linear_ops.linear_or_torch_op, repeating_mask.attention_repeating_mask_op):
            op.register_kernel("cpu")(op._init_fn)

    def setUp(self):
        super().setUp()
        for module, name, value in ((linear_ops, "launch", launch_linear_staged), (linear_pattern, "selected", served_by_nearest),
                                    (attention_pattern, "selected", served_by_nearest)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def report(self, model, x, bound=0.03, **keywords):
        """That of a compiled model, after its answers were compared with those in fp32."""
        model = model.eval()
        with torch.inference_mode():
            want = model(x.float())
        model.bfloat16()
        with torch.inference_mode():
            compiled = vitune.compile(model, fullgraph=True, replace=["attention", "window_attention", "linear"], **keywords)
            got = compiled(x)
        self.assertLess((got.float() - want).abs().max().item(), bound * max(1.0, want.abs().max().item()))
        report = vitune.report(compiled)
        self.assertEqual([graph.error for graph in report.graphs], [""])
        return report

    @staticmethod
    def replaced(report):
        return [(call.module, call.call) for call in report.calls if call.replaced]


class LayersAroundWindowsTest(LayersCase):
    def test_norm_and_residual_around_a_window_are_taken(self):
        wanted = [("qkv", "layer_norm and linear"), ("proj", "linear and residual"), ("fc", "layer_norm, linear and gelu")]
        for words in ({}, {"is_sequence": True}, {"size": 3}, {"size": 4, "pads_first": True}):
            for is_dynamic in (False, True):
                with self.subTest(is_dynamic=is_dynamic, **words):
                    torch._dynamo.reset()
                    vitune.torch.reset_stats()
                    x = torch.randn(2, 4, 6, 32, dtype=torch.bfloat16)
                    if is_dynamic:
                        torch._dynamo.mark_dynamic(x, 0)
                    report = self.report(Encoder(**words), x)
                    attends, *layers = self.replaced(report)
                    self.assertEqual(attends[1], "scaled_dot_product_attention in windows of an image")
                    self.assertEqual(layers, wanted)
                    self.assertEqual((self.left("linear"), self.left("layer_norm"), self.left("linear_or_torch.default")), (0, 0, 3))
                    self.expect_no_copy()
                    self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_autocast_of_a_part_of_the_model(self):
        class Cast(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = Encoder()

            def forward(self, x):
                with torch.autocast("cpu", torch.bfloat16):
                    return self.encoder(x)
        model, x = Cast().eval(), torch.randn(2, 4, 6, 32)
        with torch.inference_mode():
            want = model(x)
            compiled = vitune.compile(model, fullgraph=True, replace=["window_attention", "linear"])
            got = compiled(x)
        self.assertEqual(got.dtype, want.dtype)
        self.assertLess((got.float() - want.float()).abs().max().item(), 0.06)
        report = vitune.report(compiled)
        self.assertEqual(report.graphs[0].error, "")
        self.assertEqual(self.replaced(report)[1:], [
            ("encoder.qkv", "linear (autocast)"), ("encoder.proj", "linear and residual (autocast)"), ("encoder.fc", "linear and gelu (autocast)")])
        self.assertEqual((self.left("roll"), self.left("linear")), (0, 0))

    def test_layers_are_looked_at_where_windows_stay(self):
        def refused(text, device):
            raise vitune.Unsupported("of the test")
        x = torch.randn(2, 4, 6, 32, dtype=torch.bfloat16)
        with mock.patch.object(windows_pattern, "selected", refused):
            report = self.report(Encoder(), x)
        self.assertEqual([call for _, call in self.replaced(report)],
                         ["linear", "scaled_dot_product_attention", "linear", "layer_norm, linear and gelu"])
        self.assertEqual(self.left("roll"), 2)

    def test_layers_that_cannot_be_traced_leave_windows_in_place(self):
        x = torch.randn(2, 4, 6, 32, dtype=torch.bfloat16)
        check = layouts.Layouts.check

        def second_fails(layouts, ours):
            check(layouts, ours)
            if any(node.target is torch.ops.vitune.linear_or_torch.default for node in ours):
                raise RuntimeError("of the test")
        model = Encoder().eval().bfloat16()
        with torch.inference_mode(), mock.patch.object(layouts.Layouts, "check", second_fails):
            compiled = vitune.compile(model, fullgraph=True, replace=["window_attention", "linear"])
            got = compiled(x)
            self.assertLess((got.float() - model(x).float()).abs().max().item(), 0.1)
        report = vitune.report(compiled)
        self.assertEqual([call.operator for call in report.calls if call.replaced], ["window_attention"])
        self.assertIn("RuntimeError: of the test", report.graphs[0].error)
        self.assertEqual((self.left("roll"), self.left("linear"), self.left("linear_or_torch.default")), (0, 3, 0))
        self.assertIn("cannot be traced", [call.reason for call in report.calls if call.operator == "linear"][0])


@unittest.skipIf(timm is None, "timm is not installed")
class WholeModelsTest(LayersCase):
    """Models of timm as they are, their norms folded whatever the rows. No kernel is launched: PyTorch answers each call, as it does
    where none serves."""

    def setUp(self):
        super().setUp()
        folded = mock.patch.object(linear_pattern, "_MOST_FOLDED", 1 << 30)
        folded.start()
        self.addCleanup(folded.stop)
        for module, name in ((linear_ops, "launch"), (window_attention_ops, "launch"), (attention_ops, "run")):
            patch = mock.patch.object(module, name, side_effect=vitune.Unsupported("of the test"))
            patch.start()
            self.addCleanup(patch.stop)
        warnings.simplefilter("ignore", vitune.torch.FallbackWarning)
        self.addCleanup(warnings.resetwarnings)

    def taken(self, name, size=224):
        """How often each call is replaced; which are left, but for norms on their own, and why. Expects that --model takes what is
        asked of windows."""
        report = self.report(timm.create_model(name), torch.randn(2, 3, size, size, dtype=torch.bfloat16))
        asked = collections.Counter(call.selection.problem for call in report.calls if call.operator == "window_attention" and call.replaced)
        if asked:
            command = ["models", "--problems", name, "--batch", "2", "--operator", "window_attention"]
            known = _command.run_json(command, True)["problems"]
            self.assertEqual({entry["problem"]: entry["calls"] for entry in known}, asked)
        left = {(call.call, call.reason) for call in report.calls if not call.replaced and call.operator != "norm"}
        return collections.Counter(call for _, call in self.replaced(report)), left

    def test_all_of_swin_t(self):
        for fused, attends in ((True, "scaled_dot_product_attention"), (False, "softmax between two products")):
            with self.subTest(fused=fused), mock.patch("timm.models.swin_transformer.use_fused_attn", lambda experimental: fused):
                torch._dynamo.reset()
                taken, left = self.taken("swin_tiny_patch4_window7_224")
                self.assertEqual((taken, left), ({
                    f"{attends} in windows of an image": 12, "patch embedding": 1,
                    "layer_norm and linear": 12 + 3,  # q, k and v, and the reductions of merged patches
                    "linear and residual": 12 + 12, "layer_norm, linear and gelu": 12, "linear": 1}, set()))
                self.expect_no_copy(patches=1)
                self.assertEqual([self.left(name) for name in ("window_attention.default", "linear_or_torch.default", "linear", "conv2d", "gelu",
                                                               "layer_norm")], [12, 53, 0, 0, 0, 2])

    def test_all_of_maxvit(self):
        taken, left = self.taken("maxvit_tiny_tf_224")
        self.assertEqual((taken, left), ({
            "scaled_dot_product_attention in windows of an image": 22, "layer_norm and linear": 22, "linear and residual": 44,
            "layer_norm, linear and gelu_tanh": 22, "linear": 2}, set()))
        self.expect_no_copy()
        self.assertEqual((self.left("window_attention.default"), self.left("linear")), (22, 0))

    def test_all_of_twins(self):
        taken, left = self.taken("twins_svt_small")
        self.assertEqual(left, set())
        self.assertEqual((taken["scaled_dot_product_attention in windows of an image"], taken["scaled_dot_product_attention"]), (9, 9))
        self.assertEqual(taken["layer_norm and linear"], 9 + 7)  # with windows; keys and values of fewer rows
        self.expect_no_copy(patches=4 + 7)  # of stages, and of keys and values

    def test_swin_v2_says_why_its_windows_are_copied(self):
        taken, left = self.taken("swinv2_tiny_window8_256", 256)
        self.assertEqual(left, {("softmax between two products in windows of an image",
                                 "q, k and v are no views of one layer's result: they are of several, or are changed on the way")})
        self.assertEqual((taken["softmax between two products"], self.left("roll")), (12, 2 * 5))


if __name__ == "__main__":
    unittest.main()
