# python/tests/test_torch_compile_norm_train.py -- vitune.compile() on models whose norms train: what is found, losses and gradients.
# SPDX-License-Identifier: Apache-2.0
"""As test_torch_compile_train.py: on a CPU, by name, aot_eager in the place of Inductor."""
import copy
import unittest

import vitune

from .support import OPERATORS, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("norms that train are not the operators' library's: once is enough")

import torch.nn.functional as F
from torch import nn

from vitune._compile import checkpoints
from vitune._compile.patterns.match import value_of

from . import test_torch_compile_train as linear_case
from .test_torch_compile_train import Checkpointed, Inside, OPS, autocast, step, timm, vit

ALONE, SUM, DROPS = (f"layer_norm {words}in training" for words in ("", "of a sum ", "of a sum with drop path "))
D = 24


class Block(nn.Module):
    """Two sums with a norm behind each, as residual blocks have them; `add` makes a sum of the stream and a branch."""

    def __init__(self, add=None, norm=None, drops=False, scale=False, between=None, times=2):
        super().__init__()
        torch.manual_seed(2)
        self.add, self.between = add or (lambda x, y: x + y), between or (lambda h: h)
        self.norms = nn.ModuleList((norm or nn.LayerNorm)(D) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(3))
        self.scales = nn.ParameterList(torch.rand(D) + 0.5 for _ in range(2)) if scale else None
        self.drops, self.times = drops, times
        for norm in self.norms:
            nn.init.normal_(norm.weight, 1.0, 0.2)

    def forward(self, x):
        for i in range(self.times):
            y = torch.tanh(self.layers[i](self.between(self.norms[i](x))))
            if self.scales is not None:
                y = y * self.scales[i]
            if self.drops:
                y = y * y.new_empty((y.shape[0], 1, 1)).bernoulli_(0.5).div_(0.5)
            x = self.add(x, y)
        return self.layers[2](self.norms[2](x))


class NormCase(linear_case.TrainCase):
    operator = "norm_train"

    def compile_fx(self, module, inputs, config_patches=None):
        graphs = [module, *checkpoints.bodies(module)]
        targets = (OPS.norm_train.default, OPS.sum_norm_train.default)
        found = [node for each in graphs for node in each.graph.nodes if node.target in targets]
        self.types = [node.args[-1] for node in found]
        self.summands = [value_of(node.args[0]).dtype for node in found if node.target is OPS.sum_norm_train.default]
        return super().compile_fx(module, inputs, config_patches)

    def expect_calls(self, want, model, x, bound=1e-5, **keywords):
        calls = self.expect_eagers(model, x, bound, **keywords)
        self.assertEqual([call.call for call in calls if call.replaced], want, calls)
        return calls


def x_of(*shape, dtype=torch.float32):
    return torch.randn(*(shape or (2, 5, D)), dtype=dtype)


