# python/vitune/_train/graphed.py -- Steps by CUDA graphs: some run first, then one is captured, and from then on replayed.
# SPDX-License-Identifier: Apache-2.0
"""One graph for each shape of batches; with accumulation two, of which one ends with the optimizer. What runs before a capture are the
user's own steps, so that nothing is undone, and the capture itself computes nothing."""
from __future__ import annotations

import dataclasses
import operator
import time
import warnings
from collections.abc import Callable, Hashable
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .._runtime.errors import Unsupported
from . import workspaces
from .batches import Batch, copy_into
from .rates import Rates
from .refusals import PLAIN, refuse_capture, refuse_state
from .standing import Standing
from .work import Work

WARM = 3  #: calls of a shape before its capture: what is compiled, loaded or allocated at first calls is so outside of it
MOST_SHAPES = 8  #: each keeps its memory
_CLEARED = "PyTorch gave back the memory that cuBLAS works in (torch.compile's reduce-overhead does, when it records a graph)"
_LEGACY = "legacy stream"  #: in CUDA's words, of the default one
_ACCUMULATORS = ("Something keeps accumulators of these parameters' gradients on the default stream, as a model does that torch.compile's"
                 " reduce-overhead trained: train the same parameters by one of the two in a process")
_WAITS = "A graph holds what the GPU does: nothing in the step may wait for its results on the host"
_gradient = operator.attrgetter("grad")
_SHORT, _MOST_SHORT = 2, 3  #: graphs that are replayed so seldom before a change, so often in a row, are refused


@dataclasses.dataclass
class Shape:
    """Calls with batches of one shape that do the same."""

    name: str
    updates: bool  #: the optimizer's step is part of it
    own: list[Tensor]  #: the batch that the graph reads
    warm: int = 0
    graph: Any = None
    result: Any = None
    gradients: list[Optional[Tensor]] = dataclasses.field(default_factory=list)  #: that it leaves to the parameters
    seconds: float = 0.0  #: of the capture
    replays: int = 0


