# benchmarks/train_models/floor.py -- How long a step must take at least, by kind.
# SPDX-License-Identifier: Apache-2.0
"""Of the operators of an eager step, forward and backward: each reads its operands and writes its results once, or multiplies at the
GPU's rate, whichever takes longer. Of products, attention, norms, activations, convolutions and the optimizer; copies, sums and the
rest need not be at all. Kernels that are fused may go below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from models.floor import Ceilings, Watch, bytes_of
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .kinds import KINDS

COUNTED = ("gemm", "attention", "norm", "activation", "convolution", "optimizer")


class _Watch(Watch):
    kinds = KINDS

    def kind_of(self, operator: str) -> str:
        if "adam" in operator:
            return "optimizer"
        if "log_softmax" in operator or "nll_loss" in operator:
            return "other"
        if "threshold" in operator:
            return "activation"
        return "convolution" if "max_pool" in operator else super().kind_of(operator)

    def moved(self, kind: str, operator: str, arguments: Any, given: list[Tensor], made: list[Tensor]) -> int:
        if kind == "optimizer":  # weights and both moments are written again, gradients are not
            made = tree_leaves([arguments[place] for place in (0, 2, 3)])
        if kind == "attention" and "backward" in operator:
            return bytes_of(given) + bytes_of(made)  # each is a gradient
        return super().moved(kind, operator, arguments, given, made)

    @staticmethod
    def does_nothing(func: Any, name: str, given: list[Tensor], made: list[Tensor]) -> bool:
        return "adam" not in name and Watch.does_nothing(func, name, given, made)


def floor_us(step: Callable[[], Any], ceilings: Ceilings) -> dict[str, float]:
    """Microseconds of each kind in one step, which is run."""
    with torch.enable_grad(), _Watch(ceilings) as watch:
        step()
    return {kind: round(watch.us[kind], 2) for kind in COUNTED if watch.us[kind]}