@unittest.skipIf(timm is None, "timm is not installed")
class TimmTest(NormCase):
    def test_loss_and_gradients_of_a_vit_are_eager_modes_in_each_type(self):
        x, want = torch.randn(3, 3, 32, 32), [ALONE, SUM, SUM, DROPS, DROPS]
        plain = vit(init_values=None)
        self.expect_calls(want, plain, x)
        self.expect_calls(want, plain, x, 1e-2, on=True)
        self.assertEqual(self.types, [torch.bfloat16] * 5)  # of the last one the head takes the class token alone
        self.expect_calls(want, Inside(plain), x, 1e-2)
        self.expect_calls([ALONE] + [SUM] * 4, vit(), x, 1e-2, on=True)  # LayerScale's kernel multiplies by drop path's factors too
        self.expect_calls(want, copy.deepcopy(plain).bfloat16(), x.bfloat16(), 3e-2)

    def test_layers_and_norms_train_together(self):
        calls = self.expect_calls([ALONE, SUM, SUM, DROPS, DROPS], vit(init_values=None), torch.randn(3, 3, 32, 32), 1e-2, on=True,
                                  replace=["norm_train", "linear_train"])
        self.assertEqual(len(self.targets), 5 + 4 + 2 * 2 + 1)
        self.assertTrue(all(call.trains for call in calls))

    def test_a_sum_takes_what_a_layer_with_layer_scale_gives_in_16_bits(self):
        self.expect_calls([ALONE, SUM, SUM, DROPS, DROPS], vit(), torch.randn(3, 3, 32, 32), 1e-2, on=True, replace=["norm_train", "linear_train"])
        self.assertEqual(self.summands, [torch.bfloat16] * 4)

    def test_checkpointed_blocks_train(self):
        model = vit(init_values=None)
        model.set_grad_checkpointing()
        # The last norm is of the graph itself, the others are of its checkpoints.
        calls = self.expect_calls([ALONE, ALONE, SUM, ALONE, DROPS], model, torch.randn(2, 3, 32, 32), 1e-2, on=True)
        self.assertIn("blocks.1.norm2", [call.module for call in calls])

    def test_windows_and_convolutions_have_norms_that_train(self):
        models = {"swin_tiny_patch4_window7_224": {"img_size": 56, "embed_dim": 16, "depths": (1, 1), "num_heads": (1, 2)},
                  "convnext_atto": {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}}
        for name, keywords in models.items():
            with self.subTest(name):
                torch.manual_seed(0)
                model = timm.create_model(name, num_classes=4, drop_path_rate=0.2, **keywords).train()
                calls = self.expect_eagers(model, torch.randn(2, 3, 56, 56), 1e-4)
                self.assertGreater(len(calls), 3)
                self.assertTrue(all(call.replaced for call in calls), calls)
                if name.startswith("swin"):  # its tokens are images in between
                    self.assertEqual([call.call for call in calls if call.module.endswith("norm2")], [SUM, DROPS])


