# benchmarks/train_models/losses.py -- How a model's loss falls by each way, beside fp32.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from typing import Any

import torch
from models.row import alive
from peers.engine.peer import sentence
from torch import Tensor, nn

from . import zoo
from .graph import Captures
from .step import Step, Training
from .ways import BUILDS

STEPS, SEEDS, RATE = 300, (0, 1, 2, 3, 4, 5), 3e-4
PATTERNS = 10  #: classes of images
_EACH = 10  #: steps of a number of the curve: whether losses rose in between, and came down again
_LAST = 20  #: steps whose mean loss is told
#: Ways by name: how the weights are kept, and what computes the model.
_EXACT = "fp32"
WAYS = {_EXACT: ("fp32", "eager"), "eager": ("amp", "eager"), "compile_default": ("amp", "default"), "vitune_compile": ("amp", "vitune_in_graph")}


class _Images:
    """An endless row of batches by a seed: a pattern for each class, and noise that hides it from a glance."""

    def __init__(self, count: int, size: int, seed: int, device: str) -> None:
        self._shape = (count, 3, size, size)
        self._device, self._chance = device, torch.Generator(device).manual_seed(seed)
        coarse = torch.randn(PATTERNS, 3, 8, 8, device=device, generator=self._chance)
        self._patterns = nn.functional.interpolate(coarse, size=size, mode="nearest")

    def fill(self, images: Tensor, labels: Tensor) -> None:
        """With the next batch."""
        labels.copy_(torch.randint(0, PATTERNS, labels.shape, device=self._device, generator=self._chance))
        noise = torch.randn(self._shape, device=self._device, generator=self._chance)
        images.copy_(0.3 * self._patterns[labels] + noise)


def measure(name: str, count: int, device: str, clock: Any) -> dict[str, Any]:
    """The row without its name."""
    model, size = zoo.build(name, "amp", device)
    zoo.without_dropout(model)
    states = [_fresh(model, seed) for seed in SEEDS]
    row: dict[str, Any] = {"steps": STEPS, "seeds": len(SEEDS), "distance": {}, "last_loss": {}, "curve": {}, "failed": {}}
    exact: Tensor | None = None
    for way, (params, build) in WAYS.items():
        try:
            found = _losses(model, states, count, size, params, build)
        except Exception as reason:
            row["failed"][way] = sentence(reason)
            alive(clock, f"losses of {way}")
            continue
        row["curve"][way] = [[float(f"{part.mean().item():.3g}") for part in seed.split(_EACH)] for seed in found]
        row["last_loss"][way] = [round(value, 5) for value in found[:, -_LAST:].mean(1).tolist()]
        if way == _EXACT:
            exact = found
        elif exact is not None:
            row["distance"][way] = _spread((found - exact).abs().mean(1).tolist())
    return row


def _fresh(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Weights by that seed: those there are, shuffled, so that each tensor keeps its distribution."""
    state = copy.deepcopy(model.state_dict())
    for key, _ in model.named_parameters():
        weight = state[key]
        chance = torch.Generator(weight.device).manual_seed(seed)
        state[key] = weight.flatten()[torch.randperm(weight.numel(), device=weight.device, generator=chance)].view_as(weight)
    return state


def _losses(model: nn.Module, states: list[dict[str, Tensor]], count: int, size: int, params: str, build: str) -> Tensor:
    """[seeds, steps], on the CPU."""
    device = next(model.parameters()).device.type
    images, labels = torch.empty(count, 3, size, size, device=device), torch.empty(count, dtype=torch.int64, device=device)
    training = Training(model, images, labels, params, RATE)
    found = []
    # Else convolutions of fp32 would round to TF32.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=params != "fp32"):
        step = BUILDS[build](training)[0]
        if device == "cuda":
            _Images(count, size, 0, device).fill(images, labels)
            step = _replayed(training, step)
        for seed, state in zip(SEEDS, states):
            training.restart(state)
            source, losses = _Images(count, size, seed, device), []
            for _ in range(STEPS):
                source.fill(images, labels)
                losses.append(step())
            found.append(torch.stack(losses).float().cpu())
    training.forget_gradients()
    return torch.stack(found)


def _replayed(training: Training, step: Step) -> Step:
    """The step as a CUDA graph: what it computes is the same, and the host would take most of the time."""
    captures = Captures(training)
    captures.warm(step)
    graph, loss = captures.capture(step)

    def run() -> Tensor:
        graph.replay()
        return loss.clone()
    return run


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": round(sum(values) / len(values), 6), "least": round(min(values), 6), "most": round(max(values), 6)}
