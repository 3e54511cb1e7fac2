# python/tests/test_torch_train_step.py -- vitune.train_step() on a CPU: plain steps, and captured ones on a tape that stands in for a graph.
# SPDX-License-Identifier: Apache-2.0
import copy
import functools
import itertools
import sys
import unittest
import warnings
from unittest import mock

import vitune

from .support import OPERATORS, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("steps do not know how operators are called: once is enough")

import torch.nn.functional as F
from torch import nn

from vitune._train import graphed, step as step_module

from .taped import TapedGraphs
from .train_step_cases import (ACCUMULATE, CAPTURABLE, CLIPS, OPTIMIZERS, RATE, SCHEDULES, STEPS, WARM, batches, cosine, loss_of,
                               network, one_thread, plain_step, rate_as_tensor, same, warm_up)

setUpModule = one_thread


def train(make, schedule, clip, accumulate, run_of):
    """Losses of 20 steps and the model. run_of: model, optimizer -> what is called with the batches of one step."""
    model = network()
    optimizer = make(model.parameters(), lr=RATE)
    scheduler = schedule and schedule(optimizer)
    run, given, losses = run_of(model, optimizer), iter(batches(STEPS * accumulate)), []
    torch.manual_seed(2)
    for _ in range(STEPS):
        losses += run(list(itertools.islice(given, accumulate)))
        if scheduler:
            scheduler.step()
    return losses, model


def by_vitune(clip, accumulate, kept=None, **options):
    def run_of(model, optimizer):
        step = vitune.train_step(model, loss_of, optimizer, clip=clip, accumulate=accumulate, **options)
        if kept is not None:
            kept.append(step)
        return lambda micro: [step(*batch).item() for batch in micro]
    return run_of


def calls_of(run):
    """How many functions Python calls, its own and those in C."""
    events = []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        run()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in events)


class Gate(nn.Module):
    """Its attributes are those that models have beside numbers."""

    def __init__(self):
        super().__init__()
        self.scaling, self.kind, self.bound, self.factor, self.weight = {"a": 1.0}, "gelu", None, 1.0, torch.ones(16)
        self.mode, self.limits = None, [1.0] * 100

    def forward(self, inputs):
        inputs = inputs * self.scaling["a"] * self.factor * self.weight * self.limits[-1] * (1.0 if hasattr(self, "mode") else 2.0)
        inputs = inputs if self.bound is None else inputs.clamp(max=self.bound)
        return inputs.relu() if self.kind == "relu" else F.gelu(inputs)


class Centred(nn.Module):
    """A loss with a mean of its own, as DINO's; in place or made anew, and as a buffer or not."""

    def __init__(self, in_place, buffer):
        super().__init__()
        self.in_place = in_place
        if buffer:
            self.register_buffer("centre", torch.zeros(4))
        else:
            self.centre = torch.zeros(4)

    def forward(self, model, inputs, labels):
        logits = model(inputs)
        value, mean = F.cross_entropy(logits - self.centre, labels), self.centre * 0.5 + logits.detach().mean(0)
        if self.in_place:
            self.centre.copy_(mean)
        else:
            self.centre = mean
        return value


@needs_torch
class PlainStepTest(unittest.TestCase):
    """Without a GPU."""

    def expect_plain(self, make, schedule, clip, accumulate):
        found, model = train(make, schedule, clip, accumulate, by_vitune(clip, accumulate))
        wanted, theirs = train(make, schedule, clip, accumulate, lambda model, optimizer: lambda micro: plain_step(model, optimizer, micro, clip))
        self.assertEqual(found, wanted)
        self.assertTrue(same(model, theirs))

    def test_losses_and_weights_are_to_the_bit_those_of_a_loop_in_pytorch_with_each_optimizer(self):
        for name, make in OPTIMIZERS.items():
            for clip, accumulate in ((None, 1), (0.5, 3)):
                with self.subTest(name, clip=clip, accumulate=accumulate):
                    self.expect_plain(make, cosine, clip, accumulate)

    def test_and_with_each_schedule_clipping_and_accumulation(self):
        for schedule, clip, accumulate in itertools.product(SCHEDULES, CLIPS, ACCUMULATE):
            with self.subTest(schedule=schedule, clip=clip, accumulate=accumulate):
                self.expect_plain(OPTIMIZERS["AdamW"], schedule, clip, accumulate)

    def test_the_report_says_that_steps_are_plain_and_why(self):
        model = network()
        for options, words in (({}, "the model is on the CPU"), ({"capture": False}, "capture=False")):
            step = vitune.train_step(model, loss_of, torch.optim.AdamW(model.parameters()), **options)
            step(*batches(1)[0])
            self.assertIn(f"plain steps, 1 calls: {words}", str(step.report()))
            self.assertIn("not compiled by vitune", str(step.report()))
            self.assertFalse(step.report().captured)

    def test_a_compiled_model_is_reported(self):
        model = network()
        step = vitune.train_step(model, loss_of, torch.optim.AdamW(model.parameters()), compile=True)
        self.assertIn("the model: nothing was compiled yet", str(step.report()))
        compiled = vitune.compile(model)
        self.assertIs(vitune.train_step(compiled, loss_of, torch.optim.AdamW(model.parameters()), compile=True)._work.called, compiled)


