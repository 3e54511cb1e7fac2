# benchmarks/programs/lora.py -- peft's LoRA on a ViT: merged, unmerged, saved and loaded between steps, answers right at once.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import tempfile

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import ViTConfig, ViTForImageClassification

from .switch import COMPILED, Run, images

_CLASSES = 10


def _answers(model: torch.nn.Module, given: torch.Tensor) -> float:
    """One number of the answers that changes with each weight."""
    model.eval()
    with torch.no_grad():
        found = model(given).logits.float()
    model.train()
    return (found * torch.arange(1, found.shape[1] + 1, device=found.device)).abs().mean().item()


def train(way: str, steps: int, device: str, small: bool) -> Run:
    """Losses, with a number of the model's answers after each change of its weights between them."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "intermediate_size": 64} if small else {}
    base = ViTForImageClassification(ViTConfig(num_labels=_CLASSES, patch_size=16, **sizes))
    model = get_peft_model(copy.deepcopy(base), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["classifier"])).to(device)
    if way in COMPILED:
        model.compile(**COMPILED[way])
    optimizer, run = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=5e-2 if small else 1e-3), Run()

    def learn(seed: int) -> None:
        given, labels = images(8 if small else 64, 32 if small else 224, _CLASSES, seed, device)
        loss = F.cross_entropy(model(given).logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.note(loss.item())

    def answer(of: torch.nn.Module) -> None:
        run.note(_answers(of, seen), of_step=False)

    seen = images(4, 32 if small else 224, _CLASSES, 99, device)[0]
    for step in range(steps):
        learn(step)
        answer(model)
        model.merge_adapter()
        answer(model)
        model.unmerge_adapter()
        answer(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        learn(steps)
        model.load_adapter(folder, "default", is_trainable=True)  # over the one that went on
        answer(model)
        beside = PeftModel.from_pretrained(base.to(device), folder)
        answer(beside)
    return run
