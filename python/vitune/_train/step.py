# python/vitune/_train/step.py -- vitune.train_step(): a step of training as one call.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch

from .._runtime.errors import InvalidArgument
from .batches import Batch
from .graphed import Graphed
from .graphs import CudaGraphs
from .refusals import is_distributed, refuse_arguments
from .report import ShapeReport, StepReport
from .work import Clip, Work


class TrainStep:
    """What vitune.train_step() returns: call it with a batch."""

    def __init__(self, work: Work, capture: bool, hooks: bool) -> None:
        self._work, self._count, self._plain = work, 0, 0
        device, make_graphs = work.device.type.upper(), maker_of_graphs(work.device) if capture else None
        self._why_plain = "" if make_graphs else f"the model is on the {device}, and CUDA graphs are a GPU's" if capture else "capture=False"
        self._graphed = Graphed(work, hooks, make_graphs) if make_graphs else None
        self._into_all = is_distributed(work.model)  # what gives gradients there are not the parameters themselves

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Forward and backward of a batch, then, at each `accumulate`-th call, the optimizer. Returns what the loss function did, in
        tensors of its own without a graph. Tensors that are elsewhere are copied to the model's device; the copy of a pinned one may
        still be under way when this returns.

        Raises InvalidArgument for a batch or a loss that is none, Unsupported where a capture fails, and what the model raises.
        """
        if not torch.is_grad_enabled():
            raise InvalidArgument("a step of training was called under torch.no_grad() or inference_mode(): it needs gradients")
        batch = Batch(args, keywords)
        first, last = self._count == 0, self._count + 1 == self._work.accumulate
        # An autocast context that the caller is in keeps casts of weights: of an earlier step, or in memory of a graph.
        torch.clear_autocast_cache()
        try:
            result = self._plainly(batch, first, last) if self._graphed is None else self._graphed.run(batch, first, last)
        except Exception:
            if self._graphed is not None and not self._graphed.shapes:  # all was given up, and what waited with it
                self._count = 0
            raise
        finally:
            torch.clear_autocast_cache()
        self._count = 0 if last else self._count + 1
        return result

    def _plainly(self, batch: Batch, first: bool, last: bool) -> Any:
        args, keywords = batch.on(self._work.device)
        parameters = self._work.parameters()
        if first:
            self._work.forget(parameters)
        into = None if self._into_all else [parameter for parameter in parameters if parameter.requires_grad]
        result = self._work.batch(args, keywords, into)
        if last:
            self._work.update()
        self._plain += 1
        return result

    @property
    def accumulated(self) -> int:
        """Batches whose gradients are added up and wait for the rest of a step."""
        return self._count

    def reset(self) -> None:
        """Forgets gradients that wait for the rest of a step, and all graphs, which are captured anew: after a change that a step
        cannot see, as of a tensor that the loss function takes from elsewhere than its arguments."""
        self._count = 0
        self._work.forget(self._work.parameters())
        if self._graphed is not None:
            self._graphed.forget()

    def report(self) -> StepReport:
        """What was captured, what was not and why, the graphs' memory, and vitune.report() of the model."""
        from .._compile import backend

        work, graphed = self._work, self._graphed
        shapes = () if graphed is None else tuple(
            ShapeReport(shape.name, shape.updates, shape.graph is not None, shape.warm, shape.replays, shape.seconds)
            for shape in graphed.shapes.values())
        model = backend.report(work.called) if backend.is_compiled(work.called) else None
        return StepReport(f"{type(work.model).__name__}, {type(work.optimizer).__name__} on {work.device}", self._why_plain, shapes,
                          self._plain if graphed is None else graphed.plain, () if graphed is None else tuple(graphed.changes),
                          0 if graphed is None else graphed.bytes(), model)


def maker_of_graphs(device: torch.device) -> Optional[Callable[[], CudaGraphs]]:
    """None: a device without graphs."""
    return (lambda: CudaGraphs(device)) if device.type == "cuda" else None


def train_step(model: Any, loss: Callable[..., Any], optimizer: torch.optim.Optimizer, scaler: Any, clip: Clip, accumulate: int,
               compile: Optional[bool], capture: bool, hooks: bool) -> TrainStep:
    """See vitune.train_step()."""
    refuse_arguments(model, loss, optimizer, scaler, clip, accumulate)
    scaler = scaler if scaler is not None and scaler.is_enabled() else None
    plain = getattr(model, "_orig_mod", model)
    work = Work(plain, model, loss, optimizer, scaler, clip, accumulate, torch.device("cpu"))
    trained = [parameter for parameter in work.parameters() if parameter.requires_grad]
    if not trained:
        raise InvalidArgument("no parameter of the model or the optimizer requires a gradient: there is nothing to train")
    work.device = trained[0].device
    is_compiled = plain is not model or getattr(model, "_compiled_call_impl", None) is not None
    if not is_compiled and (work.device.type == "cuda" if compile is None else compile):
        from .._compile import backend

        work.called = backend.compile(model, None, False, False, None, None, True, True if capture else None)
    elif is_compiled and capture:
        from .._compile import backend

        if backend.is_compiled(model):
            backend.serve_training(model)
    return TrainStep(work, capture, hooks)
