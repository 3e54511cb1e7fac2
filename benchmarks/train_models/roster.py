# benchmarks/train_models/roster.py -- What is measured, the most important first.
# SPDX-License-Identifier: Apache-2.0
"""Knows no PyTorch. A model is named as timm names it, or as cct.py does."""

from __future__ import annotations

import dataclasses

KINDS = ("searched", "graph", "eager", "losses")  #: of tasks, beside steps
PARAMS = ("amp", "bf16")  #: fp32 weights under autocast to bf16; bf16 weights


@dataclasses.dataclass(frozen=True)
class Task:
    """Steps of a model at a batch, kind "steps"; the strongest ways once more beside compile_max, whose search takes minutes, "searched"; as
    graphs of the whole step alone, of three ways in half the time, "graph"; the eager step alone, without and with the
    drop-in, "eager"; or how its loss falls beside fp32, "losses"."""

    kind: str
    model: str
    batch: int
    params: str = "amp"
    expected_seconds: float = dataclasses.field(default=90.0, compare=False)  #: with empty caches

    def __str__(self) -> str:
        if self.kind == "losses":
            return f"losses {self.model}"
        return f"{self.kind + ' ' if self.kind != 'steps' else ''}{self.model} b{self.batch} {self.params}"

    @property
    def later(self) -> bool:
        """Not before all steps are measured."""
        return self.kind != "steps"

    @property
    def most_seconds(self) -> float:
        """After which it is taken for hung."""
        return 1500.0 if self.kind == "searched" else 600.0

    @property
    def least_seconds(self) -> float:
        """That must be left for it to begin: what was compiled until it is cut off is in the caches of the next try."""
        return min(60.0, self.expected_seconds / 2)


TASKS = [
    Task("steps", "vit_base_patch16_224", 64, expected_seconds=80),
    Task("steps", "swin_tiny_patch4_window7_224", 128, expected_seconds=150),
    Task("steps", "deit3_small_patch16_224", 128, expected_seconds=80),
    Task("steps", "beit_base_patch16_224", 64, expected_seconds=90),
    Task("steps", "vit_large_patch14_reg4_dinov2", 8, expected_seconds=130),
    Task("steps", "vit_base_patch16_224", 64, "bf16", expected_seconds=80),
    Task("steps", "vit_base_patch16_224", 128, expected_seconds=80),
    Task("steps", "cct_14_7x2_384", 64, expected_seconds=110),
    Task("steps", "cct_14_7x2_384", 8, expected_seconds=100),
    Task("steps", "vit_small_patch16_224", 8, expected_seconds=70),
    Task("steps", "vit_large_patch14_reg4_dinov2", 8, "bf16", expected_seconds=130),
    Task("steps", "cct_14_7x2_384_plain", 64, expected_seconds=110),
    Task("steps", "cct_14_7x2_384_plain", 8, expected_seconds=100),
    Task("steps", "swin_base_patch4_window12_384", 32, expected_seconds=220),
    Task("steps", "maxvit_tiny_tf_224", 64, expected_seconds=180),
    Task("steps", "twins_svt_small", 64, expected_seconds=160),
    Task("searched", "vit_base_patch16_224", 64, expected_seconds=240),
    Task("searched", "deit3_small_patch16_224", 128, expected_seconds=240),
    Task("searched", "beit_base_patch16_224", 64, expected_seconds=240),
]

#: Measured where --losses asks for them.
LOSSES = [
    Task("losses", "vit_tiny_patch16_224", 64, expected_seconds=150),
    Task("losses", "swin_tiny_patch4_window7_224", 32, expected_seconds=240),
    Task("losses", "cct_7_3x1_32", 128, expected_seconds=120),
]


def tasks_of(text: str) -> list[Task]:
    """Those that "MODEL:BATCH[:PARAMS],KIND/MODEL:BATCH[:PARAMS]" names, of any kind. Raises ValueError."""
    found = []
    for word in text.split(","):
        name, *rest = word.split(":")
        kind, _, model = name.rpartition("/")
        batch, params = (*rest, "amp")[:2] if 1 <= len(rest) <= 2 else ("", "")
        if kind and kind not in KINDS or not model or not batch.isdigit() or int(batch) < 1 or params not in PARAMS:
            kinds = ", ".join(f"{each}/MODEL:BATCH" for each in KINDS)
            raise ValueError(f"'{word}' is no MODEL:BATCH, MODEL:BATCH:bf16, {kinds}")
        found.append(Task(kind or "steps", model, int(batch), params))
    return found
