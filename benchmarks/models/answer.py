# benchmarks/models/answer.py -- Whether an answer is right: beside the same model in fp32.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor, nn

CHUNK = 8  # images: fp32 activations of a large batch need much memory
MOST = 0.25  #: relative error above which even PyTorch's own answer is no yardstick
FACTOR, FLOOR = 1.5, 2.0**-9  #: what a way may err beyond PyTorch's: rounding falls differently


def reference(model: nn.Module, images: Tensor) -> Tensor:
    """The answer of the same weights in fp32. The model is in bf16 again afterwards, unchanged."""
    model.float()  # outside of inference_mode: its tensors could not be changed back
    try:
        # Convolutions would round to TF32 otherwise.
        exact = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
        with torch.inference_mode(), exact:
            return torch.cat([model(part.float()) for part in images.split(CHUNK)])
    finally:
        model.bfloat16()


def error(answer: Tensor, wanted: Tensor) -> float:
    """The largest relative error (of norms) among the images; NaN or infinite if an answer is."""
    if answer.shape != wanted.shape:
        raise ValueError(f"an answer of {tuple(answer.shape)} for {tuple(wanted.shape)}")
    axes = tuple(range(1, wanted.dim()))
    difference = (answer.float() - wanted).norm(dim=axes) / wanted.norm(dim=axes)
    return difference.max().item()


def wrong(found: float, of_torch: float) -> str | None:
    """Why an answer of this error counts as wrong, None if it is right."""
    limit = FACTOR * of_torch + FLOOR
    if not found <= limit:  # NaN too
        return f"wrong answer: relative error {found:.3g} beside fp32, PyTorch's own {of_torch:.3g}"
    return None
