# benchmarks/train_models/ways.py -- The ways to take a step of training.
# SPDX-License-Identifier: Apache-2.0
"""A build is a way to compute the model, made once for a row; a way is a build as it is called, or as a graph of the whole step."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from .step import Step, Training


def _by_torch(mode: str | None) -> Callable[[Training], tuple[Step, Any]]:
    return lambda training: (training.step(torch.compile(training.model, mode=mode, dynamic=False)), None)


def _by_vitune(in_graph: bool) -> Callable[[Training], tuple[Step, Any]]:
    def build(training: Training) -> tuple[Step, Any]:
        import vitune

        compiled = vitune.compile(training.model, dynamic=False, training=in_graph or None)
        return training.step(compiled), compiled

    return build


def _by_vitunes_step(training: Training) -> tuple[Step, Any]:
    import vitune

    compiled = vitune.compile(training.model, dynamic=False)
    step = vitune.train_step(compiled, training.loss, training.optimizer)
    return lambda: step(training.images, training.labels), compiled


#: Training -> (its step, what vitune.report() takes or None).
BUILDS: dict[str, Callable[[Training], tuple[Step, Any]]] = {
    "eager": lambda training: (training.step(training.model), None),
    "default": _by_torch(None),
    "reduce": _by_torch("reduce-overhead"),
    "max": _by_torch("max-autotune"),
    "max_without_graphs": _by_torch("max-autotune-no-cudagraphs"),
    "drop_in": lambda training: (training.step(training.model), None),
    "vitune": _by_vitune(False),
    "vitune_in_graph": _by_vitune(True),
    "vitune_step": _by_vitunes_step,
}


def _installed() -> AbstractContextManager[Any]:
    import vitune.torch

    return vitune.torch.enabled(timm=True, training=True)


@dataclasses.dataclass(frozen=True)
class Way:
    """One of them, by the builds of its two modes; None: it has no such mode."""

    name: str
    called: str | None
    graph: str | None = None
    whole: bool = False  #: what is called is a replay of the graph of `called`, the batch copied in before
    searched: bool = False  #: takes minutes to compile: in rows of its own
    #: Records graphs of its own when it is called. For these PyTorch gives back cuBLAS' workspaces, so that vitune's step captures anew; and it
    #: leaves accumulators of the parameters' gradients behind that belong to no capture, so that this fails: it comes after all others.
    records: bool = False
    within: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext  #: where its steps run, one after the other

    def build(self, mode: str) -> str | None:
        """Of that mode."""
        return self.called if mode == "called" else self.graph


#: reduce-overhead's kernels are those of default: as a graph of the whole step it would be that one again. It leaves accumulators of
#: gradients behind, which belong to no capture, so that what captures as it is called stands before it.
WAYS = (
    Way("eager", "eager", "eager"),
    Way("compile_default", "default", "default"),
    Way("vitune_train_step", "vitune_step"),
    Way("compile_reduce", "reduce", records=True),
    Way("compile_step_graph", "default", whole=True),
    Way("vitune_compile", "vitune", "vitune_in_graph"),
    Way("vitune_compile_training", "vitune_in_graph"),
    Way("vitune_eager", "drop_in", "drop_in", within=_installed),
    Way("compile_max", "max", "max_without_graphs", searched=True, records=True),
)
OURS = tuple(way.name for way in WAYS if way.name.startswith("vitune"))
EAGER = ("eager", "vitune_eager")  #: ways that compile nothing
_BESIDE_A_SEARCH = ("compile_default", "compile_step_graph", "vitune_compile", "vitune_train_step")  # the strongest called, and as graphs
PEERS = tuple(way.name for way in WAYS if way.name not in OURS)


def ways_of(kind: str) -> tuple[Way, ...]:
    """Those that a row of a task of this kind has."""
    if kind == "eager":
        return tuple(way for way in WAYS if way.name in EAGER)
    if kind == "graph":
        return tuple(dataclasses.replace(way, called=None) for way in WAYS if way.graph and not way.searched and way.within is not _installed)
    if kind == "searched":
        beside = (way if way.whole or not way.graph else dataclasses.replace(way, called=None) for way in WAYS if way.name in _BESIDE_A_SEARCH)
        return (*beside, *(way for way in WAYS if way.searched))
    return tuple(way for way in WAYS if not way.searched)


def replaced(compiled: Any) -> dict[str, int]:
    """How many calls of a model vitune.compile put its operators in for, of those that it knows."""
    import vitune

    calls = vitune.report(compiled).calls
    return {"replaced": sum(call.replaced for call in calls), "known": len(calls)}
