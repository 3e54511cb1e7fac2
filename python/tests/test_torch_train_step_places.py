# python/tests/test_torch_train_step_places.py -- The look of vitune.train_step() at words of memory: when it answers, and that each change ends it.
# SPDX-License-Identifier: Apache-2.0
"""Needs VITUNE_TEST_OPERATORS (support.py). What each change leads to is test_torch_train_step_changes.py's, which runs with it, too."""
import unittest
from collections import OrderedDict
from unittest import mock

from .support import OPERATORS, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

from torch import nn

from vitune._train import places, standing

from .train_step_cases import RATE, WARM, CapturedCase, batches, one_thread

setUpModule = one_thread
needs_places = unittest.skipUnless(OPERATORS and places.has_versions(), "no operators' library was named, or this Python keeps no versions of dicts")


@needs_torch
class TrialTest(unittest.TestCase):
    def test_an_interpreter_whose_dicts_have_no_version_is_found_out(self):
        self.addCleanup(places.has_versions.cache_clear)
        for place in (0, 16):  # a count of references, a length
            places.has_versions.cache_clear()
            with mock.patch.object(places, "_VERSION", place):
                self.assertFalse(places.has_versions())

    def test_tensors_whose_parts_are_elsewhere_are_found_out(self):
        self.addCleanup(places._places_of_tensors.cache_clear)
        places._places_of_tensors.cache_clear()
        with mock.patch.object(places, "word", lambda thing, place: 7), self.assertRaises(places.Unknown):
            places._places_of_tensors()


@needs_torch
@needs_places
class PlacesTest(CapturedCase):
    def settled(self, **options):
        """A step whose places hold."""
        step = self.step(**options)
        self.expect_alike(step, batches(WARM + 4))
        found = step._graphed._standing
        self.assertTrue(found._places is not None and found._places.hold())
        return step, found

    def test_a_replayed_step_looks_at_nothing_else(self):
        step, found = self.settled()
        with mock.patch.object(found, "_long_look", side_effect=AssertionError), \
                mock.patch.object(found._glance, "sees_no_change", side_effect=AssertionError):
            self.expect_alike(step, batches(3))
            for rate in (RATE / 2, torch.tensor(RATE / 3)):  # as schedulers do
                self.optimizer.param_groups[0]["lr"] = self.theirs.param_groups[0]["lr"] = rate
                self.expect_alike(step, batches(1))

    def test_each_change_ends_it(self):
        def swapped(model, optimizer):
            torch.utils.swap_tensors(model[4].bias, nn.Parameter(torch.full((4,), 0.5)))

        changes = {
            "class": lambda model, optimizer: setattr(model[2], "__class__", nn.Identity),
            "mode": lambda model, optimizer: model[3].eval(),
            "attribute": lambda model, optimizer: setattr(model[3], "p", 0.5),
            "a hook in an empty dict": lambda model, optimizer: model[0].register_forward_hook(lambda *_: None),
            "hooks at once in an empty dict": lambda model, optimizer: model[0]._forward_hooks.update({7: print}),
            "hook of a parameter": lambda model, optimizer: model[0].weight.register_hook(lambda gradient: None),
            "hook after a gradient": lambda model, optimizer: model[0].weight.register_post_accumulate_grad_hook(lambda parameter: None),
            "hook of the optimizer": lambda model, optimizer: optimizer.register_step_pre_hook(lambda *_: None),
            "requires_grad": lambda model, optimizer: model[4].bias.requires_grad_(False),
            "memory": lambda model, optimizer: setattr(model[4].weight, "data", model[4].weight.data.clone()),
            "swapped": swapped,
            "shape": lambda model, optimizer: setattr(model[1].running_mean, "data", model[1].running_mean.data[:8]),
            "buffer": lambda model, optimizer: setattr(model[1], "running_mean", torch.zeros(16)),
            "state's memory": lambda model, optimizer: setattr(optimizer.state[model[4].weight]["exp_avg"], "data", torch.zeros(4, 16)),
            "state's tensor": lambda model, optimizer: optimizer.state[model[4].weight].update(exp_avg=torch.zeros(4, 16)),
            "state of one": lambda model, optimizer: optimizer.state.update({model[4].weight: dict(optimizer.state[model[4].weight])}),
            "state": lambda model, optimizer: setattr(optimizer, "state", type(optimizer.state)(dict, optimizer.state)),
            "setting": lambda model, optimizer: optimizer.param_groups[0].update(weight_decay=0.5),
            "another setting": lambda model, optimizer: optimizer.param_groups[0].update(more=1),
            "group": lambda model, optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]}),
            "parameters of a group": lambda model, optimizer: optimizer.param_groups[0]["params"].reverse(),
            "replaced dict": lambda model, optimizer: setattr(model[0], "_forward_hooks", OrderedDict()),
        }
        for name, change in changes.items():
            with self.subTest(name):
                self.setUp()
                _, found = self.settled()
                change(self.model, self.optimizer)
                self.assertFalse(found._places.hold())

    def test_what_containers_of_modules_hold_ends_it(self):
        def held():
            module = nn.Identity()
            module.numbers, module.table, module.pair, module.tensor = [1.0, 2.0], {"a": 1.0, "t": torch.ones(2)}, (1, torch.ones(2)), torch.ones(2)
            return module

        changes = {
            "list": lambda module: module.numbers.__setitem__(0, 3.0), "longer list": lambda module: module.numbers.append(3.0),
            "dict": lambda module: module.table.update(a=2.0), "tensor in a dict": lambda module: setattr(module.table["t"], "data", torch.ones(2)),
            "tensor in a tuple": lambda module: setattr(module.pair[1], "data", torch.ones(2)),
            "tensor": lambda module: setattr(module.tensor, "data", torch.ones(2)),
        }
        for name, change in changes.items():
            with self.subTest(name):
                self.setUp()
                self.model[2], self.other[2] = held(), held()
                _, found = self.settled()
                change(self.model[2])
                self.assertFalse(found._places.hold())

    def test_a_change_that_is_none_is_looked_at_once_and_then_it_answers_again(self):
        step, found = self.settled()
        for _ in range(2):
            self.model.eval(), self.model.train()
            self.assertFalse(found._places.hold())
            self.expect_alike(step, batches(3))
            self.assertTrue(found._places.hold())
        self.assertEqual(self.graphs.made, 1)

    def test_who_changes_something_before_each_step_pays_for_few(self):
        step, found = self.settled()
        with mock.patch.object(standing, "Places", side_effect=places.Unknown) as made:
            for _ in range(40):
                self.model.eval(), self.model.train()
                self.expect_alike(step, batches(1))
        self.assertLess(made.call_count, 8)

    def test_what_it_cannot_compare_is_looked_at_as_ever(self):
        class Table(dict):
            pass

        self.model[2].table, self.other[2].table = Table(a=1.0), Table(a=1.0)
        step = self.step()
        self.expect_alike(step, batches(WARM + 4))
        self.assertIsNone(step._graphed._standing._places)
        self.model[2].table["a"] = 2.0
        step(*batches(1)[0])
        self.assertIn("'2.table' was replaced or changed", str(step.report()))

    def test_parameters_may_still_be_swapped(self):
        step, _ = self.settled()
        torch.utils.swap_tensors(self.model[4].bias, nn.Parameter(torch.zeros(4)))
        step(*batches(1)[0])
        self.assertEqual(step.report().changes, ("parameters or buffers have other memory, or lie in it differently",))


if __name__ == "__main__":
    unittest.main()
