# python/tests/test_torch_compile_train.py -- vitune.compile() on models that train: losses and gradients beside eager mode's, on a CPU.
# SPDX-License-Identifier: Apache-2.0
"""The operators are asked for by name, which puts them in on a CPU too, where PyTorch computes them. aot_eager stands in for Inductor."""
import contextlib
import copy
import functools
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import vitune

from .support import DEVICE, OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("linear layers are not the operators' library's: once is enough")

import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from vitune._compile import backend, by_name
from vitune._compile.patterns import linear_train
from vitune._ops import attention as attention_ops, linear as linear_ops, training

from .test_torch_compile import served_by_nearest, without_inductor
from .test_torch_train import launch_staged, serves

try:
    import timm
except ImportError:
    timm = None

OPS = torch.ops.vitune
TRAINING = (OPS.linear_train.default, OPS.linear_act_train.default, OPS.act_linear_train.default, OPS.norm_train.default,
            OPS.sum_norm_train.default)


def vit(**keywords):
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", num_classes=10, embed_dim=64, num_heads=2, img_size=32,
                             **{"depth": 2, "init_values": 0.1, "drop_path_rate": 0.2, **keywords}).train()


def autocast(on, dtype=torch.bfloat16):
    return torch.autocast("cpu", dtype) if on else contextlib.nullcontext()


class Inside(nn.Module):
    """A model that turns autocast on itself."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(x)


class Checkpointed(nn.Module):
    def __init__(self, model, depth=1):
        super().__init__()
        self.model, self.depth = model, depth

    def forward(self, x):
        def body(x):
            return self.model(x)
        inner = body if self.depth == 1 else lambda x: checkpoint(body, x, use_reentrant=False)
        return checkpoint(inner, x, use_reentrant=False) + 0 * x.sum()


class Mlp(nn.Module):
    def __init__(self, after=F.gelu, between=None, k=24, n=40):
        super().__init__()
        torch.manual_seed(1)
        self.fc1, self.fc2, self.after, self.between = nn.Linear(k, n), nn.Linear(n, k), after, between or (lambda x: x)

    def forward(self, x):
        return self.fc2(self.between(self.after(self.fc1(x))))


def step(model, x, on=False, micro=1, images=True):
    """The loss, gradients by name, and x's, where one is wanted of the images."""
    x = x.detach().requires_grad_(images)
    torch.manual_seed(1)
    model.zero_grad(set_to_none=True)
    for _ in range(micro):
        with autocast(on):
            out = model(x)
        loss = out.float().square().mean()
        loss.backward()
    return loss.item(), {"x": x.grad, **{name.removeprefix("_orig_mod."): p.grad for name, p in model.named_parameters()}}


@needs_torch
class TrainCase(unittest.TestCase):
    operator = "linear_train"  #: that a case is about

    def setUp(self):
        torch._dynamo.reset()
        self.targets = []
        patch = mock.patch.object(backend, "compile_fx", self.compile_fx)
        patch.start()
        self.addCleanup(patch.stop)

    def compile_fx(self, module, inputs, config_patches=None):
        graphs = [module, *backend.checkpoints.bodies(module)]
        self.targets += [node.target for each in graphs for node in each.graph.nodes if node.target in TRAINING]
        return without_inductor(module, inputs)

    def expect_eagers(self, model, x, bound, on=False, micro=1, images=True, **keywords):
        """Loss and gradients are eager mode's; the report's calls of the case's operator."""
        torch._dynamo.reset()
        self.targets.clear()
        compiled = vitune.compile(copy.deepcopy(model), **{"replace": [self.operator], "fullgraph": True, **keywords})
        (loss, grads), (want, wants) = step(compiled, x, on, micro, images), step(model, x, on, micro, images)
        self.assertLessEqual(abs(loss - want), bound * max(1.0, abs(want)))
        for name, right in wants.items():
            got = grads[name]
            self.assertEqual((got is None, right is None), (right is None,) * 2, name)
            if right is not None:
                self.assertEqual((got.dtype, got.shape), (right.dtype, right.shape), name)
                self.assertLessEqual((got - right).norm().item(), bound * right.norm().item() + 1e-12, name)
        report = vitune.report(compiled)
        self.assertFalse(any(graph.error for graph in report.graphs), report)
        return [call for call in report.calls if call.operator == self.operator]


