# python/vitune/_compile/patterns/distinct.py -- Equal places of a graph: what is found out about one of them holds for all.
# SPDX-License-Identifier: Apache-2.0
"""A vision transformer has a dozen equal blocks. The problem of a place, its kernel and what a call of ours gives are functions of the
place's kind: of its operations, of the types, sizes, strides and devices of its tensors and of how it is wired. They are computed once for
each kind. A place's own parameters, memory and writers are no part of its kind: what depends on these is computed for each place."""
from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any, Optional, TypeVar

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map_only

from ..._runtime.errors import VituneError

Result = TypeVar("Result")

#: Facts about the kinds of one graph, while it is looked at: the next graph may meet other winners.
_known: contextvars.ContextVar[Optional[dict[Any, Any]]] = contextvars.ContextVar("known", default=None)


@contextlib.contextmanager
def of_one_graph() -> Iterator[None]:
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def once(make: Callable[[], Result], *about: Any) -> Result:
    """What `make` gives, or the VituneError that it raises: computed once for all that is alike. about: all that it depends on."""
    known = _known.get()
    if known is None:
        return make()
    try:
        key = kind_of(about)
        hash(key)
    except TypeError:  # of something that says nothing of its like
        return make()
    if key not in known:
        try:
            known[key] = make(), None
        except VituneError as error:
            known[key] = None, error
    result, error = known[key]
    if error is not None:
        raise error.with_traceback(None)
    return result


def once_of_kind(method: Callable[..., Result]) -> Callable[..., Result]:
    """A method that depends on nothing but the kinds of its object and arguments."""
    @functools.wraps(method)
    def answer(*about: Any) -> Result:
        return once(lambda: method(*about), method, *about)
    return answer


def kind_of(part: Any) -> Any:
    """The same for alike parts: nodes, tensors, numbers, functions, and tuples and lists of them."""
    return _kind(part, {})


def _kind(part: Any, places: dict[fx.Node, int]) -> Any:
    if isinstance(part, fx.Node):
        # The number tells which parts are one node; who else reads a result decides whether it must be written.
        is_seen = part in places
        number = places.setdefault(part, len(places))
        return (number,) if is_seen else (number, part.op, part.target if part.op.startswith("call_") else None,
                                          len(part.users) > 1, _kind(part.meta.get("example_value"), places))
    if isinstance(part, Tensor):
        return (isinstance(part, torch.nn.Parameter), part.dtype, part.device, part.requires_grad,
                _sizes(part.shape), _sizes(part.stride()))
    if isinstance(part, (tuple, list)):
        return (type(part).__name__, *(_kind(each, places) for each in part))
    if isinstance(part, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return part.node.expr
    return type(part), repr(part) if isinstance(part, float) else part  # 1, 1.0 and True are equal, as are 0.0 and -0.0


def _sizes(sizes: Any) -> tuple[Any, ...]:
    return tuple(size.node.expr if isinstance(size, torch.SymInt) else size for size in sizes)


def alike(value: Any) -> Any:
    """The same of tensors of its own, in memory of their own."""
    return tree_map_only(Tensor, lambda tensor: tensor.new_empty_strided(tensor.shape, tensor.stride()), value)
