# benchmarks/models/roster.py -- What is measured, the most important first.
# SPDX-License-Identifier: Apache-2.0
"""Knows no PyTorch. A model is named as timm names it, or with its package before a slash."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Task:
    """A model at a batch; kind "rows" in both modes, "plain" (no attention) eager, or "calls"."""

    kind: str
    model: str = ""
    batch: int = 0

    def __str__(self) -> str:
        name = f"{self.model} b{self.batch}" if self.model else self.kind
        return f"plain {name}" if self.kind == "plain" else name


def _tasks(kind: str, *models: tuple[str, tuple[int, ...]]) -> list[Task]:
    return [Task(kind, model, batch) for model, batches in models for batch in batches]


TASKS = [
    *_tasks(
        "rows",
        ("vit_base_patch16_224", (32, 1, 128)),
        ("swin_tiny_patch4_window7_224", (32, 1)),
    ),
    Task("calls"),
    *_tasks("plain", ("convnext_tiny", (1, 32)), ("resnet50", (1,))),
    *_tasks(
        "rows",
        ("beit_base_patch16_224", (1, 32)),
        ("deit3_small_patch16_224", (1, 32)),
        ("vit_so400m_patch14_siglip_384", (1, 32)),
        ("torchvision/vit_b_16", (1, 32)),
        ("samvit_base_patch16", (1, 4)),
        ("swin_large_patch4_window7_224", (32,)),
        ("hiera_base_224", (32,)),
        ("maxvit_tiny_tf_224", (32,)),
        ("crossvit_15_240", (32,)),
        ("eva02_base_patch14_448", (8,)),
        ("vit_large_patch14_reg4_dinov2", (8,)),
        ("vit_huge_patch14_gap_224", (32,)),
        ("transformers/vit_base", (1, 32)),
    ),
]


def tasks_of(text: str) -> list[Task]:
    """Those that "MODEL:BATCH,plain/MODEL:BATCH,calls" names. Raises ValueError."""
    found = []
    for word in text.split(","):
        if word == "calls":
            found.append(Task("calls"))
            continue
        model, colon, batch = word.rpartition(":")
        if not colon or not batch.isdigit() or int(batch) < 1:
            raise ValueError(f"'{word}' is no MODEL:BATCH, plain/MODEL:BATCH or calls")
        kind = "plain" if model.startswith("plain/") else "rows"
        found.append(Task(kind, model.removeprefix("plain/"), int(batch)))
    return found
