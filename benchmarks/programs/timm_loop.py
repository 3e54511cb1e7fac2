# benchmarks/programs/timm_loop.py -- The pieces of timm's training loop: AMP, EMA, mixup, drop path, channels_last, accumulation.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy
import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, dispatch_clip_grad

from .switch import COMPILED, Run, images

_ACCUMULATE, _CLASSES = 2, 10


def train(way: str, steps: int, device: str, small: bool) -> Run:
    """small: a model and images for a CPU."""
    torch.manual_seed(0)
    numpy.random.seed(0)  # mixup's
    sizes = {"img_size": 32, "embed_dim": 32, "num_heads": 2, "depth": 2} if small else {}
    model = timm.create_model("vit_small_patch16_224", num_classes=_CLASSES, drop_path_rate=0.1, **sizes)
    model.to(device).to(memory_format=torch.channels_last).train()
    if way in COMPILED:
        model.compile(**COMPILED[way])
    ema = ModelEmaV3(model, decay=0.99)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3 if small else 1e-4, weight_decay=0.05)
    schedule, _ = create_scheduler_v2(optimizer, sched="cosine", num_epochs=steps, warmup_epochs=1, warmup_lr=1e-5)
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=_CLASSES)
    criterion, run = SoftTargetCrossEntropy(), Run()
    for step in range(steps):
        total = 0.0
        for micro in range(_ACCUMULATE):
            given, labels = images(8 if small else 64, 32 if small else 224, _CLASSES, _ACCUMULATE * step + micro, device)
            given, targets = mixup(given, labels)
            given = given.contiguous(memory_format=torch.channels_last)
            with torch.autocast(device, torch.bfloat16):
                loss = criterion(model(given), targets)
            (loss / _ACCUMULATE).backward()
            total += loss.item() / _ACCUMULATE
        dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        ema.update(model, step=step)
        schedule.step(step + 1)
        run.note(total)
    # The average is a copy of the model: what was compiled is called with its weights, and not with the model's.
    ema.module.eval()
    with torch.no_grad():
        run.note(torch.nn.functional.cross_entropy(ema.module(given), labels).item(), of_step=False)
    return run
