# python/vitune/_train/standing.py -- What a graph has addresses and constants of, so that a change of it is seen before a replay.
# SPDX-License-Identifier: Apache-2.0
"""At every call, before its graph is launched: the shortest look (places.py), where that does not know a short one (glance.py), and where that
does not know the long one here. Identities are compared of what is held here, so that nothing new can have them."""
from __future__ import annotations

import operator
from typing import Any, Optional

import torch
from torch import Tensor, nn

from . import places
from .glance import Content, Glance
from .places import Held, Places, modes_of
from .work import Work

#: Of nn.Module, without an accessor of PyTorch's.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_DICTS = ("_modules", "_parameters", "_buffers", *HOOKS)
_dicts_of_module = operator.itemgetter(*_DICTS)  # of its attributes
_hooks_of_parameter = operator.attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")
_hooks_of_optimizer = operator.attrgetter("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_NAMES_OF_PYTORCH = frozenset(vars(nn.Module()))
_CONSTANTS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_NUMBERS = frozenset((bool, int, float, complex))
_CONTAINERS = (tuple, list, dict, set)
_LONGEST_WAIT = 63
_SHORT = 64  #: of a container, which is compared by what it holds, as numbers are however many
_GONE = object()
_NONE: dict[str, Any] = {}
_OF_NO_SETTING = ("params", "lr", "initial_lr")
_SCALER = ("_scale", "_growth_tracker", "_growth_factor", "_backoff_factor", "_growth_interval")


class Standing:
    """Of a model, its loss, its optimizer and its scaler at one moment."""

    def __init__(self, work: Work) -> None:
        self._work = work
        roots = work.roots()
        named = [(root, path, module) for root, top in roots.items() for path, module in top.named_modules()]
        self._modules = [module for _, _, module in named]
        self._attributes = [vars(module) for module in self._modules]
        slots = [(vars(module), name, f"the {root}'s '{path}.{name}'".replace("'.", "'"), value) for root, path, module in named
                 for name, value in vars(module).items() if name not in _NAMES_OF_PYTORCH]
        self._held = [each for each in slots if not isinstance(each[3], (Tensor, *_CONTAINERS))]
        self._copied = [(*slot, _of(value)) for *slot, value in slots if isinstance(value, (Tensor, *_CONTAINERS))]
        self._parameters = work.parameters()
        self._tensors = [*self._parameters, *(buffer for top in roots.values() for buffer in top.buffers())]
        self._kept = [(each, *each.values()) for each in (*self._dicts(), *self._hooks())]
        self._then = self._now()
        self._glance: Optional[Glance] = None
        self._rest: list[tuple[dict[str, Any], str, Any]] = []  # what a glance does not see
        self._places: Optional[Places] = None
        self._wait = self._next_wait = 0  # looks until the next places are made: who changes something at each call pays for few
        self._modes: Optional[bytes] = None  # while the places hold

    def modes(self) -> bytes:
        """train() or eval() of each module: other graphs, not another model."""
        known, self._modes = self._modes, None
        return modes_of(self._modules) if known is None else known

    def change(self) -> Optional[str]:
        """What is not as it was, "the optimizer's state was replaced"; None, if all is."""
        self._modes = None
        if self._places is not None and self._scaler() == self._then["scaler"] and self._places.hold():
            self._wait, self._next_wait, self._modes = 0, 0, self._places.modes
            return None
        self._places = None
        made = self._made_places()  # before the looks that it is to stand for
        if self._glance is not None and self._glance.sees_no_change() and not self._changed(self._rest) and self._scaler() == self._then["scaler"]:
            self._places = made
            return None
        change = self._long_look()
        if change is None:
            self._make_glance()
            self._places = made
        return change

    def _made_places(self) -> Optional[Places]:
        """Of what is there now; None: there is no library, something cannot be compared so, or the last ones held for no look."""
        if self._wait:
            self._wait -= 1
            return None
        self._wait = self._next_wait = min(2 * self._next_wait + 1, _LONGEST_WAIT)
        library = places.library()
        if library is None:
            return None
        optimizer = self._work.optimizer
        slots = [(group, name) for group in optimizer.param_groups for name in group if name not in _OF_NO_SETTING]
        try:
            return Places(library, self._held_now(slots), slots, self._tensors, optimizer)
        except (TypeError, KeyError, AttributeError, RuntimeError, places.Unknown):
            return None

    def _held_now(self, slots: list[tuple[dict[str, Any], str]]) -> Held:
        optimizer, held = self._work.optimizer, Held()
        held.modules, held.parameters = self._modules, self._parameters
        hooks = (each for pair in self._pairs_of_hooks() for each in pair if each is not None)
        for each in (*self._attributes, *self._dicts(), *hooks, optimizer.state, *optimizer.state.values()):
            held.add_dict(each)
        for tensor in self._tensors:
            held.add_tensor(tensor)
        named = ((values, name) for values, name, *_ in (*self._held, *self._copied, *slots))
        for value in (*(values.get(name) for values, name in named), *(value for each in optimizer.state.values() for value in each.values())):
            held.add(value, _is_looked_into)
        return held

    def _make_glance(self) -> None:
        """Of what is there now, so that an equal number that is another object costs one long look."""
        named = [*((values, name) for values, name, *_ in (*self._held, *self._copied)),
                 *((group, name) for group in self._work.optimizer.param_groups for name in group if name not in _OF_NO_SETTING)]
        slots, contents = [], []
        self._rest = []
        for values, name in named:
            value = values.get(name, _GONE)
            if type(value) in (list, dict) and _holds_constants(value):
                contents.append(value)
            elif isinstance(value, (Tensor, *_CONTAINERS)) and not (type(value) is tuple and _holds_constants(value)):
                self._rest.append((values, name, _of(value)))
                continue
            slots.append((values, name))
        optimizer = self._work.optimizer
        owners = ((_dicts_of_module, self._attributes), (_hooks_of_parameter, self._parameters), (_hooks_of_optimizer, [optimizer]))
        try:
            self._glance = Glance(self._modules, owners, [*self._attributes, *optimizer.param_groups], slots, contents, self._tensors, optimizer)
        except (TypeError, KeyError):  # the optimizer's state is more than tensors, or a module keeps its parts elsewhere
            self._glance = None

    def _long_look(self) -> Optional[str]:
        now = self._now()
        if now != self._then:
            return _SENTENCES[next(name for name in now if now[name] != self._then[name])]
        for values, name, path, old in self._held:
            new = values.get(name, _GONE)
            if new is not old and not (type(new) is type(old) and type(old) in _CONSTANTS and new == old):
                known = type(new) in _CONSTANTS and type(old) in _CONSTANTS
                return f"{path} changed from {old!r} to {new!r}" if known else f"{path} was replaced"
        return next((f"{path} was replaced or changed" for values, name, path, old in self._copied if _of(values.get(name, _GONE)) != old), None)

    def _changed(self, slots: list[tuple[dict[str, Any], str, Any]]) -> bool:
        return any(_of(values.get(name, _GONE)) != old for values, name, old in slots)

    def _dicts(self) -> list[dict[str, Any]]:
        return [attributes.get(name, _NONE) for attributes in self._attributes for name in _DICTS]

    def _hooks(self) -> list[dict[int, Any]]:
        """Of the parameters and the optimizer; those of modules are among their dicts."""
        return [each or {} for pair in self._pairs_of_hooks() for each in pair]

    def _pairs_of_hooks(self) -> tuple[tuple[Any, Any], ...]:
        return (*map(_hooks_of_parameter, self._parameters), _hooks_of_optimizer(self._work.optimizer))

    def _scaler(self) -> Any:
        scaler = self._work.scaler
        return scaler and [_of(getattr(scaler, name)) for name in _SCALER]

    def _now(self) -> dict[str, Any]:
        optimizer = self._work.optimizer
        groups = optimizer.param_groups
        return {
            "modules": [(id(each), *map(id, each.values())) for each in self._dicts()],
            "classes": list(map(type, self._modules)),
            "hooks": [list(map(id, each.values())) for each in self._hooks()],
            "names": list(map(len, self._attributes)),
            "gradients": [tensor.requires_grad for tensor in self._tensors],
            "memory": list(map(_place, self._tensors)),
            "groups": [list(map(id, group["params"])) for group in groups],
            "settings": [[(name, _of(value)) for name, value in group.items() if name not in _OF_NO_SETTING] for group in groups],
            "state": [_place(value) for each in optimizer.state.values() for value in each.values() if isinstance(value, Tensor)],
            "scaler": self._scaler(),
        }


_SENTENCES = {
    "modules": "modules, parameters, buffers or hooks of the model or the loss were replaced, added or removed",
    "classes": "modules of the model or the loss have another class",
    "hooks": "hooks of parameters or of the optimizer were replaced, added or removed",
    "names": "attributes of the model or the loss were added or removed",
    "gradients": "requires_grad of parameters changed",
    "memory": "parameters or buffers have other memory, or lie in it differently",
    "groups": "the optimizer has other parameters",
    "settings": "settings of the optimizer other than lr changed",
    "state": "the optimizer's state was replaced",
    "scaler": "the scaler's state was replaced, or its settings changed",
}


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _is_looked_into(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= _SHORT or _NUMBERS.issuperset(map(type, value))
    return isinstance(value, dict) and len(value) <= _SHORT


def _holds_constants(container: Content | tuple[Any, ...]) -> bool:
    """All of which are compared."""
    elements = [*container, *container.values()] if isinstance(container, dict) else container
    return _is_looked_into(container) and all(type(each) in _CONSTANTS for each in elements)


def _of(value: Any) -> Any:
    """Something that is compared without an operator of PyTorch's or the user's."""
    if _is_looked_into(value):
        return type(value), [_leaf(each) for pair in value.items() for each in pair] if isinstance(value, dict) else list(map(_leaf, value))
    return _leaf(value)


def _leaf(value: Any) -> Any:
    if type(value) in _CONSTANTS:
        return value
    if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_nested:
        return Tensor, *_place(value)
    return type(value), id(value)
