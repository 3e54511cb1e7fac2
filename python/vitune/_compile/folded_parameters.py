# python/vitune/_compile/folded_parameters.py -- Tensors that a compiled graph is given beside its inputs: made of parameters, anew when these change.
# SPDX-License-Identifier: Apache-2.0
"""Each is an input of the graph that Dynamo knows nothing of, static as parameters are. Before each call, outside of CUDA graphs, the
parameters are compared with those that it was made of: their memory, and whether anything wrote there (_compile/watch.py). What differs
is computed again into the same memory, so that graphs that were captured stay right. What nothing tells of is found on the GPU in the
pass itself (_compile/patterns/renewal.py).
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.multiprocessing.reductions import StorageWeakRef

from .._runtime.errors import NotPrepared
from .patterns.forms import Folded, Form
from .patterns.match import ConstantFold, value_of
from .patterns.mutations import storage_of, storages_written_by
from .watch import Stamp, watch


class _Source(NamedTuple):
    """Where a parameter lies, which may go: a weak reference to its object would keep torch.utils.swap_tensors from it."""

    key: tuple[Any, ...]
    storage: StorageWeakRef
    device: torch.device

    @staticmethod
    def of(parameter: Tensor) -> "_Source":
        storage = StorageWeakRef(parameter.untyped_storage())
        place = (storage.cdata, parameter.dtype, parameter.storage_offset(), parameter.shape, parameter.stride())
        return _Source(place, storage, parameter.device)

    def tensor(self) -> Optional[Tensor]:
        """None once its memory was freed."""
        _, dtype, *place = self.key
        storage = None if self.storage.expired() else torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        return None if storage is None else torch.empty(0, dtype=dtype, device=self.device).set_(storage, *place)


_captured: list[Any] = []  #: what graphs of users read for as long as they are replayed, which nobody tells


def _forms(tensors: Sequence[Tensor]) -> list[Any]:
    return [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]


def _is_capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _quiet(device: torch.device) -> Any:
    """Without gradients, autocast or inference tensors."""
    stack = contextlib.ExitStack()
    for context in (torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False)):
        stack.enter_context(context)
    return stack


class _Made:
    """The results of one recipe for one set of parameters."""

    def __init__(self, kind: Folded, sources: Sequence[Optional[_Source]]) -> None:
        self._kind, self._sources = kind, sources
        self._writes: Optional[list[int]] = None
        self.tensors: tuple[Tensor, ...] = ()

    def is_alive(self) -> bool:
        return not any(source.storage.expired() for source in self._given())

    def _given(self) -> list[_Source]:
        return [source for source in self._sources if source is not None]

    def _values(self) -> list[Optional[Tensor]]:
        return [None if source is None else source.tensor() for source in self._sources]

    def form(self) -> Form:
        with _quiet(self._given()[0].device):
            return self._kind.form(self._values(), self.tensors)

    def why_not(self) -> str:
        return self._kind.why_not(*self._values())

    def is_right(self) -> bool:
        """Whether they are what would be made now."""
        with _quiet(self._given()[0].device):
            return all(map(torch.equal, self._kind.make(*self._values()), self.tensors))

    def renew(self, whatever: bool) -> bool:
        """Makes them where the parameters changed, or in any case; whether it did."""
        writes = watch.writes_of(source.storage for source in self._given())
        if not whatever and writes == self._writes:
            return False
        device = self._given()[0].device
        with _quiet(device):
            self._put(self._kind.make(*self._values()), device)
        self._writes = writes
        return True

    def _put(self, made: tuple[Tensor, ...], device: torch.device) -> None:
        _wait(device)  # other streams may still read what was there
        if _forms(made) == _forms(self.tensors):
            for tensor, new in zip(self.tensors, made):
                tensor.copy_(new)
        else:
            self.tensors = made
        _wait(device)  # and read what is there now


class FoldCache:
    """What was made for all graphs of a compiled model."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.lock = threading.RLock()
        self._made: dict[Any, _Made] = {}
        self._requests: dict[torch.device, Tensor] = {}

    def made(self, kind: Folded, sources: Sequence[Optional[Tensor]]) -> _Made:
        """That of these very parameters, which need not be up to date. With the lock held."""
        places = [None if source is None else _Source.of(source) for source in sources]
        key = (kind, *(None if place is None else place.key for place in places))
        found = self._made.get(key)
        if found is None:
            self._made = {key: made for key, made in self._made.items() if made.is_alive()}
            found = self._made[key] = _Made(kind, places)
        return found

    def requests_of(self, device: torch.device) -> Tensor:
        """How often all forms on a GPU were to be made anew by the kernel that compares them."""
        found = self._requests.get(device)
        if found is None:
            with _quiet(device):
                found = self._requests[device] = torch.ones(1, dtype=torch.int64, device=device)
        return found

    def request(self, device: torch.device) -> None:
        """Makes that kernel take nothing for known that it saw before."""
        with _quiet(device):
            self.requests_of(device).add_(1)

    def compare(self, made: Sequence[_Made]) -> None:
        """On a CPU, whose memory others write to as well."""
        for each in made:
            if not each.is_right():
                with self.lock:
                    each.renew(True)

    def refresh(self) -> None:
        """Makes everything anew, whatever is known of writes."""
        with self.lock:
            for made in [made for made in self._made.values() if made.is_alive()]:
                made.renew(True)
            for device in self._requests:
                self.request(device)


class _Last(NamedTuple):
    """What a graph was given for one set of parameters."""

    stamp: Stamp
    made: list[_Made]
    tensors: tuple[Tensor, ...]
    renewal: Any  #: that of a GPU


