# python/tests/test_torch_compile_train.py -- vitune.compile() on models that train: losses and gradients beside eager mode's, on a CPU.
# SPDX-License-Identifier: Apache-2.0
"""The operators are asked for by name, which puts them in on a CPU too, where PyTorch computes them. aot_eager stands in for Inductor."""
import contextlib
import copy
import dataclasses
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("linear layers are not the operators' library's: once is enough")

import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from vitune._compile import backend
from vitune._compile.graph import benchmark, subgraph
from vitune._compile.patterns import linear_train
from vitune._ops import attention as attention_ops, linear as linear_ops, training

from .test_command import fake_command
from .test_torch_compile import served_by_nearest, without_inductor
from .test_torch_train import launch_staged, serves

try:
    import timm
except ImportError:
    timm = None

OPS = torch.ops.vitune
TRAINING = (OPS.linear_train.default, OPS.linear_act_train.default, OPS.act_linear_train.default)


def vit(**keywords):
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", num_classes=10, depth=2, embed_dim=64, num_heads=2, img_size=32,
                             **{"init_values": 0.1, "drop_path_rate": 0.2, **keywords}).train()


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


def step(model, x, on=False, micro=1):
    """The loss, gradients by name, and x's."""
    x = x.detach().requires_grad_()
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

    def expect_eagers(self, model, x, bound, on=False, micro=1, **keywords):
        """Loss and gradients are eager mode's; the calls of the report that train."""
        torch._dynamo.reset()
        self.targets.clear()
        compiled = vitune.compile(copy.deepcopy(model), **{"replace": ["linear_train"], "fullgraph": True, **keywords})
        (loss, grads), (want, wants) = step(compiled, x, on, micro), step(model, x, on, micro)
        self.assertLessEqual(abs(loss - want), bound * max(1.0, abs(want)))
        for name, right in wants.items():
            got = grads[name]
            self.assertEqual((got is None, right is None), (right is None,) * 2, name)
            if right is not None:
                self.assertEqual((got.dtype, got.shape), (right.dtype, right.shape), name)
                self.assertLessEqual((got - right).norm().item(), bound * right.norm().item() + 1e-12, name)
        report = vitune.report(compiled)
        self.assertFalse(any(graph.error for graph in report.graphs), report)
        return [call for call in report.calls if call.trains]


@unittest.skipIf(timm is None, "timm is not installed")
class TimmTest(TrainCase):
    MLPS = ["linear in training"] * 2 + ["linear, gelu and linear in training"]

    def expect_vits(self, calls):
        self.assertEqual(sorted(call.call for call in calls if call.replaced), sorted(self.MLPS * 2 + ["linear in training"]), calls)
        self.assertTrue(all(call.replaced for call in calls))

    def test_loss_and_gradients_of_a_vit_are_eager_modes_in_each_type(self):
        x = torch.randn(3, 3, 32, 32)
        self.expect_vits(self.expect_eagers(vit(), x, 1e-5))
        self.expect_vits(self.expect_eagers(vit().bfloat16(), x.bfloat16(), 2e-2))
        self.expect_vits(self.expect_eagers(vit(), x, 1e-2, on=True))
        self.expect_vits(self.expect_eagers(Inside(vit()), x, 1e-2))
        self.assertEqual(len(self.targets), 4 + 2 * 2 + 1)

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
        calls = self.expect_eagers(vit(), torch.randn(2, 3, 32, 32), 0.0, replace=None)
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


