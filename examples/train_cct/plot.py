# examples/train_cct/plot.py -- A picture of loss and accuracy: python -m train_cct.plot RUN/checkpoint.pt ... -o curves.png.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import pathlib

import torch

from .training import History


def draw(runs: dict[str, History], path: pathlib.Path) -> None:
    """Losses of each step, and accuracy after each epoch, of all runs by their names. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, run in runs.items():
        steps = len(run.losses) / max(1, len(run.accuracy))
        left.plot([(place + 1) / steps for place in range(len(run.losses))], run.losses, linewidth=0.8, label=name)
        right.plot(range(1, len(run.accuracy) + 1), [100 * each for each in run.accuracy], marker="o", markersize=3, label=name)
    left.set(xlabel="epoch", ylabel="loss of a step")
    right.set(xlabel="epoch", ylabel="accuracy of test images, %")
    for each in (left, right):
        each.grid(alpha=0.3)
        each.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train_cct.plot", description="Draws the losses and accuracies of runs over each other.")
    parser.add_argument("checkpoints", nargs="+", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, default="curves.png")
    given = parser.parse_args()
    draw({path.parent.name or path.stem: History(**torch.load(path, map_location="cpu", weights_only=True)["history"])
          for path in given.checkpoints}, given.output)
    print(f"wrote {given.output}")


if __name__ == "__main__":
    main()