@unittest.skipIf(timm is None, "timm is not installed")
class TimmTest(TrainCase):
    MLPS = ["linear in training", "linear with LayerScale in training", "linear, gelu and linear with LayerScale in training"]

    def expect_vits(self, calls):
        self.assertEqual(sorted(call.call for call in calls if call.replaced), sorted(self.MLPS * 2 + ["linear in training"]), calls)
        self.assertEqual([call.call for call in calls if not call.replaced], ["patch embedding in training"])  # images want a gradient

    def test_loss_and_gradients_of_a_vit_are_eager_modes_in_each_type(self):
        x = torch.randn(3, 3, 32, 32)
        self.expect_vits(self.expect_eagers(vit(), x, 1e-5))
        self.expect_vits(self.expect_eagers(vit().bfloat16(), x.bfloat16(), 2e-2))
        self.expect_vits(self.expect_eagers(vit(), x, 1e-2, on=True))
        self.expect_vits(self.expect_eagers(Inside(vit()), x, 1e-2))
        self.assertEqual(len(self.targets), 4 + 2 * 2 + 1)

    def test_a_layer_scale_that_cannot_be_a_layers_stays_behind_it(self):
        x, plain = torch.randn(3, 3, 32, 32), sorted((["linear in training"] * 2 + ["linear, gelu and linear in training"]) * 2 + ["linear in training"])
        frozen, written = vit(), vit()
        for name, parameter in frozen.named_parameters():
            parameter.requires_grad_(not name.endswith("gamma"))
        for block in written.blocks:
            block.ls1.inplace = block.ls2.inplace = True
        for name, model, keywords in (("frozen", frozen, {}), ("written to", written, {})):
            with self.subTest(name):
                calls = self.expect_eagers(model, x, 1e-5, **keywords)
                self.assertEqual(sorted(call.call for call in calls if call.replaced), plain, calls)

    def test_micro_batches_add_up(self):
        self.expect_vits(self.expect_eagers(vit(), torch.randn(2, 3, 32, 32), 1e-2, on=True, micro=2))

    def test_checkpointed_blocks_train(self):
        model = vit()
        model.set_grad_checkpointing()
        self.expect_vits(self.expect_eagers(model, torch.randn(2, 3, 32, 32), 1e-5))
        calls = self.expect_eagers(model, torch.randn(2, 3, 32, 32), 1e-2, on=True)
        self.expect_vits(calls)
        self.assertIn("blocks.1.mlp.fc1", [call.module for call in calls])

    def test_deterministic_algorithms_are_used(self):
        x = torch.randn(2, 3, 32, 32)
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        self.expect_vits(self.expect_eagers(vit(), x, 1e-2, on=True))
        compiled = vitune.compile(vit(), replace=["linear_train"])
        (_, first), (_, again) = step(compiled, x, True), step(compiled, x, True)
        self.assertTrue(all(torch.equal(grad, again[name]) for name, grad in first.items()))

    def test_inference_after_training_is_as_before(self):
        model, x = vit(), torch.randn(2, 3, 32, 32)
        compiled = vitune.compile(model, replace=["linear_train"])
        step(compiled, x)
        self.targets.clear()
        compiled.eval()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
        self.assertEqual(self.targets, [])
        calls = vitune.report(compiled).graphs[-1].calls
        self.assertEqual({(call.operator, call.reason) for call in calls if call.operator.startswith("linear")},
                         {("linear", "type float32: the kernels take bfloat16 and float16")})

    def test_sizes_that_change_are_one_graph(self):
        model = vit()
        compiled = vitune.compile(copy.deepcopy(model), replace=["linear_train"], dynamic=True)
        for batch in (2, 3, 5):
            x = torch.randn(batch, 3, 32, 32)
            (loss, grads), (want, wants) = step(compiled, x), step(model, x)
            self.assertAlmostEqual(loss, want, places=5)
            torch.testing.assert_close(grads["blocks.0.mlp.fc1.weight"], wants["blocks.0.mlp.fc1.weight"])
        self.assertEqual(len(vitune.report(compiled).graphs), 1)

    def test_nothing_changes_where_it_is_not_asked_for_and_cannot_be_timed(self):
        x = torch.randn(2, 3, 32, 32)
        calls = self.expect_eagers(vit(global_pool="avg"), x, 0.0, images=False, replace=None, training=True)  # all rows are read: no bit differs
        self.assertEqual({(call.replaced, call.reason) for call in calls}, {(False, "device cpu")})
        self.assertEqual(self.targets, [])


