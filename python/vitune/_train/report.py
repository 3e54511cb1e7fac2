# python/vitune/_train/report.py -- What a step of training is made of: graphs, plain steps and why, memory, what serves the model.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, Optional


@dataclasses.dataclass(frozen=True)
class ShapeReport:
    """Calls with batches of one shape."""

    batch: str  #: "[64, 3, 224, 224] float32, [64] int64"
    updates: bool  #: the optimizer's step is part of these calls: all, but with accumulation
    captured: bool
    before: int  #: plain calls before the capture
    replays: int
    seconds: float  #: that the capture took

    def __str__(self) -> str:
        kind = "" if self.updates else ", without the optimizer"
        if not self.captured:
            return f"[{self.batch}]{kind}: {self.before} plain, not captured yet"
        return f"[{self.batch}]{kind}: {self.before} plain, captured in {self.seconds:.2f} s, {self.replays} replays"


@dataclasses.dataclass(frozen=True, repr=False)
class StepReport:
    """``print(step.report())``."""

    work: str  #: "VisionTransformer, AdamW on cuda:0"
    plain_because: str  #: why no graph is made at all; "": graphs are
    shapes: tuple[ShapeReport, ...]
    plain: int  #: calls that no graph is made of
    changes: tuple[str, ...]  #: for which graphs were given up and made anew
    bytes: int  #: of GPU memory in the graphs' pool
    model: Optional[Any]  #: vitune.report() of the model, where vitune.compile() compiled it

    @property
    def captured(self) -> bool:
        """Whether some graph was replayed."""
        return any(shape.replays for shape in self.shapes)

    def __str__(self) -> str:
        if self.plain_because:
            lines = [f"{self.work}: plain steps, {self.plain} calls: {self.plain_because}"]
        else:
            lines = [f"{self.work}: forward, backward and optimizer in one CUDA graph", *map(str, self.shapes)]
            lines += [f"{self.plain} plain calls of further shapes"] if self.plain else []
            lines += [f"captured anew {count} x: {change}" for change, count in Counter(self.changes).items()]
            lines += [f"memory of the graphs: {self.bytes / 2**20:.0f} MiB"]
        lines.append("the model is not compiled by vitune" if self.model is None else f"the model: {self.model}")
        return "\n".join(lines)

    __repr__ = __str__
