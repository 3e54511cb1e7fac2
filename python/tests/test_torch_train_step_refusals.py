# python/tests/test_torch_train_step_refusals.py -- What vitune.train_step() makes no step of, and what no graph is captured of, by its name.
# SPDX-License-Identifier: Apache-2.0
import functools
import types
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("steps do not know how operators are called: once is enough")

import torch.nn.functional as F
from torch import nn

from vitune._train import step as step_module

from .taped import TapedGraphs
from .train_step_cases import CAPTURABLE, OPTIMIZERS, RATE, WARM, batches, loss_of, network, one_thread

setUpModule = one_thread


def hooked(model):
    model[0].register_forward_hook(lambda *_: None)
    return model


def sparse(model):
    return nn.ModuleDict({"table": nn.Embedding(4, 6, sparse=True), "rest": model})


def without_momentum(model):
    model[1].momentum = None
    return model


def averaging(model):
    class DistributedDataParallel(nn.Module):  # by its name; a process group is not what this is about
        def __init__(self, module):
            super().__init__()
            self.module = module
    return DistributedDataParallel(model)


def observed(model):
    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return model


def with_graphs(model):
    return torch.compile(model, mode="reduce-overhead")


def with_vitunes_graphs(model):
    return vitune.compile(model, mode="reduce-overhead")


def as_it_is(model):
    return model


class Custom(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})