class PatternTest(TrainCase):
    def test_what_is_found_between_and_behind_layers(self):
        two, one, none = "linear, {} and linear in training", "linear and {} in training", "linear in training"
        cases = {"gelu": (F.gelu, None, [two]), "gelu_tanh": (lambda y: F.gelu(y, approximate="tanh"), None, [two]),
                 "relu": (lambda y: F.relu(y, inplace=True), lambda a: F.dropout(a, 0.0, True), [two]), "silu": (F.silu, None, [two]),
                 "quick_gelu": (lambda y: y * torch.sigmoid(1.702 * y), None, [two]),
                 "gelu used twice": (lambda y: F.gelu(y), lambda a: a + a.sigmoid(), [one, none]),
                 "gelu behind": (F.gelu, lambda a: F.dropout(a, 0.5, True), [one, none]),
                 "tanh": (torch.tanh, None, [none] * 2), "a sum of both": (lambda y: F.gelu(y) + y, None, [none] * 2)}
        x = torch.randn(2, 5, 24)
        for name, (after, between, want) in cases.items():
            with self.subTest(name):
                calls = self.expect_eagers(Mlp(after, between), x, 1e-5)
                self.assertEqual([call.call for call in calls if call.replaced], [text.format(name.split()[0]) for text in want])

    def test_frozen_parts_have_no_gradients_and_stay_where_none_is_wanted(self):
        for frozen, count in (("fc1.weight", 1), ("fc1.bias", 1), ("fc2.weight", 1), ("fc2", 1), ("", 0)):
            with self.subTest(frozen):
                model = Mlp()
                for name, parameter in model.named_parameters():
                    parameter.requires_grad_(not name.startswith(frozen))
                calls = self.expect_eagers(model, torch.randn(2, 5, 24), 1e-5)
                self.assertEqual(sum(call.replaced for call in calls), 1)  # x wants one all the same
        with torch.no_grad():
            compiled = vitune.compile(Mlp(), replace=["linear_train"])
            compiled(torch.randn(2, 24))
        self.assertFalse(any(call.trains for call in vitune.report(compiled).calls))

    def test_what_is_unfrozen_later_trains(self):
        """torch.compile alone leaves it without a gradient: Dynamo does not look at parameters again."""
        x = torch.randn(2, 5, 24)
        for by in ("module", "step", "name"):
            with self.subTest(by):
                torch._dynamo.reset()
                model = nn.Sequential(Mlp(), nn.Linear(24, 24))
                model[0].requires_grad_(False)
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
                if by == "name":
                    model.compile(backend="vitune", options={"training": True})
                called = vitune.compile(model, replace=["linear_train"]) if by == "module" else model
                train = vitune.train_step(called, lambda model, x: model(x).square().mean(), optimizer, capture=False, compile=by == "step")
                train(x)
                self.assertTrue(getattr(torch._dynamo.config, "skip_tensor_guards_with_matching_dict_tags", True))  # the program's setting
                model[0].fc1.requires_grad_(True)
                plain = nn.Sequential(Mlp(), nn.Linear(24, 24))
                plain.load_state_dict(model.state_dict())
                plain[0].fc2.requires_grad_(False)
                plain(x).square().mean().backward()
                train(x)
                for parameter, right in zip(model.parameters(), plain.parameters(), strict=True):
                    self.assertEqual(parameter.grad is None, right.grad is None)
                    if right.grad is not None:
                        torch.testing.assert_close(parameter.grad, right.grad)

    def test_a_graph_that_is_compiled_outside_of_dynamo_leaves_its_settings_alone(self):
        taken, config = [], torch._dynamo.config
        model = Mlp().requires_grad_(False)
        torch.compile(model, backend=lambda module, inputs: taken.append((module, inputs)) or module.forward)(torch.randn(2, 5, 24))
        before = getattr(config, "skip_tensor_guards_with_matching_dict_tags", None)
        by_name.by_name(*taken[0])
        self.assertEqual(getattr(config, "skip_tensor_guards_with_matching_dict_tags", None), before)

    def test_layers_on_two_sides_of_no_grad_stay_apart(self):
        class Stopped(Mlp):
            def forward(self, x):
                y = self.fc1(x)
                with torch.no_grad():
                    middle = F.gelu(y)
                return self.fc2(middle)
        calls = self.expect_eagers(Stopped(), torch.randn(2, 5, 24), 1e-5)
        self.assertEqual([call.call for call in calls if call.replaced], ["linear in training"] * 2)
        tried = [each.reason for call in calls for each in call.tried]
        self.assertIn("gradients are turned on or off within it", tried)

    def test_several_types_without_autocast_are_refused_as_by_pytorch(self):
        for x, parameters in ((torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)):
            with self.subTest(x):
                torch._dynamo.reset()
                model = vitune.compile(nn.Linear(24, 40).to(parameters), replace=["linear_train"])
                with self.assertRaises(Exception) as raised:
                    model(torch.randn(2, 24, dtype=x))
                self.assertIn("dtype", str(raised.exception))
        torch._dynamo.reset()
        calls = self.expect_eagers(Inside(Mlp()), torch.randn(2, 5, 24), 0.05)
        self.assertEqual([call.replaced for call in calls], [True])

    def test_memory_that_changes_in_between_keeps_layers_apart(self):
        class Changed(Mlp):
            def forward(self, x):
                x = x + 0
                y = self.fc1(x)
                x.mul_(2)
                return self.fc2(F.gelu(y)) + x
        model = Changed()
        model.fc1.weight.requires_grad_(False)  # else x is kept for its gradient, and PyTorch refuses the change
        calls = self.expect_eagers(model, torch.randn(2, 24), 1e-5)
        self.assertEqual([call.call for call in calls if call.replaced], ["linear in training"] * 2)

    def test_parameters_may_be_written_to_behind_a_layer_scale(self):
        class Written(nn.Linear):
            def __init__(self):
                super().__init__(16, 16)
                self.gamma = nn.Parameter(torch.rand(16))

            def forward(self, x):
                y = super().forward(x) * self.gamma
                with torch.no_grad():
                    self.bias.mul_(0.5)
                return y
        calls = self.expect_eagers(Written(), torch.randn(2, 5, 16), 1e-5)
        self.assertEqual([call.call for call in calls if call.replaced], ["linear in training"])

    def test_checkpoints_within_checkpoints_train(self):
        calls = self.expect_eagers(Checkpointed(Mlp(), 2), torch.randn(2, 5, 24), 1e-5)
        self.assertEqual([call.call for call in calls if call.replaced], ["linear, gelu and linear in training"])
        self.assertEqual(self.targets, [OPS.linear_act_train.default, OPS.act_linear_train.default])

    def test_checkpoints_with_a_policy_of_their_own_are_left_alone(self):
        from torch.utils.checkpoint import create_selective_checkpoint_contexts

        class Selective(Mlp):
            def forward(self, x):
                return checkpoint(super().forward, x, use_reentrant=False, context_fn=functools.partial(
                    create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])) + x
        self.expect_eagers(Selective(), torch.randn(2, 24), 1e-5)
        self.assertEqual(self.targets, [])

    def test_an_overflow_is_seen_by_the_scaler(self):
        model, x = Mlp(), torch.randn(4, 24)
        compiled = vitune.compile(model, replace=["linear_train"])
        for poison in (False, True):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            before = copy.deepcopy(model.state_dict())
            optimizer.zero_grad()
            with autocast(True, torch.float16):
                loss = compiled(x).float().sum()
            scaler.scale(loss * (float("inf") if poison else 1.0)).backward()
            self.assertEqual(all(p.grad.isfinite().all() for p in model.parameters()), not poison)
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(scaler.get_scale(), 2.0 if poison else 4.0)
            same = all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
            self.assertEqual(same, poison)
        self.assertIn(OPS.act_linear_train.default, self.targets)

    def test_a_layer_with_a_scale_that_torch_func_transforms_stays_and_is_told(self):
        class Transformed(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.fc, self.gamma = nn.Linear(24, 24), nn.Parameter(torch.randn(24))

            def forward(self, x):
                return self.fc(torch.func.grad(lambda y: (self.fc(y) * self.gamma).sin().sum())(x)) * self.gamma
        calls = self.expect_eagers(Transformed(), torch.randn(2, 24), 1e-5)
        self.assertEqual([call.reason for call in calls], ["torch.func transforms it", ""])

    def test_a_second_derivative_is_refused_with_a_sentence(self):
        compiled, x = vitune.compile(Mlp(), replace=["linear_train"]), torch.randn(2, 24, requires_grad=True)
        grad, = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "double backward"):
            grad.square().sum().backward()

    def test_classes_of_tensors_that_are_not_known_stay(self):
        from torch.testing._internal.two_tensor import TwoTensor
        model = Mlp()
        compiled = vitune.compile(model, replace=["linear_train"])
        x = torch.randn(2, 24)
        compiled(TwoTensor(x, x.clone()).requires_grad_())
        self.assertEqual({call.reason for call in vitune.report(compiled).calls if call.trains}, {"a tensor of class TwoTensor"})
        self.assertEqual(self.targets, [])

    def test_the_report_says_what_trains_and_what_stays(self):
        compiled = vitune.compile(Mlp(), replace=["linear_train"])
        step(compiled, torch.randn(2, 24))
        self.assertIn("linear, gelu and linear in training: replaced, forward and backward", str(vitune.report(compiled)))
        torch._dynamo.reset()
        compiled = vitune.compile(Mlp(), replace=["attention"])
        step(compiled, torch.randn(2, 24))
        self.assertIn("linear, gelu and linear in training: left as it is: a gradient is wanted of it", str(vitune.report(compiled)))


