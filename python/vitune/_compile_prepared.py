# python/vitune/_compile_prepared.py -- Tensors that a compiled graph is given beside its inputs: made of parameters, anew when these change.
# SPDX-License-Identifier: Apache-2.0
"""Each is an input of the graph that Dynamo knows nothing of, static as parameters are. Before each call, outside of CUDA graphs, the
parameters are compared with those that it was made of: the object, the address, the strides and the version, which changes in place
count up. Optimizers are watched besides, because fused ones count nothing up. What differs is computed again into the same memory, so
that graphs that were captured stay right.

A change through `.data`, a collective or somebody's kernel counts nothing up: vitune.refresh(model) is for these.
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _torch_op
from ._compile_graph import Recipe, value_of
from ._compile_writes import storage_of, storages_written_by
from ._errors import NotPrepared

Make = Callable[..., tuple[Tensor, ...]]


class _Known(dict):
    """What is kept of parameters, which may outlive it."""


def _forget(known: "weakref.ref[_Known]", key: Any) -> None:
    held = known()
    if held is not None:
        held.pop(key, None)


def _forget_with(parameter: Tensor, known: _Known, key: Any) -> None:
    weakref.finalize(parameter, _forget, weakref.ref(known), key).atexit = False


class _Steps:
    """Counts the steps that optimizers of any kind take on parameters of which something is kept."""

    def __init__(self) -> None:
        self.taken = 0
        self._watched: dict[int, None] = _Known()
        self._hook: Any = None

    def watch(self, parameters: Sequence[Tensor]) -> None:
        if self._hook is None:
            self._hook = register_optimizer_step_post_hook(self._after)
        for parameter in parameters:
            if id(parameter) not in self._watched:
                self._watched[id(parameter)] = None
                _forget_with(parameter, self._watched, id(parameter))

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if any(id(parameter) in self._watched for group in optimizer.param_groups for parameter in group["params"]):
            self.taken += 1


_steps = _Steps()
_is_freed = torch.UntypedStorage._expired


class _Stamp:
    """What a parameter's content is known by. The storage's own address says nothing once it was freed: another may lie there."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        _steps.watch(parameters)
        self._steps = _steps.taken
        self._same = [weakref.ref(parameter) for parameter in parameters]
        self._versions = [parameter._version for parameter in parameters]
        self._addresses = [parameter.data_ptr() for parameter in parameters]
        self._strides = [parameter.stride() for parameter in parameters]
        self._storages = [StorageWeakRef(parameter.untyped_storage()) for parameter in parameters]
        self._handles = [storage.cdata for storage in self._storages]

    def fits(self, parameters: Sequence[Tensor]) -> bool:
        """At every call: some tens of microseconds for a hundred parameters."""
        return (self._steps == _steps.taken and all([ref() is parameter for ref, parameter in zip(self._same, parameters)])
                and [parameter._version for parameter in parameters] == self._versions
                and [parameter.data_ptr() for parameter in parameters] == self._addresses
                and [parameter.stride() for parameter in parameters] == self._strides
                and not any([_is_freed(handle) for handle in self._handles]))


def _forms(tensors: Sequence[Tensor]) -> list[Any]:
    return [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]


def _is_capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class _Made:
    """The results of one recipe for one set of parameters."""

    def __init__(self, make: Make, words: tuple[Any, ...], sources: Sequence[Optional[Tensor]]) -> None:
        self._make, self._words = make, words
        self._sources = [None if source is None else weakref.ref(source) for source in sources]
        self._stamp: Optional[_Stamp] = None
        self.tensors: tuple[Tensor, ...] = ()

    def is_of(self, sources: Sequence[Optional[Tensor]]) -> bool:
        return all((None if ref is None else ref()) is source for ref, source in zip(self._sources, sources))

    def renew(self, whatever: bool) -> None:
        """Makes them where the parameters changed, or in any case. Raises NotPrepared while the stream is captured."""
        sources = [None if ref is None else ref() for ref in self._sources]
        given = [source for source in sources if source is not None]
        if not whatever and self._stamp is not None and self._stamp.fits(given):
            return
        device = given[0].device
        if _is_capturing(device):
            raise NotPrepared("weights of the compiled model are new or were changed: call it once before you capture it")
        stamp = _Stamp(given)
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
            made = self._make(*sources, *self._words)
            _wait(device)  # other streams may still read what was there
            if _forms(made) == _forms(self.tensors):
                for tensor, new in zip(self.tensors, made):
                    tensor.copy_(new)
            else:
                self.tensors = made
            _wait(device)  # and read what is there now
        self._stamp = stamp