@needs_torch
class CapturedStepTest(unittest.TestCase):
    """On a tape, which has addresses and constants as a graph has."""

    def setUp(self):
        self.graphs = type("Graphs", (TapedGraphs,), {"made": 0})
        patch = mock.patch.object(step_module, "maker_of_graphs", lambda device: self.graphs)
        patch.start()
        self.addCleanup(patch.stop)
        self.model = network()
        self.optimizer = CAPTURABLE["AdamW"](self.model.parameters(), lr=RATE)
        # What runs beside, without a tape.
        self.other = network()
        self.theirs = CAPTURABLE["AdamW"](self.other.parameters(), lr=RATE)

    def step(self, loss=loss_of, **options):
        return vitune.train_step(self.model, loss, self.optimizer, compile=False, **options)

    def plain(self, *micro, **options):
        return plain_step(self.other, self.theirs, micro, rate=rate_as_tensor, **options)[-1]

    def expect_alike(self, step, given, **options):
        """Both take these batches, each with the same random numbers."""
        for place, batch in enumerate(given):
            torch.manual_seed(100 + place)
            mine = step(*batch)
            torch.manual_seed(100 + place)
            self.assertEqual(mine.item(), self.plain(batch, **options), place)
        self.assertTrue(same(self.model, self.other))

    def test_losses_and_weights_are_to_the_bit_those_of_a_loop_in_pytorch(self):
        for name, schedule, clip, accumulate in itertools.product(CAPTURABLE, SCHEDULES, CLIPS, ACCUMULATE):
            if name != "AdamW" and (schedule, clip) != (warm_up, 0.5):
                continue
            with self.subTest(name, schedule=schedule, clip=clip, accumulate=accumulate):
                kept = []
                found, model = train(CAPTURABLE[name], schedule, clip, accumulate, by_vitune(clip, accumulate, kept, compile=False))
                wanted, theirs = train(CAPTURABLE[name], schedule, clip, accumulate, lambda model, optimizer: functools.partial(
                    plain_step, model, optimizer, clip=clip, rate=rate_as_tensor))
                self.assertEqual(found, wanted)
                self.assertTrue(same(model, theirs))
                shapes = kept[0].report().shapes
                self.assertEqual([shape.captured for shape in shapes], [True] * min(accumulate, 2))
                self.assertEqual(sum(shape.replays + shape.before for shape in shapes), STEPS * accumulate)

    def test_a_step_is_one_graph_and_its_report_says_so(self):
        step = self.step()
        self.expect_alike(step, batches(WARM + 2))
        self.assertEqual(self.graphs.made, 1)
        text = str(step.report())
        self.assertIn("Sequential, AdamW on cpu: forward, backward and optimizer in one CUDA graph", text)
        self.assertIn(f"[[8, 6] float32, [8] int64]: {WARM} plain, captured in", text)
        self.assertIn("2 replays", text)
        self.assertIn("memory of the graphs: 1 MiB", text)

    def test_groups_keep_what_schedulers_and_users_put_there(self):
        step = self.step()
        for rate in (RATE, torch.tensor(RATE / 2), RATE / 4, RATE / 5, torch.tensor([RATE / 8]), RATE / 16, torch.tensor(RATE)):
            self.optimizer.param_groups[0]["lr"] = self.theirs.param_groups[0]["lr"] = rate
            self.expect_alike(step, batches(1))
            self.assertIs(self.optimizer.param_groups[0]["lr"], rate)
        self.assertEqual((self.graphs.made, step.report().changes), (1, ()))

    def test_dropout_draws_anew_in_each_replay(self):
        with torch.no_grad():
            step, batch = self.step(), batches(1)[0]
            self.optimizer.param_groups[0]["lr"] = 0.0
        losses = {step(*batch).item() for _ in range(WARM + 6)}
        self.assertGreater(len(losses), WARM + 4)

    def test_results_are_the_callers(self):
        def loss(model, inputs, labels):
            logits = model(inputs)
            return F.cross_entropy(logits, labels), {"logits": logits, "kind": "mean"}

        step = self.step(loss)
        found = [step(*batch) for batch in batches(WARM + 3)]
        self.assertEqual(len({value.item() for value, _ in found}), len(found))
        self.assertEqual(len({more["logits"].sum().item() for _, more in found}), len(found))
        self.assertTrue(all(not value.requires_grad and more["kind"] == "mean" for value, more in found))

    def test_batches_are_nests_of_tensors_and_constants(self):
        def loss(model, batch, *, weights, smoothing=0.0, kind="mean"):
            losses = F.cross_entropy(model(batch["images"][0]), batch["labels"], reduction="none", label_smoothing=smoothing)
            return (losses * weights).sum() if kind == "sum" else (losses * weights).mean()

        step = self.step(loss)
        for kind, smoothing in (("mean", 0.0), ("sum", 0.0), ("mean", 0.5)):
            for place, (inputs, labels) in enumerate(batches(WARM + 2)):
                weights = torch.rand(8)
                torch.manual_seed(place)
                mine = step({"images": (inputs,), "labels": labels}, weights=weights, smoothing=smoothing, kind=kind)
                torch.manual_seed(place)
                self.assertEqual(mine.item(), self.plain(({"images": (inputs,), "labels": labels},), loss=functools.partial(
                    loss, weights=weights, smoothing=smoothing, kind=kind)))
        self.assertEqual(self.graphs.made, 3)

    def test_a_last_smaller_batch_is_plain_until_it_has_a_graph_of_its_own(self):
        step, short = self.step(), batches(1, size=5)
        for _ in range(WARM + 2):
            self.expect_alike(step, [*batches(3), *short])
        self.assertEqual(self.graphs.made, 2)
        self.assertIn("[[5, 6] float32, [5] int64]: 3 plain, captured", str(step.report()))

    def test_shapes_beyond_the_bound_are_plain_and_it_is_said_once(self):
        step = self.step()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for size in range(2, 2 + graphed.MOST_SHAPES + 2):
                self.expect_alike(step, batches(1, size))
        self.assertEqual(["one more than the 8 shapes" in str(each.message) for each in said], [True])
        self.assertIn("2 plain calls of further shapes", str(step.report()))

    def test_evaluation_and_ema_in_between(self):
        step, average = self.step(), torch.optim.swa_utils.AveragedModel(self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        others = torch.optim.swa_utils.AveragedModel(self.other, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        for place, batch in enumerate(batches(WARM + 4)):
            versions = [parameter._version for parameter in self.model.parameters()]
            self.expect_alike(step, [batch])
            if place >= WARM:  # plain steps of fused optimizers count nothing
                self.assertTrue(all(parameter._version > before for parameter, before in zip(self.model.parameters(), versions)))
            average.update_parameters(self.model), others.update_parameters(self.other)
            with torch.no_grad():
                self.assertTrue(torch.equal(self.model.eval()(batch[0]), self.other.eval()(batch[0])))
            self.model.train(), self.other.train()
        self.assertTrue(same(average, others))
        self.assertEqual(self.graphs.made, 1)

    def test_modes_have_graphs_of_their_own(self):
        step = self.step()
        for frozen in (True, False):
            self.model[1].train(not frozen), self.other[1].train(not frozen)
            self.expect_alike(step, batches(WARM + 1))
        with torch.autocast("cpu", torch.bfloat16):
            for batch in batches(WARM + 2):  # the cache of weights lives on from step to step here
                torch.manual_seed(9)
                mine, served = step(*batch), self.model.eval()(batch[0])
                self.model.train()
                torch.manual_seed(9)
                with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
                    self.assertEqual(mine.item(), self.plain(batch))
                    self.assertTrue(torch.equal(served, self.other.eval()(batch[0])))
                self.other.train()
        self.assertEqual((self.graphs.made, len(step.report().changes)), (3, 0))

    def test_gradients_are_the_steps_until_the_next_one(self):
        step = self.step(clip=0.1)
        for batch in batches(WARM + 3):
            self.expect_alike(step, [batch], clip=0.1)
            for mine, theirs in zip(self.model.parameters(), self.other.parameters()):
                self.assertTrue(torch.equal(mine.grad, theirs.grad))
            self.optimizer.zero_grad()  # as a loop would that was there before

    def test_a_parameter_without_a_gradient_stays_as_it_is(self):
        for model in (self.model, self.other):
            model.register_parameter("unused", nn.Parameter(torch.ones(3)))
        for optimizer, model in ((self.optimizer, self.model), (self.theirs, self.other)):
            optimizer.add_param_group({"params": [model.unused], "weight_decay": 0.5})
        self.expect_alike(self.step(), batches(WARM + 2))
        self.assertIsNone(self.model.unused.grad)
        self.assertEqual(self.model.unused.tolist(), [1.0] * 3)

    def test_gradients_go_to_nothing_but_the_model_and_the_optimizer(self):
        judge = nn.Linear(4, 1)
        step = self.step(lambda model, inputs, labels: judge(model(inputs)).mean())
        for batch in batches(WARM + 2):
            step(*batch)
            self.assertIsNone(judge.weight.grad)

    def test_what_replaces_state_or_parameters_is_seen_and_captured_anew(self):
        def freeze(model, optimizer):
            model[0].weight.requires_grad_(False)

        def new_weight(model, optimizer):
            model[4].weight.data = model[4].weight.data.clone()

        def swapped(model, optimizer):
            torch.utils.swap_tensors(model[4].bias, nn.Parameter(torch.full((4,), 0.5)))

        def new_parameter(model, optimizer):
            model[4].bias = nn.Parameter(torch.full((4,), 0.25))
            optimizer.param_groups[0]["params"] = list(model.parameters())

        def new_layer(model, optimizer):
            torch.manual_seed(8)
            model[2] = nn.ReLU()

        def resumed(model, optimizer):
            model.load_state_dict({name: 0.5 * value for name, value in model.state_dict().items()})
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

        def restarted(model, optimizer):
            optimizer.state.clear()

        def more_decay(model, optimizer):
            optimizer.param_groups[0]["weight_decay"] = 0.5

        def less_dropout(model, optimizer):
            model[3].p = 0.5

        def other_class(model, optimizer):
            model[2].__class__ = nn.Identity

        def other_dict(model, optimizer):
            model[4]._parameters = {"weight": nn.Parameter(model[4].weight.detach() * 2), "bias": model[4].bias}
            optimizer.param_groups[0]["params"] = list(model.parameters())

        changes = {other_class: "have another class", other_dict: "were replaced", freeze: "requires_grad", new_weight: "other memory", swapped: "other memory", new_parameter: "were replaced",
                   new_layer: "were replaced", resumed: "state was replaced", restarted: "state was replaced",
                   more_decay: "settings of the optimizer", less_dropout: "'3.p' changed from 0.2 to 0.5"}
        for change, words in changes.items():
            with self.subTest(change.__name__):
                self.setUp()
                step = self.step()
                self.expect_alike(step, batches(WARM + 3))
                change(self.model, self.optimizer), change(self.other, self.theirs)
                self.expect_alike(step, batches(WARM + 2))
                self.assertEqual(self.graphs.made, 2)
                self.assertEqual(len(step.report().changes), 1)
                self.assertIn(words, str(step.report()))

    def test_attributes_of_modules_that_change_are_seen_and_captured_anew(self):
        def patched(gate):
            gate.forward = lambda inputs: inputs.tanh()

        def removed(gate):
            del gate.mode
            gate.other = 1

        changes = {
            "'2.scaling' was replaced or changed": lambda gate: gate.scaling.update(a=3.0),
            "'2.bound' changed from None to 0.5": lambda gate: setattr(gate, "bound", 0.5),
            "'2.kind' changed from 'gelu' to 'relu'": lambda gate: setattr(gate, "kind", "relu"),
            "'2.limits' was replaced or changed": lambda gate: gate.limits.__setitem__(-1, 0.5),
            "'2.mode' was replaced": removed,
            "'2.factor' was replaced": lambda gate: setattr(gate, "factor", torch.full((16,), 2.0)),
            "'2.weight' was replaced or changed": lambda gate: setattr(gate, "weight", torch.full((16,), 2.0)),
            "attributes of the model or the loss were added": patched,
        }
        for words, change in changes.items():
            with self.subTest(words):
                self.setUp()
                self.model[2], self.other[2] = Gate(), Gate()
                step = self.step()
                self.expect_alike(step, batches(WARM + 2))
                change(self.model[2]), change(self.other[2])
                self.expect_alike(step, batches(WARM + 2))
                self.assertEqual((self.graphs.made, len(step.report().changes)), (2, 1))
                self.assertIn(words, str(step.report()))

    def test_equal_numbers_that_are_other_objects_are_no_change_and_what_changes_after_them_is_seen(self):
        self.model[2], self.other[2] = Gate(), Gate()
        step = self.step()
        self.expect_alike(step, batches(WARM + 2))
        for _ in range(3):
            self.model[2].factor, self.model[2].scaling = float("1.0"), {"a": float("1.0")}
            self.expect_alike(step, batches(1))
        self.assertEqual(self.graphs.made, 1)
        self.model[2].scaling["a"] = self.other[2].scaling["a"] = 2.0
        self.expect_alike(step, batches(WARM + 2))
        self.assertEqual(self.graphs.made, 2)

    def test_a_parameter_that_moves_to_the_neighbouring_group_is_seen(self):
        def grouped(model):
            parameters = list(model.parameters())
            return CAPTURABLE["AdamW"]([{"params": parameters[:3], "weight_decay": 0.0}, {"params": parameters[3:], "weight_decay": 5.0}], lr=RATE)

        self.optimizer, self.theirs = grouped(self.model), grouped(self.other)
        step = self.step()
        self.expect_alike(step, batches(WARM + 2))
        for optimizer in (self.optimizer, self.theirs):  # all of them in one row are as before
            optimizer.param_groups[1]["params"].insert(0, optimizer.param_groups[0]["params"].pop())
        self.expect_alike(step, batches(WARM + 2))
        self.assertEqual((self.graphs.made, step.report().changes), (2, ("the optimizer has other parameters",)))

    def test_a_tensor_that_lies_differently_in_its_memory_is_seen(self):
        def weight(model, optimizer):
            return model[2].weight

        def state(model, optimizer):
            return optimizer.state[model[2].weight]["exp_avg"]

        for tensor_of, words in ((weight, "lie in it differently"), (state, "state was replaced")):
            with self.subTest(words):
                self.setUp()
                for model, optimizer in ((self.model, self.optimizer), (self.other, self.theirs)):
                    torch.manual_seed(5)
                    model[2] = nn.Linear(16, 16)
                    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": RATE})
                step = self.step()
                self.expect_alike(step, batches(WARM + 2))
                for tensor in (tensor_of(self.model, self.optimizer), tensor_of(self.other, self.theirs)):
                    tensor.data = tensor.data.t()
                self.expect_alike(step, batches(WARM + 2))
                self.assertEqual(self.graphs.made, 2)
                self.assertIn(words, str(step.report()))

    def test_hooks_that_come_go_or_change_are_captured_anew_where_hooks_are(self):
        def halve(tensor):
            tensor.detach().mul_(0.5)

        def of_gradient(model, optimizer):
            return model[4].weight.register_hook(lambda gradient: gradient * 0)

        def after_gradient(model, optimizer):
            return model[4].weight.register_post_accumulate_grad_hook(lambda parameter: halve(parameter.grad))

        def before_step(model, optimizer):
            return optimizer.register_step_pre_hook(lambda *_: halve(model[4].weight.grad))

        def after_step(model, optimizer):
            return optimizer.register_step_post_hook(lambda *_: halve(model[4].weight))

        def of_module(model, optimizer):
            return model[0].register_forward_hook(lambda module, given, result: result * 2)

        for register in (of_gradient, after_gradient, before_step, after_step, of_module):
            with self.subTest(register.__name__):
                self.setUp()
                step = self.step(hooks=True)
                self.expect_alike(step, batches(WARM + 2))
                handles = register(self.model, self.optimizer), register(self.other, self.theirs)
                self.expect_alike(step, batches(WARM + 2))
                for handle in handles:
                    handle.remove()
                self.expect_alike(step, batches(WARM + 2))
                self.assertEqual(self.graphs.made, 3)
                self.assertTrue(all("hooks" in change for change in step.report().changes))

    def test_a_hook_in_the_place_of_another_and_a_replaced_dict_of_hooks_are_seen(self):
        def twice(module, given, result):
            return result * 2

        def thrice(module, given, result):
            return result * 3

        def another(layer, handle):
            handle.remove()
            layer.register_forward_hook(thrice)

        def none(layer, handle):
            layer._forward_hooks = type(layer._forward_hooks)()

        for change in (another, none):
            with self.subTest(change.__name__):
                self.setUp()
                handles = [model[0].register_forward_hook(twice) for model in (self.model, self.other)]
                step = self.step(hooks=True)
                self.expect_alike(step, batches(WARM + 2))
                for model, handle in zip((self.model, self.other), handles):
                    change(model[0], handle)
                self.expect_alike(step, batches(WARM + 2))
                self.assertEqual(self.graphs.made, 2)

    def test_memory_of_the_optimizers_state_that_is_another_is_seen(self):
        step = self.step()
        self.expect_alike(step, batches(WARM + 3))
        state = self.optimizer.state[self.model[4].weight]
        state["exp_avg"].data = state["exp_avg"].data.clone()
        self.expect_alike(step, batches(WARM + 2))
        self.assertEqual(self.graphs.made, 2)
        self.assertIn("state was replaced", str(step.report()))

    def test_a_replayed_step_makes_as_many_calls_of_python_whatever_the_size_of_the_model(self):
        counts = set()
        for layers in (2, 50):
            self.model = nn.Sequential(*(module for _ in range(layers) for module in (nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.1))))
            self.optimizer = CAPTURABLE["AdamW"](self.model.parameters(), lr=RATE)
            step = self.step()
            for batch in batches(WARM + 3):
                step(*batch)
            next(iter(step._graphed.shapes.values())).graph.replay = lambda: None
            counts.add(calls_of(lambda: step(*batch)))
        self.assertEqual(len(counts), 1, counts)

    def test_modules_of_the_loss_are_seen_as_those_of_the_model(self):
        for buffer in (False, True):
            with self.subTest(buffer=buffer):
                self.setUp()
                mine, theirs = Centred(True, buffer), Centred(True, buffer)
                self.expect_alike(self.step(mine), batches(WARM + 3), loss=theirs)
                for loss in (Centred(False, buffer), Centred(False, buffer).forward):
                    step = self.step(loss)
                    with self.assertRaisesRegex(vitune.Unsupported, "in the step (the loss's 'centre' was|.* the loss were) replaced.*in place"):
                        for batch in batches(WARM + 1):
                            step(*batch)

    def test_a_change_between_the_plain_steps_starts_their_count_anew(self):
        def thaw(model, optimizer):
            model[0].requires_grad_(True)

        def add(model, optimizer):
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))], "lr": RATE})

        def clear(model, optimizer):
            optimizer.state.clear()

        for change in (thaw, add, clear):
            for at in (1, WARM):
                with self.subTest(change.__name__, at=at):
                    self.setUp()
                    self.model[0].requires_grad_(change is not thaw), self.other[0].requires_grad_(change is not thaw)
                    step = self.step()
                    self.expect_alike(step, batches(at))
                    change(self.model, self.optimizer), change(self.other, self.theirs)
                    self.expect_alike(step, batches(WARM + 2))
                    self.assertEqual((self.graphs.made, step.report().changes), (1, ()))

    def test_a_change_before_each_capture_is_refused_by_name(self):
        step = self.step()
        with self.assertRaisesRegex(vitune.Unsupported, "state was replaced again and again.*capture=False"):
            for place in range(5 * WARM):
                if place % WARM == 0:
                    self.optimizer.state.clear()
                step(*batches(1)[0])

    def test_a_counter_in_the_optimizers_groups_is_found_at_the_capture(self):
        class Counting(torch.optim.AdamW):
            def step(self, closure=None):
                for group in self.param_groups:
                    group["count"] = group.get("count", 0) + 1
                return super().step(closure)

        self.optimizer = Counting(self.model.parameters(), lr=RATE, fused=True, capturable=True)
        step = self.step()
        with self.assertRaisesRegex(vitune.Unsupported, "in the step settings of the optimizer other than lr changed"):
            for batch in batches(WARM + 1):
                step(*batch)

    def test_a_capture_that_fails_inside_of_a_step_forgets_what_waits(self):
        asking = []

        def loss(model, inputs, labels):
            value = loss_of(model, inputs, labels)
            return value * 2 if asking and value.item() > 1e9 else value

        step = self.step(loss, accumulate=2)
        for batch in batches(2 * WARM + 1):
            step(*batch)
        asking.append(True)
        self.assertEqual(step.accumulated, 1)
        with self.assertRaisesRegex(vitune.Unsupported, "cannot be one CUDA graph"):
            step(*batches(1)[0])
        self.assertEqual(step.accumulated, 0)

    def test_a_state_dict_that_is_loaded_in_place_needs_no_new_graph(self):
        step = self.step()
        self.expect_alike(step, batches(WARM + 2))
        for model in (self.model, self.other):
            model.load_state_dict(network().state_dict())
        self.expect_alike(step, batches(3))
        self.assertEqual(self.graphs.made, 1)

    def test_what_changes_at_each_step_is_refused_by_name(self):
        step = self.step()
        with self.assertRaisesRegex(vitune.Unsupported, "settings of the optimizer other than lr changed again and again.*capture=False"):
            for place in range(40):
                self.optimizer.param_groups[0]["betas"] = (0.9 - place / 1000, 0.99)
                step(*batches(1)[0])

    def test_two_models_train_each_other(self):
        for model in (self.model, self.other):
            model[3].p = 0.0
        pair = []
        for model, optimizer in ((self.model, self.optimizer), (self.other, self.theirs)):
            torch.manual_seed(4)
            judge = nn.Linear(4, 1)
            pair.append((model, optimizer, judge, CAPTURABLE["SGD"](judge.parameters(), lr=RATE)))
        model, optimizer, judge, of_judge = pair[0]
        makes = vitune.train_step(model, lambda model, inputs: -judge(model(inputs)).mean(), optimizer, compile=False)
        judges = vitune.train_step(judge, lambda judge, inputs: judge(model(inputs).detach()).square().mean(), of_judge, compile=False)
        other, theirs, second, of_second = pair[1]
        for inputs, _ in batches(WARM + 4):
            found = makes(inputs).item(), judges(inputs).item()
            wanted = (plain_step(other, theirs, [(inputs,)], rate=rate_as_tensor, loss=lambda model, inputs: -second(model(inputs)).mean())
                      + plain_step(second, of_second, [(inputs,)], rate=rate_as_tensor,
                                   loss=lambda judge, inputs: judge(other(inputs).detach()).square().mean()))
            self.assertEqual(found, tuple(wanted))
        self.assertEqual(self.graphs.made, 2)

    def test_a_scaler_skips_steps_of_infinite_gradients_and_lowers_its_scale(self):
        for clip, accumulate in ((None, 1), (0.5, 1), (0.5, 2)):
            with self.subTest(clip=clip, accumulate=accumulate):
                self.setUp()
                mine, theirs = (torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4) for _ in range(2))
                step = self.step(scaler=mine, clip=clip, accumulate=accumulate)
                for place in range(2 * WARM + 8):
                    micro = batches(accumulate)
                    if place % 5 == 4:
                        micro[-1][0].fill_(float("inf"))
                    torch.manual_seed(place)
                    found = [step(*batch).item() for batch in micro]
                    torch.manual_seed(place)
                    wanted = plain_step(self.other, self.theirs, micro, clip, theirs, rate_as_tensor)
                    self.assertEqual(str(found), str(wanted))
                    self.assertEqual(mine.get_scale(), theirs.get_scale())
                    for model in (self.model, self.other):  # an infinite batch's mean is not what this is about
                        model[1].reset_running_stats()
                    self.assertTrue(same(self.model, self.other))
                self.assertEqual(self.graphs.made, min(accumulate, 2))
                mine.load_state_dict(copy.deepcopy(theirs.state_dict()))
                self.assertEqual(len(step.report().changes), 0)

    def test_gradients_that_are_changed_between_the_batches_of_a_step_count(self):
        step = self.step(accumulate=2)
        for model in (self.model, self.other):
            model[3].p = 0.0
        for place in range(2 * WARM):
            one, two = batches(2)
            step(*one)
            self.assertEqual(step.accumulated, 1)
            if place % 3 == 0:
                self.model.zero_grad()
            elif place % 3 == 1:
                for parameter in self.model.parameters():
                    parameter.grad = parameter.grad * 2
            step(*two)
            self.theirs.zero_grad()
            (loss_of(self.other, *one) / 2).backward()
            if place % 3 == 0:
                self.other.zero_grad()
            elif place % 3 == 1:
                for parameter in self.other.parameters():
                    parameter.grad = parameter.grad * 2
            (loss_of(self.other, *two) / 2).backward()
            with rate_as_tensor(self.theirs):
                self.theirs.step()
            self.assertTrue(same(self.model, self.other), place)

    def test_with_accumulation_shapes_add_to_the_same_gradients(self):
        step = self.step(accumulate=3)
        small, large = batches(3, size=4), batches(3)
        for place in range(3 * WARM + 4):
            micro = [large[0], small[1], large[2]] if place % 2 else [small[0], large[1], small[2]]
            torch.manual_seed(place)
            found = [step(*batch).item() for batch in micro]
            torch.manual_seed(place)
            self.assertEqual(found, plain_step(self.other, self.theirs, micro, rate=rate_as_tensor))
        self.assertTrue(same(self.model, self.other))
        self.assertEqual(self.graphs.made, 4)

    def test_with_accumulation_batches_that_reach_other_parameters_are_refused(self):
        def loss(model, inputs, labels):
            return loss_of(model if len(inputs) == 8 else nn.Sequential(model[0], model[4]), inputs, labels)

        step = self.step(loss, accumulate=2)
        with self.assertRaisesRegex(vitune.Unsupported, "of some batches and not of others"):
            for place in range(6 * WARM):
                step(*batches(1, size=4 if place // 2 % 2 else 8)[0])

    def test_reset_forgets_what_waits_and_captures_anew(self):
        step = self.step(accumulate=2)
        for batch in batches(2 * WARM + 3):
            step(*batch)
        step.reset()
        self.assertEqual(step.accumulated, 0)
        self.assertTrue(all(parameter.grad is None for parameter in self.model.parameters()))
        self.assertEqual(step.report().shapes, ())

    def test_what_a_capture_finds_is_an_error_that_leaves_the_model_alone(self):
        class Once(nn.Module):
            def __init__(self):
                super().__init__()
                self.calls = 0

            def forward(self, inputs):
                self.calls += 1
                return inputs

        def asks(model, inputs, labels):
            value = loss_of(model, inputs, labels)
            return value * 2 if value.item() > 1e9 else value

        def clip_by_asking(parameters):
            nn.utils.clip_grad_norm_(parameters, 1.0).item()

        asked = "RuntimeError: operation not permitted.*may wait for its results"
        for loss, layer, clip, words in ((asks, None, 1.0, asked), (loss_of, None, clip_by_asking, asked),
                                         (loss_of, Once(), 1.0, "in the step the model's '2.calls' changed from 3 to 4")):
            with self.subTest(words, clip=clip):
                self.setUp()
                if layer is not None:
                    self.model[2] = layer
                scaler = torch.amp.GradScaler("cpu")
                step = self.step(loss, scaler=scaler, clip=clip)
                for batch in batches(WARM):
                    step(*batch)
                before = copy.deepcopy(self.model.state_dict())
                with self.assertRaisesRegex(vitune.Unsupported, f"(?s)cannot be one CUDA graph.*{words}.*capture=False"):
                    step(*batches(1)[0])
                self.assertTrue(all(map(torch.equal, before.values(), self.model.state_dict().values())))
                plain = self.step(loss, scaler=scaler, clip=clip, capture=False)
                self.assertTrue(plain(*batches(1)[0]).isfinite())
