# benchmarks/programs/switch.py -- What the programs share: the ways, by what nn.Module.compile() takes, and what a program gives.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any

import torch
from torch import Tensor

with contextlib.suppress(ImportError):  # of a source tree, whose name Dynamo does not find by itself
    from vitune._compile import by_name

    by_name.register()

EAGER = "eager"
#: Each program says `model.compile(**COMPILED[way])`, which is its one line; eager mode leaves it out.
COMPILED: dict[str, dict[str, Any]] = {
    "compile": {"backend": "inductor"},
    "vitune": {"backend": "vitune", "options": {"training": True}},
}
WAYS = (EAGER, *COMPILED)


@dataclasses.dataclass
class Run:
    """One program by one way."""

    losses: list[float] = dataclasses.field(default_factory=list)  #: of each step, and what else must be as in eager mode
    seconds: list[float] = dataclasses.field(default_factory=list)  #: at which each step's was known, from the beginning on
    _began: float = dataclasses.field(default_factory=time.monotonic)

    def note(self, loss: float, of_step: bool = True) -> None:
        """Of the step that just ended."""
        self.losses.append(loss)
        if of_step:
            self.seconds.append(time.monotonic() - self._began)


def apart(exact: list[float], found: list[float]) -> float:
    """The largest difference of two runs' losses at a step, over the loss there."""
    return max(abs(mine - theirs) / abs(theirs) for mine, theirs in zip(found, exact, strict=True))


def images(count: int, size: int, classes: int, seed: int, device: str) -> tuple[Tensor, Tensor]:
    """Noise, brighter by its class, so that there is something to learn. Made on the device: on a CPU it would take longer than a GPU's step."""
    chance = torch.Generator(device).manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=chance, device=device)
    return torch.randn(count, 3, size, size, generator=chance, device=device) + labels.view(-1, 1, 1, 1) / classes, labels
