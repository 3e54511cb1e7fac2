# python/vitune/_export/forward_graph.py -- A forward pass as a graph of PyTorch's calls, as Dynamo would write it; no GPU, no weights.
# SPDX-License-Identifier: Apache-2.0
"""Recorded while a model runs on the meta device: under a second for what Dynamo takes several. What patterns of vitune.compile() read
is there: functions and methods by the names that Dynamo gives them, results under "example_value", inputs and parameters as
placeholders, and the path of the module that calls."""
from __future__ import annotations

import contextlib
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

_METHODS = {getattr(Tensor, name): name for name in dir(Tensor) if not name.startswith("__") and callable(getattr(Tensor, name))}
#: Tensor's operators, which Dynamo writes as Python's. PyTorch calls some of them by the method's name.
_OPERATORS = {getattr(Tensor, name): target for names, target in (
    (("__getitem__",), operator.getitem), (("__add__", "__radd__", "add"), operator.add), (("__iadd__", "add_"), operator.iadd),
    (("__mul__", "__rmul__", "mul"), operator.mul), (("__imul__", "mul_"), operator.imul),
    (("__matmul__", "matmul"), operator.matmul), (("__setitem__",), operator.setitem)) for name in names}


def _looked_into(function: Any) -> Any:
    """A function in Python that is recorded as the calls that it makes: the same code, with globals of its own in which no argument
    asks to be handed on. PyTorch's own function stays as it is, for all threads."""
    plain = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), lambda *_: False)
    made = types.FunctionType(function.__code__, {**function.__globals__, **plain}, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


_LOOKED_INTO = {function: _looked_into(function) for function in (F.multi_head_attention_forward, F.normalize)}


class ForwardGraph(TorchFunctionMode):
    """Records what is called inside of it. `stand_in`: of a tensor that a model holds, the one on the meta device that its pass is
    recorded with; it is asked once for each."""

    def __init__(self, stand_in: Optional[Callable[[Tensor], Tensor]] = None) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.given: dict[fx.Node, Tensor] = {}  #: placeholder -> what it was before stand_in
        self._stand_in = stand_in
        self._stand_ins: dict[int, Tensor] = {}  # by the id of a tensor
        self._last_given: Optional[fx.Node] = None  # the calls come behind it
        self._nodes: dict[int, fx.Node] = {}  # by the id of a tensor
        self._kept: list[Any] = []  # so that no other tensor gets the id
        self._inside: list[str] = []  # paths of the modules that run

    def __torch_function__(self, function: Any, _: Any, positional: Any = (), named: Any = None) -> Any:
        named = named or {}
        if function in _LOOKED_INTO:
            with self:
                return _LOOKED_INTO[function](*positional, **named)
        if self._stand_in is not None and any(self._is_held(leaf) for leaf in tree_leaves((positional, named))):
            given = tree_map_only(Tensor, self._meta_of, (tuple(positional), dict(named)))
        else:
            given = tuple(positional), dict(named)
        out = function(*given[0], **given[1])
        if isinstance(out, Tensor) or isinstance(out, (list, tuple)) and any(isinstance(part, Tensor) for part in out):
            args, kwargs = tree_map_only(Tensor, self._node, given)
            getter = getattr(function, "__self__", None)
            if getattr(function, "__name__", "") == "__get__" and hasattr(getter, "__name__"):  # Tensor.T, Tensor.mT
                node = self.graph.call_function(getattr, (*args[:1], getter.__name__))
            elif function in _METHODS and function not in _OPERATORS:
                node = self.graph.call_method(_METHODS[function], args, kwargs)
            else:
                node = self.graph.call_function(_OPERATORS.get(function, function), args, kwargs)
            if function is F.dropout and out is given[0][0] and out.is_meta:
                # With fake tensors it is a copy that lies row after row, if it drops nothing too.
                out = torch.empty(out.shape, dtype=out.dtype, device=out.device)
            self._note(out, node)
        elif function is Tensor.__setitem__:
            self._note(given[0][0], self.graph.call_function(operator.setitem, tree_map_only(Tensor, self._node, given[0])))
        return out

    @contextlib.contextmanager
    def inside_of(self, *models: torch.nn.Module) -> Iterator["ForwardGraph"]:
        """Records, and notes at each call the path of the module that makes it, in one of `models`."""
        names = {module: name for model in models for name, module in model.named_modules()}
        enter = modules.register_module_forward_pre_hook(lambda module, _: self._inside.append(names.get(module, "")))
        leave = modules.register_module_forward_hook(lambda module, *_: self._leave(), always_call=True)
        try:
            with torch.no_grad(), self:
                yield self
        finally:
            enter.remove()
            leave.remove()

    @property
    def place(self) -> str:
        """The path of the module that runs."""
        return next((name for name in reversed(self._inside) if name), "")

    def finished(self, out: Any) -> fx.Graph:
        """The graph, whose result is `out`: a tensor, or a tuple, list or dict with tensors in it."""
        self.graph.output(tree_map_only(Tensor, self._node, out))
        return self.graph

    def _leave(self) -> None:
        self._inside.pop()

    def _is_held(self, value: Any) -> bool:
        """Whether it is computed of on the meta device: what a model has of floating point, and what was made of that."""
        return isinstance(value, Tensor) and (value.is_meta or isinstance(value, torch.nn.Parameter) or id(value) in self._stand_ins)

    def _meta_of(self, tensor: Tensor) -> Tensor:
        found = self._stand_ins.get(id(tensor))
        if found is None and tensor.is_meta and id(tensor) in self._nodes:  # made by a call
            return tensor
        if found is None:
            found = self._stand_ins[id(tensor)] = self._stand_in(tensor)
            self._kept.append(tensor)
            if id(tensor) in self._nodes:  # made by a call that had nothing of the meta device
                self._nodes[id(found)] = self._nodes[id(tensor)]
            else:
                self.given[self._node(found)] = tensor
                self._nodes[id(tensor)] = self._nodes[id(found)]
        return found

    def _node(self, tensor: Tensor) -> fx.Node:
        if id(tensor) not in self._nodes:
            with self.graph.inserting_after(self._last_given):  # None: at the beginning
                self._last_given = self.graph.placeholder(f"given_{len(self._kept)}")
            self._note(tensor, self._last_given)
            self.given[self._last_given] = tensor
        return self._nodes[id(tensor)]

    def _note(self, value: Any, node: fx.Node) -> None:
        node.meta["example_value"] = value
        node.meta["nn_module_stack"] = {"": (self.place, None)}
        self._kept.append(value)
        if isinstance(value, Tensor):
            self._nodes[id(value)] = node
            return
        for place, part in enumerate(value):
            if isinstance(part, Tensor):
                self._note(part, self.graph.call_function(operator.getitem, (node, place)))