class FoldedParameters:
    """The prepared tensors of one graph."""

    def __init__(self, store: FoldCache, graph: fx.Graph, inputs: Sequence[Any]) -> None:
        self._store, self._graph = store, graph
        #: The graph's own.
        self.inputs = dict(zip(graph.find_nodes(op="placeholder"), inputs))
        self._recipes: dict[ConstantFold, list[fx.Node]] = {}
        self._written = {storage for node in graph.nodes for storage in storages_written_by(node)}
        #: By the first parameter's address: one graph may serve all blocks of a model.
        self._last: dict[int, _Last] = {}
        #: By the addresses that they compare: graphs that were captured go on with theirs.
        self._renewals: dict[tuple[int, ...], Any] = {}

    def why_not(self, recipes: Sequence[ConstantFold]) -> str:
        """Why something cannot be made of what a graph is given; "": it can."""
        if recipes and not self._store.allowed:
            return "its weights would be prepared, and prepared_weights=False"
        for node in {source for recipe in recipes for source in recipe.sources if source is not None}:
            given = self.inputs.get(node)
            if not isinstance(given, torch.nn.Parameter) or type(given) not in (Tensor, torch.nn.Parameter):
                return "its weights are no parameters of the model"
            if given.is_inference():
                return "its parameters were made in inference mode, where nothing tells whether they change"
            if storage_of(node) in self._written:
                return "the model changes its parameters while it runs"
        for recipe in recipes:
            reason = recipe.kind.why_not(*(None if source is None else self.inputs[source] for source in recipe.sources))
            if reason:
                return reason
        if not all(map(self._fits_half, recipes)):
            return "its weights with the norm's in them are beyond float16"
        return ""

    def _fits_half(self, recipe: ConstantFold) -> bool:
        """Whether what is made is finite. fp32 and bfloat16 have room for the product of two of their like as models have them."""
        if recipe.kind.dtype is not torch.float16:
            return True
        sources = [None if source is None else self.inputs[source] for source in recipe.sources]
        with unset_fake_temporarily(), torch.inference_mode(False), torch.no_grad():
            return all(bool(tensor.isfinite().all()) for tensor in recipe.kind.make(*sources))

    def nodes(self, recipe: ConstantFold) -> list[fx.Node]:
        """The inputs of the graph that stand for a recipe's results."""
        found = self._recipes.get(recipe)
        if found is None:
            last = self._graph.find_nodes(op="placeholder")[-1]
            found = []
            for fake in recipe.fakes():
                with self._graph.inserting_after(last):
                    last = self._graph.placeholder(f"vitune_prepared_{len(self._graph.nodes)}")
                last.meta = {"example_value": fake, "tensor_dict": {"_dynamo_static_input_type": "unguarded"}}
                last._dynamo_source = None  # as DDP's splitter says of inputs that are no user's
                found.append(last)
            self._recipes[recipe] = found
        return found

    def forget_erased(self) -> None:
        """Some of its nodes may have been taken out of the graph again."""
        there = set(self._graph.nodes)
        self._recipes = {recipe: nodes for recipe, nodes in self._recipes.items() if there.issuperset(nodes)}

    def fakes(self) -> list[Tensor]:
        """What to compile the graph with, after its own inputs."""
        return [value_of(node) for nodes in self._recipes.values() for node in nodes]

    def served(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """`compiled`, called without them."""
        if not self._recipes:
            return compiled
        order = {node: place for place, node in enumerate(self.inputs)}
        recipes = [(recipe.kind, [None if source is None else order[source] for source in recipe.sources]) for recipe in self._recipes]
        places = sorted({place for _, sources in recipes for place in sources if place is not None})
        self.inputs, self._recipes, self._graph = {}, {}, None  # the model's and the compiler's, which may go

        def call(*inputs: Any) -> Any:
            parameters = [inputs[place] for place in places]
            last = self._last.get(parameters[0].data_ptr())
            if last is None or not last.stamp.fits(parameters):
                last = self._renewed(recipes, parameters, inputs)
            if last.renewal is None:
                self._store.compare(last.made)
                return compiled(*inputs, *last.tensors)
            if _is_capturing(last.renewal.device):
                _captured.append(last)
            with last.renewal.beside():
                return compiled(*inputs, *last.tensors)
        return call

    def _renewed(self, recipes: Sequence[Any], parameters: Sequence[Tensor], inputs: Sequence[Any]) -> _Last:
        device = parameters[0].device
        if _is_capturing(device):
            raise NotPrepared("weights of the compiled model are new or were changed: call it once before you capture it")
        with self._store.lock:
            stamp = Stamp(parameters)  # of before they are read
            made = [self._store.made(kind, [None if place is None else inputs[place] for place in sources]) for kind, sources in recipes]
            has_changed = any([each.renew(False) for each in made])
            renewal = None
            if device.type == "cuda":
                renewal = self._renewal(made, parameters)
                if has_changed:
                    self._store.request(device)
            last = _Last(stamp, made, tuple(tensor for each in made for tensor in each.tensors), renewal)
            self._last = {address: last for address, last in self._last.items() if last.stamp.is_alive()}
            self._last[parameters[0].data_ptr()] = last
            return last

    def _renewal(self, made: Sequence[_Made], parameters: Sequence[Tensor]) -> Any:
        from .patterns import renewal as renewal_module  # Triton comes with PyTorch for GPUs alone
        key = tuple(each.data_ptr() for each in (*parameters, *(tensor for each in made for tensor in each.tensors)))
        found = self._renewals.get(key)
        if found is None:
            # Parameters that were given other strides since are compared by nobody: what PyTorch writes to them is known all the same.
            forms = [each.form() for each in made if not each.why_not()]
            with _quiet(parameters[0].device):
                requests = self._store.requests_of(parameters[0].device)
                found = self._renewals[key] = renewal_module.Renewal(forms, requests)
        return found
