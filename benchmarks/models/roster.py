# benchmarks/models/roster.py -- What is measured, the most important first.
# SPDX-License-Identifier: Apache-2.0
"""Knows no PyTorch. A model is named as timm names it, or with its package before a slash."""

from __future__ import annotations

import dataclasses

#: Seconds after which a task of this kind is taken for hung, and that must be left for it to begin.
_MOST = {"rows": 180.0, "plain": 90.0, "calls": 120.0, "compiled": 900.0}
_LEAST = {"rows": 15.0, "plain": 10.0, "calls": 10.0, "compiled": 60.0}


#: What a compiled model is measured beside, each a model in a file.
FILES = ("runner", "aoti", "onnxruntime")


@dataclasses.dataclass(frozen=True)
class Task:
    """A model at a batch; kind "rows" as it is (eager, graph), "compiled", "plain" (no attention) eager; or "calls"."""

    kind: str
    model: str = ""
    batch: int = 0

    def __str__(self) -> str:
        name = f"{self.model} b{self.batch}" if self.model else self.kind
        return f"{self.kind} {name}" if self.kind in ("plain", "compiled") else name

    @property
    def most_seconds(self) -> float:
        return _MOST[self.kind]

    @property
    def least_seconds(self) -> float:
        return _LEAST[self.kind]


def _tasks(kind: str, *models: tuple[str, tuple[int, ...]]) -> list[Task]:
    return [Task(kind, model, batch) for model, batches in models for batch in batches]


_LEADING = (
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
)
_FURTHER = tuple(
    (model, (1, 32))
    for model in (
        "coatnet_0_rw_224",
        "cait_xxs24_224",
        "vit_small_patch14_dinov2",
        "pvt_v2_b2",
        "twins_svt_small",
        "davit_tiny",
        "transformers/dinov2_base",
        "transformers/siglip_base",
        "transformers/clip_vit_base",
    )
)
#: SAM's images are of 1024 x 1024 pixels, and it attends to all of one at once.
_BATCHES = {"samvit_base_patch16": (1, 4, 8)}


def _rest(done: list[Task]) -> list[Task]:
    """The batches of 1, 8, 32 and 128 that are not there yet."""
    models = dict.fromkeys(task.model for task in done if task.kind == "rows")
    every = _tasks("rows", *((model, _BATCHES.get(model, (8, 128, 1, 32))) for model in models))
    return [task for task in every if task not in done]


_FIRST = [
    *_tasks("rows", ("vit_base_patch16_224", (32, 1, 128)), ("swin_tiny_patch4_window7_224", (32, 1))),
    *_tasks("compiled", ("vit_base_patch16_224", (32,)), ("swin_tiny_patch4_window7_224", (32,))),
    Task("calls"),
    *_tasks("plain", ("convnext_tiny", (1, 32)), ("resnet50", (1,))),
    *_tasks("rows", *_LEADING),
    *_tasks(
        "compiled",
        ("vit_base_patch16_224", (1, 8, 128)),
        ("beit_base_patch16_224", (32,)),
        ("vit_so400m_patch14_siglip_384", (32,)),
        ("vit_large_patch14_reg4_dinov2", (8,)),
    ),
    *_tasks("rows", *_FURTHER),
]
TASKS = [*_FIRST, *_rest(_FIRST)]


def tasks_of(text: str) -> list[Task]:
    """Those that "MODEL:BATCH,compiled/MODEL:BATCH,plain/MODEL:BATCH,calls" names. Raises ValueError."""
    found = []
    for word in text.split(","):
        if word == "calls":
            found.append(Task("calls"))
            continue
        model, colon, batch = word.rpartition(":")
        if not colon or not batch.isdigit() or int(batch) < 1:
            raise ValueError(f"'{word}' is no MODEL:BATCH, compiled/MODEL:BATCH, plain/MODEL:BATCH or calls")
        kind, _, name = model.partition("/")
        found.append(Task(kind, name, int(batch)) if kind in ("plain", "compiled") else Task("rows", model, int(batch)))
    return found


def kinds_of_files(text: str) -> tuple[str, ...]:
    """Those of FILES that "runner,aoti" names; "none" alone: none. Raises ValueError."""
    names = () if text == "none" else tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in FILES:
            raise ValueError(f"--files: '{name}' is none of {', '.join(FILES)}")
    return names
