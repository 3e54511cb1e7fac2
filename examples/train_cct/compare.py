# examples/train_cct/compare.py -- Whether a way to train costs accuracy: python -m train_cct.compare, three seeds of each beside fp32.
# SPDX-License-Identifier: Apache-2.0
"""Two questions, each of three seeds. Accuracy: a way is in the band if its mean is within the range of fp32's seeds, half a point added at both
ends. That does not see small faults: a model learns nearly as well where some biases are not trained. So the losses of one epoch in which nothing
is dropped are held against those of fp32, step by step: a way follows fp32 if it is at most twice as far away as PyTorch's own AMP. The last way has
a fault on purpose, and must not pass: what lets it pass tells nothing."""
from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .data import load
from .recipe import RECIPES, Recipe, model_of
from .training import History, Training

SEEDS = (0, 1, 2)
_SLACK = 0.005  #: half a point
_FARTHER = 2.0  #: than AMP is from fp32
EXACT, AMP = "fp32", "amp"
_NOTHING_DROPPED = {"attention_dropout": 0.0, "drop_path": 0.0}


def _no_bias_gradients(model: nn.Module) -> None:
    """The fault: no linear layer's bias is trained."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.requires_grad_(False)


@dataclasses.dataclass(frozen=True)
class Way:
    """How a model is trained, and what is other than in the recipe."""

    way: str
    amp: str
    says: str
    gelu: str = "none"
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    change: Callable[[nn.Module], None] = lambda model: None


WAYS = {
    EXACT: Way("eager", "off", "PyTorch, fp32"),
    AMP: Way("eager", "bf16", "PyTorch, AMP"),
    "compile": Way("compile", "bf16", "torch.compile, AMP"),
    "vitune": Way("vitune", "bf16", "vitune.train_step, AMP"),
    "tanh": Way("eager", "off", "fp32, GELU by tanh", gelu="tanh"),
    "no_dropout": Way("eager", "off", "fp32, nothing is dropped", recipe=_NOTHING_DROPPED),
    "fault": Way("vitune", "bf16", "vitune, no gradients of biases", change=_no_bias_gradients),
}


def in_band(exact: list[float], found: list[float]) -> bool:
    """Whether the mean of these accuracies is in the band of those of fp32."""
    return min(exact) - _SLACK <= statistics.mean(found) <= max(exact) + _SLACK


def distance(exact: list[float], found: list[float]) -> float:
    """Mean over the steps of two runs' losses."""
    return statistics.mean(abs(mine - theirs) for mine, theirs in zip(found, exact, strict=True))


def follows(amp: float, found: float) -> bool:
    """Whether losses at that distance from fp32's are as near as rounding makes them. amp: the distance of PyTorch's AMP."""
    return found <= _FARTHER * amp


def _train(way: Way, recipe: Recipe, data: Any, seed: int, device: torch.device, epochs: int) -> History:
    torch.manual_seed(seed)
    torch.compiler.reset()
    model = model_of(recipe, way.gelu).to(device)
    way.change(model)
    training = Training(recipe, model, data, way.way, way.amp, seed)
    # Else convolutions of fp32 would round to TF32.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=way.amp != "off"):
        while training.epoch < epochs:
            training.run_epoch()
    return training.history


class Comparison:
    """All ways on one data set, fp32 first."""

    def __init__(self, recipe: Recipe, data: Any, device: torch.device) -> None:
        self._recipe, self._data, self._device = recipe, data, device
        self._exact: list[float] = []
        self._starts: list[list[float]] = []
        self._amp = 0.0

    def row(self, name: str) -> dict[str, Any]:
        """Of the document. fp32 and AMP come before all others."""
        way = WAYS[name]
        runs = [_train(way, dataclasses.replace(self._recipe, **way.recipe), self._data, seed, self._device, self._recipe.epochs) for seed in SEEDS]
        starts = [_train(way, dataclasses.replace(self._recipe, **_NOTHING_DROPPED), self._data, seed, self._device, 1).losses for seed in SEEDS]
        accuracy = [run.accuracy[-1] for run in runs]
        if name == EXACT:
            self._exact, self._starts = accuracy, starts
        away = statistics.mean(distance(*pair) for pair in zip(self._starts, starts))
        if name == AMP:
            self._amp = away
        return {"way": name, "says": way.says, "accuracy": [round(each, 5) for each in accuracy], "mean": round(statistics.mean(accuracy), 5),
                "in_band": in_band(self._exact, accuracy), "distance": round(away, 7), "follows": name == EXACT or follows(self._amp, away),
                "last_loss": round(statistics.mean(loss for run in runs for loss in run.losses[-20:]), 5),
                "epoch_seconds": round(statistics.median(second for run in runs for second in run.seconds), 3)}


def line_of(row: dict[str, Any]) -> str:
    """Of a row, for people."""
    seeds = ", ".join(f"{100 * each:.2f}" for each in row["accuracy"])
    return (f"{row['says']:32} {100 * row['mean']:6.2f} % ({seeds}): {'in' if row['in_band'] else 'OUT OF'} the band; losses"
            f" {row['distance']:.1e} from fp32's: {'follows' if row['follows'] else 'DOES NOT FOLLOW'}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train_cct.compare", description="Three seeds of each way, beside fp32.")
    parser.add_argument("--data", choices=RECIPES, default="digits")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, help="default: the recipe's")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="default: all; fp32 and AMP are among them in any case")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("train_cct.json"))
    given = parser.parse_args()
    recipe, device = RECIPES[given.data], torch.device(given.device)
    recipe = dataclasses.replace(recipe, epochs=given.epochs or recipe.epochs)
    comparison = Comparison(recipe, load(given.data, given.folder, recipe.image), device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    document = {"schema": 1, "command": "train_cct", "device": {"name": name}, "versions": {"torch": torch.__version__},
                "date": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()), "data": given.data, "recipe": dataclasses.asdict(recipe), "rows": []}
    for way in dict.fromkeys([EXACT, AMP, *given.ways]):
        document["rows"].append(comparison.row(way))
        print(line_of(document["rows"][-1]), flush=True)
        given.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
