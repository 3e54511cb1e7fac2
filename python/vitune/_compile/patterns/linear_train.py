# python/vitune/_compile/patterns/linear_train.py -- The patterns of linear layers that train: alone, with an activation, two with one between.
# SPDX-License-Identifier: Apache-2.0
"""A LayerScale behind the last layer belongs to it: its gradient comes of the weight's, and nothing keeps or reads the rows that it multiplies.
What the backward pass computes is part of a place: of its products libvitune is asked too, and all is in the race. The graph may be
a part that is computed again in the backward pass (checkpointing): the operators change nothing, so they may be.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx

from ..._ops import attention as attention_ops, linear as linear_ops, training as training_ops
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from . import subgraph
from .benchmark import Times
from .distinct import once
from .match import (FusionPattern, Match, NoMatch, as_compiled, foreign, is_autocast, is_transformed, outside, selected, value_of,
                           wants_gradient)
from .mutations import is_changed_between, is_written_after, storages_of
from .tree import after_quiet, arguments_of, is_op, only_user
from .linear import ends, same, why_not_type

_OPS = torch.ops.vitune
Of = Callable[[fx.Node], Any]


class Layer(NamedTuple):
    """One call of F.linear, or of what is one of rows made of its input; it computes in the type of its result."""

    node: fx.Node
    x: fx.Node
    weight: fx.Node
    bias: Optional[fx.Node]
    rows: Of = same  #: of x
    matrix: Of = same  #: of the weight
    back: Of = same  #: of the result

    @staticmethod
    def of(node: fx.Node) -> "Layer":
        return Layer(node, *arguments_of(node).values())

    @property
    def dtype(self) -> torch.dtype:
        return value_of(self.node).dtype

    @property
    def operands(self) -> list[fx.Node]:
        return [node for node in (self.x, self.weight, self.bias) if node is not None]

    @property
    def is_cast(self) -> bool:
        """Whether autocast is on, and casts something."""
        return any(value_of(node).dtype != self.dtype for node in self.operands)

    def why_not(self) -> str:
        if is_transformed(self.node):
            return "torch.func transforms it"
        values = [value_of(node) for node in self.operands]
        if any(not isinstance(value, Tensor) for value in values):
            return "its operands are no tensors that are known"
        if self.matrix is same and values[1].dim() != 2 or len(values) == 3 and values[2].dim() != 1:
            return "its weight is no matrix, or its bias no vector"
        kind = next(filter(None, map(foreign, values)), "")
        if kind:
            return kind
        if not self.dtype.is_floating_point:
            return f"its type is {self.dtype}"
        if self.is_cast and not is_autocast(self.node, values[0].device.type):
            return "its operands have several types without autocast, which PyTorch refuses"
        if attention_ops.is_on_gpu(values[0]):
            return why_not_type(self.dtype)
        return "" if values[0].device.type == "cpu" else outside(values[0])

    def x_as(self, of: Of) -> Any:
        return self._cast(self.x, self.rows(of(self.x)))

    def parameters(self, of: Of) -> tuple[Any, Any, Any]:
        """Weight, the same in the type of the products, without a gradient, and bias."""
        weight = of(self.weight)
        w16 = self.matrix(self._cast(self.weight, weight.detach()))
        return self.matrix(weight), w16, None if self.bias is None else of(self.bias)

    def _cast(self, node: fx.Node, tensor: Any) -> Any:
        return tensor if value_of(node).dtype == self.dtype else tensor.to(self.dtype)

    def forward_text(self, activation: Optional[str] = None, scale: Optional[fx.Node] = None) -> str:
        x, (_, w16, bias) = self.x_as(as_compiled), self.parameters(as_compiled)
        return linear_ops.text_of(x, w16, bias, as_compiled(scale), activation=activation, return_preactivation=activation is not None)

    def backward_texts(self, after: Optional[str] = None, is_scaled: bool = False) -> Iterator[str]:
        """after: the activation that x is the result of, whose argument lies as x does."""
        x, (_, w16, _) = self.x_as(as_compiled), self.parameters(as_compiled)
        dy = as_compiled(self.node) if self.rows is same else x.new_empty((*x.shape[:-1], len(w16)))
        if after is not None:
            yield training_ops.act_input_grad_text(dy, w16, x, after)
        elif wants_gradient(value_of(self.x)):
            yield training_ops.input_grad_text(dy, w16)
        if wants_gradient(value_of(self.weight)):
            bias = self.bias is not None and wants_gradient(value_of(self.bias))
            dtype = value_of(self.weight).dtype
            yield training_ops.weight_grad_text(dy, x, torch.promote_types(dtype, value_of(self.bias).dtype) if bias else dtype, bias, is_scaled)


class Place(NamedTuple):
    """One or two layers."""

    call: str
    first: Layer
    nodes: tuple[fx.Node, ...]  # in the order of the graph; the last one is replaced
    activation: Optional[str] = None
    second: Optional[Layer] = None
    scale: Optional[fx.Node] = None  # LayerScale's, behind the last layer

    @property
    def narrowed(self) -> Optional[torch.dtype]:
        """The layers' type, where the last node is wider: autocast multiplies by a LayerScale in fp32."""
        return None if value_of(self.nodes[-1]).dtype == self.first.dtype else self.first.dtype

    @property
    def layers(self) -> list[Layer]:
        return [layer for layer in (self.first, self.second) if layer is not None]

    @property
    def operands(self) -> list[fx.Node]:
        given = [*self.first.operands, *(self.second.operands[1:] if self.second is not None else []), self.scale]
        return list(dict.fromkeys(node for node in given if node is not None))

    def build(self, graph: fx.Graph, of: Callable[[fx.Node], fx.Node], given: Sequence[fx.Node] = ()) -> Sequence[fx.Node]:
        tracer = fx.proxy.GraphAppendingTracer(graph)

        def proxy(node: fx.Node) -> fx.Proxy:
            return fx.Proxy(of(node), tracer)

        def call(target: Any, *words: Any) -> fx.Proxy:
            return fx.Proxy(graph.call_function(target, tuple(word.node if isinstance(word, fx.Proxy) else word for word in words)), tracer)
        first = (self.first.x_as(proxy), *self.first.parameters(proxy))
        scale = None if self.scale is None else proxy(self.scale)
        if self.activation is None:
            return [self.first.back(call(_OPS.linear_train.default, *first, scale)).node]
        both = call(_OPS.linear_act_train.default, *first, self.activation)
        pre, out = (call(operator.getitem, both, i) for i in range(2))
        if self.second is None:
            return [out.node]
        return [call(_OPS.act_linear_train.default, pre, out, *self.second.parameters(proxy), self.activation, scale).node]

    def put(self, graph: fx.Graph) -> Sequence[fx.Node]:
        made = self.build(graph, lambda node: node)
        if self.narrowed is None:
            return made
        value = value_of(self.nodes[-1])
        made[0].meta["example_value"] = torch.empty_like(value, dtype=self.narrowed).requires_grad_(value.requires_grad)
        return [graph.call_method("to", (made[0], value.dtype))]

    def texts(self) -> list[str]:
        """Of all its calls, forward and backward."""
        second, is_scaled = self.second, self.scale is not None
        if second is None:
            return [self.first.forward_text(self.activation, self.scale), *self.first.backward_texts(is_scaled=is_scaled)]
        forward = [self.first.forward_text(self.activation), second.forward_text(scale=self.scale)]
        return [*forward, *second.backward_texts(self.activation, is_scaled), *self.first.backward_texts()]

    def match(self) -> Match:
        dtype = self.first.dtype
        region = subgraph.Subgraph(self.nodes, [self.nodes[-1]], [], [], dtype if any(layer.is_cast for layer in self.layers) else None,
                                   self.narrowed)
        device, wants = value_of(self.first.x).device, [wants_gradient(value_of(node)) for node in self.operands]

        types = [value_of(node).dtype for node in self.operands]
        shapes = [] if self.first.rows is same else [tuple(value_of(node).shape) for node in (*self.operands, self.nodes[-1])]

        def asks(text: str) -> Callable[[], Selection]:
            return lambda: once(lambda: selected(text, device.index), Place, text, device)

        def race() -> Optional[Times]:
            return subgraph.raced_in_training(region, self.operands, self.build)
        on_gpu = attention_ops.is_on_gpu(value_of(self.first.x))
        asked = [*map(asks, once(self.texts, Place, self))] if on_gpu else []
        return Match(self.call, [self.nodes[-1]], self.nodes[-1], self.put, asked[0] if asked else None, self.nodes[:-1], race,
                     surroundings=f"gradients of {wants}, {types}, {shapes}", ask_further=asked[1:], unserved="" if on_gpu else f"device {device.type}")