class Graphed:
    """Takes the steps of one work."""

    def __init__(self, work: Work, hooks: bool, make_graphs: Callable[[], Any]) -> None:
        """make_graphs: gives graphs.CudaGraphs, or what has the same methods. Raises Unsupported for what cannot be captured."""
        refuse_capture(work, hooks)
        workspaces.watch()
        self._work, self._hooks, self._make_graphs = work, hooks, make_graphs
        self._rates = Rates(work.optimizer, work.device)
        self.changes: list[str] = []  #: for which graphs were given up
        self.plain = 0  #: calls that no graph will be made of
        self._short = 0
        self.shapes: dict[Hashable, Shape] = {}
        self.forget()

    def forget(self) -> None:
        """All graphs: each shape starts anew."""
        if self.shapes:
            self._graphs.wait()
        self.shapes = {}
        self._graphs = self._make_graphs()
        # As it is after each plain step, and once something is captured, as it has to stay.
        self._standing, self._is_captured = Standing(self._work), False
        self._cleared = 0  # workspaces, when the first graph was captured
        self._leaves: list[Tensor] = []
        self._written: list[Tensor] = []
        self._sums: list[Optional[Tensor]] = []  # of gradients, with accumulation: all graphs add to these
        self._added: Optional[list[bool]] = None  # to which of them a graph adds

    def bytes(self) -> int:
        """Of the GPU's memory that the graphs hold."""
        return self._graphs.bytes() if self._is_captured else 0

    def run(self, batch: Batch, first: bool, last: bool) -> Any:
        """One call: forward and backward of a batch, of the first or last of those that make a step."""
        self._look_for_changes()
        self._rates.write()
        shape = self._shape(batch, last)
        if shape is None:
            self.plain += 1
            return self._eagerly(batch.on(self._work.device), first, last)
        copy_into(shape.own, batch.tensors)
        if shape.graph is None and shape.warm < WARM:
            shape.warm += 1
            return self._eagerly(batch.made_of(shape.own), first, last)
        change = None if self._is_captured else self._standing.change()
        if change is not None:
            self._begin_anew(change)
            return self.run(batch, first, last)
        if self._work.accumulate > 1:
            self._gather(first)
        if shape.graph is None:
            self._capture(shape, batch.made_of(shape.own))
        return self._replay(shape)

    def _look_for_changes(self) -> None:
        if not self._is_captured:
            return
        change = _CLEARED if workspaces.times_cleared() != self._cleared else self._standing.change()
        if change is not None:
            self.changes.append(change)
            self._begin_anew(change)

    def _begin_anew(self, change: str) -> None:
        """Also where a change before a capture makes the plain steps that came first those of another model."""
        replays = sum(shape.replays for shape in self.shapes.values())
        self.forget()
        if change is _CLEARED:  # by others, whose recordings take as long and come to an end
            return
        self._short = self._short + 1 if replays <= _SHORT else 0
        if self._short >= _MOST_SHORT:
            raise Unsupported(f"{change} again and again, and a graph holds what it was: it would be captured anew for each step."
                              f" Leave it as it is, change it more seldom, or {PLAIN}")

    def _shape(self, batch: Batch, last: bool) -> Optional[Shape]:
        """None: there are too many."""
        key = (batch.key, last, self._standing.modes(), _modes_of_torch(self._work.device.type))
        if key not in self.shapes:
            if len(self.shapes) >= MOST_SHAPES * (1 if self._work.accumulate == 1 else 2):
                if not self.plain:
                    warnings.warn(f"vitune.train_step: a batch of {batch} is one more than the {MOST_SHAPES} shapes that graphs are made of: it"
                                  " and all further ones are plain steps. Bring batches to fewer shapes; hand in numbers that change as"
                                  " tensors", RuntimeWarning, stacklevel=4)
                return None
            own = [torch.empty_like(tensor, device=self._work.device) for tensor in batch.tensors]
            self.shapes[key] = Shape(str(batch), last, own)
        return self.shapes[key]

    def _eagerly(self, call: tuple[Any, Any], first: bool, last: bool) -> Any:
        """A plain step, on the stream that captures are made on."""
        work, args, keywords = self._work, *call

        def run() -> Any:
            parameters = work.parameters()
            leaves = [parameter for parameter in parameters if parameter.requires_grad]
            if first:
                work.forget(parameters)
            result = work.batch(args, keywords, leaves)
            if not self._is_captured and work.accumulate > 1:
                self._leaves, self._sums = leaves, [leaf.grad for leaf in leaves]
            if last:
                work.update()
            return result

        with self._rates.in_groups():
            result = _copied(self._graphs.eagerly(run))
        if not self._is_captured:
            self._standing = Standing(work)
        return result

    def _gather(self, first: bool) -> None:
        """The sums that graphs add to are the parameters' gradients, with what was added to these elsewhere, or 0 at the first batch."""
        zeros = []
        for leaf, own in zip(self._leaves, self._sums):
            given = None if first else leaf.grad
            if own is None and given is not None:
                raise Unsupported(f"a parameter of shape {list(leaf.shape)} has a gradient here that it had none of when the step was captured;"
                                  f" call reset(), or {PLAIN}")
            if own is not None and given is None:
                zeros.append(own)
            elif own is not None and given is not own:
                own.copy_(given)
            leaf.grad = own
        if zeros:
            torch._foreach_zero_(zeros)

    def _capture(self, shape: Shape, call: tuple[Any, Any]) -> None:
        work, args, keywords = self._work, *call
        refuse_capture(work, self._hooks)
        refuse_state(work)
        began, before, added, cleared = time.monotonic(), Standing(work), [], workspaces.times_cleared()
        sums = work.accumulate > 1
        if not sums:
            self._leaves = [parameter for parameter in work.parameters() if parameter.requires_grad]

        def run() -> Any:
            if not sums:
                work.forget(work.parameters())
            versions = [None if own is None else own._version for own in self._sums]
            result = work.batch(args, keywords, self._leaves)
            added.extend(leaf.grad is not None and leaf.grad._version != version for leaf, version in zip(self._leaves, versions))
            if shape.updates:
                work.update()
            return result

        try:
            with self._rates.in_groups():
                shape.graph, shape.result = self._graphs.capture(run)
            self._check(before.change(), added)
        except Exception as reason:
            self._give_up()
            if isinstance(reason, Unsupported):
                raise Unsupported(f"the step cannot be one CUDA graph: {reason}; or {PLAIN}") from reason
            why = _ACCUMULATORS if _LEGACY in str(reason) else _WAITS
            raise Unsupported(f"the step cannot be one CUDA graph: {type(reason).__name__}: {reason}. {why}. {PLAIN}") from reason
        shape.gradients = self._sums if sums else [leaf.grad for leaf in self._leaves]
        shape.seconds = time.monotonic() - began
        if not self._is_captured:
            self._standing, self._is_captured, self._cleared = before, True, cleared
            self._written = [*self._leaves, *(buffer for root in work.roots().values() for buffer in root.buffers())]

    def _check(self, change: Optional[str], added: list[bool]) -> None:
        if change is not None:
            raise Unsupported(f"in the step {change}, which a replay would not do (it does write a tensor in place)")
        if self._added is not None and added != self._added:
            leaf = next(leaf for leaf, new, old in zip(self._leaves, added, self._added) if new != old)
            raise Unsupported(f"a parameter of shape {list(leaf.shape)} has a gradient of some batches and not of others, and with accumulate"
                              " above 1 all add to the same sums")
        self._added = added if self._work.accumulate > 1 else None

    def _give_up(self) -> None:
        """After a capture that failed: its memory is of no use, and the scaler may be in the middle of a step."""
        self._work.forget(self._work.parameters())
        if self._work.scaler is not None:
            self._work.scaler._per_optimizer_states.pop(id(self._work.optimizer), None)
        self.forget()

    def _replay(self, shape: Shape) -> Any:
        shape.graph.replay()
        shape.replays += 1
        if not all(map(operator.is_, map(_gradient, self._leaves), shape.gradients)):
            for leaf, gradient in zip(self._leaves, shape.gradients):
                leaf.grad = gradient
        # Whoever keeps something made of the weights, as vitune.compile() does of those that serve, looks at the count of writes.
        torch.autograd.graph.increment_version(self._written)
        return _copied(shape.result)


def _copied(result: Any) -> Any:
    """The next call writes over what this one gave."""
    return result.clone() if type(result) is Tensor else tree_map_only(Tensor, Tensor.clone, result)


def _modes_of_torch(device: str) -> tuple[Hashable, ...]:
    """That decide which kernels a step calls."""
    return (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device), torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(), torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)