class Store:
    """What was made for all graphs of a compiled model."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.lock = threading.RLock()
        self._made: dict[Any, _Made] = _Known()

    def made(self, make: Make, words: tuple[Any, ...], sources: Sequence[Optional[Tensor]]) -> _Made:
        """That of these very parameters, which need not be up to date. With the lock held."""
        key = (make, words, *map(id, sources))
        found = self._made.get(key)
        if found is None or not found.is_of(sources):
            found = self._made[key] = _Made(make, words, sources)
            for source in sources:
                if source is not None:
                    _forget_with(source, self._made, key)
        return found

    def refresh(self) -> None:
        """Makes everything anew, whatever the versions say."""
        with self.lock:
            for made in list(self._made.values()):
                made.renew(True)


class Prepared:
    """The prepared tensors of one graph."""

    def __init__(self, store: Store, graph: fx.Graph, inputs: Sequence[Any]) -> None:
        self._store, self._graph = store, graph
        #: The graph's own.
        self.inputs = dict(zip(graph.find_nodes(op="placeholder"), inputs))
        self._recipes: dict[Recipe, list[fx.Node]] = {}
        self._written = {storage for node in graph.nodes for storage in storages_written_by(node)}
        #: By the first parameter: one graph may serve all blocks of a model.
        self._last: dict[int, tuple[_Stamp, tuple[Tensor, ...]]] = _Known()

    def why_not(self, recipes: Sequence[Recipe]) -> str:
        """Why something cannot be made of what a graph is given; "": it can."""
        if recipes and not self._store.allowed:
            return "its weights would be prepared, and prepared_weights=False"
        for node in {source for recipe in recipes for source in recipe.sources if source is not None}:
            given = self.inputs.get(node)
            if not isinstance(given, torch.nn.Parameter) or type(given) not in _torch_op.PLAIN or isinstance(given, FakeTensor):
                return "its weights are no parameters of the model"
            if given.is_inference():
                return "its parameters were made in inference mode, where nothing tells whether they change"
            if storage_of(node) in self._written:
                return "the model changes its parameters while it runs"
        if not all(map(self._fits_half, recipes)):
            return "its weights with the norm's in them are beyond float16"
        return ""

    def _fits_half(self, recipe: Recipe) -> bool:
        """Whether what is made is finite. fp32 and bfloat16 have room for the product of two of their like as models have them."""
        if all(fake.dtype is not torch.float16 for fake in recipe.fakes()):
            return True
        sources = [None if source is None else self.inputs[source] for source in recipe.sources]
        with unset_fake_temporarily(), torch.inference_mode(False), torch.no_grad():
            return all(bool(tensor.isfinite().all()) for tensor in recipe.make(*sources, *recipe.words))

    def nodes(self, recipe: Recipe) -> list[fx.Node]:
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
        recipes = [(recipe.make, recipe.words, [None if source is None else order[source] for source in recipe.sources])
                   for recipe in self._recipes]
        places = sorted({place for _, _, sources in recipes for place in sources if place is not None})
        self.inputs, self._graph = {}, None  # the model's, which may go

        def call(*inputs: Any) -> Any:
            parameters = [inputs[place] for place in places]
            last = self._last.get(id(parameters[0]))
            if last is None or not last[0].fits(parameters):
                last = self._renewed(recipes, parameters, inputs)
            return compiled(*inputs, *last[1])
        return call

    def _renewed(self, recipes: Sequence[Any], parameters: Sequence[Tensor], inputs: Sequence[Any]) -> tuple:
        with self._store.lock:
            stamp, tensors = _Stamp(parameters), []
            for make, words, sources in recipes:
                made = self._store.made(make, words, [None if place is None else inputs[place] for place in sources])
                made.renew(False)
                tensors += made.tensors
            key = id(parameters[0])
            if key not in self._last:
                _forget_with(parameters[0], self._last, key)
            self._last[key] = (stamp, tuple(tensors))
            return self._last[key]
