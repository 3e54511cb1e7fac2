# python/tests/test_torch_train_step.py -- vitune.train_step() on a CPU: plain steps, and captured ones on a tape that stands in for a graph.
# SPDX-License-Identifier: Apache-2.0
import functools
import itertools
import sys
import unittest
import warnings

import vitune

from .support import needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import nn

from vitune._train import graphed

from .train_step_cases import (ACCUMULATE, CAPTURABLE, CLIPS, OPTIMIZERS, RATE, SCHEDULES, STEPS, WARM, CapturedCase, batches, cosine,
                               loss_of, network, one_thread, plain_step, rate_as_tensor, same, warm_up)

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
class CapturedStepTest(CapturedCase):
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
