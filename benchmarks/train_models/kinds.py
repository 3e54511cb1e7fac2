# benchmarks/train_models/kinds.py -- What a kernel of a training step does, read off its name.
# SPDX-License-Identifier: Apache-2.0
"""Knows no PyTorch. The kinds of a forward pass, backward kernels among them, the optimizer, and sums over tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable

from models import kinds as of_models

#: In the order of tables. "sums" are reductions that nothing else is fused into: gradients of biases, of norms' weights.
KINDS = ("gemm", "attention", "norm", "activation", "convolution", "optimizer", "sums", "copies", "other")

#: Before those of a forward pass; the first that fits.
_FIRST = [
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("optimizer", r"multi_tensor_apply|adam"),
        ("other", r"log_?softmax|nll_loss|cross_entropy"),
        ("attention", r"dot_do_o|convert_dq|vitune_(window_)?attention"),
        ("norm", r"gammabeta|layer_?norm|vitune_(group_)?norm|^triton_\w*norm_train"),
        ("gemm", r"^vitune_(linear|weight_grad)"),
        ("convolution", r"max_?pool"),
        ("activation", r"threshold"),  # ReLU's gradient
    )
]
#: Kernels that are "other" in a forward pass.
_SUMS = re.compile(r"^triton_(red|per)_fused_[a-z_]*sum|(^|[ :<])reduce_kernel<")


def kind_of(kernel: str) -> str:
    """One of KINDS."""
    first = next((kind for kind, pattern in _FIRST if pattern.search(kernel)), None)
    if first is not None:
        return first
    kind = of_models.kind_of(kernel)
    return "sums" if kind == "other" and _SUMS.search(kernel) else kind


def by_kind(kernels: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Microseconds of each kind that is there, of (name, microseconds)."""
    return of_models.by_kind(kernels, KINDS, kind_of)
