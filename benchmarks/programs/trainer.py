# benchmarks/programs/trainer.py -- transformers' Trainer on ViT and DINOv2.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import tempfile
from typing import Any

import torch
from transformers import (Dinov2Config, Dinov2ForImageClassification, PrinterCallback, Trainer, TrainerCallback, TrainingArguments, ViTConfig,
                          ViTForImageClassification)

from .switch import COMPILED, Run, images

_CLASSES = 10
_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32}


class _Images(torch.utils.data.Dataset):
    def __init__(self, count: int, size: int, device: str) -> None:
        self._images, self._labels = images(count, size, _CLASSES, 0, device)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"pixel_values": self._images[place], "labels": self._labels[place]}


class _Notes(TrainerCallback):
    def __init__(self, run: Run) -> None:
        self._run = run

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        if logs and "loss" in logs:
            self._run.note(float(logs["loss"]))


def _train(model: torch.nn.Module, way: str, steps: int, device: str, small: bool) -> Run:
    run, batch = Run(), 8 if small else 64
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, max_steps=steps, per_device_train_batch_size=batch, bf16=True, use_cpu=device == "cpu",
                                      logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=1e-3 if small else 1e-4, warmup_steps=1,
                                      logging_nan_inf_filter=False, dataloader_pin_memory=False, seed=0)
        if way in COMPILED:
            model.compile(**COMPILED[way])
        trainer = Trainer(model, arguments, train_dataset=_Images(4 * batch, 32 if small else 224, device), callbacks=[_Notes(run)])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return run


def train(way: str, steps: int, device: str, small: bool) -> Run:
    """The losses of ViT, then those of DINOv2; the times are ViT's."""
    torch.manual_seed(0)
    sizes = _SMALL if small else {"hidden_size": 384, "num_attention_heads": 6}
    vit = ViTForImageClassification(ViTConfig(num_labels=_CLASSES, intermediate_size=4 * sizes["hidden_size"], patch_size=16, **sizes))
    dino = Dinov2ForImageClassification(Dinov2Config(num_labels=_CLASSES, patch_size=16, drop_path_rate=0.1, **sizes))
    whole = _train(vit, way, steps, device, small)
    for loss in _train(dino, way, steps, device, small).losses:
        whole.note(loss, of_step=False)
    return whole
