# benchmarks/peers/engine/errors.py -- How far an output is from fp64, a piece at a time.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from .roster import Errors


def errors_over(
    pieces: Iterable[tuple[torch.Tensor, torch.Tensor]], values: torch.Tensor
) -> Errors:
    """Of pieces of an output beside their fp64 values, which together are `values`.

    Anything not finite gives infinite errors.
    """
    total, largest = 0.0, 0.0
    for mine, wanted in pieces:
        difference = (mine.double() - wanted).abs_()
        largest = max(largest, difference.max().nan_to_num(math.inf, math.inf).item())
        total += difference.square_().sum().nan_to_num(math.inf, math.inf).item()
    norm = values.norm().item() or 1.0
    return Errors(largest, math.sqrt(total / values.numel()), math.sqrt(total) / norm)
