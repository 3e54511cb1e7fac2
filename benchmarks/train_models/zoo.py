# benchmarks/train_models/zoo.py -- Builds a model that trains, with random weights, and a batch for it.
# SPDX-License-Identifier: Apache-2.0
"""The same weights for a name at every run; nothing is fetched. Dropout and drop path are those that timm and cct.py give a name."""

from __future__ import annotations

import torch
from models import zoo as of_models
from torch import Tensor, nn

from . import cct

CLASSES = 1000  #: of models that come without any


def build(name: str, params: str, device: str) -> tuple[nn.Module, int]:
    """In fp32 for "amp", else bf16, and the side of its square images."""
    if name in cct.RECIPES:
        torch.manual_seed(0)
        model, size = cct.CCT(cct.RECIPES[name]).to(device), cct.RECIPES[name].image
    else:
        model, size = of_models.fresh(name, device)
        if model.num_classes == 0:
            model.reset_classifier(CLASSES)
            model.to(device)
    model.train()
    return (model.bfloat16() if params == "bf16" else model), size


def without_dropout(model: nn.Module) -> nn.Module:
    """The model itself: what it gives does not depend on chance."""
    for module in model.modules():
        for name in ("drop_prob", "drop_path", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def batch(count: int, size: int, classes: int, params: str, device: str) -> tuple[Tensor, Tensor]:
    """Images, in the type of the weights, and labels: the same at every run."""
    torch.manual_seed(count)
    images = torch.randn(count, 3, size, size, device=device)
    labels = torch.randint(0, classes, (count,), device=device)
    return (images.bfloat16() if params == "bf16" else images), labels
