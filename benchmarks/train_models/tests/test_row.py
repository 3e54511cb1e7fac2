# benchmarks/train_models/tests/test_row.py -- A row has every way's figures; what fails, or is no step, says so and leaves the others.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import random
import unittest
from unittest import mock

from .support import needs, training

try:
    import torch
    from models import row as models_row
    from models.clock import CpuClock
    from train_models import row, ways

    BUILDS = dict(ways.BUILDS)
except ImportError:
    torch = None

BYTES = 2**30


class _Clock:
    """Has graphs, and knows memory and kernels."""

    modes = ("eager", "graph")

    def __init__(self):
        self.lost, self.released = False, 0

    def synchronize(self):
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access")

    def release(self):
        self.released += 1

    def passes(self, run, count):
        run()
        return 2.0

    def host(self, run):
        run()
        return 0.5

    def peak(self, run):
        return 1024.0, run()

    def kernels(self, run):
        run()
        return [("nvjet_x", 8.0, 2.0), ("multi_tensor_apply_kernel", 2.0, 1.0)]


class _Captures:
    """Stands in for CUDA's graphs: a replay is a step."""

    fails = None
    made = 0

    def __init__(self, training):
        pass

    def warm(self, step):
        step()

    def capture(self, step):
        type(self).made += 1
        if self.fails:
            raise self.fails
        loss = step().clone()
        return mock.Mock(replay=lambda: loss.copy_(step())), loss


