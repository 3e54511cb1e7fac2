# examples/train_cct/train.py -- The command: trains, with a bar, a line for each epoch, checkpoints and a picture.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import dataclasses
import pathlib

import torch

from .data import load
from .plot import draw
from .recipe import RECIPES, Recipe, model_of
from .training import Training
from .ways import TYPES, WAYS

_LOOK = 10  #: steps between two losses that the bar shows: each waits for the GPU


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m train_cct", description="Trains a compact convolutional transformer.")
    parser.add_argument("--data", choices=RECIPES, default="digits")
    parser.add_argument("--folder", type=pathlib.Path, help="of cifar10 and flowers102, laid out as torchvision.datasets has it")
    parser.add_argument("--way", choices=WAYS, default="vitune", help="default: %(default)s")
    parser.add_argument("--device", help="default: cuda where there is one, else cpu")
    parser.add_argument("--amp", choices=TYPES, help="default: bf16 on a GPU, off on a CPU")
    parser.add_argument("--epochs", type=int, help="default: the recipe's")
    parser.add_argument("--batch", type=int, help="default: the recipe's")
    parser.add_argument("--image", type=int, help="side of an image, in pixels; default: the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes that read images")
    parser.add_argument("--out", type=pathlib.Path, help="folder of checkpoint.pt and curves.png; default: runs/DATA")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in that folder")
    return parser.parse_args(given)


def _recipe(given: argparse.Namespace) -> Recipe:
    changes = {name: value for name in ("epochs", "batch", "image") if (value := getattr(given, name)) is not None}
    return dataclasses.replace(RECIPES[given.data], **changes)


def _begin(given: argparse.Namespace, recipe: Recipe) -> Training:
    device = torch.device(given.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    amp = given.amp or ("bf16" if device.type == "cuda" else "off")
    torch.manual_seed(given.seed)
    model = model_of(recipe).to(device)
    training = Training(recipe, model, load(given.data, given.folder, recipe.image), given.way, amp, given.seed, given.workers)
    weights = sum(weight.numel() for weight in model.parameters())
    print(f"{recipe.model} with {weights / 1e6:.1f} million weights on {device}, {given.way}, AMP {amp}: {recipe.epochs} epochs of"
          f" {training.steps} batches of {recipe.batch} images of {recipe.image} x {recipe.image} pixels")
    return training


def _run(training: Training, checkpoint: pathlib.Path) -> None:
    from tqdm import tqdm

    while training.epoch < training.recipe.epochs:
        with tqdm(total=training.steps, desc=f"epoch {training.epoch + 1}", unit="batch", leave=False) as bar:
            def seen(place: int, loss: torch.Tensor) -> None:
                bar.update()
                if place % _LOOK == 0:
                    bar.set_postfix(loss=f"{loss.item():.3f}")

            training.run_epoch(seen)
        training.save(checkpoint)
        history = training.history
        mean = sum(history.losses[-training.steps:]) / training.steps
        print(f"epoch {training.epoch:3d}: loss {mean:.3f}, accuracy {100 * history.accuracy[-1]:5.1f} %, {history.seconds[-1]:.1f} s")


def main(arguments: list[str] | None = None) -> None:
    """The command. arguments: None: the process's."""
    given = _arguments(arguments)
    recipe, folder = _recipe(given), given.out or pathlib.Path("runs") / given.data
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists() and not given.resume:
        raise SystemExit(f"{checkpoint} is there: --resume goes on from it, --out names another folder")
    training = _begin(given, recipe)
    if given.resume:
        training.load(checkpoint)
        print(f"goes on after epoch {training.epoch}")
    folder.mkdir(parents=True, exist_ok=True)
    _run(training, checkpoint)
    try:
        draw({given.way: training.history}, folder / "curves.png")
        print(f"wrote {checkpoint} and {folder / 'curves.png'}")
    except ImportError:
        print(f"wrote {checkpoint}; a picture needs matplotlib")
