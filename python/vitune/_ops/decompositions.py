# python/vitune/_ops/decompositions.py -- Operators of vitune's that Inductor takes apart, as it does PyTorch's own.
# SPDX-License-Identifier: Apache-2.0
"""Of a norm that trains autograd sees the operator, whose backward pass is a call of libvitune; what is compiled of the forward pass is the
formula, which Inductor makes one kernel of with the sums, factors and casts around it. Of max_pool_train both passes are. Operators of training that cost Python's time are
called by the operators' library (remembered.py)."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import decomposition

from . import max_pool, norm_training, remembered

_FORMULAS: dict[Any, Callable[..., Any]] = {torch.ops.vitune.norm_train.default: norm_training.norm_by_torch,
                                            torch.ops.vitune.sum_norm_train.default: norm_training.sum_norm_by_torch,
                                            torch.ops.vitune.max_pool_train.default: max_pool.max_pool_by_torch,
                                            torch.ops.vitune.max_pool_backward.default: max_pool.max_pool_backward_by_torch}


def register() -> None:
    """In Inductor's tables. The second is a copy of the first, made when it is first asked for: others may add theirs until then."""
    all_ = {**remembered.in_compilers(), **_FORMULAS}
    decomposition.decompositions.update(all_)
    if decomposition.fast_random_decomps.cache_info().currsize:
        decomposition.fast_random_decomps().update(all_)
