# python/vitune/_train/places.py -- The shortest look before a replay: words of memory that the operators' library compares.
# SPDX-License-Identifier: Apache-2.0
"""A step that begins on an idle machine finds nothing of a model in the caches, and each object that Python touches waits for memory. So the
library (python/native/places.cpp) is told once where the objects are, and reads them in one go: the class of each module, the version of each
dict (PEP 509), the place, shape and strides of each tensor. What it cannot read is compared here by map() and `is`.

The answer is that nothing changed, or that it is not known: then Glance looks. What it holds lives until the next look that sees a change,
the memory of an optimizer's replaced state too, as that of the graphs does."""
from __future__ import annotations

import ctypes
import functools
import operator
import sys
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any, Optional

import torch
from torch import Tensor, nn

from .._runtime import native
from .glance import are_those, ended

#: Bytes into an object of CPython: its class, and of a dict the version.
_CLASS, _VERSION = 8, 24
_DICTS = (dict, OrderedDict, defaultdict)  # which have no elements elsewhere
_TENSORS = (Tensor, nn.Parameter)
_END = object()
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_of_optimizer = operator.attrgetter("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "state")
_wants_gradient = operator.attrgetter("requires_grad")
_parameters, _is_training = operator.itemgetter("params"), operator.attrgetter("training")


class Unknown(Exception):
    """Something that is compared in another way."""


def word(thing: Any, place: int) -> int:
    return ctypes.c_uint64.from_address(id(thing) + place).value


#: Each changes a dict, of "a" and whatever else.
_CHANGES: tuple[Callable[[Any], Any], ...] = (
    lambda values: values.update({"a": object(), "e": object()}), lambda values: values.__setitem__("a", object()),
    lambda values: values.__setitem__("b", 1), lambda values: values.pop("b"), lambda values: values.setdefault("c", 1),
    lambda values: values.__ior__({"c": object()}), lambda values: values.update(c=object()), lambda values: values.popitem(),
    lambda values: values.__delitem__("a"), lambda values: values.clear(), lambda values: values.update(a=object()),
)


class _Thing:
    trial: Any


@functools.lru_cache(maxsize=None)
def has_versions() -> bool:
    """Whether this interpreter keeps classes and versions where CPython 3.9 to 3.12 does, by trial: every way to change a dict changes its
    version. That of 3.13 does not say when an attribute is stored, and later ones have none."""
    if sys.implementation.name != "cpython" or object.__basicsize__ != 16 or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    thing = _Thing()
    return word(thing, _CLASS) == id(_Thing) and all(map(_versions_follow, (dict, OrderedDict, functools.partial(defaultdict, dict)))) \
        and _versions_follow_attributes(thing)


def _versions_follow(make: Callable[[], Any]) -> bool:
    values, versions = make(), []
    for change in _CHANGES:
        change(values)
        versions.append(word(values, _VERSION))
    before = versions[-1]
    values.get("a"), len(values), list(values.values())
    return len(set(versions)) == len(_CHANGES) and word(values, _VERSION) == before


def _versions_follow_attributes(thing: _Thing) -> bool:
    """In a loop, for which an interpreter makes its own way to store them."""
    thing.trial = None
    values, versions = vars(thing), set()
    rounds = 300
    for _ in range(rounds):
        thing.trial = object()
        versions.add(word(values, _VERSION))
        object.__setattr__(thing, "trial", object())
        versions.add(word(values, _VERSION))
        del thing.trial
        versions.add(word(values, _VERSION))
        thing.trial = object()
        versions.add(word(values, _VERSION))
    return len(versions) == 4 * rounds


class Library:
    """The functions of python/native/places.h."""

    def __init__(self, path: str) -> None:
        """Raises OSError or AttributeError where it has none."""
        library = ctypes.PyDLL(path)  # the interpreter's lock stays held: nothing changes in the middle
        self.create, self.hold, self.destroy = (getattr(library, f"vitune_torch_places_{name}") for name in ("create", "hold", "destroy"))
        self.create.restype, self.hold.restype, self.destroy.restype = ctypes.c_void_p, ctypes.c_int32, None
        self.create.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
        self.hold.argtypes = self.destroy.argtypes = [ctypes.c_void_p]


@functools.lru_cache(maxsize=None)
def _library_at(path: str) -> Optional[Library]:
    try:
        return Library(path)
    except (OSError, AttributeError):  # an older one
        return None


def library() -> Optional[Library]:
    """None: where there is none for this PyTorch, or the interpreter has no versions."""
    return None if native.loaded is None or not has_versions() else _library_at(str(native.loaded.path))


class Held:
    """What is compared, by how."""

    def __init__(self) -> None:
        self.modules: list[Any] = []  #: whose class is compared
        self.parameters: list[Tensor] = []  #: whose dicts of hooks are
        self.dicts: list[dict[Any, Any]] = []  #: whose version is
        self.lists: list[list[Any]] = []  #: whose elements are
        self.tensors: list[Tensor] = []  #: whose place, type, shape and strides are
        self.rest: list[Any] = []  #: what nothing is known of here

    def add(self, value: Any, is_looked_into: Callable[[Any], bool]) -> None:
        """A value that something else holds, whose identity is compared there."""
        if isinstance(value, Tensor):
            self.add_tensor(value)
        elif type(value) in (*_DICTS, list, tuple, torch.Size) and is_looked_into(value):
            elements: Iterable[Any] = value
            if isinstance(value, dict):
                self.dicts.append(value)
                elements = chain.from_iterable(value.items())
            elif isinstance(value, list):
                self.lists.append(value)
            for each in elements:
                if isinstance(each, Tensor):
                    self.add_tensor(each)
        elif isinstance(value, (dict, list, tuple)) and is_looked_into(value):
            self.rest.append(value)

    def add_tensor(self, tensor: Tensor) -> None:
        if type(tensor) not in _TENSORS or tensor.layout is not torch.strided or tensor.is_nested:
            raise Unknown
        self.tensors.append(tensor)

    def add_dict(self, values: Any) -> None:
        if type(values) not in _DICTS:
            raise Unknown
        self.dicts.append(values)


class Places:
    """Of a step at one moment."""

    def __init__(self, library: Library, held: Held, slots: Sequence[tuple[dict[str, Any], str]], trained: Sequence[Tensor],
                 optimizer: torch.optim.Optimizer) -> None:
        """slots: dicts and a key of each, whose value is compared. trained: tensors whose requires_grad is. Raises Unknown for what cannot
        be compared so."""
        if held.rest:
            raise Unknown
        self._held, self._trained, self._optimizer = held, tuple(trained), optimizer
        self._slots: tuple[Any, Any] = tuple(zip(*slots)) if slots else ((), ())  # type: ignore[assignment]
        self._sizes, self._objects, self._wanting = self._sizes_now(), ended(self._objects_now()), list(map(_wants_gradient, self._trained))
        #: train() or eval() of each module while they hold; None: it is no attribute of each, whose dict would say so.
        self.modes = modes_of(held.modules) if _are_attributes(held.modules) else None
        self._library, self._handle = library, _created(library, held)
        weakref.finalize(self, library.destroy, self._handle).atexit = False

    def hold(self) -> bool:
        """Whether nothing changed; False: it is not known."""
        return (self._library.hold(self._handle) == 1 and self._sizes_now() == self._sizes and are_those(self._objects_now(), self._objects)
                and list(map(_wants_gradient, self._trained)) == self._wanting)

    def _sizes_now(self) -> list[int]:
        groups = self._optimizer.param_groups
        return list(map(len, chain(self._held.lists, groups, map(_parameters, groups))))

    def _objects_now(self) -> Iterable[Any]:
        groups = self._optimizer.param_groups
        return chain(_of_optimizer(self._optimizer), groups, chain.from_iterable(map(_parameters, groups)),
                     map(dict.get, *self._slots, repeat(_END)), chain.from_iterable(self._held.lists))


def modes_of(modules: Iterable[Any]) -> bytes:
    """train() or eval() of each; one that is kept is hashed once."""
    return bytes(map(operator.truth, map(_is_training, modules)))


def _are_attributes(modules: Sequence[Any]) -> bool:
    """Whether their dicts say which of them train."""
    return all("training" in vars(module) for module in modules) and not any(hasattr(kind, "training") for kind in set(map(type, modules)))


def _created(library: Library, held: Held) -> int:
    own, *hooks = _places_of_tensors()
    if any(word(each, own) != each._cdata for each in held.tensors):
        raise Unknown
    words = [*(id(each) + _CLASS for each in held.modules), *(id(each) + _VERSION for each in held.dicts),
             *(id(each) + place for each in held.parameters for place in hooks)]
    handle = library.create(_array([id(each) + own for each in held.tensors]), len(held.tensors), _array(words), len(words))
    if not handle:
        raise Unknown
    return handle


@functools.lru_cache(maxsize=None)
def _places_of_tensors() -> list[int]:
    """Bytes into Python's object of a tensor, by trial: PyTorch's own, which is a pointer, and each of the dicts of hooks. A handle is the
    address of the first, which takes no part in the count of users that torch.utils.swap_tensors() looks at. Raises Unknown where they are
    elsewhere."""
    tensor = torch.empty(1, requires_grad=True)
    places = [_place_of(tensor, tensor._cdata)]
    for name in _HOOKS:
        hooks: OrderedDict[int, Any] = OrderedDict()
        setattr(tensor, name, hooks)
        places.append(_place_of(tensor, id(hooks)))
        setattr(tensor, name, None)
        if word(tensor, places[-1]) != 0:
            raise Unknown
    return places


def _place_of(tensor: Tensor, value: int) -> int:
    found = [place for place in range(object.__basicsize__, torch._C.TensorBase.__basicsize__, 8) if word(tensor, place) == value]
    if len(found) != 1:
        raise Unknown
    return found[0]


def _array(addresses: Sequence[int]) -> Any:
    return (ctypes.c_void_p * len(addresses))(*addresses)
