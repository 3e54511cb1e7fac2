# examples/train_cct/recipe.py -- How each data set is trained: model, length, learning rate, what is dropped.
# SPDX-License-Identifier: Apache-2.0
"""Rates, decay, warm-up and dropout are the authors' for CIFAR-10 and Flowers-102 (SHI-Labs/Compact-Transformers). They also mix images (mixup,
cutmix, RandAugment), which is left out here, and start Flowers-102 from ImageNet's weights; from random ones it takes a higher rate."""
from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import nn

from .model import CCT


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Training of one data set. Epochs may be changed at the command line; the schedule stretches with them."""

    model: str
    image: int  #: side, in pixels
    classes: int
    epochs: int
    batch: int
    rate: float  #: the largest
    least_rate: float
    weight_decay: float  #: of matrices and kernels; biases, norms and positions have none
    warm_up: float  #: part of the epochs in which the rate rises from least_rate
    smoothing: float = 0.1  #: of labels
    attention_dropout: float = 0.1
    drop_path: float = 0.1


RECIPES = {
    "digits": Recipe("cct_7_3x1", 8, 10, epochs=10, batch=64, rate=5e-4, least_rate=1e-5, weight_decay=6e-2, warm_up=0.1),
    "textures": Recipe("cct_14_7x2", 384, 10, epochs=20, batch=64, rate=5e-4, least_rate=1e-5, weight_decay=5e-2, warm_up=0.1),
    "cifar10": Recipe("cct_7_3x1", 32, 10, epochs=300, batch=128, rate=5.5e-4, least_rate=1e-5, weight_decay=6e-2, warm_up=10 / 300),
    "flowers102": Recipe("cct_14_7x2", 384, 102, epochs=300, batch=64, rate=5e-4, least_rate=1e-5, weight_decay=5e-2, warm_up=10 / 300),
}


def model_of(recipe: Recipe, gelu: str = "none") -> CCT:
    """With random weights."""
    return CCT(recipe.model, recipe.image, recipe.classes, recipe.attention_dropout, recipe.drop_path, gelu)


def optimizer_of(recipe: Recipe, model: nn.Module) -> torch.optim.AdamW:
    """AdamW in one kernel; on a GPU one that counts its steps there, so that a CUDA graph may hold it."""
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    decays = [weight for name, weight in trained if weight.ndim > 1 and name != "positions"]
    others = [weight for name, weight in trained if weight.ndim <= 1 or name == "positions"]
    groups: list[dict[str, Any]] = [{"params": decays, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.rate, fused=True, capturable=decays[0].is_cuda)


def rate_at(recipe: Recipe, done: float) -> float:
    """Learning rate after that part of the training, 0 to 1: a straight line up, then half a cosine down."""
    if done < recipe.warm_up:
        return recipe.least_rate + (recipe.rate - recipe.least_rate) * done / recipe.warm_up
    turn = math.pi * (done - recipe.warm_up) / (1 - recipe.warm_up)
    return recipe.least_rate + (recipe.rate - recipe.least_rate) * (1 + math.cos(turn)) / 2
