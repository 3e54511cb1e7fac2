# python/vitune/_train/glance.py -- The short look at every call: whether all are the very objects that they were.
# SPDX-License-Identifier: Apache-2.0
"""Loops in Python over modules and parameters would be most of what a replayed step takes on the host. So these go by map() and `is`,
without a line of Python for each object. The answer is that nothing changed, or that it is not known: a number may be equal though it is
another object. Then Standing looks at all of it."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat, starmap
from typing import Any, Union

import torch
from torch import Tensor

Content = Union[dict, list]
#: A function that gives the dicts of one thing, or None for one that is not there yet, with all these things.
Owners = tuple[Callable[[Any], tuple[Any, ...]], Sequence[Any]]
_END = object()
_wants_gradient = operator.attrgetter("requires_grad")
_parameters = operator.itemgetter("params")
_PLACE = (Tensor.data_ptr, Tensor.stride, operator.attrgetter("shape"))


def ended(objects: Iterable[Any]) -> tuple[Any, ...]:
    return (*objects, _END)


def are_those(now: Iterable[Any], then: tuple[Any, ...]) -> bool:
    """Whether these are the objects of ended(), as many and in the same order."""
    return all(map(operator.is_, chain(now, (_END,)), then))


class Glance:
    """It holds the objects that it compares with."""

    def __init__(self, modules: Sequence[Any], owners: Sequence[Owners], sized: Sequence[Any], slots: Sequence[tuple[dict[str, Any], str]],
                 contents: Sequence[Content], tensors: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> None:
        """modules: whose classes are compared. owners: whose dicts, mostly empty, and their values are. sized: whose lengths are. slots: dicts
        and a key of each, whose value is compared. contents: dicts and lists, whose elements are. tensors: whose memory, how they lie in it
        and requires_grad are."""
        self._modules, self._owners, self._optimizer, self._tensors = modules, owners, optimizer, tensors
        dicts = [each for each in self._dicts_of_owners() if each is not None]
        self._empty, self._dicts = tuple(each for each in dicts if not each), tuple(filter(None, dicts))
        self._sized = (*self._dicts, *sized, *contents)
        self._slots: tuple[Any, Any] = tuple(zip(*slots)) if slots else ((), ())  # type: ignore[assignment]
        self._dicts_of_contents = tuple(each for each in contents if isinstance(each, dict))
        self._contents = contents
        self._sizes, self._objects, self._facts = self._sizes_now(), ended(self._objects_now()), self._facts_now()

    def sees_no_change(self) -> bool:
        try:
            return (not any(self._empty) and self._sizes_now() == self._sizes and are_those(self._objects_now(), self._objects)
                    and self._facts_now() == self._facts)
        except TypeError:  # in the optimizer's state is something beside tensors
            return False

    def _sizes_now(self) -> list[int]:
        return list(map(len, chain(self._sized, map(_parameters, self._optimizer.param_groups))))

    def _dicts_of_owners(self) -> Iterable[Any]:
        return chain.from_iterable(chain.from_iterable(starmap(map, self._owners)))

    def _objects_now(self) -> Iterable[Any]:
        groups = self._optimizer.param_groups
        return chain(map(type, self._modules), self._dicts_of_owners(), chain.from_iterable(map(dict.values, self._dicts)),
                     map(dict.get, *self._slots, repeat(_END)), chain.from_iterable(self._contents),
                     chain.from_iterable(map(dict.values, self._dicts_of_contents)), groups, chain.from_iterable(map(_parameters, groups)))

    def _facts_now(self) -> list[list[Any]]:
        states = [*chain.from_iterable(map(dict.values, self._optimizer.state.values()))]
        return [*(list(map(fact, states)) for fact in _PLACE), *(list(map(fact, self._tensors)) for fact in (_wants_gradient, *_PLACE))]
