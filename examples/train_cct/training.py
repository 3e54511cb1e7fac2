# examples/train_cct/training.py -- One training: its epochs, and a checkpoint that goes on as if nothing had happened.
# SPDX-License-Identifier: Apache-2.0
"""Each epoch begins with a seed made of the training's and its number, for the order of images and for all that is dropped. So a resumed
training draws what an unbroken one does, and no state of a generator needs to be kept."""
from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from .data import batches
from .recipe import Recipe, optimizer_of, rate_at
from .ways import autocast, step_of


@dataclasses.dataclass
class History:
    """What was measured so far."""

    losses: list[float] = dataclasses.field(default_factory=list)  #: of each step
    accuracy: list[float] = dataclasses.field(default_factory=list)  #: after each epoch, of the test images, 0 to 1
    seconds: list[float] = dataclasses.field(default_factory=list)  #: of each epoch's steps


class Training:
    """A model with its optimizer, at the beginning or where a checkpoint left it."""

    def __init__(self, recipe: Recipe, model: nn.Module, data: tuple[Dataset, Dataset], way: str, amp: str, seed: int, workers: int = 0) -> None:
        self.recipe, self.model, self.amp, self.seed = recipe, model, amp, seed
        self._train, self._test, self._workers = *data, workers
        self._device = next(model.parameters()).device
        self._optimizer = optimizer_of(recipe, model)
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=amp == "fp16")
        self._step = step_of(way, model, self._optimizer, self._scaler, amp, recipe.smoothing)
        self.history = History()
        self.steps = len(batches(self._train, recipe.batch, seed))  #: of an epoch
        if not self.steps:
            raise SystemExit(f"{len(self._train)} images are fewer than a batch of {recipe.batch}: give a smaller --batch")

    @property
    def epoch(self) -> int:
        """How many are done."""
        return len(self.history.accuracy)

    def run_epoch(self, seen: Callable[[int, Any], None] = lambda step, loss: None) -> None:
        """One epoch, and the accuracy after it. seen: is called after each step with its number and its loss, a tensor."""
        seed = self.seed * 100_003 + self.epoch
        torch.manual_seed(seed)
        self.model.train()
        began, losses = time.monotonic(), []
        for place, (images, labels) in enumerate(batches(self._train, self.recipe.batch, seed, self._workers)):
            rate = rate_at(self.recipe, (self.epoch + place / self.steps) / self.recipe.epochs)
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            losses.append(self._step(images, labels))
            seen(place, losses[-1])
        self.history.losses += torch.stack(losses).float().tolist()  # waits for the GPU once an epoch
        self.history.seconds.append(time.monotonic() - began)
        self.history.accuracy.append(self.accuracy())

    @torch.no_grad()
    def accuracy(self) -> float:
        """Part of the test images whose class is found."""
        self.model.eval()
        right = torch.zeros((), dtype=torch.int64, device=self._device)
        for images, labels in batches(self._test, self.recipe.batch, None, self._workers):
            with autocast(self._device, self.amp):
                found = self.model(images.to(self._device)).argmax(dim=1)
            right += (found == labels.to(self._device)).sum()
        return right.item() / len(self._test)

    def save(self, path: pathlib.Path) -> None:
        """All of a checkpoint or nothing: an interruption leaves the old one."""
        new = path.with_suffix(".new")
        torch.save({"recipe": dataclasses.asdict(self.recipe), "amp": self.amp, "seed": self.seed, "history": dataclasses.asdict(self.history),
                    "model": self.model.state_dict(), "optimizer": self._optimizer.state_dict(), "scaler": self._scaler.state_dict()}, new)
        os.replace(new, path)

    def load(self, path: pathlib.Path) -> None:
        """Goes on from there. Exits with a sentence if the checkpoint is of another training."""
        found = torch.load(path, map_location=self._device, weights_only=True)
        mine = {**dataclasses.asdict(self.recipe), "amp": self.amp, "seed": self.seed}
        theirs = {**found["recipe"], "amp": found["amp"], "seed": found["seed"]}
        differs = ", ".join(f"{name} {theirs[name]}, not {mine[name]}" for name in mine if mine[name] != theirs[name])
        if differs:
            raise SystemExit(f"{path} is of a training with {differs}: give the same, or another --out")
        self.model.load_state_dict(found["model"])
        self._optimizer.load_state_dict(found["optimizer"])
        self._scaler.load_state_dict(found["scaler"])
        self.history = History(**found["history"])
