# python/tests/train_step_cases.py -- What the tests of vitune.train_step() share: a small model, its batches, and the loop in PyTorch beside it.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import functools
import unittest
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler as schedulers

import vitune
from vitune._train import graphed, step as step_module

from .taped import TapedGraphs

STEPS, RATE = 20, 2e-2
WARM = graphed.WARM


def one_thread():
    """For a module: operators of these sizes are done before a second thread wakes up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    unittest.addModuleCleanup(torch.set_num_threads, threads)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4))


def loss_of(model, inputs, labels):
    return F.cross_entropy(model(inputs), labels)


def batches(count, size=8):
    chance = torch.Generator().manual_seed(5)
    return [(torch.randn(size, 6, generator=chance), torch.randint(0, 4, (size,), generator=chance)) for _ in range(count)]


def clip_values(parameters):
    nn.utils.clip_grad_value_(parameters, 0.02)


def same(mine, theirs):
    return all(map(torch.equal, mine.state_dict().values(), theirs.state_dict().values()))


@contextlib.contextmanager
def rate_as_tensor(optimizer):
    """As a captured step has it: of fp32."""
    theirs = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = torch.as_tensor(float(group["lr"]), device=group["params"][0].device)
    yield
    for group, rate in zip(optimizer.param_groups, theirs):
        group["lr"] = rate


def plain_step(model, optimizer, micro, clip=None, scaler=None, rate=contextlib.nullcontext, loss=loss_of):
    """What PyTorch's documents write."""
    losses = []
    optimizer.zero_grad(set_to_none=True)
    for batch in micro:
        value = loss(model, *batch)
        scaled = value / len(micro)
        (scaled if scaler is None else scaler.scale(scaled)).backward()
        losses.append(value.item())
    if clip is not None and scaler is not None:
        scaler.unscale_(optimizer)
    if clip is clip_values:
        clip(model.parameters())
    elif clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    with rate(optimizer) if rate is not contextlib.nullcontext else rate():
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer), scaler.update()
    return losses


def cosine(optimizer):
    return schedulers.CosineAnnealingLR(optimizer, STEPS)


def warm_up(optimizer):
    return schedulers.SequentialLR(optimizer, [schedulers.LinearLR(optimizer, 0.1, 1.0, 3), schedulers.ExponentialLR(optimizer, 0.9)], [3])


def one_cycle(optimizer):
    return schedulers.OneCycleLR(optimizer, RATE, total_steps=STEPS + 1, cycle_momentum=False)


def by_hand(optimizer):
    """As timm's schedulers do: a new number in the group."""
    class Halves:
        count = 0

        def step(self):
            self.count += 1
            for group in optimizer.param_groups:
                group["lr"] = RATE / (1 + self.count)
    return Halves()


OPTIMIZERS = {
    "SGD": functools.partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "Adam": functools.partial(torch.optim.Adam, amsgrad=True),
    "AdamW": functools.partial(torch.optim.AdamW, weight_decay=0.1),
    "NAdam": torch.optim.NAdam, "RAdam": torch.optim.RAdam, "Adamax": torch.optim.Adamax, "ASGD": torch.optim.ASGD,
    "Adadelta": torch.optim.Adadelta, "RMSprop": functools.partial(torch.optim.RMSprop, momentum=0.9), "Rprop": torch.optim.Rprop,
    "Adagrad": torch.optim.Adagrad, "Adafactor": torch.optim.Adafactor,
}
#: With what a graph needs; those that a CPU computes so.
CAPTURABLE = {
    "SGD": functools.partial(OPTIMIZERS["SGD"], fused=True),
    "Adam": functools.partial(OPTIMIZERS["Adam"], fused=True, capturable=True),
    "AdamW": functools.partial(OPTIMIZERS["AdamW"], fused=True, capturable=True),
}
SCHEDULES = (None, cosine, warm_up, one_cycle, by_hand)
CLIPS = (None, 0.5, clip_values)
ACCUMULATE = (1, 3)


class CapturedCase(unittest.TestCase):
    """Captured steps on a tape, which has addresses and constants as a graph has."""

    def setUp(self):
        self.graphs = type("Graphs", (TapedGraphs,), {"made": 0})
        patch = mock.patch.object(step_module, "maker_of_graphs", lambda device: self.graphs)
        patch.start()
        self.addCleanup(patch.stop)
        self.model = network()
        self.optimizer = CAPTURABLE["AdamW"](self.model.parameters(), lr=RATE)
        # The same training without a tape, for comparison.
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
