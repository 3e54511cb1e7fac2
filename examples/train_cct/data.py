# examples/train_cct/data.py -- The data sets: images of three channels around 0, and their classes.
# SPDX-License-Identifier: Apache-2.0
"""Nothing is fetched: CIFAR-10 and Flowers-102 lie in a folder of the user's, as torchvision's loaders have them; the handwritten digits come
with scikit-learn; the textures are generated."""
from __future__ import annotations

import pathlib
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

#: Mean and standard deviation of the channels, as the authors of CCT give them.
_CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_FLOWERS102 = (0.4353, 0.3773, 0.2872), (0.2966, 0.2455, 0.2698)
_TEXTURES = 10  #: classes
_TEXTURES_TO_TRAIN, _TEXTURES_TO_TEST = 1500, 500


def load(name: str, folder: pathlib.Path | None, image: int) -> tuple[Dataset, Dataset]:
    """What is trained on, and what accuracy is measured on. image: side, in pixels. Exits with a sentence where something is missing."""
    if name in ("cifar10", "flowers102"):
        if folder is None:
            raise SystemExit(f"--folder is missing: {name} is read from a folder of yours, laid out as torchvision.datasets has it")
        try:
            return _cifar10(folder, image) if name == "cifar10" else _flowers102(folder, image)
        except RuntimeError as reason:
            raise SystemExit(f"there is no {name} in {folder}: {reason}") from None
    return _digits(image) if name == "digits" else _textures(image)


def batches(data: Dataset, size: int, seed: int | None, workers: int = 0) -> DataLoader:
    """Whole batches in an order that `seed` gives, or all in their own order if it is None."""
    chance = None if seed is None else torch.Generator().manual_seed(seed)
    return DataLoader(data, size, shuffle=seed is not None, drop_last=seed is not None, generator=chance, num_workers=workers,
                      pin_memory=torch.cuda.is_available())


def _digits(image: int) -> tuple[Dataset, Dataset]:
    """1,797 digits of 8 x 8 pixels, written by 43 people; every fifth one is for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit("the digits come with scikit-learn: pip install scikit-learn") from None
    found = load_digits()
    images = torch.from_numpy(found.images).float()[:, None].expand(-1, 3, -1, -1) / 8 - 1
    images = torch.nn.functional.interpolate(images, size=(image, image), mode="bilinear", antialias=True)
    labels = torch.from_numpy(found.target).long()
    tests = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~tests], labels[~tests]), TensorDataset(images[tests], labels[tests])


def _textures(image: int) -> tuple[Dataset, Dataset]:
    return Textures(_TEXTURES_TO_TRAIN, image, seed=0), Textures(_TEXTURES_TO_TEST, image, seed=1)


class Textures(Dataset):
    """Gratings in noise: a class is a direction; wavelength, phase, colour and the direction's error are drawn."""

    def __init__(self, count: int, image: int, seed: int) -> None:
        self._count, self._image, self._seed = count, image, seed

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        if not 0 <= place < self._count:
            raise IndexError(place)
        label = place % _TEXTURES
        chance = torch.Generator().manual_seed(self._seed * 1_000_003 + place)
        turn, wave, phase = torch.rand(3, generator=chance).tolist()
        angle = torch.tensor((label + 1.2 * (turn - 0.5)) * torch.pi / _TEXTURES)
        line = torch.linspace(-1, 1, self._image)
        along = line[:, None] * angle.sin() + line[None, :] * angle.cos()
        grating = (2 * torch.pi * ((6 + 6 * wave) * along + phase)).sin()
        colour = torch.randn(3, 1, 1, generator=chance)
        return 0.5 * colour * grating + torch.randn(3, self._image, self._image, generator=chance), label


def _transforms(image: int, mean: Any, deviation: Any, trains: bool) -> Any:
    from torchvision.transforms import v2

    bicubic = v2.InterpolationMode.BICUBIC
    sized = [v2.RandomResizedCrop(image, scale=(0.8, 1.0), interpolation=bicubic, antialias=True), v2.RandomHorizontalFlip()] if trains else \
        [v2.Resize(image, interpolation=bicubic, antialias=True), v2.CenterCrop(image)]
    return v2.Compose([v2.ToImage(), *sized, v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, deviation)])


def _cifar10(folder: pathlib.Path, image: int) -> tuple[Dataset, Dataset]:
    from torchvision.datasets import CIFAR10

    return tuple(CIFAR10(folder, train=trains, transform=_transforms(image, *_CIFAR10, trains)) for trains in (True, False))


def _flowers102(folder: pathlib.Path, image: int) -> tuple[Dataset, Dataset]:
    """Trained on the 1,020 images of its split `train`, as the authors of CCT do; measured on those of `val`."""
    from torchvision.datasets import Flowers102

    return tuple(Flowers102(folder, split, transform=_transforms(image, *_FLOWERS102, split == "train")) for split in ("train", "val"))