class Counting(Custom):
    """It says that it is capturable, and counts on the host."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr)
        for group in self.param_groups:
            group["capturable"] = True

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["step"] = state.get("step", 0) + 1
                parameter.sub_(parameter.grad * group["lr"] / state["step"])


@needs_torch
class RefusalTest(unittest.TestCase):
    def refused(self, error, words, model=None, loss=loss_of, optimizer=None, **options):
        model = model or network()
        optimizer = optimizer or CAPTURABLE["AdamW"](model.parameters(), lr=RATE)
        with mock.patch.object(step_module, "maker_of_graphs", lambda device: TapedGraphs), self.assertRaisesRegex(error, words):
            vitune.train_step(model, loss, optimizer, **options)

    def test_arguments_that_make_no_step_are_named(self):
        wrong, none = vitune.InvalidArgument, vitune.Unsupported
        frozen = network().requires_grad_(False)
        self.refused(wrong, "a torch.nn.Module is wanted", model=lambda x: x, optimizer=CAPTURABLE["AdamW"](network().parameters(), lr=1.0))
        for loss in (nn.CrossEntropyLoss(), F.cross_entropy):
            self.refused(wrong, "lambda model, images, labels", loss=loss)
        self.refused(wrong, "a function of the model", loss=3)
        self.refused(wrong, "a torch.optim.Optimizer is wanted", optimizer="AdamW")
        self.refused(none, "LBFGS.*closure", optimizer=torch.optim.LBFGS(network().parameters()))
        self.refused(wrong, "GradScaler is wanted", scaler=1024.0)
        for clip in (0, -1.0, "norm"):
            self.refused(wrong, "the largest norm", clip=clip)
        for accumulate in (0, 1.5, True):
            self.refused(wrong, "accumulate is", accumulate=accumulate)
        self.refused(wrong, "nothing to train", model=frozen, optimizer=CAPTURABLE["AdamW"](frozen.parameters(), lr=1.0))

    def test_what_no_graph_is_captured_of_is_named_with_the_way_out_before_the_first_step(self):
        make = {"AdamW": OPTIMIZERS["AdamW"], "SGD": OPTIMIZERS["SGD"], "Rprop": OPTIMIZERS["Rprop"], "Adagrad": OPTIMIZERS["Adagrad"],
                "Custom": Custom, "RMSprop": functools.partial(torch.optim.RMSprop, capturable=True, foreach=False)}
        cases = [("AdamW was not made with capturable=True", as_it_is, "AdamW"), ("SGD reads its rate.*fused=True", as_it_is, "SGD"),
                 ("Rprop counts or reads.*take one of", as_it_is, "Rprop"), ("Adagrad counts", as_it_is, "Adagrad"),
                 ("Custom was not made.*no such setting", as_it_is, "Custom"), ("foreach=False", as_it_is, "RMSprop"),
                 ("'0' has a hook .forward_hooks.*hooks=True", hooked, None), ("the parameter '0.weight' has a hook", observed, None),
                 ("'table' has sparse gradients.*sparse=False", sparse, None), ("'1' averages by a count", without_momentum, None),
                 ("DistributedDataParallel", averaging, None), ("CUDA graphs of its own.*max-autotune-no-cudagraphs", with_graphs, None),
                 ("CUDA graphs of its own", with_vitunes_graphs, None)]
        for words, change, optimizer in cases:
            with self.subTest(words):
                model = change(network())
                made = make[optimizer](model.parameters(), lr=RATE) if optimizer else None
                self.refused(vitune.Unsupported, f"{words}.*capture=False", model=model, optimizer=made)
                plain = vitune.train_step(model, loss_of, made or CAPTURABLE["AdamW"](model.parameters(), lr=RATE), capture=False)
                self.assertIn("capture=False", str(plain.report()))

    def test_all_reasons_are_in_one_sentence(self):
        model = without_momentum(network())
        self.refused(vitune.Unsupported, "averages by a count.*capturable=True.*asks on the GPU", model=model,
                     optimizer=torch.optim.AdamW(model.parameters()), scaler=torch.amp.GradScaler("cpu"))

    def test_hooks_are_captured_where_that_is_said(self):
        model, calls = network(), []
        model[0].register_forward_hook(lambda module, given, result: calls.append(1) or result * 2)
        with mock.patch.object(step_module, "maker_of_graphs", lambda device: TapedGraphs):
            step = vitune.train_step(model, loss_of, CAPTURABLE["AdamW"](model.parameters(), lr=RATE), compile=False, hooks=True)
        for batch in batches(WARM + 4):
            step(*batch)
        self.assertEqual(len(calls), WARM + 1)

    def captured(self, model, loss=loss_of, make=CAPTURABLE["AdamW"]):
        with mock.patch.object(step_module, "maker_of_graphs", lambda device: TapedGraphs):
            return vitune.train_step(model, loss, make(model.parameters(), lr=RATE), compile=False)

    def test_a_count_on_the_host_is_named_before_the_capture(self):
        step, batch, taken = self.captured(network(), make=Counting), batches(1)[0], 0
        with self.assertRaisesRegex(vitune.Unsupported, "Counting keeps 'step' on the host.*capture=False"):
            for taken in range(WARM + 1):
                step(*batch)
        self.assertEqual(taken, WARM)

    def test_what_comes_later_is_refused_before_the_next_capture(self):
        changes = {
            "'0' has a hook": lambda model, optimizer: hooked(model),
            "the parameter '0.weight' has a hook.*hooks=True": lambda model, optimizer: observed(model),
            "the parameter '4.bias' has a hook": lambda model, optimizer: model[4].bias.register_hook(lambda gradient: None),
            "the parameter of shape .3. has a hook": lambda model, optimizer: optimizer.param_groups[1]["params"][0].register_hook(lambda gradient: None),
            "the optimizer has a hook": lambda model, optimizer: optimizer.register_step_pre_hook(lambda *_: None),
            "the optimizer has a hook of its step": lambda model, optimizer: optimizer.register_step_post_hook(lambda *_: None),
        }
        for words, change in changes.items():
            with self.subTest(words):
                model = network()
                optimizer = CAPTURABLE["AdamW"]([{"params": list(model.parameters())}, {"params": [nn.Parameter(torch.ones(3))]}], lr=RATE)
                step = self.captured(model, make=lambda parameters, lr: optimizer)
                for batch in batches(WARM + 2):
                    step(*batch)
                change(model, optimizer)
                with self.assertRaisesRegex(vitune.Unsupported, words):
                    for batch in batches(WARM + 1):
                        step(*batch)

    def test_accumulators_on_the_default_stream_are_named(self):
        words = "CUDA error: operation would make the legacy stream depend on a capturing blocking stream"
        with mock.patch.object(TapedGraphs, "capture", side_effect=RuntimeError(words)), \
                mock.patch.object(step_module, "maker_of_graphs", lambda device: TapedGraphs):
            model = network()
            step = vitune.train_step(model, loss_of, CAPTURABLE["AdamW"](model.parameters(), lr=RATE), compile=False)
            with self.assertRaisesRegex(vitune.Unsupported, "(?s)legacy stream.*reduce-overhead trained.*capture=False"):
                for batch in batches(WARM + 1):
                    step(*batch)

    def test_calls_that_make_no_step_are_named(self):
        model = network()
        for maker in (lambda device: None, lambda device: TapedGraphs):
            with mock.patch.object(step_module, "maker_of_graphs", maker):
                inputs, labels = batches(1)[0]

                def made(loss=loss_of, model=model):
                    return vitune.train_step(model, loss, CAPTURABLE["AdamW"](model.parameters(), lr=RATE), compile=False)

                for words, call in (
                        ("no_grad", lambda: torch.no_grad()(made())(inputs, labels)),
                        ("requires a gradient: only parameters", lambda: made()(inputs.clone().requires_grad_(), labels)),
                        ("object of class object", lambda: made()(inputs, object())),
                        ("a sparse tensor.*dense", lambda: made()(inputs.to_sparse(), labels)),
                        ("a nested tensor.*dense", lambda: made()(torch.nested.nested_tensor([torch.ones(6)]), labels)),
                        ("object of class SimpleNamespace beside the loss", lambda: made(lambda model, x, y: (
                            loss_of(model, x, y), {"more": types.SimpleNamespace(logits=model(x))}))(inputs, labels)),
                        (r"a tensor of shape \[8\]", lambda: made(lambda model, x, y: F.cross_entropy(model(x), y, reduction="none"))(inputs, labels)),
                        ("of class NoneType", lambda: made(lambda model, x, y: None)(inputs, labels)),
                        ("no parameter has a gradient", lambda: made(lambda model, x, y: loss_of(model, x, y).detach())(inputs, labels))):
                    with self.subTest(words), self.assertRaisesRegex(vitune.InvalidArgument, words):
                        call()