@needs("torch")
class RowTest(unittest.TestCase):
    def setUp(self):
        self.training, self.clock, self.inside = training(), _Clock(), []
        self.builds = dict.fromkeys(ways.BUILDS, lambda training: (training.step(training.model), None))
        self.compiled = mock.Mock(calls=[mock.Mock(replaced=False)] * 3)
        self.builds["vitune"] = lambda training: (training.step(training.model), self.compiled)
        self.captures = type("Captures", (_Captures,), {})
        for patch in (
            mock.patch.object(row, "Captures", self.captures),
            mock.patch.object(row, "BUILDS", self.builds),
            mock.patch.object(row, "replaced", lambda compiled: {"replaced": 0, "known": len(compiled.calls)}),
            mock.patch.object(models_row, "BLOCK_MS", 0.0),
            mock.patch("vitune.torch.enabled", self.installed),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    @contextlib.contextmanager
    def installed(self, **words):
        self.inside.append(words)
        yield
        self.inside.pop()

    def measure(self, kind="steps", clock=None, left_out={}):
        found = row.Row(self.training, clock or self.clock, 0.0, random.Random(1))
        return {each["mode"]: each for each in found.measure(ways.ways_of(kind), left_out)}

    def test_every_way_has_its_figures_in_its_modes(self):
        found = self.measure()
        self.assertEqual(set(found["called"]["ms"]), {"eager", "compile_default", "compile_reduce", "compile_step_graph", "vitune_compile", "vitune_compile_training",
                                                      "vitune_eager", "vitune_train_step"})  # fmt: skip
        self.assertEqual(set(found["graph"]["ms"]), {"eager", "compile_default", "vitune_compile", "vitune_eager"})
        for mode, ours in zip((found["called"], found["graph"]), ("vitune_train_step", "vitune_compile")):
            self.assertEqual(mode["failed"], {})
            self.assertEqual(mode["ms"]["eager"], {"ms": 2.0, "low": 2.0, "high": 2.0})
            self.assertEqual((mode["gain"]["of"], mode["gain"]["times"]), (ours, 1.0))
            self.assertEqual((mode["eager_gain"]["over"], mode["eager_gain"]["times"]), ("eager", 1.0))
            self.assertEqual(mode["replaced"], {"vitune": {"replaced": 0, "known": 3}})
            self.assertEqual(set(mode["peak_gb"]), set(mode["ms"]))
            self.assertEqual((set(mode["idle_ms"]), mode["idle_ms"]["eager"], mode["in_a_row"]["eager"]), (set(mode["ms"]), 2.0, row.LEAST_IN_A_ROW))
        self.assertEqual(found["graph"]["kinds_us"]["eager"], {"gemm": 8.0, "optimizer": 2.0})
        self.assertEqual(set(found["called"]["kinds_us"]), {"compile_reduce", "vitune_compile_training", "vitune_train_step"})  # the others' are those of their graphs

    def test_a_search_stands_beside_the_strongest_ways_of_its_mode(self):
        found = self.measure("searched")
        self.assertEqual(set(found["called"]["ms"]), {"compile_step_graph", "vitune_train_step", "compile_max"})
        self.assertEqual(set(found["graph"]["ms"]), {"compile_default", "vitune_compile", "compile_max"})
        for mode, ours in zip((found["called"], found["graph"]), ("vitune_train_step", "vitune_compile")):
            self.assertEqual((mode["failed"], mode["gain"]["of"], mode["gain"]["times"]), ({}, ours, 1.0))

    def test_steps_of_the_drop_in_alone_run_where_it_is_installed(self):
        ran, build = {"eager": [], "drop_in": []}, ways.BUILDS["eager"]

        def watched(name):
            def make(training):
                step = build(training)[0]
                return lambda: ran[name].append(list(self.inside)) or step(), None
            return make
        self.builds |= {name: watched(name) for name in ran}
        self.measure("eager")
        self.assertEqual(({str(each) for each in ran["eager"]}, {str(each) for each in ran["drop_in"]}),
                         ({"[]"}, {str([{"timm": True, "training": True}])}))
        self.assertGreater(len(ran["drop_in"]), 8)

    def test_the_eager_step_alone_has_the_gain_of_the_drop_in_and_no_other(self):
        for mode in self.measure("eager").values():
            self.assertEqual((set(mode["ms"]), mode["eager_gain"]["over"], mode.get("gain"), mode["failed"]), ({*ways.EAGER}, "eager", None, {}))

    def test_graphs_alone_have_the_gain_over_pytorchs(self):
        found = self.measure("graph")
        self.assertEqual((set(found), set(found["graph"]["ms"])), ({"graph"}, {"eager", "compile_default", "vitune_compile"}))
        self.assertEqual((found["graph"]["gain"]["of"], found["graph"]["failed"]), ("vitune_compile", {}))

    def test_steps_in_a_row_fill_a_block_by_the_own_time_of_each_way(self):
        ms = {"eager": 30.0, "compile_default": 8.0, "vitune_train_step": 4.0, "compile_step_graph": 0.1}
        clock, asked = self.clock, {name: [] for name in ms}
        runs = {name: (lambda name=name: name) for name in ms}
        clock.passes = lambda run, count: asked[run()].append(count) or ms[run()]
        with mock.patch.object(models_row, "BLOCK_MS", 40.0):
            found = models_row.timed("called", runs, dict.fromkeys(runs, contextlib.nullcontext), clock, 0.0, random.Random(1), row.LEAST_IN_A_ROW, True)
        self.assertEqual(found.in_a_row, {"eager": 4, "compile_default": 5, "vitune_train_step": 10, "compile_step_graph": 100})
        for name, count in found.in_a_row.items():
            self.assertEqual(asked[name][-2:], [1, count])  # alone, on an idle device, and in a row
            self.assertEqual((set(found.alone[name]), len(found.alone[name])), ({ms[name]}, len(found.samples[name])))
        self.assertEqual(models_row.timed("called", runs, dict.fromkeys(runs, contextlib.nullcontext), clock, 0.0, random.Random(1)).alone, {})

    def test_a_build_is_made_and_captured_once_for_all_that_use_it(self):
        made = []
        for name, build in self.builds.items():
            self.builds[name] = lambda training, name=name, build=build: made.append(name) or build(training)
        self.measure()
        self.assertEqual(sorted(made), ["default", "drop_in", "eager", "reduce", "vitune", "vitune_in_graph", "vitune_step"])
        self.assertEqual(self.captures.made, 4)  # eager with and without us, default (also as compile_step_graph), vitune

    def test_memory_is_a_steps_over_what_stands_and_what_stands(self):
        with mock.patch.object(self.training, "standing_bytes", lambda: 2 * BYTES):
            found = self.measure()
        self.assertEqual([found[mode]["peak_gb"]["eager"] for mode in found], [3.0, 3.0])
        self.training.step(self.training.model)()
        parameters = sum(each.numel() for each in self.training.model.parameters())
        self.assertGreaterEqual(self.training.standing_bytes(), 12 * parameters)  # weights and two moments in fp32

    def test_a_way_that_fails_says_why_in_each_of_its_places_and_the_others_go_on(self):
        tries = []

        def fails(training):
            tries.append(1)
            raise torch.OutOfMemoryError("CUDA out of memory")

        self.builds["default"] = fails
        found = self.measure()
        self.assertEqual(set(found["called"]["failed"]), {"compile_default", "compile_step_graph"})
        self.assertEqual(found["graph"]["failed"], {"compile_default": "OutOfMemoryError: CUDA out of memory"})
        self.assertIn("vitune_compile", found["graph"]["ms"])
        self.assertEqual(len(tries), 1)
        self.assertGreater(self.clock.released, 0)

    def test_a_report_that_fails_costs_vitunes_figure_alone(self):
        with mock.patch.object(row, "replaced", side_effect=RuntimeError("no report")):
            found = self.measure()
        self.assertEqual(found["called"]["failed"], {"vitune_compile": "RuntimeError: no report"})
        self.assertIn("compile_default", found["called"]["ms"])

    def test_a_capture_that_fails_costs_graphs_alone(self):
        self.captures.fails = RuntimeError("operation not permitted when stream is capturing")
        found = self.measure()
        self.assertEqual(set(found["graph"]["failed"]), {"eager", "compile_default", "vitune_compile", "vitune_eager"})
        self.assertEqual(found["graph"]["ms"], {})
        self.assertEqual(set(found["called"]["failed"]), {"compile_step_graph"})
        self.assertIn("compile_default", found["called"]["ms"])
        self.assertEqual(set(found["called"]["kinds_us"]), {"eager", "compile_default", "compile_reduce", "vitune_compile", "vitune_compile_training",
                                                           "vitune_eager", "vitune_train_step"})

    def test_a_replay_that_does_not_write_its_loss_is_no_step(self):
        def capture(captures, step):
            return mock.Mock(replay=step), step().clone()

        self.captures.capture = capture
        found = self.measure()
        self.assertIn("wrong loss: nan", found["graph"]["failed"]["compile_default"])
        self.assertEqual(found["graph"]["ms"], {})

    def lose(self):
        self.clock.lost = True
        raise RuntimeError("CUDA error")

    def expect_loss(self, way, doing):
        with self.assertRaises(models_row.Poisoned) as found:
            self.measure()
        self.assertEqual(str(found.exception), f"{way}, {doing}: RuntimeError: CUDA error: an illegal memory access")
        self.assertEqual(found.exception.way, way)

    def test_a_lost_device_ends_the_row_which_says_with_which_way_and_at_what(self):
        self.builds["reduce"] = lambda training: self.lose()
        self.expect_loss("compile_reduce as called", "prepared")

    def test_a_capture_that_loses_the_device_says_so(self):
        self.captures.warm = lambda captures, step: self.lose()
        self.expect_loss("eager as graph", "captured")

    def test_a_replay_that_loses_the_device_says_so(self):
        def capture(captures, step):
            graph, loss = _Captures.capture(captures, step)
            if self.captures.made == 3:
                graph.replay = self.lose
            return graph, loss

        self.captures.capture = capture
        self.expect_loss("vitune_compile as graph", "replayed")

    def test_a_way_that_loses_the_device_while_it_is_timed_says_so(self):
        self.clock.host = lambda run: self.lose()
        with self.assertRaisesRegex(models_row.Poisoned, "^[a-z_]+ as graph, timed: "):
            self.measure()

    def test_a_profile_that_loses_the_device_says_so(self):
        self.clock.kernels = lambda run: self.lose()
        with self.assertRaisesRegex(models_row.Poisoned, "^[a-z_]+ as graph, profiled: "):
            self.measure()

    def test_graphs_are_timed_before_what_is_called_is_prepared(self):
        trace = []
        self.clock.host = lambda run: trace.append("timed") or 0.5
        self.builds["reduce"] = lambda training: trace.append("prepared") or (training.step(training.model), None)
        self.measure()
        self.assertIn("timed", trace[: trace.index("prepared")])

    def test_ways_that_record_graphs_of_their_own_are_made_when_all_others_are_timed(self):
        trace = []
        self.clock.host = lambda run: trace.append("timed") or 0.5
        self.builds |= {
            name: lambda training, name=name: trace.append(name) or (training.step(training.model), self.compiled)
            for name in ("reduce", "vitune_step", "vitune")
        }
        found = self.measure()["called"]
        self.assertNotIn("reduce", trace[: len(trace) - 1 - trace[::-1].index("vitune")])
        self.assertIn("timed", trace[trace.index("vitune") : trace.index("reduce")])
        self.assertIn("compile_reduce", found["ms"])
        self.assertIn(found["gain"]["over"], found["ms"])

    def test_a_way_that_is_left_out_of_a_mode_is_not_made_for_it_and_says_why(self):
        made, build = [], self.builds["vitune_in_graph"]
        self.builds["vitune_in_graph"] = lambda training: made.append(1) or build(training)
        why = "the device no longer answers"
        found = self.measure(left_out={"vitune_compile as graph": why, "vitune_compile_training as called": why})
        self.assertEqual(found["graph"]["failed"], {"vitune_compile": why})
        self.assertEqual((made, found["called"]["failed"]), ([], {"vitune_compile_training": why}))
        self.assertEqual((set(found["graph"]["ms"]), "vitune_compile" in found["called"]["ms"]), ({"eager", "compile_default", "vitune_eager"}, True))

    def test_a_step_graph_is_left_out_with_the_graph_that_it_replays(self):
        rows = self.measure(left_out={"compile_default as graph": "lost"})
        self.assertEqual({"compile_step_graph": "lost"}, rows["called"]["failed"])
        self.assertEqual({"compile_default": "lost"}, rows["graph"]["failed"])
        self.assertIn("compile_default", rows["called"]["ms"])

    def expect_failure(self, words, build):
        self.builds["default"] = build
        found = self.measure()
        for mode, name in (("called", "compile_default"), ("called", "compile_step_graph"), ("graph", "compile_default")):
            self.assertIn(words, found[mode]["failed"][name])
        self.assertNotIn("compile_default", found["called"]["ms"])

    def test_what_computes_another_loss_is_no_step(self):
        self.expect_failure("wrong loss", lambda training: (training.step(lambda images: 40 * training.model(images)), None))

    def test_what_computes_other_gradients_is_no_step(self):
        def half(images):
            logits = self.training.model(images)
            return logits.detach() + 0.5 * (logits - logits.detach())

        self.expect_failure("wrong gradients", lambda training: (training.step(half), None))

    def test_what_leaves_a_parameter_without_a_gradient_is_no_step(self):
        def cut(images):
            model = self.training.model
            return model[3](model[2](model[1](model[0](images))).detach())

        self.expect_failure("2 of 4 parameters have no gradient", lambda training: (training.step(cut), None))

    def test_what_leaves_the_optimizer_out_or_steps_twice_is_no_step(self):
        def without(training):
            def run():
                training.forget_gradients()
                loss = training.loss(training.model, training.images, training.labels)
                loss.backward()
                return loss.detach()

            return run, None

        self.expect_failure("took 0 steps instead of one", without)

        def twice(training):
            step = training.step(training.model)
            return lambda: [step(), step()][1], None

        self.expect_failure("took 2 steps instead of one", twice)

    def test_a_loss_that_is_not_finite_is_no_yardstick(self):
        with torch.no_grad():
            self.training.model[3].bias.fill_(float("nan"))
        found = self.measure()
        self.assertIn("nothing to compare with", found["called"]["failed"]["eager"])
        self.assertEqual(found["called"]["ms"], {})

    def test_vitunes_step_is_the_eager_one_where_there_are_no_graphs(self):
        one, other = training(rate=1e-2), training(rate=1e-2)
        with mock.patch("vitune.compile", lambda model, dynamic: model):
            step, subject = BUILDS["vitune_step"](one)
        self.assertIs(subject, one.model)
        eager = other.step(other.model)
        for count in range(1, 4):
            self.assertEqual(step().item(), eager().item())
            self.assertEqual((one.count(), one.gradient_norm()), (count, other.gradient_norm()))

    def test_without_cuda_steps_are_called_and_the_step_graph_is_the_compiled_step(self):
        compiled = []

        def compile_(model, mode=None, dynamic=None):
            compiled.append((mode, dynamic))
            return torch._dynamo.optimize("eager")(model)

        self.builds |= {"default": ways.BUILDS["default"], "reduce": ways.BUILDS["reduce"]}
        before = [each.clone() for each in self.training.model.parameters()]
        with mock.patch.object(torch, "compile", compile_):
            found = self.measure(clock=CpuClock())
        self.assertEqual(list(found), ["called"])
        self.assertEqual((found["called"]["failed"], found["called"]["peak_gb"], found["called"]["kinds_us"]), ({}, {}, {}))
        self.assertEqual(set(found["called"]["ms"]), {"eager", "compile_default", "compile_reduce", "compile_step_graph", "vitune_compile", "vitune_compile_training",
                                                      "vitune_eager", "vitune_train_step"})  # fmt: skip
        self.assertEqual(compiled, [(None, False), ("reduce-overhead", False)])
        self.assertEqual(found["called"]["loss"]["eager"], found["called"]["loss"]["default"])
        for was, each in zip(before, self.training.model.parameters()):  # at a rate of 0 all ways have the same weights
            self.assertTrue(torch.equal(was, each))