def serve_by_nearest(case, pattern, backward, staged, forward, staged_forward=None):
    """Calls go to the library on the emulated device by these launches, as if winners of other problems served. case.asked has the problems
    of gradients, and those of the forward pass where it has no launch of its own."""
    case.asked = []

    def launch(problem, tensors):
        case.asked.append(problem.text)
        staged(problem, tensors)
    nearest = lambda problem, device: served_by_nearest(vitune.Problem(problem), 0)  # noqa: E731
    for module, name, value in ((attention_ops, "is_on_gpu", lambda tensor: True), (forward, "launch", staged_forward or launch),
                                (backward, "launch", launch), (pattern, "selected", nearest)):
        patch = mock.patch.object(module, name, value)
        patch.start()
        case.addCleanup(patch.stop)


@needs_device
class ServedTest(TrainCase):
    def setUp(self):
        super().setUp()
        serve_by_nearest(self, linear_train, training, launch_staged, linear_ops)

    @unittest.skipUnless(serves("linear_weight_grad bf16 m=8 n=8 k=8") and serves("linear bf16 m=8 n=8 k=8 dact=gelu"),
                         "the library knows no gradients")
    def test_a_step_asks_the_library_for_all_of_both_passes(self):
        calls = self.expect_eagers(Mlp(), torch.randn(2, 5, 24), 2e-2, on=True)
        self.assertEqual([(call.call, call.replaced) for call in calls], [("linear, gelu and linear in training", True)])
        canonical = [attention_ops.context_of(0).query(vitune.Problem(text)).problem for text in self.asked]
        self.assertEqual(sorted(canonical), sorted(found.problem for found in calls[0].selections))


@unittest.skipUnless(torch.distributed.is_available() and torch.distributed.is_gloo_available(), "PyTorch has no gloo")
class RanksTest(unittest.TestCase):
    def test_two_processes_have_eager_modes_gradients(self):
        with tempfile.TemporaryDirectory() as folder:  # they meet in a file of it
            done = subprocess.run([sys.executable, "-W", "ignore", "-m", "tests.training_ranks", folder], capture_output=True, text=True,
                                  cwd=pathlib.Path(__file__).parents[1])
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        for way in ("DDP, ddp_optimizer, autocast True", "DDP, python_reducer, autocast False", "DDP, no_sync", "FSDP2, block, then shard: [2, 2, 2]",
                    "FSDP2, shard, then block: [2, 2, 2]", "FSDP2, shard, then whole: [6]"):
            self.assertEqual(done.stdout.count(way), 2, done.stdout)
        if DEVICE is not None:  # each block's attention and norm, and once more those that are checkpointed
            for way in ("DDP", "FSDP2"):
                self.assertEqual(done.stdout.count(f"eager mode, {way}: (3, 0, 3) served"), 2, done.stdout)


if __name__ == "__main__":
    unittest.main()
