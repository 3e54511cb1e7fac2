# python/tests/test_torch_train_step_accumulation.py -- vitune.train_step() over several batches, with a scaler, and after a capture that fails.
# SPDX-License-Identifier: Apache-2.0
import copy
import unittest

import vitune

from .support import needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

from torch import nn

from .train_step_cases import WARM, CapturedCase, batches, loss_of, one_thread, plain_step, rate_as_tensor, same

setUpModule = one_thread


@needs_torch
class AccumulationTest(CapturedCase):
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
