# python/tests/test_torch_compile_train_race.py -- The race of layers that train in vitune.compile(): both passes of both sides, and what it is told.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import pathlib
import tempfile
import unittest
from unittest import mock

import vitune

from .support import torch
from .test_command import fake_command
from .test_torch_compile import without_inductor
from .test_torch_compile_train import OPS, Mlp, TrainCase, autocast, step, timm, vit

from vitune._compile import backend, device_bound
from vitune._compile.patterns import benchmark, every, linear_train, subgraph
from vitune._ops import attention as attention_ops, norm_training, training


class RaceCase(TrainCase):
    """As on a GPU, whose kernels and times are the test's own; PyTorch computes what they would."""

    pattern = linear_train

    def setUp(self):
        super().setUp()
        self.raced, self.lost, self.outcome, self.asked = [], set(), "nearest", []
        self.predicted = 0.0
        for module, name, value in (
                (attention_ops, "is_on_gpu", lambda tensor: True), (training, "_answer", lambda x, ours, torchs: torchs()),
                (norm_training, "_answer", lambda x, ours, torchs: torchs()), (self.pattern, "selected", self.selected),
                (subgraph, "compile_fx", self.counted), (backend, "_times", {}),
                (benchmark, "can_race", lambda device: True), (benchmark, "race", self.race)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def counted(self, module, inputs, config_patches=None):
        return without_inductor(module, inputs)

    def selected(self, problem, device):
        self.asked.append(problem)
        fields = {field.name: 0 for field in dataclasses.fields(vitune.Selection)}
        return vitune.Selection(**{**fields, "outcome": self.outcome, "problem": problem, "config": "c", "kernel_key": problem,
                                   "predicted_us": self.predicted})

    def race(self, ours, theirs, device):
        self.raced.append((ours(), theirs()))
        return benchmark.Times(20.0 if len(self.raced) in self.lost else 5.0, 10.0)

    def report(self, model, x, on=True, images=True, **keywords):
        torch._dynamo.reset()
        self.raced.clear()
        self.asked.clear()
        backend._times.clear()
        compiled = vitune.compile(model, fullgraph=True, **{"training": True, **keywords})
        step(compiled, x, on, images=images)
        return vitune.report(compiled)


class RaceTest(RaceCase):
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
        self.assertEqual(len(self.raced), 6)  # qkv, proj, mlp, head; proj and mlp of the class token

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

    def test_deterministic_algorithms_leave_nothing_to_times(self):
        x, self.lost = torch.randn(2, 5, 24), {1, 2, 3, 4}
        torch.use_deterministic_algorithms(True)
        try:
            report = self.report(Mlp(), x)
            self.assertEqual([(call.call, call.replaced) for call in report.calls], [("linear, gelu and linear in training", True)])
            self.assertEqual(self.raced, [])
            self.assertIn("not timed, since deterministic algorithms are asked for", str(report))
            self.assertIn(OPS.act_linear_train.default, self.targets)
            with mock.patch.object(benchmark, "difference", lambda ours, theirs: "result 0 of 6 is off"):
                wrong = self.report(Mlp(), x)
            self.assertEqual({call.replaced for call in wrong.calls}, {False})
            self.assertIn("its answers are not", wrong.calls[0].reason)
        finally:
            torch.use_deterministic_algorithms(False)
        self.report(Mlp(), x, options={"deterministic": True})  # Inductor's, of this model alone
        self.assertEqual(self.raced, [])
        torch._dynamo.reset()
        timed = vitune.compile(Mlp(), fullgraph=True, training=True)
        step(timed, x, True)
        self.assertEqual(({call.replaced for call in vitune.report(timed).calls}, len(self.raced)), ({False}, 4))  # timed after all

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
            compiled, x = vitune.compile(vit(), fullgraph=True, training=True), torch.randn(2, 3, 32, 32)
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

    def test_plain_steps_are_served_where_the_gpu_has_much_to_do(self):
        called = mock.patch.object(every, "called_for_ours", lambda: ["vitune_native::linear_train"])
        # A place of six kernels; Inductor's takes 10 us in the mock's race.
        for of_kernel, predicted, least, served, raced in ((7.0, 42.0, 10.0, True, 1), (7.0, 42.0, 10.1, False, 1), (7.0, 42.1, 10.0, False, 0),
                                                           (0.0, 42.0, 10.0, True, 1)):
            self.predicted = of_kernel
            with self.subTest(predicted=predicted, least=least), called, mock.patch.object(device_bound, "LEAST_US", least), \
                    mock.patch.object(device_bound, "LEAST_PREDICTED_US", predicted):
                report = self.report(Mlp(), torch.randn(2, 5, 24), training=None)
                self.assertEqual([call.replaced for call in report.calls if call.call == "linear, gelu and linear in training"], [served])
                self.assertEqual(len(self.raced), raced)
                self.assertEqual("take vitune.train_step()" in str(report), not served)

    def test_graphs_without_gradients_are_not_looked_at(self):
        with mock.patch.object(every, "called_for_ours", lambda: ["vitune_native::linear_train"]), \
                mock.patch.object(device_bound, "mean_us", return_value=0.0) as looked:
            with torch.no_grad():
                vitune.compile(Mlp())(torch.randn(2, 5, 24))
            looked.assert_not_called()
            step(vitune.compile(Mlp()), torch.randn(2, 5, 24), True)
            looked.assert_called()

    def test_a_place_that_cannot_be_looked_at_leaves_plain_steps_alone(self):
        called = mock.patch.object(every, "called_for_ours", lambda: ["vitune_native::linear_train"])
        with called, mock.patch.object(device_bound, "beginning_at", side_effect=KeyError("a node")):
            report = self.report(Mlp(), torch.randn(2, 5, 24), training=None)
        self.assertEqual((self.raced, {call.replaced for call in report.calls}), ([], {False}))

    def test_plain_steps_are_left_alone_where_calls_are_pythons_and_what_is_captured_is_raced(self):
        with mock.patch.object(every, "called_for_ours", lambda: []):
            report = self.report(Mlp(), torch.randn(2, 5, 24), training=None)
        self.assertEqual((self.raced, self.asked, self.targets), ([], [], []))
        self.assertTrue(all("take vitune.train_step()" in call.reason for call in report.calls), report)
        for captured in (vitune.compile(Mlp(), mode="reduce-overhead"), vitune.compile(Mlp(), replace=["linear_train"])):
            self.assertTrue(backend._backend_of(captured, "report").training)
        plain = vitune.compile(Mlp())
        self.assertFalse(backend._backend_of(plain, "report").training)
        backend.serve_training(plain)
        self.assertTrue(backend._backend_of(plain, "report").training)
        told = vitune.compile(Mlp(), training=False)
        backend.serve_training(told)
        self.assertFalse(backend._backend_of(told, "report").training)

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


if __name__ == "__main__":
    unittest.main()
