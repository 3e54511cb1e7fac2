# python/tests/test_torch_compile_attention_train.py -- vitune.compile() on models whose attention trains: what is found, losses and gradients, the race.
# SPDX-License-Identifier: Apache-2.0
"""As test_torch_compile_train.py: on a CPU, by name, aot_eager in the place of Inductor."""
import copy
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("attention that trains is not the operators' library's: once is enough")

import torch.nn.functional as F
from torch import nn

from vitune._compile import checkpoints
from vitune._compile.patterns import attention_train, benchmark, every
from vitune._ops import attention as attention_ops, attention_training as training

from . import test_torch_compile_train as linear_case, test_torch_compile_train_race as race_case, torch_staged
from .test_torch_attention_train import KNOWS_GRADIENTS, launch_staged
from .test_torch_compile_train import Checkpointed, Inside, OPS, autocast, step, timm, vit

CALL = "scaled_dot_product_attention in training"
PACKED, APART = OPS.attention_qkv_train.default, OPS.attention_train.default


class AttentionCase(linear_case.TrainCase):
    operator = "attention_train"

    def compile_fx(self, module, inputs, config_patches=None):
        graphs = [module, *checkpoints.bodies(module)]
        self.attends = [node.target for each in graphs for node in each.graph.nodes if node.target in (PACKED, APART)]
        return super().compile_fx(module, inputs, config_patches)

    def expect_attends(self, want, model, x, bound=1e-5, **keywords):
        calls = self.expect_eagers(model, x, bound, **keywords)
        self.assertEqual(self.attends if want else [], want, calls)
        self.assertEqual([call.replaced for call in calls], [True] * len(want) or [False] * len(calls))
        return calls


class Attends(nn.Module):
    """Layers around a call: `attend` is given q, k and v, [B, H, N, D], and the model."""

    def __init__(self, attend, heads=2, kv_heads=None, d=8, fused=True, bias=None):
        super().__init__()
        torch.manual_seed(4)
        self.attend, self.heads, self.kv_heads, self.d, self.fused = attend, heads, kv_heads or heads, d, fused
        width = heads * d
        sizes = [3 * width] if fused else [width, self.kv_heads * d, self.kv_heads * d]
        self.layers = nn.ModuleList(nn.Linear(width, size, bias=place != 1) for place, size in enumerate(sizes))  # a bias of keys has no gradient
        self.proj = nn.Linear(width, width)
        self.bias = None if bias is None else nn.Parameter(torch.randn(bias))

    def forward(self, x):
        batch, rows, _ = x.shape
        if self.fused:
            q, k, v = self.layers[0](x).reshape(batch, rows, 3, self.heads, self.d).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q, k, v = (layer(x).view(batch, rows, -1, self.d).transpose(1, 2) for layer in self.layers)
        out = self.attend(q, k, v, self)
        return self.proj(out.transpose(1, 2).reshape(batch, rows, -1))


def plain(q, k, v, model, **words):
    return F.scaled_dot_product_attention(q, k, v, **words)


def with_bias(q, k, v, model):
    return F.scaled_dot_product_attention(q, k, v, model.bias)


def cosine(q, k, v, model):
    """As SwinV2 has it."""
    scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
    return (scores * model.bias.clamp(max=4.6).exp()).softmax(-1) @ v


def of_windows(q, k, v, model):
    """Scores of two windows of each image, with the windows' masks, as Swin without a fused call has them."""
    windows = torch.where(torch.arange(50).view(2, 5, 5) % 3 == 1, -100.0, 0.0)
    scores = (q @ k.transpose(-2, -1)) * 0.3 + model.bias
    scores = (scores.view(-1, 2, 2, 5, 5) + windows.unsqueeze(1).unsqueeze(0)).view(-1, 2, 5, 5)
    return scores.softmax(-1) @ v


def x_of(batch=2, rows=5, width=16, **keywords):
    return torch.randn(batch, rows, width, **keywords)