def _second(first: Layer, steps: tuple[fx.Node, ...]) -> Optional[tuple[tuple[fx.Node, ...], Layer]]:
    """The layer that alone takes what an activation gave, and the nodes up to it."""
    at, quiet = after_quiet(steps[-1])
    user = only_user(at)
    if not is_op(user, "linear"):
        return None
    layer = Layer.of(user)
    if layer.x is not at or layer.dtype != value_of(at).dtype or layer.dtype != first.dtype or layer.why_not():
        return None
    return (*steps, *quiet, user), layer


def _scale(layer: Layer, steps: tuple[fx.Node, ...]) -> Optional[tuple[tuple[fx.Node, ...], fx.Node]]:
    """The LayerScale that alone takes what a layer gave, and the nodes up to its product. Not in fp16, of which weight times scale, by which
    gradients are multiplied, may be too small; nor where parameters are written to later, of which PyTorch's backward pass may keep none."""
    at, quiet = after_quiet(steps[-1])
    product = only_user(at)
    if layer.dtype == torch.float16 or not is_op(product, "mul"):
        return None
    found = arguments_of(product)
    scale = found["other"] if found["input"] is at else found["input"]
    parameters = [layer.weight, scale, *([] if layer.bias is None else [layer.bias])]
    values = [*map(value_of, parameters)]
    if not isinstance(scale, fx.Node) or not all(isinstance(value, Tensor) and wants_gradient(value) for value in values):
        return None
    if is_written_after(product, set().union(*map(storages_of, parameters))):
        return None
    alike = {value.dtype for value in values} == {values[0].dtype} and tuple(values[1].shape) == (values[0].shape[0],)
    dtypes = {layer.dtype, torch.promote_types(layer.dtype, values[0].dtype)}
    return ((*steps, *quiet, product), scale) if alike and not foreign(values[1]) and value_of(product).dtype in dtypes else None


