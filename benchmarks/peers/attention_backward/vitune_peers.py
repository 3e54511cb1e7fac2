# benchmarks/peers/attention_backward/vitune_peers.py -- vitune's gradients of attention: the winner of a database, and untuned.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine import vitune_context
from ..engine.peer import Settings
from .operands import Operands
from .problem import Problem

_ORDER = ("dq", "dk", "dv", "dbias")


def _inputs(t: Operands) -> dict[str, torch.Tensor | None]:
    mask = t.forward.mask
    is_bias = t.bias is not None
    return {
        **{"q": t.forward.q, "k": t.forward.k, "v": t.forward.v},
        **{"bias": mask if is_bias else None, "mask": None if is_bias else mask},
        **{"out": t.out, "lse": t.lse, "dout": t.dout},
    }


def _outputs(problem: Problem, t: Operands, written: Sequence[str]) -> list[torch.Tensor]:
    """Gradients that lie as their tensors do: views of one tensor where those are."""
    storages: dict[int, torch.Tensor] = {}

    def like(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        elements = storage.nbytes() // tensor.element_size()
        base = storages.setdefault(
            storage.data_ptr(), torch.empty(elements, dtype=tensor.dtype, device=tensor.device)
        )
        return base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    made = [like(tensor) for tensor in (t.forward.q, t.forward.k, t.forward.v)]
    if "dbias" in written and t.bias is not None:
        made.append(torch.empty(t.bias.shape, dtype=t.bias.dtype, device=t.bias.device))
    return made


class Vitune(vitune_context.Winner):
    """What users are served: the winner, else what the library serves in its place."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)


class VituneDefault(vitune_context.Default):
    """The kernels that serve a problem nobody tuned."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _inputs, _outputs, _ORDER)
