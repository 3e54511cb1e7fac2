# benchmarks/train_models/session.py -- What each task of a run measures: steps, or how losses fall.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import pathlib
import random
from collections.abc import Callable
from typing import Any

import torch
from models.floor import Ceilings
from models.row import alive
from models.tasks import Tasks
from peers.engine.peer import sentence

from . import document, losses, sdpa, zoo
from .floor import floor_us
from .roster import Task
from .row import Row
from .step import Training
from .ways import ways_of

MOST_SECONDS = 5.0  # of rounds for one row and mode


class Session(Tasks):
    """Of training."""

    document = document
    leaves_out = True

    def __init__(self, result: dict[str, Any], path: pathlib.Path, device: str, clock: Any, ceilings: Ceilings | None,
                 after_compiling: Callable[[], Any]) -> None:  # fmt: skip
        super().__init__(result, path, clock)
        self._device, self._ceilings, self._after_compiling = device, ceilings, after_compiling
        self._chance = random.Random(0)

    def rows(self, task: Task) -> list[dict[str, Any]]:
        try:
            return [losses.measure(task.model, task.batch, self._device, self._clock)] if task.kind == "losses" else self._steps(task)
        finally:
            torch._dynamo.reset()  # what compiled models hold, their graphs' memory too
            gc.collect()
            self._after_compiling()

    def _steps(self, task: Task) -> list[dict[str, Any]]:
        model, size = zoo.build(task.model, task.params, self._device)
        images, labels = zoo.batch(task.batch, size, model.num_classes, task.params, self._device)
        training = Training(model, images, labels, task.params)
        row = Row(training, self._clock, MOST_SECONDS, self._chance)
        chosen = sdpa.fastest(row.eager_ms, self._clock) if self._device == "cuda" else {"order": None}
        with sdpa.preferring(chosen["order"]):
            found = row.measure(ways_of(task.kind), self.left_out(task))
            more = {"sdpa": chosen} | self._floors(training)
        return [each | more for each in found]

    def _floors(self, training: Training) -> dict[str, Any]:
        """Where the GPU's rates are known; a row is worth its times without them too."""
        if self._ceilings is None:
            return {}
        try:
            return {"floor_us": floor_us(training.step(training.model), self._ceilings)}
        except Exception as reason:
            alive(self._clock, "floors")
            return {"floor_failed": sentence(reason)}

    def line(self, found: dict[str, Any]) -> str:
        words = [found.get("mode", "losses")]
        words += [f"{name} {time['ms']:.3f}" for name, time in found.get("ms", {}).items()]
        words += [f"{name} {spread['mean']:.4f}" for name, spread in found.get("distance", {}).items()]
        if found.get("gain"):
            words.append("x{times:.3f} [{low:.3f}, {high:.3f}]".format_map(found["gain"]))
        if found.get("eager_gain"):
            words.append("eager x{times:.3f} [{low:.3f}, {high:.3f}]".format_map(found["eager_gain"]))
        words += [f"{name or 'all'}: FAILED {reason[:120]}" for name, reason in found["failed"].items()]
        return "  ".join(words)