class PatternTest(NormCase):
    def test_sums_are_found_with_what_follows_and_precedes_them(self):
        cases = {"a residual": (Block(), [ALONE, SUM, SUM]), "turned round": (Block(lambda x, y: y + x), [ALONE, SUM, SUM]),
                 "torch.add": (Block(torch.add), [ALONE, SUM, SUM]), "drop path": (Block(drops=True), [ALONE, DROPS, DROPS]),
                 "LayerScale": (Block(scale=True), [ALONE, SUM, SUM]), "both": (Block(drops=True, scale=True), [ALONE, SUM, SUM]),
                 "a factor of all": (Block(lambda x, y: x + 2 * y), [ALONE, SUM, SUM]),
                 "dropout": (Block(lambda x, y: x + F.dropout(y, 0.5)), [ALONE, SUM, SUM]),
                 "dropout that is off": (Block(lambda x, y: x + F.dropout(y * torch.rand(2, 1, 1), 0.0)), [ALONE, DROPS, DROPS]),
                 "of three": (Block(lambda x, y: x + y + 1), [ALONE] * 3), "alpha": (Block(lambda x, y: torch.add(x, y, alpha=2)), [ALONE] * 3),
                 "written to": (Block(lambda x, y: (x + 0).add_(y)), [ALONE] * 3), "twice the same": (Block(lambda x, y: y + y), [ALONE] * 3),
                 "a row more": (Block(lambda x, y: x + y[:, :1]), [ALONE] * 3)}
        for name, (model, want) in cases.items():
            with self.subTest(name):
                self.expect_calls(want, model, x_of())

    def test_sums_are_found_behind_views_with_the_same_rows(self):
        class Viewed(Block):
            def __init__(self, view, **keywords):
                super().__init__(**keywords)
                self.view = view

            def forward(self, x):
                y = torch.tanh(self.layers[0](self.norms[0](x)))
                if self.drops:
                    y = y * y.new_empty((y.shape[0], 1, 1)).bernoulli_(0.5).div_(0.5)
                x = self.view(x + y)
                return self.layers[2](self.norms[1](x)) + x
        cases = {"an image": (lambda x: x.reshape(2, 5, 1, D), SUM, DROPS), "all rows": (lambda x: x.flatten(0, 1), SUM, SUM),
                 "two views": (lambda x: x.view(10, D).unflatten(0, (2, 5)), SUM, DROPS), "other rows": (lambda x: x.reshape(2, D, 5).mT, ALONE, ALONE)}
        for name, (view, plain, drops) in cases.items():
            for keywords, want in (({}, plain), ({"drops": True}, drops)):
                with self.subTest(name, **keywords):
                    self.expect_calls([ALONE, want], Viewed(view, **keywords), x_of())

    def test_norms_of_roots_of_mean_squares_train_too(self):
        want = [call.replace("layer_norm", "rms_norm") for call in (ALONE, DROPS, DROPS)]
        for eps in (None, 1e-6):
            self.expect_calls(want, Block(norm=lambda d: nn.RMSNorm(d, eps=eps), drops=True), x_of())
        self.expect_calls(want, Block(norm=nn.RMSNorm, drops=True).bfloat16(), x_of(dtype=torch.bfloat16), 3e-2)

    def test_a_result_that_all_take_in_16_bits_is_written_so(self):
        half, wide = torch.bfloat16, torch.float32
        cases = {"one layer": (None, half), "two views": (lambda h: h.view(2, 1, 5, D).transpose(1, 2).roll(1, 0).reshape(2, 5, D), half),
                 "used besides": (lambda h: h + h.mean(), wide), "rounded by nobody": (lambda h: h * 1.5, wide)}
        for name, (between, dtype) in cases.items():
            with self.subTest(name):
                self.expect_calls([ALONE, SUM, SUM], Block(between=between), x_of(), 2e-2, on=True)
                self.assertEqual(self.types, [dtype, dtype, half])
        self.expect_calls([ALONE, SUM, SUM], Block(), x_of())
        self.assertEqual(self.types, [wide] * 3)

        class Two(Block):
            def forward(self, x):
                h = self.norms[0](x)
                return self.layers[0](h) + self.layers[1](h), self.norms[1](x)
        model = Two()
        compiled = vitune.compile(copy.deepcopy(model), replace=["norm_train"])
        with autocast(True):
            got, want = compiled(x := x_of()), model(x)
        self.assertEqual([(mine.dtype, self.types[i]) for i, mine in enumerate(got)], [(half, half), (wide, wide)])
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)

    def test_a_layer_behind_a_norm_that_must_stay_has_its_own_type(self):
        """The norm would write 16 bits, and its sum would lie otherwise than the model's, which leaves the graph as two results."""
        class Channels(Block):
            def forward(self, x):
                x = x.transpose(1, 2)
                x = x + self.layers[0](x)
                return self.after(self.layers[1](self.norms[0](x))), x, x.transpose(1, 2).contiguous()
        for name, after in (("widened", lambda y: y.float().square().mean()), ("a result", lambda y: y.square().mean())):
            with self.subTest(name):
                model, x = Channels(), x_of(2, D, 5)
                model.after = after
                compiled = vitune.compile(copy.deepcopy(model), replace=["norm_train", "linear_train"])
                got, wants = [], []
                for each, grads in ((compiled, got), (model, wants)):
                    with autocast(True):
                        loss, rows, columns = each(x)
                    (loss.float() + rows.square().mean() + columns.mean()).backward()
                    grads += [(name.removeprefix("_orig_mod."), p.grad) for name, p in each.named_parameters() if p.grad is not None]
                for (name, grad), (same, want) in zip(got, wants, strict=True):
                    self.assertEqual(name, same)
                    torch.testing.assert_close(grad, want, rtol=2e-2, atol=2e-3)
                calls = vitune.report(compiled).calls
                self.assertEqual([(call.call, call.replaced) for call in calls if call.trains],
                                 [("linear in training", True), (SUM, False), ("linear in training", True)], calls)

    def test_what_comes_between_keeps_a_sum_and_its_norm_apart(self):
        def used(self, x, y):
            total = x + y
            return total, self.norms[0](x + total.sigmoid()), self.norms[1](total)

        def written(self, x, y):
            other = x * 1
            total = other + y
            other.mul_(2)
            return other, self.norms[0](total)

        def scaled(self, x, y):
            total = (x + y).mul_(2)
            return (self.norms[0](total),)

        def without_gradients(self, x, y):
            with torch.no_grad():
                total = x + y
            return total, self.norms[0](total), x, y
        for forward, want in ((used, [SUM, ALONE]), (written, [ALONE]), (scaled, [ALONE]), (without_gradients, [])):
            with self.subTest(forward.__name__):
                class Model(Block):
                    def forward(self, x):
                        return sum((i + 1.5) * each.sin().sum() for i, each in enumerate(forward(self, x, x.sin())))
                calls = self.expect_calls(want, Model(), x_of())
                self.assertEqual(bool(calls), True)

    def test_results_that_are_written_to_afterwards_and_views_are_as_before(self):
        class Written(Block):
            def forward(self, x):
                h = self.norms[0](x[:, 1:])
                h += 1
                total = x + h.sum(1, keepdim=True) * self.norms[1](x)
                last = self.norms[2](total)
                last[:, 0] = 0
                return last.view(-1, D).tanh() * 2
        self.expect_calls([ALONE, ALONE, SUM], Written(), x_of())

    def test_norms_of_what_is_written_to_afterwards_stay_and_are_told(self):
        """Of 16 bits PyTorch keeps a copy in fp32, so that its model may write."""
        def alone(x, norm):
            total = x * 2
            total += norm(total)
            return total

        def of_sum(x, norm):
            total = x + x.sin()
            total += norm(total)
            return total

        def by_view(x, norm):
            total = x * 2
            h = norm(total)
            total.view(-1)[:D].mul_(2)
            return total + h
        for forward in (alone, of_sum, by_view):
            with self.subTest(forward.__name__):
                class Model(Block):
                    def forward(self, x):
                        return forward(self.layers[0](x), self.norms[0])
                model, x = Model(norm=lambda d: nn.RMSNorm(d, eps=1e-6)).bfloat16(), x_of(dtype=torch.bfloat16)
                calls = self.expect_calls([], model, x, 3e-2)
                self.assertEqual([call.reason for call in calls], ["what its backward pass keeps is written to later"])

    def test_norms_of_fp64_stay_and_are_told(self):
        """The kernels' default of eps and their factors of samples are of fp32."""
        calls = self.expect_calls([], Block(norm=nn.RMSNorm, drops=True).double(), x_of(dtype=torch.float64) * 1e-6, 1e-12)
        self.assertEqual({call.reason for call in calls}, {"its type is torch.float64, of which the kernels compute in fp32"})

    def test_frozen_parts_have_no_gradients_and_stay_where_none_is_wanted(self):
        for frozen in ("norms.1.weight", "norms.1.bias", "norms", "layers", "none"):
            with self.subTest(frozen):
                model = Block(drops=True)
                for name, parameter in model.named_parameters():
                    parameter.requires_grad_(not name.startswith(frozen))
                self.expect_calls([ALONE, DROPS, DROPS], model, x_of(), 1e-2, on=True)  # x wants one all the same
        model = Block().requires_grad_(False)
        compiled = vitune.compile(model, replace=["norm_train"])
        compiled(x_of())
        self.assertFalse(any(call.trains for call in vitune.report(compiled).calls))
        torch._dynamo.reset()
        model.norms[1].weight.requires_grad_(True)  # so that neither summand wants one
        compiled(x := x_of()).sum().backward()
        got, model.norms[1].weight.grad = model.norms[1].weight.grad, None
        model(x).sum().backward()
        torch.testing.assert_close(got, model.norms[1].weight.grad)
        self.assertEqual([call.call for call in vitune.report(compiled).graphs[-1].calls if call.trains and call.replaced], [SUM, SUM])

    def test_what_is_no_norm_of_rows_stays_and_is_told(self):
        class Images(Block):
            def forward(self, x):
                return F.layer_norm(x, (5, D))
        calls = self.expect_calls([], Images(), x_of())
        self.assertEqual([call.reason for call in calls], ["a norm over (5, 24): patterns are of one dimension"])
        from torch.testing._internal.two_tensor import TwoTensor
        compiled = vitune.compile(Block(), replace=["norm_train"])
        compiled(TwoTensor(x := x_of(), x.clone()).requires_grad_())
        self.assertEqual({call.reason for call in vitune.report(compiled).calls if call.operator == "norm_train"}, {"a tensor of class TwoTensor"})

    def test_micro_batches_checkpoints_and_determinism_are_eager_modes(self):
        self.expect_calls([ALONE, DROPS, DROPS], Block(drops=True), x_of(), 1e-2, on=True, micro=2)
        self.expect_calls([ALONE, SUM, SUM], Checkpointed(Block(), 2), x_of(), 1e-2, on=True)
        self.assertEqual(len(self.targets), 3)
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        self.expect_calls([ALONE, DROPS, DROPS], Block(drops=True), x_of(), 1e-2, on=True)
        compiled = vitune.compile(Block(), replace=["norm_train"])
        (_, first), (_, again) = step(compiled, x := x_of(), True), step(compiled, x, True)
        self.assertTrue(all(torch.equal(grad, again[name]) for name, grad in first.items()))

    def test_sizes_that_change_are_one_graph(self):
        model = Block(drops=True)
        compiled = vitune.compile(copy.deepcopy(model), replace=["norm_train"], dynamic=True)
        for batch, rows in ((2, 5), (3, 7), (5, 4)):
            x = x_of(batch, rows, D)
            (loss, grads), (want, wants) = step(compiled, x), step(model, x)
            self.assertAlmostEqual(loss, want, places=5)
            torch.testing.assert_close(grads["norms.1.weight"], wants["norms.1.weight"])
        self.assertEqual(len(vitune.report(compiled).graphs), 1)
        calls = [call for call in vitune.report(compiled).calls if call.operator == "norm_train"]
        self.assertEqual([(call.call, call.reason) for call in calls], [(ALONE, ""), (DROPS, ""), (DROPS, "")])

    def test_what_torch_func_transforms_stays(self):
        class Transformed(Block):
            def forward(self, x):
                h = torch.func.grad(lambda y: (self.norms[0](y) * self.norms[0](x)).sin().sum())(x)
                return self.norms[1](torch.func.vmap(lambda y: self.norms[2](y))(x) + h)
        calls = self.expect_calls([SUM], Transformed(), x_of())
        self.assertEqual({call.reason for call in calls if not call.replaced}, {"torch.func transforms it"})

    def test_a_second_derivative_is_refused_with_a_sentence(self):
        compiled, x = vitune.compile(Block(), replace=["norm_train"]), x_of().requires_grad_()
        grad, = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "double backward"):
            grad.square().sum().backward()

    def test_the_report_says_what_trains_and_what_stays(self):
        compiled = vitune.compile(Block(), replace=["norm_train"])
        step(compiled, x_of())
        self.assertIn("layer_norm of a sum in training: replaced, forward and backward", str(vitune.report(compiled)))
        calls = self.expect_eagers(Block(), x_of(), 0.0, replace=None, training=True)
        self.assertEqual({(call.replaced, call.reason) for call in calls}, {(False, "device cpu")})
        calls = self.expect_eagers(Block(), x_of(), 0.0, replace=["linear"])
        self.assertEqual({(call.replaced, call.reason) for call in calls}, {(False, "a gradient is wanted of it")})
        with self.assertRaisesRegex(vitune.InvalidArgument, "training=False leaves these to Inductor"):
            vitune.compile(Block(), replace=["norm_train"], training=False)


if __name__ == "__main__":
    unittest.main()
