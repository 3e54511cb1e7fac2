# benchmarks/programs/lightning_fit.py -- Lightning's Trainer, in bf16-mixed, with accumulation and clipping.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.models import VisionTransformer

from .switch import COMPILED, Run, images

_CLASSES = 10


class Classifier(lightning.LightningModule):
    """torchvision's ViT."""

    def __init__(self, model: torch.nn.Module, run: Run, rate: float) -> None:
        super().__init__()
        self.model, self._run, self._rate = model, run, rate

    def training_step(self, batch: tuple[Tensor, Tensor], place: int) -> Tensor:
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.log("loss", loss)
        self._run.note(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self._rate)


def train(way: str, steps: int, device: str, small: bool) -> Run:
    """small: a model and images for a CPU."""
    lightning.seed_everything(0, verbose=False)
    size, batch = (32, 8) if small else (224, 64)
    width, depth = (32, 2) if small else (384, 12)
    model, run = VisionTransformer(size, 16, depth, width // 32 if small else 6, width, 4 * width, num_classes=_CLASSES), Run()
    if way in COMPILED:
        model.compile(**COMPILED[way])
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*images(steps * batch, size, _CLASSES, 0, device)), batch, shuffle=True)
    trainer = lightning.Trainer(accelerator="gpu" if device == "cuda" else "cpu", devices=1, precision="bf16-mixed", max_epochs=1, logger=False,
                                accumulate_grad_batches=2, gradient_clip_val=1.0, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)
    trainer.fit(Classifier(model, run, 1e-3 if small else 1e-4), data)
    return run
