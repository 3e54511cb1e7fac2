# python/tests/test_torch_train_step_changes.py -- What changes between the steps of vitune.train_step() is seen: captured anew, or refused by name.
# SPDX-License-Identifier: Apache-2.0
import copy
import functools
import unittest
from unittest import mock

import vitune

from .support import needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import nn

from .train_step_cases import CAPTURABLE, RATE, WARM, CapturedCase, batches, network, one_thread

setUpModule = one_thread


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
class ChangesTest(CapturedCase):
    def test_a_graph_whose_workspaces_pytorch_gave_back_is_captured_anew(self):
        given_back = mock.Mock()
        with mock.patch.object(torch._C, "_cuda_clearCublasWorkspaces", given_back, create=True):
            step, given = self.step(), batches(WARM + 2)
            self.expect_alike(step, given)
            self.assertEqual((1, ()), (self.graphs.made, step.report().changes))
            torch._C._cuda_clearCublasWorkspaces()
            given_back.assert_called_once_with()
            self.expect_alike(step, given)
        change, = step.report().changes
        self.assertIn("cuBLAS", change)
        self.assertEqual(2, self.graphs.made)

    def test_workspaces_are_watched_behind_another_librarys_wrapper(self):
        @functools.wraps(print)
        def traced():
            pass

        with mock.patch.object(torch._C, "_cuda_clearCublasWorkspaces", traced, create=True):
            step, given = self.step(), batches(WARM + 2)
            self.expect_alike(step, given)
            torch._C._cuda_clearCublasWorkspaces()
            self.expect_alike(step, given)
        self.assertEqual(2, self.graphs.made)

    def test_others_that_record_graphs_again_and_again_refuse_no_step(self):
        """As a teacher by reduce-overhead does, which meets images of a new size every few steps."""
        with mock.patch.object(torch._C, "_cuda_clearCublasWorkspaces", mock.Mock(), create=True):
            step = self.step()
            for _ in range(5):
                self.expect_alike(step, batches(WARM + 1))
                torch._C._cuda_clearCublasWorkspaces()
        self.assertEqual(5, self.graphs.made)

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
