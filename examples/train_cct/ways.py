# examples/train_cct/ways.py -- The ways to take a step: PyTorch's eager mode, torch.compile, and vitune.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WAYS = ("eager", "compile", "vitune")
TYPES = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}  #: of AMP


def autocast(device: torch.device, amp: str) -> Any:
    """A context in which products are of that type."""
    return contextlib.nullcontext() if TYPES[amp] is None else torch.autocast(device.type, TYPES[amp])


def loss_of(model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, *, amp: str, smoothing: float) -> Tensor:
    """Cross entropy."""
    with autocast(images.device, amp):
        return F.cross_entropy(model(images), labels, label_smoothing=smoothing)


def step_of(way: str, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, amp: str,
            smoothing: float) -> Callable[[Tensor, Tensor], Tensor]:
    """What takes a batch, and gives its loss. scaler: disabled but for fp16."""
    loss = functools.partial(loss_of, amp=amp, smoothing=smoothing)
    if way == "vitune":
        import vitune

        return vitune.train_step(model, loss, optimizer, scaler=scaler)
    device = next(model.parameters()).device
    called = torch.compile(model, dynamic=False) if way == "compile" else model

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        found = loss(called, images.to(device, non_blocking=True), labels.to(device, non_blocking=True))
        scaler.scale(found).backward()
        scaler.step(optimizer)
        scaler.update()
        return found.detach()

    return step