class RaceTest(TrainCase):
    """As on a GPU, whose kernels and times are the test's own; PyTorch computes what they would."""

    def setUp(self):
        super().setUp()
        self.raced, self.lost, self.outcome, self.asked = [], set(), "nearest", []
        for module, name, value in (
                (attention_ops, "is_on_gpu", lambda tensor: True), (training, "_answer", lambda x, ours, torchs: torchs()),
                (linear_train, "selected", self.selected), (subgraph, "compile_fx", self.counted), (backend, "_times", {}),
                (benchmark, "can_race", lambda device: True), (benchmark, "race", self.race)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def counted(self, module, inputs, config_patches=None):
        return without_inductor(module, inputs)

    def selected(self, problem, device):
        self.asked.append(problem)
        fields = {field.name: 0 for field in dataclasses.fields(vitune.Selection)}
        return vitune.Selection(**{**fields, "outcome": self.outcome, "problem": problem, "config": "c", "kernel_key": problem})

    def race(self, ours, theirs, device):
        self.raced.append((ours(), theirs()))
        return benchmark.Times(20.0 if len(self.raced) in self.lost else 5.0, 10.0)

    def report(self, model, x, on=True, **keywords):
        torch._dynamo.reset()
        self.raced.clear()
        self.asked.clear()
        backend._times.clear()
        compiled = vitune.compile(model, fullgraph=True, **keywords)
        step(compiled, x, on)
        return vitune.report(compiled)

    def test_both_sides_are_the_same_function_with_the_same_gradients(self):
        for model, on in ((Mlp(), True), (Mlp().bfloat16(), False)):
            report = self.report(model, torch.randn(2, 5, 24, dtype=model.fc1.weight.dtype), on)
            self.assertEqual([(call.call, call.replaced) for call in report.calls], [("linear, gelu and linear in training", True)])
            (ours, theirs), = self.raced
            self.assertEqual(len(ours), 6)  # the result, gradients of x and of two layers' parameters
            for mine, other in zip(ours, theirs, strict=True):
                self.assertEqual((mine.shape, mine.dtype), (other.shape, other.dtype))
                self.assertTrue(mine.isfinite().all() and mine.std() > 0.01)
                self.assertLessEqual((mine - other).norm().item(), 0.02 * other.norm().item())
            self.assertIn("5.0 us here, Inductor's 10.0", str(report))
            self.assertIn(OPS.act_linear_train.default, self.targets)

    def test_inductor_compiles_both_passes_of_both_sides_inside_of_a_compilation(self):
        from torch._inductor.compile_fx import compile_fx
        with mock.patch.object(subgraph, "compile_fx", compile_fx), mock.patch.object(backend, "compile_fx", compile_fx):
            report = self.report(Mlp(), torch.randn(2, 5, 24))
        self.assertEqual([call.replaced for call in report.calls], [True])
        (ours, theirs), = self.raced
        for mine, other in zip(ours, theirs, strict=True):
            self.assertLessEqual((mine - other).norm().item(), 0.02 * other.norm().item())

    def test_all_of_both_passes_is_asked(self):
        report = self.report(Mlp(), torch.randn(2, 5, 24))
        want = ["linear bf16 m=10 n=40 k=24 bias act=gelu params=fp32 aux", "linear bf16 m=10 n=24 k=40 bias params=fp32",
                "linear bf16 m=10 n=40 k=24 wt=@40 dact=gelu", "linear_weight_grad bf16 m=10 n=24 k=40 bias out=fp32",
                "linear bf16 m=10 n=24 k=40 wt=@24", "linear_weight_grad bf16 m=10 n=40 k=24 bias out=fp32"]
        self.assertEqual(self.asked, want)
        self.assertEqual([found.problem for found in report.calls[0].selections], want)
        model = Mlp()
        model.fc2.requires_grad_(False)
        model.fc1.bias.requires_grad_(False)
        self.report(model, torch.randn(2, 5, 24))
        self.assertEqual(self.asked, [*want[:3], want[4], want[5].replace(" bias", "")])

    def test_the_largest_that_is_faster_is_put_in_and_nothing_else(self):
        x = torch.randn(2, 5, 24)
        self.lost = {1}
        report = self.report(Mlp(), x)
        self.assertEqual([(call.call, call.replaced) for call in report.calls],
                         [("linear and gelu in training", True), ("linear in training", True)])
        self.assertIn("Inductor's was faster", report.calls[0].tried[0].reason)
        self.lost, before = {1, 2, 3, 4}, len(self.targets)
        report = self.report(Mlp(), x)
        self.assertEqual({call.replaced for call in report.calls}, {False})
        self.assertEqual(len(self.targets), before)

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_layers_of_one_kind_are_raced_once(self):
        report = self.report(vit(), torch.randn(2, 3, 32, 32))
        self.assertEqual(sum(call.replaced for call in report.calls), 7)
        self.assertEqual(len(self.raced), 4)  # qkv, proj, mlp, head

    def test_what_was_never_tuned_is_raced_too_and_told(self):
        self.outcome, x = "default", torch.randn(2, 5, 24)
        report = self.report(Mlp(), x)
        self.assertEqual([(call.call, call.replaced) for call in report.calls], [("linear, gelu and linear in training", True)])
        self.assertIn(OPS.act_linear_train.default, self.targets)
        self.assertEqual(report.untuned, tuple(self.asked))
        self.lost = {1, 2, 3, 4}
        self.targets.clear()
        report = self.report(Mlp(), x)
        self.assertEqual((self.targets, report.untuned[:6]), ([], tuple(self.asked[:6])))
        self.assertIn("Inductor's was faster when both were timed here, with kernels that were never tuned", report.calls[0].reason)

    def test_what_cannot_be_timed_stays_and_is_told(self):
        for outcome in ("nearest", "default"):
            self.outcome = outcome
            with mock.patch.object(benchmark, "can_race", lambda device: False):
                report = self.report(Mlp(), torch.randn(2, 5, 24))
            self.assertEqual(self.targets, [])
            self.assertIn("could not be timed", report.calls[0].reason)
            self.assertEqual(bool(report.untuned), outcome == "default")

    def test_a_step_then_tuning_what_it_asks_then_a_step_replaces_layers(self):
        tuned = set()

        def selected(problem, device):
            self.outcome = "exact" if problem in tuned else "default"
            return dataclasses.replace(self.selected(problem, device), config=self.outcome)

        def race(ours, theirs, device):
            return benchmark.Times(20.0 if self.outcome == "default" else 5.0, 10.0)
        with mock.patch.object(linear_train, "selected", selected), mock.patch.object(benchmark, "race", race):
            compiled, x = vitune.compile(vit(), fullgraph=True), torch.randn(2, 3, 32, 32)
            step(compiled, x, True)
            self.assertEqual(self.targets, [])
            for _ in range(3):
                problems = vitune.report(compiled).untuned
                if not problems:
                    break
                self.assertTrue(all(problem.startswith(("linear bf16", "linear_weight_grad bf16")) for problem in problems), problems)
                tuned.update(problems)
                torch._dynamo.reset()
                step(compiled, x, True)
        self.assertEqual(sum(call.replaced for call in vitune.report(compiled).calls), 7)
        self.assertEqual(len(self.targets), 9)

    def test_tune_of_a_model_that_trains_tunes_what_a_step_asks(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        told = pathlib.Path(folder.name) / "told.json"
        self.outcome, model, x = "default", Mlp(), torch.randn(2, 5, 24)
        model.fc1.weight.grad = torch.ones_like(model.fc1.weight)
        body = f"""
            import json, pathlib, sys
            asked = json.loads(pathlib.Path(sys.argv[sys.argv.index("--from") + 1]).read_text())["problems"]
            pathlib.Path({str(told)!r}).write_text(json.dumps(asked))
            for each in asked:
                winner = {{"objective": "cold", "cold": {{"median_us": 2.0}}, "default_us": 3.0}}
                print(json.dumps({{"result": {{"problem": each["problem"], "winner": winner, "share": 0.1, "message": ""}}}}))
            """
        with fake_command(body), autocast(True):
            result = vitune.tune(model, x, train=True, quiet=True)
        asked = [each["problem"] for each in json.loads(told.read_text())]
        self.assertEqual(sum(text.startswith("linear_weight_grad") for text in asked), 2)
        self.assertEqual([each.problem for each in result.tuned], asked)
        self.assertEqual([(call.call, call.replaced) for call in vitune.report(result.model).calls], [("linear, gelu and linear in training", True)])
        self.assertTrue(torch.equal(model.fc1.weight.grad, torch.ones_like(model.fc1.weight)))
        self.assertIsNone(model.fc2.weight.grad)
        with fake_command("raise SystemExit('it was asked to tune')"), self.assertRaisesRegex(vitune.InvalidArgument, "nothing that the model gives"):
            vitune.tune(Mlp().requires_grad_(False), x, train=True, quiet=True)
        with self.assertRaisesRegex(vitune.InvalidArgument, "belong to a model"):
            vitune.tune("linear bf16 m=8 n=8 k=8", train=True)

    def test_kernels_whose_answers_are_others_stay_out_however_fast(self):
        right = training.weight_grad_by_torch
        for name, wrong in (("transposed", lambda *given: (right(*given)[0].t().reshape(right(*given)[0].shape), right(*given)[1])),
                            ("no bias", lambda *given: (right(*given)[0], right(*given)[1] * 0)),
                            ("NaN", lambda *given: (right(*given)[0] * torch.nan, right(*given)[1])), ("right", right)):
            with self.subTest(name), mock.patch.object(training, "weight_grad_by_torch", wrong):
                report = self.report(Mlp(), torch.randn(2, 5, 24))
                self.assertEqual({call.replaced for call in report.calls}, {name == "right"})
                if name != "right":
                    self.assertRegex(report.calls[0].reason, "its answers are not Inductor's: result [0-5] of 6 is off")
                    self.assertIn("\n      not timed; linear bf16", str(report))
                    self.assertEqual(self.raced, [])

    def test_a_tile_that_is_missing_is_seen_and_operands_are_never_alike(self):
        like = torch.empty(512, 64)
        one, other = (benchmark.sample(like, torch.device("cpu")) for _ in range(2))
        self.assertFalse(torch.equal(one, other))
        self.assertEqual(benchmark.difference([one.bfloat16()], [one]), "")
        for index in ((slice(508, None),), (slice(None), slice(62, None))):
            wrong = one.clone()
            wrong[index] = 0
            self.assertRegex(benchmark.difference([wrong], [one]), "result 0 of 1 is off")
        many = benchmark.sample(torch.empty(50432, 64), torch.device("cpu"))
        wrong = many.clone()
        wrong[-8:] = 0
        self.assertIn("rows or columns", benchmark.difference([wrong], [many]))

    def test_a_device_that_is_lost_ends_compiling_with_its_own_error(self):
        def race(ours, theirs, device):
            raise RuntimeError("operation failed due to a previous error during capture")
        with mock.patch.object(benchmark, "race", race):
            report = self.report(Mlp(), torch.randn(2, 5, 24))
            self.assertIn("could not be timed", report.calls[0].reason)
            with mock.patch.object(benchmark, "expect_devices_alive", side_effect=RuntimeError("CUDA error: an illegal memory access")), \
                    self.assertRaisesRegex(Exception, "CUDA error: an illegal memory access"):
                self.report(Mlp(), torch.randn(2, 5, 24))

    def test_each_device_in_use_is_asked_whether_it_is_alive(self):
        asked = []

        def synchronize(index):
            asked.append(index)
            if index == 2:
                raise RuntimeError("CUDA error: an illegal memory access")
        for name, value in (("is_initialized", lambda: True), ("is_current_stream_capturing", lambda: False), ("device_count", lambda: 4),
                            ("synchronize", synchronize)):
            patch = mock.patch.object(torch.cuda, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        with mock.patch.object(torch._C, "_cuda_hasPrimaryContext", lambda index: index != 1, create=True):
            with self.assertRaisesRegex(RuntimeError, "illegal memory access"):
                benchmark.expect_devices_alive()
        self.assertEqual(asked, [0, 2])
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True):
            benchmark.expect_devices_alive()  # which would end the capture
        self.assertEqual(asked, [0, 2])

    def test_training_is_turned_off_by_a_word_and_not_raced(self):
        report = self.report(Mlp(), torch.randn(2, 5, 24), training=False)
        self.assertEqual({(call.replaced, call.reason) for call in report.calls}, {(False, "a gradient is wanted of it")})
        self.assertEqual((self.raced, self.asked, self.targets), ([], [], []))
        self.assertFalse(backend.Backend(None, None, None, None, True, False).__reduce__()[1][-1])
        with self.assertRaisesRegex(vitune.InvalidArgument, "training=False leaves these to Inductor"):
            vitune.compile(Mlp(), replace=["linear_train"], training=False)

    def test_a_library_that_refuses_leaves_it_pytorchs(self):
        def refused(problem, device):
            raise vitune.InvalidArgument(f"'{problem}': unknown")
        with mock.patch.object(linear_train, "selected", refused):
            report = self.report(Mlp(), torch.randn(2, 5, 24))
        self.assertEqual(self.targets, [])
        self.assertIn("unknown", report.calls[0].reason)

    def test_types_without_kernels_are_told(self):
        report = self.report(Mlp(), torch.randn(2, 5, 24), on=False, replace=["linear_train"])
        self.assertEqual({call.reason for call in report.calls}, {"type float32: the kernels take bfloat16 and float16"})


@needs_device
class ServedTest(TrainCase):
    """By the library on the emulated device, as if winners of other problems served."""

    def setUp(self):
        super().setUp()
        self.asked = []

        def launch(problem, tensors):
            self.asked.append(problem.text)
            launch_staged(problem, tensors)
        nearest = lambda problem, device: served_by_nearest(vitune.Problem(problem), 0)  # noqa: E731
        for module, name, value in ((attention_ops, "is_on_gpu", lambda tensor: True), (linear_ops, "launch", launch),
                                    (training, "launch", launch), (linear_train, "selected", nearest)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

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
        for way in ("DDP, ddp_optimizer, autocast True", "DDP, python_reducer, autocast False", "DDP, no_sync", "FSDP2: [1, 1, 1]"):
            self.assertEqual(done.stdout.count(way), 2, done.stdout)


if __name__ == "__main__":
    unittest.main()