def swin():
    """With timm's fused attention, which it calls an experiment."""
    torch.manual_seed(0)
    model = timm.create_model("swin_tiny_patch4_window7_224", num_classes=4, img_size=56, embed_dim=16, depths=(2,), num_heads=(2,)).train()
    for block in model.layers[0].blocks:
        block.attn.fused_attn = True
    return model


def swin_v2():
    """Two blocks, of which the second one shifts its windows."""
    torch.manual_seed(0)
    return timm.create_model("swinv2_tiny_window8_256", num_classes=4, img_size=64, embed_dim=16, depths=(2,), num_heads=(2,)).train()


@unittest.skipIf(timm is None, "timm is not installed")
class TimmTest(AttentionCase):
    def test_loss_and_gradients_of_a_vit_are_eager_modes_in_each_type(self):
        x = torch.randn(3, 3, 32, 32)
        self.expect_attends([PACKED] * 2, vit(), x)
        self.expect_attends([PACKED] * 2, vit(), x, 2e-2, on=True)
        self.expect_attends([PACKED] * 2, Inside(vit()), x, 2e-2)
        self.expect_attends([PACKED] * 2, vit().bfloat16(), x.bfloat16(), 4e-2)

    def test_all_of_a_block_trains_together(self):
        calls = self.expect_attends([PACKED] * 2, vit(init_values=None), torch.randn(3, 3, 32, 32), 2e-2, on=True,
                                    replace=["norm_train", "linear_train", "attention_train"])
        self.assertEqual(len(self.targets), 5 + 4 + 2 * 2 + 1)
        self.assertEqual({call.module for call in calls}, {"blocks.0.attn", "blocks.1.attn"})

    def test_checkpointed_blocks_train(self):
        model = vit()
        model.set_grad_checkpointing()
        self.expect_attends([PACKED] * 2, model, torch.randn(2, 3, 32, 32), 2e-2, on=True)

    def test_models_with_biases_of_relative_positions_train_their_tables(self):
        small = {"num_classes": 4, "embed_dim": 32, "depth": 1, "num_heads": 2}
        models = {"beit": (lambda: timm.create_model("beit_base_patch16_224", img_size=32, **small), [PACKED], 32),
                  "swin": (swin, [PACKED] * 2, 56), "swin v2": (swin_v2, [APART] * 2, 64),
                  "dinov2": (lambda: timm.create_model("vit_small_patch14_reg4_dinov2", img_size=28, **small), [PACKED], 28)}
        for name, (make, want, size) in models.items():
            with self.subTest(name):
                torch.manual_seed(0)
                model = make().train()
                for parameter in (p for n, p in model.named_parameters() if n.endswith("bias_table")):
                    nn.init.normal_(parameter)
                self.expect_attends(want, model, torch.randn(2, 3, size, size), 1e-4)


