# python/vitune/_ops/remembered.py -- Operators whose calls the operators' library launches without Python, once it has seen what they launch.
# SPDX-License-Identifier: Apache-2.0
"""A step of training calls some two hundred operators, and Python takes ten times as long for one as a launch does. So each of them has two
more by the same name. What compilers put in its place is vitune_native's: the library's, which launches what it remembers
(python/native/remembered.h); without the library, and on a CPU, it is the operator itself. Calls that the library does not know are
vitune_python's: the operator, while it is noted which problems are launched with which addresses, and whether PyTorch computes anything,
which could not be repeated by a launch.

Neither has an autograd formula: compilers put them in behind autograd, in the place of the operators that have one.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .._runtime import native
from . import flops

_LIBRARIES = tuple(torch.library.Library(name, "FRAGMENT") for name in ("vitune_native", "vitune_python"))
#: Words that operators are given; the library knows numbers alone.
_WORDS = ("relu", "gelu", "gelu_tanh", "quick_gelu", "silu")
#: What gives memory, or looks at it otherwise, and computes nothing.
_MEMORY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}

_bodies: dict[str, Callable[..., Any]] = {}
_noted = threading.local()


def remembered(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Of the operator of that name, whose body this decorates."""
    def keep(body: Callable[..., Any]) -> Callable[..., Any]:
        _bodies[name] = body
        return body
    return keep


def note(text: str, tensors: Sequence[Optional[Tensor]], scratch_bytes: int) -> None:
    """A launch of the problem `text`; of no account but in a call that the library is to learn."""
    launches = getattr(_noted, "launches", None)
    if launches is not None:
        launches.append((text, [0 if tensor is None else tensor.data_ptr() for tensor in tensors], scratch_bytes))


class _Others(TorchDispatchMode):
    """Sees whether PyTorch computes something."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Optional[dict[str, Any]] = None) -> Any:
        results = function(*args, **(kwargs or {}))
        if function._schema.name not in _MEMORY:
            # Below autograd contiguous() and to() come as one operation, which may be a view and may be a copy.
            given = {_memory(each) for each in tree_leaves(args) if isinstance(each, Tensor)}
            self.seen = self.seen or not all(_memory(each) in given for each in tree_leaves(results) if isinstance(each, Tensor)) or any(
                each.alias_info is not None and each.alias_info.is_write for each in function._schema.arguments)
        return results


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _kind(argument: Any) -> str:
    """The letter of vitune_torch_describe() for it; "" for one that the library does not take."""
    of = str(argument.type)
    missing = of.startswith("Optional[")
    of = of.removeprefix("Optional[").rstrip("]")
    if of == "Tensor":
        return "o" if missing else "t"
    return ("v" if missing else "w") if of in ("int", "float", "bool", "str", "SymInt", "ScalarType") else ""


def _encoded(values: Sequence[Any]) -> list[Any]:
    return [_WORDS.index(value) if isinstance(value, str) else value for value in values]


class _Twin:
    """The two operators of an operator."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operator = getattr(torch.ops.vitune, name).default
        self.arguments = self.operator._schema.arguments
        self.kinds = "".join(map(_kind, self.arguments))
        text = str(self.operator._schema).split("::", 1)[1].replace("SymInt", "int").replace("str ", "int ")
        for library, body in zip(_LIBRARIES, (self.call, self.learn)):
            library.define(text, tags=self.operator.tags)
            library.impl(name, body, "CompositeExplicitAutograd")
            torch.library.register_fake(f"{library.ns}::{name}", self.call, lib=library)
        flops.know(name, of=torch.ops.vitune_native)
        self.native = getattr(torch.ops.vitune_native, name).default

    def _decoded(self, values: Sequence[Any]) -> list[Any]:
        return [_WORDS[value] if str(argument.type) == "str" else value for argument, value in zip(self.arguments, values)]

    def call(self, *values: Any) -> Any:
        return self.operator(*self._decoded(values))

    def learn(self, *values: Any) -> Any:
        library = native.loaded
        if library is None:
            return self.call(*values)
        try:
            return self._taught(library, values) if library.is_learning() else self.call(*values)
        except BaseException as error:
            raised = getattr(_noted, "raised", None)
            if raised is not None:
                raised.append(error)
            # Neither its text nor Ctrl-C would find the way through the library.
            library.note_error(error, raised is None)
            raise

    def _taught(self, library: native.Native, values: Sequence[Any]) -> Any:
        launches = _noted.launches = []
        try:
            with _Others() as others:
                results = _bodies[self.name](*self._decoded(values))
        finally:
            _noted.launches = None
        for launch in launches:
            library.note_launch(*launch)
        if others.seen:
            library.note_other()
        return results

    def put(self, *values: Any, **more: Any) -> Any:
        """The operator for a compiler: what is called in its place."""
        given = list(values) + [more.get(argument.name, argument.default_value) for argument in self.arguments[len(values):]]
        return self.native(*_encoded(given))


#: Those that the library knows.
_put: dict[Any, Callable[..., Any]] = {}


def define(*names: str) -> None:
    """Makes the two operators of each of these, which exist by now: where they do, for programs of a cache name them."""
    for name in names if native.is_for_this_pytorch() else ():
        twin = _Twin(name)
        is_whole = len(twin.kinds) == len(twin.arguments)
        if native.loaded is not None and is_whole and native.loaded.describe(name, twin.kinds, len(twin.operator._schema.returns)):
            _put[twin.operator] = twin.put


def directly(name: str) -> Optional[Callable[..., Any]]:
    """That operator as the library launches it, for eager mode: what Python raises in it arrives as it was raised. None where the library does
    not know the operator."""
    if getattr(torch.ops.vitune, name).default not in in_compilers():
        return None
    operator = getattr(torch.ops.vitune_native, name).default._op

    def call(*values: Any) -> Any:
        before, _noted.raised = getattr(_noted, "raised", None), []
        try:
            return operator(*values)
        except RuntimeError:
            if _noted.raised:  # the library hands on the text alone
                raise _noted.raised.pop() from None
            raise
        finally:
            _noted.raised = before
    return call


def in_compilers() -> dict[Any, Callable[..., Any]]:
    """What compilers call for each operator; nothing without the operators' library."""
    return _put if native.loaded is not None else {}