class LinearTrain(FusionPattern):
    name = "linear_train"
    wins = True
    only_if_timed = True
    races_defaults = True
    trains = True
    operations = ("linear",)

    def places(self, node: fx.Node) -> Iterator[Match | NoMatch]:
        if not wants_gradient(value_of(node)):
            return
        try:
            layer = Layer.of(node)
            why_not = layer.why_not()
        except Unsupported as reason:
            why_not = str(reason)
        if why_not:
            yield NoMatch("linear in training", why_not)
            return
        for place in _largest_first(layer):
            if not is_changed_between(place.nodes[0], place.nodes[-1], place.nodes):
                yield place.match()


def _largest_first(layer: Layer) -> Iterator[Place]:
    end = next((end for end in ends((layer.node,)) if end.activation is not None), None)
    if end is not None and value_of(end.last).dtype == layer.dtype:
        two = _second(layer, end.steps)
        if two is not None:
            yield from _scaled_first(Place(f"linear, {end.activation} and linear", layer, two[0], end.activation, two[1]))
        yield Place(f"linear and {end.activation} in training", layer, end.steps, end.activation)
    yield from _scaled_first(Place("linear", layer, (layer.node,)))


def _scaled_first(place: Place) -> Iterator[Place]:
    """With the LayerScale behind it, where there is one, then without."""
    scaled = _scale(place.layers[-1], place.nodes)
    if scaled is not None:
        yield place._replace(call=f"{place.call} with LayerScale in training", nodes=scaled[0], scale=scaled[1])
    yield place._replace(call=f"{place.call} in training")


linear_train = LinearTrain()