class PatternTest(AttentionCase):
    def test_what_is_found_and_how_it_is_asked_for(self):
        masks = {"a mask": torch.rand(5, 5) < 0.7, "of keys": torch.rand(2, 1, 1, 5) < 0.7, "added": torch.randn(5, 5)}
        for mask in masks.values():
            mask[..., 0] = 1
        cases = {"views": (Attends(plain), PACKED), "causal": (Attends(lambda q, k, v, model: plain(q, k, v, model, is_causal=True)), PACKED),
                 "a scale": (Attends(lambda q, k, v, model: plain(q, k, v, model, scale=0.2)), PACKED),
                 "layers apart": (Attends(plain, fused=False), APART),
                 "a rotation": (Attends(lambda q, k, v, model: plain(q.sin(), k, v, model)), APART),
                 "turned round": (Attends(lambda q, k, v, model: plain(k, q, v, model)), APART),
                 "one frozen": (Attends(lambda q, k, v, model: plain(q, k.detach(), v, model)), APART),
                 "grouped heads": (Attends(lambda q, k, v, model: plain(q, k, v, model, enable_gqa=True), 4, 2, fused=False), APART),
                 "a bias": (Attends(with_bias, bias=(1, 2, 5, 5)), PACKED), "a bias of keys": (Attends(with_bias, bias=(1, 1, 1, 5)), PACKED),
                 "used besides": (Attends(lambda q, k, v, model: plain(q, k, v, model) + q), PACKED),
                 **{name: (Attends(lambda q, k, v, model, mask=mask: plain(q, k, v, model, attn_mask=mask)), PACKED)
                    for name, mask in masks.items()}}
        for name, (model, want) in cases.items():
            with self.subTest(name):
                self.expect_attends([want], model, x_of(width=model.heads * model.d))

    def test_chunks_of_a_projection_are_one_too(self):
        class Chunks(Attends):
            def forward(self, x):
                q, k, v = (each.view(2, 5, 2, 8).transpose(1, 2) for each in self.layers[0](x).chunk(3, dim=-1))
                return self.proj(plain(q, k, v, self).transpose(1, 2).flatten(2))
        self.expect_attends([PACKED], Chunks(plain), x_of())
        self.expect_attends([PACKED], Chunks(plain), x_of(), 2e-2, on=True)

    def test_a_projection_whose_batch_and_rows_are_others_is_not_the_calls(self):
        def frames(x, layers):  # [(clips frames), n, c]: attention sees clips
            q, k, v = (each.view(2, 10, 2, 8).transpose(1, 2) for each in layers(x).chunk(3, dim=-1))
            return plain(q, k, v, None).transpose(1, 2)

        def rows_first(x, layers):  # [n, 1, c]
            q, k, v = layers(x).view(5, 1, 3, 2, 8).permute(2, 1, 3, 0, 4).unbind(0)
            return plain(q, k, v, None).permute(2, 0, 1, 3)

        def image(x, layers):
            q, k, v = (each.reshape(2, 9, 2, 8).transpose(1, 2) for each in layers(x).view(2, 3, 3, 3, 16).unbind(3))
            return plain(q, k, v, None).transpose(1, 2)

        class Of(Attends):
            def forward(self, x):
                return self.proj(self.attend(x, self.layers[0]).reshape(x.shape))

        for attend, shape, want in ((frames, (4, 5, 16), [APART]), (rows_first, (5, 1, 16), [APART]), (image, (2, 3, 3, 16), [APART])):
            with self.subTest(attend.__name__):
                torch._dynamo.reset()
                self.expect_attends(want, Of(attend), torch.randn(shape))

    def test_what_stays_is_told(self):
        def written(q, k, v, model):
            mask = torch.zeros(5, 5)
            out = plain(q, k, v, model, attn_mask=mask)  # of which autocast has a copy
            mask.add_(out.sum())
            return out * mask.sum()
        cases = {"dropout beside a mask": lambda q, k, v, model: plain(q, k, v, model, dropout_p=0.1, attn_mask=torch.zeros(5, 5)),
                 "dropout_p of 0.001: it is rounded to 256ths": lambda q, k, v, model: plain(q, k, v, model, dropout_p=0.001),
                 "3, 3 and 3 dimensions": lambda q, k, v, model: plain(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), model).view(q.shape),
                 "they must have one batch": lambda q, k, v, model: plain(q, k[:1], v[:1], model),
                 "its heads are broadcast": lambda q, k, v, model: plain(q, k[:, :1], v[:, :1], model),
                 "and v one shape": lambda q, k, v, model: plain(q, k, v[..., :4], model).repeat(1, 1, 1, 2),
                 "is written to later": written}
        for reason, attend in cases.items():
            with self.subTest(reason):
                torch._dynamo.reset()
                compiled = vitune.compile(Attends(attend), replace=["attention_train"])
                step(compiled, x_of(), attend is written)
                calls = [call for call in vitune.report(compiled).calls if call.operator == "attention_train"]
                self.assertEqual([call.replaced for call in calls], [False])
                self.assertIn(reason, calls[0].reason)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            calls = self.expect_attends([], Attends(plain), x_of())
        self.assertEqual([call.reason for call in calls], [attention_ops.MATH_ALONE])

    def test_a_softmax_between_two_products_is_the_call_that_it_stands_for(self):
        cases = {"a factor": (Attends(lambda q, k, v, model: ((q @ k.transpose(-2, -1)) * 0.3).softmax(-1) @ v), PACKED),
                 "a divisor": (Attends(lambda q, k, v, model: ((q @ k.transpose(-2, -1)) / 3.0).softmax(-1) @ v), PACKED),
                 "queries scaled": (Attends(lambda q, k, v, model: ((q * 0.3) @ k.transpose(-2, -1)).softmax(-1) @ v), PACKED),
                 "a bias": (Attends(lambda q, k, v, model: ((q @ k.transpose(-2, -1)) * 0.3 + model.bias).softmax(-1) @ v, bias=(1, 2, 5, 5)), PACKED),
                 "a bias of three dimensions": (Attends(lambda q, k, v, model: (q @ k.transpose(-2, -1) + model.bias).softmax(-1) @ v, bias=(2, 5, 5)), PACKED),
                 "a bias of two": (Attends(lambda q, k, v, model: (q @ k.transpose(-2, -1) + model.bias).softmax(-1) @ v, bias=(5, 5)), PACKED),
                 "dropout of nothing": (Attends(lambda q, k, v, model: F.dropout((q @ k.transpose(-2, -1)).softmax(-1), 0.0) @ v), PACKED),
                 "a factor for each head": (Attends(cosine, bias=(2, 1, 1)), APART), "and windows": (Attends(of_windows, bias=(1, 2, 5, 5)), PACKED)}
        for name, (model, want) in cases.items():
            for on, bound in ((False, 1e-5), (True, 3e-2)):
                with self.subTest(name, autocast=on):
                    self.expect_attends([want], model, x_of(4), bound, on=on)

    def test_written_out_attention_that_stays(self):
        mask, windows = torch.zeros(5, 5), torch.randn(1, 2, 1, 5, 5)
        scores = lambda q, k: q @ k.transpose(-2, -1)  # noqa: E731

        def windows_of_images(q, k, v, model):
            return ((scores(q, k) + model.bias).view(-1, 2, 2, 5, 5) + windows).view(-1, 2, 5, 5).softmax(-1) @ v
        cases = {"its weights or scores are used elsewhere": lambda q, k, v, model: (lambda s: s.softmax(-1) @ v + s.sum())(scores(q, k) * 0.5),
                 "not a bias that is learned": lambda q, k, v, model: (scores(q, k) + mask.masked_fill(mask == 0, -1e9)).softmax(-1) @ v,
                 "at most, masks of windows": lambda q, k, v, model: ((scores(q, k) + model.bias) + mask).softmax(-1) @ v,
                 "a bias for each image": windows_of_images,
                 "its keys are not as the graph has them": lambda q, k, v, model: (q @ k.permute(0, 1, 3, 2)).softmax(-1) @ v}
        for reason, attend in cases.items():
            with self.subTest(reason):
                calls = self.expect_eagers(Attends(attend, bias=(4, 2, 5, 5)), x_of(4), 1e-5)
                self.assertEqual([(call.replaced, reason in call.reason) for call in calls], [(False, True)], calls)
        for kind in (torch.int32, torch.bool):  # weights of whole numbers are no weights
            self.assertEqual(self.expect_eagers(Attends(lambda q, k, v, model: scores(q, k).softmax(-1).to(kind).to(v.dtype) @ v), x_of(), 1e-5), [])
        calls = self.expect_eagers(Attends(cosine, bias=(2, 1, 1)).half(), x_of().half(), 2e-2)
        self.assertIn("fp16 queries could overflow", calls[0].reason)

    def test_numbers_that_hide_rows_stay_beside_a_bias_that_is_learned(self):
        """Of a row that is masked as a whole: eager's weights are all alike there."""
        row, least = torch.arange(5).view(5, 1) == 2, torch.finfo(torch.float32).min

        def written(made):
            return lambda q, k, v, model: (q @ k.transpose(-2, -1) + made(model.bias)).softmax(-1) @ v

        def windows(q, k, v, model):
            masks = torch.where(torch.arange(50).view(2, 5, 5) // 5 == 3, -1e9, 0.0)
            scores = (q @ k.transpose(-2, -1) + model.bias).view(-1, 2, 2, 5, 5) + masks.unsqueeze(1).unsqueeze(0)
            return scores.view(-1, 2, 5, 5).softmax(-1) @ v
        cases = {"fill": written(lambda bias: bias.masked_fill(row, -1e9)), "least": written(lambda bias: bias.masked_fill(row, least)),
                 "whole number": written(lambda bias: bias.masked_fill(row, -1_000_000)), "choice": written(lambda bias: torch.where(row, -1e9, bias)),
                 "product": written(lambda bias: bias - row * 1e9), "windows": windows,
                 "call": lambda q, k, v, model: plain(q, k, v, model, attn_mask=model.bias.masked_fill(row, -1e9))}
        for name, attend in cases.items():
            with self.subTest(name):
                calls = self.expect_eagers(Attends(attend, bias=(1, 2, 5, 5)), x_of(4), 1e-5)
                self.assertEqual([(call.replaced, "masked by a number" in call.reason) for call in calls], [(False, True)], calls)
        for fill in (-100.0, -1e5, -torch.inf):  # the last of a part of a row
            with self.subTest(fill):
                part = row & (torch.arange(5) > 2)
                self.expect_attends([PACKED], Attends(written(lambda bias, fill=fill, part=part: bias.masked_fill(part, fill)), bias=(1, 2, 5, 5)), x_of(4))

    def test_pytorchs_formula_knows_rows_that_are_masked_as_a_whole(self):
        """Against a softmax: the gradients of PyTorch's own call are others there."""
        for fill in (-1e9, torch.finfo(torch.float32).min):
            with self.subTest(fill):
                mask = torch.zeros(5, 5).masked_fill(torch.arange(5).view(5, 1) == 2, fill)
                q, k, v, dout = (torch.randn(2, 2, 5, 8, requires_grad=True) for _ in range(4))
                want = (q @ k.transpose(-2, -1) * 0.3 + mask).softmax(-1) @ v
                out, lse = training.attention_by_torch(q, k, v, mask, False, 0.3, attention_train.ROWS)
                *found, _ = training.attention_backward_by_torch(dout, q, k, v, mask, out, lse, False, 0.3, False)
                for got, right in zip((out, *found), (want, *torch.autograd.grad(want, (q, k, v), dout)), strict=True):
                    torch.testing.assert_close(got, right)

    def test_a_memory_that_changes_before_is_seen(self):
        def doubled(q, k, v, model):
            k = k * 1
            q.mul_(2)
            return plain(q, k, v, model)

        class Selects(Attends):
            def forward(self, x):
                qkv = self.layers[0](x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
                q, k, v = qkv[0], qkv[1], qkv[2]
                q.mul_(2)
                return self.proj(plain(q, k, v, self).transpose(1, 2).flatten(2))
        self.expect_attends([PACKED], Selects(plain), x_of())
        self.expect_attends([APART], Attends(lambda q, k, v, model: doubled(q * 1, k, v, model)), x_of())

    def test_frozen_parts_and_inference_are_as_before(self):
        for frozen in ("layers", "bias", "proj"):
            model = Attends(with_bias, bias=(2, 5, 5))
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(not name.startswith(frozen))
            self.expect_attends([PACKED], model, x_of())
        compiled = vitune.compile(Attends(plain), replace=["attention_train"])
        with torch.no_grad():
            compiled(x_of())
        self.assertFalse(any(call.trains for call in vitune.report(compiled).calls))

    def test_sizes_that_change_are_one_graph(self):
        model = Attends(with_bias, bias=(1, 2, 5, 5))
        compiled = vitune.compile(copy.deepcopy(model), replace=["attention_train"], dynamic=True)
        for batch in (2, 3, 5):
            x = x_of(batch)
            (loss, grads), (want, wants) = step(compiled, x), step(model, x)
            self.assertAlmostEqual(loss, want, places=5)
            torch.testing.assert_close(grads["bias"], wants["bias"])
        self.assertEqual((len(vitune.report(compiled).graphs), self.attends), (1, [PACKED]))

    def test_checkpoints_micro_batches_and_deterministic_algorithms(self):
        self.expect_attends([PACKED], Checkpointed(Attends(plain), 2), x_of())
        self.expect_attends([PACKED], Attends(plain), x_of(), 2e-2, on=True, micro=2)
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        self.expect_attends([PACKED], Attends(plain), x_of())

    def test_an_overflow_is_seen_by_the_scaler_and_a_second_derivative_refused(self):
        model, x = Attends(with_bias, bias=(2, 5, 5)), x_of()
        compiled = vitune.compile(model, replace=["attention_train"])
        for poison in (1.0, float("inf")):
            model.zero_grad()
            with autocast(True, torch.float16):
                loss = compiled(x).float().sum()
            (loss * poison).backward()
            self.assertEqual([parameter.grad.isfinite().all().item() for parameter in model.parameters()],
                             [poison == 1.0] * len([*model.parameters()]))
        x.requires_grad_()
        grad, = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "double backward"):
            grad.square().sum().backward()

    def test_steps_of_train_step_are_those_of_a_plain_loop(self):
        model = Attends(with_bias, bias=(1, 2, 5, 5))
        other, losses = copy.deepcopy(model), []
        take = vitune.train_step(vitune.compile(model, replace=["attention_train"]), lambda model, x: model(x).square().mean(),
                                 torch.optim.SGD(model.parameters(), lr=0.1))
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        for x in (x_of() for _ in range(3)):
            optimizer.zero_grad()
            loss = other(x).square().mean()
            loss.backward(), optimizer.step()
            losses.append((take(x).item(), loss.item()))
        for mine, right in losses:
            self.assertAlmostEqual(mine, right, places=5)
        torch.testing.assert_close(model.bias, other.bias)
        self.assertEqual(self.attends, [PACKED])

    def test_the_report_says_what_trains_and_what_stays(self):
        compiled = vitune.compile(Attends(plain), replace=["attention_train"])
        step(compiled, x_of())
        self.assertIn(f"{CALL}: replaced, forward and backward", str(vitune.report(compiled)))
        torch._dynamo.reset()
        compiled = vitune.compile(Attends(plain))
        step(compiled, x_of())
        self.assertRegex(str(vitune.report(compiled)), f"{CALL}: left as it is: a gradient is wanted of it, and without a CUDA graph")


class RaceTest(AttentionCase, race_case.RaceCase):
    pattern = attention_train

    def counted(self, module, inputs, config_patches=None):
        self.lies.append([value.stride() for value in inputs if isinstance(value, torch.Tensor)])
        return super().counted(module, inputs, config_patches)

    def setUp(self):
        super().setUp()
        self.lies = []
        patch = mock.patch.object(training, "_answer", lambda x, ours, torchs: torchs())
        patch.start()
        self.addCleanup(patch.stop)

    def attention(self, report):
        return [call for call in report.calls if call.operator == "attention_train"]

    def test_both_sides_are_the_same_function_with_the_same_gradients(self):
        for model, results in ((Attends(plain), 2), (Attends(plain, fused=False), 4), (Attends(with_bias, bias=(1, 2, 5, 5)), 3)):
            report = self.report(model, x_of(), replace=None)
            self.assertEqual([call.replaced for call in self.attention(report)], [True])
            (ours, theirs), = self.raced[-1:]
            self.assertEqual(len(ours), results)
            for mine, other in zip(ours, theirs, strict=True):
                self.assertEqual((mine.shape, mine.dtype), (other.shape, other.dtype))
                self.assertLessEqual((mine - other).norm().item(), 0.02 * other.norm().item())
            self.assertIn("5.0 us here, Inductor's 10.0", str(report))

    def test_pytorchs_side_lies_as_no_model_does_and_results_in_the_order_of_memory(self):
        self.assertTrue(self.attention(self.report(Attends(plain), x_of(), replace=None))[0].replaced)
        (ours, theirs), = self.raced[-1:]
        self.assertEqual(self.lies[-2:], [[(240, 48, 16, 8, 1)], [(240 + 64, 48, 16, 8, 1)]])  # cuDNN's plans are kept by such strides
        for side in (ours, theirs):
            self.assertEqual((side[0].shape, side[0].stride()), ((2, 5, 2, 8), (80, 16, 8, 1)))  # of [B, H, N, D]

    def test_both_passes_are_asked_and_the_projections_gradient_is_packed(self):
        report = self.report(Attends(with_bias, bias=(1, 2, 5, 5)), x_of())
        forward = "bf16 b=2 h=2 nq=5 nk=5 d=8 q=@240,8,48 k=@240,8,48 v=@240,8,48 o=@80,8,16 bias=fp32:1x2x5x5@0,25,5,1"
        want = [f"attention {forward} lse", f"attention_backward {forward} do=@80,8,16 dq=@240,8,48 dk=@240,8,48 dv=@240,8,48 dbias=fp32"]
        self.assertEqual([found.problem for found in self.attention(report)[0].selections], want)
        self.assertEqual([text for text in self.asked if text.startswith("attention")], want)

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_calls_of_one_kind_are_raced_once_and_windows_are_summed_on_pytorchs_side(self):
        with mock.patch.object(every, "PATTERNS", (attention_train.attention_train,)):
            report = self.report(vit(), torch.randn(2, 3, 32, 32))
            self.assertEqual((sum(call.replaced for call in report.calls), len(self.raced)), (2, 1))
            report = self.report(swin(), torch.randn(2, 3, 56, 56))
            self.assertEqual([call.replaced for call in report.calls], [True, True])
            self.assertIn("bias=fp32:4x2x49x49", self.asked[-1])

    def test_what_is_slower_wrong_or_cannot_be_timed_stays(self):
        self.lost, self.outcome = {1}, "default"
        with mock.patch.object(every, "PATTERNS", (attention_train.attention_train,)):
            report = self.report(Attends(plain), x_of())
            self.assertIn("Inductor's was faster when both were timed here, with kernels that were never tuned", report.calls[0].reason)
            self.assertEqual(len(report.untuned), 2)
            self.lost = set()
            right = training.attention_backward_by_torch
            with mock.patch.object(training, "attention_backward_by_torch", lambda *given: (right(*given)[0] * 1.1, *right(*given)[1:])):
                report = self.report(Attends(plain), x_of())
            self.assertRegex(report.calls[0].reason, "its answers are not Inductor's: result 1 of 2 is off")
            with mock.patch.object(benchmark, "can_race", lambda device: False):
                self.assertIn("could not be timed", self.report(Attends(plain), x_of()).calls[0].reason)

            def refused(problem, device):
                raise vitune.Unsupported(f"'{problem}': it is too large")
            with mock.patch.object(attention_train, "selected", refused):
                self.assertIn("too large", self.report(Attends(plain), x_of()).calls[0].reason)
            report = self.report(Attends(plain), x_of(), on=False)
            self.assertIn("float32", report.calls[0].reason)


@needs_device
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of attention")
class ServedTest(AttentionCase):
    def setUp(self):
        super().setUp()
        linear_case.serve_by_nearest(self, attention_train, training, launch_staged, attention_ops, torch_staged.launch_staged)

    def test_a_step_asks_the_library_for_what_was_asked_when_it_was_compiled(self):
        for model, target in ((Attends(with_bias, bias=(1, 2, 5, 5)), PACKED), (Attends(plain, fused=False), APART)):
            self.asked.clear()
            calls = self.expect_attends([target], model, x_of(), 3e-2, on=True)
            canonical = [attention_ops.context_of(0).query(vitune.Problem(text)).problem for text in self.asked]
            self.assertEqual(canonical, [calls[0].selections[1].problem])

    def test_operands_without_contiguous_rows_are_copied_and_served(self):
        """As Visformer's."""
        def columns(q, k, v, model):
            return plain(*(each.transpose(-2, -1).contiguous().transpose(-2, -1) for each in (q, k, v)), model)
        with mock.patch.object(training, "attention_by_torch", side_effect=AssertionError("by PyTorch")):
            self.expect_attends([APART], Attends(columns, fused=False), x_of(), 3e-2, on=True)
        self.assertEqual(len(self.asked), 1)


if __name__ == "__main__":
    unittest.main()
