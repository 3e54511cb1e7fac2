# python/vitune/_compile/device_bound.py -- Whether the GPU or the host decides how long steps of training take, outside of CUDA graphs.
# SPDX-License-Identifier: Apache-2.0
"""A training step's calls cost the host about as much with vitune's operators as with Inductor's kernels, some more with dropout.
So they gain where the GPU is what the step waits for, and nothing where it is the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Optional

from torch import fx

from .patterns.match import FusionPattern, Match
from .patterns.tree import beginning_at

__all__ = ["LEAST_PREDICTED_US", "LEAST_US", "mean_us"]

#: Of the GPU for a place's both passes by Inductor. A host takes 150 to 350 us for them, as measured with vision transformers on an
#: H200's (docs/lab/2026-11-30-training-calls-without-python.md): below, the step is the host's.
LEAST_US = 150.0
#: The same of our kernels as libvitune predicts them, where nobody has to time both: Inductor's take less than five times that.
LEAST_PREDICTED_US = LEAST_US / 5


def mean_us(graphs: Iterable[tuple[fx.GraphModule, Sequence[Sequence[FusionPattern]]]],
            us_at: Callable[[FusionPattern, Match, fx.Node], Optional[float]]) -> float:
    """Microseconds of a place of training, in the mean of those that are known; 0 where none is. graphs: each with its passes of
    patterns. us_at: of a place, None where it is not to be replaced."""
    found: list[float] = []
    for module, passes in graphs:
        gone: set[fx.Node] = set()
        for patterns in passes:
            for node in module.graph.nodes:
                for pattern in () if node in gone else beginning_at(node, [each for each in patterns if each.trains]):
                    place = next((each for each in pattern.places(node) if isinstance(each, Match)), None)
                    us = None if place is None else us_at(pattern, place, node)
                    if us is not None:
                        found.append(us)
                        gone.update(place.nodes, place.covered)
                        break
    return sum(found) / len(found) if found else 0.0
