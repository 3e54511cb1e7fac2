# python/vitune/_compile/patterns/linear.py -- The patterns of linear layers in Dynamo's graph: with the norm before, and what follows, as one call.
# SPDX-License-Identifier: Apache-2.0
"""norm -> linear -> activation -> LayerScale -> sum with the residual: as much of it as stands together, the most first.

A norm is folded: its weight and bias go into the layer's, prepared beside the graph, and only its statistics are left, which
Inductor computes in one kernel with the sum before them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..._ops import linear as linear_ops
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from . import subgraph
from .benchmark import Times
from .distinct import once_of_kind
from .forms import Folded
from .match import (FusionPattern, Match, ConstantFold, NoMatch, as_compiled, is_parameter, outside, selected, value_of,
                           wants_gradient)
from .mutations import is_changed_between
from .tree import Tree, after_quiet, arguments_of, is_op, only_user, operation_of
from .norm import NORM, NORMS, epsilon

_TYPES = (torch.bfloat16, torch.float16)
_MOST_FOLDED = 2048  #: rows of a layer with the norm's weight in its own


class Norm(NamedTuple):
    """A norm over the last dimension whose only use is the layer."""

    node: fx.Node
    x: fx.Node
    weight: Optional[fx.Node]
    bias: Optional[fx.Node]
    eps: float
    rms: bool


class End(NamedTuple):
    """What follows a layer, up to one node."""

    steps: tuple[fx.Node, ...]  # from the layer on, in the order of the graph; the last one is replaced
    activation: Optional[str] = None
    scale: Optional[fx.Node] = None
    residual: Optional[fx.Node] = None

    @property
    def last(self) -> fx.Node:
        return self.steps[-1]


def same(tensor: Any) -> Any:
    return tensor


class Fusion(NamedTuple):
    """One call of the operator: end of norm(x) W^T + bias, in the type `dtype`, which is autocast's where that is on."""

    x: fx.Node
    weight: fx.Node  # [out_features, in_features], or what `matrix` makes that of
    bias: Optional[fx.Node]
    end: End
    dtype: torch.dtype
    norm: Optional[Norm] = None
    name: str = "linear"
    rows: Callable[[Any], Any] = same  # of x
    matrix: Callable[[Any], Any] = same  # of the weight
    back: Callable[[Any], Any] = same  # of the result

    @property
    def call(self) -> str:
        words = [self.end.activation or "", "LayerScale" if self.end.scale is not None else "",
                 "residual" if self.end.residual is not None else ""]
        parts = [*(["rms_norm" if self.norm.rms else "layer_norm"] if self.norm is not None else []), self.name,
                 *(word for word in words if word)]
        text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        return f"{text} (autocast)" if self.autocast is not None else text

    @property
    def autocast(self) -> Optional[torch.dtype]:
        """The type that it casts to, where it is on."""
        return None if value_of(self.weight).dtype == self.dtype else self.dtype

    def may_fold(self, norm: Norm) -> bool:
        """Of more rows a norm costs less in front of the layer than its statistics do in what follows the product."""
        rows = as_compiled(self.x).numel() // value_of(self.weight).shape[-1]
        return value_of(norm.x).dtype == self.dtype and self.autocast is None and self.matrix is same and rows <= _MOST_FOLDED

    @property
    def nodes(self) -> list[fx.Node]:
        return [*([self.norm.node] if self.norm is not None else []), *self.end.steps]

    @property
    def operands(self) -> list[fx.Node]:
        """What the operator's arguments are made of, without what is prepared."""
        if self.norm is not None:
            nodes = [self.norm.x, self._loose_bias]
        else:
            nodes = [self.x, self.bias, *([] if self.recipes else [self.weight])]
        return list(dict.fromkeys(node for node in (*nodes, self.end.scale, self.end.residual) if node is not None))

    @property
    def _loose_bias(self) -> Optional[fx.Node]:
        """A bias that the model makes at every call (BEiT's, of two halves): added to what is folded."""
        return None if is_parameter(self.bias) else self.bias

    @property
    def recipes(self) -> tuple[ConstantFold, ...]:
        if self.norm is not None:
            bias = self.bias if is_parameter(self.bias) else None
            return (ConstantFold(Folded(self.dtype, self.norm.rms), (self.weight, bias, self.norm.weight, self.norm.bias)),)
        return ()

    def arguments(self, of: Callable[[fx.Node], Any], given: Sequence[Any]) -> tuple[Any, ...]:
        """Those of vitune::linear_or_torch. of: a tensor or proxy for each operand; given: for what is prepared."""
        *others, sums = self.without_statistics(of, given)
        statistics = (None, None) if self.norm is None else _statistics(others[0], self.norm.eps, self.norm.rms)
        return (*others, *statistics, sums)

    def without_statistics(self, of: Callable[[fx.Node], Any], given: Sequence[Any]) -> tuple[Any, ...]:
        """The same without the mean and 1 / standard deviation of x's rows."""
        maybe = lambda node: None if node is None else of(node)  # noqa: E731
        scale, residual = maybe(self.end.scale), maybe(self.end.residual)
        if scale is not None:
            scale = scale.reshape(-1)
        if residual is not None:
            for _ in range(_leading_ones(value_of(self.end.residual).shape, value_of(self.end.last).shape)):
                residual = residual.squeeze(0)
        out_dtype, sums = value_of(self.end.last).dtype, None
        if self.norm is not None:
            x = of(self.norm.x)
            weight, bias, sums = given if len(given) == 3 else (*given, None)
            if self._loose_bias is not None:
                bias = bias + of(self._loose_bias)
        else:
            x, bias = of(self.x), maybe(self.bias)
            weight = self.matrix(self._cast(self.weight, of(self.weight)))
            x = self._cast(self.x, self.rows(x))
        if bias is not None and scale is not None:  # they must have one type
            types = {torch.float32 if self.norm is not None else value_of(self.bias).dtype, value_of(self.end.scale).dtype}
            bias, scale = (bias, scale) if len(types) == 1 else (bias.float(), scale.float())
        return (x, weight, bias, scale, residual, self.end.activation, None if out_dtype == self.dtype else out_dtype, sums)

    def _cast(self, node: fx.Node, tensor: Any) -> Any:
        return tensor if value_of(node).dtype == self.dtype else tensor.to(self.dtype)

    def build(self, graph: fx.Graph, of: Callable[[fx.Node], fx.Node], given: Sequence[fx.Node]) -> fx.Node:
        tracer = fx.proxy.GraphAppendingTracer(graph)
        proxies = self.arguments(lambda node: fx.Proxy(of(node), tracer), [fx.Proxy(node, tracer) for node in given])
        nodes = tuple(part.node if isinstance(part, fx.Proxy) else part for part in proxies)
        made = graph.call_function(torch.ops.vitune.linear_or_torch.default, nodes)
        return self.back(fx.Proxy(made, tracer)).node

    def problem(self) -> str:
        given = [as_compiled(fake) for recipe in self.recipes for fake in recipe.fakes()]
        x, weight, bias, scale, residual, activation, out_dtype, mean, rstd, _ = self.arguments(as_compiled, given)
        kind = None if rstd is None else "rms" if mean is None else "layer"
        return linear_ops.text_of(x, weight, bias, scale, residual, activation, False, out_dtype, kind)

    @once_of_kind
    def ask(self) -> Selection:
        return selected(self.problem(), value_of(self.x).device.index)

    def region(self) -> subgraph.Subgraph:
        # Inductor adds and normalises in one kernel. Of a sum before the norm ours makes one with the statistics, and its own sums
        # stand before the next norm: neither is forgotten.
        sums = [self.norm.x] if self.norm is not None and is_op(self.norm.x, "add") else []
        return subgraph.Subgraph(self.nodes, [self.end.last], sums, norms_after(self.end.last), self.autocast)

    def place(self) -> Match:
        region = self.region()

        def build(graph: fx.Graph, of: Callable[[fx.Node], fx.Node], given: Sequence[fx.Node]) -> Sequence[fx.Node]:
            return [self.build(graph, of, given)]

        def race() -> Optional[Times]:
            fakes = [fake for recipe in self.recipes for fake in recipe.fakes()]
            return subgraph.raced(region, self.operands, fakes, build)
        return Match(self.call, [self.end.last], self.end.last,
                     lambda graph, *given: build(graph, lambda node: node, given), self.ask, self.nodes[:-1], race,
                     self.recipes, region.surroundings())


def _statistics(x: Any, eps: float, rms: bool) -> tuple[Any, Any]:
    """Mean and 1 / standard deviation of rows, fp32: of tensors or proxies."""
    wide = x.float()
    if rms:
        return None, torch.rsqrt((wide * wide).mean(-1) + eps)
    variance_and_mean = torch.var_mean(wide, -1, correction=0)
    return variance_and_mean[1], torch.rsqrt(variance_and_mean[0] + eps)


def _alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(statically_known_true(x == y) for x, y in zip(a, b))


def _leading_ones(given: Sequence[Any], shape: Sequence[Any]) -> Optional[int]:
    """Extents that go from a residual's shape, so that it is the result's or the end of that; None: it cannot be."""
    for ones in range(len(given) - 1):
        rest = given[ones:]
        if len(rest) <= len(shape) and _alike(rest, shape[len(shape) - len(rest):]):
            return ones
        if not statically_known_true(given[ones] == 1):
            return None
    return None


# --- what follows a layer

_SUM_OR_PRODUCT = Tree("add mul", input="a", other="b")
_ACTIVATION = Tree("gelu relu silu")
_QUICK_GELU = Tree("mul", input="x", other=Tree("sigmoid", input=Tree("mul", input="x", other=1.702)))


def ends(steps: tuple[fx.Node, ...]) -> list[End]:
    """Those that `steps`, whose last node the layer's result is, may have; the longest last."""
    found = [End(steps)]
    while found[-1].residual is None:
        following = _next(found[-1])
        if following is None:
            break
        found.append(following)
    return found


def _next(end: End) -> Optional[End]:
    """One step further, if nothing else uses what is there."""
    at, quiet = after_quiet(end.last)
    steps = (*end.steps, *quiet)
    if end.activation is None and end.scale is None:
        found = _quick_gelu(at) or _activation(at)
        if found is not None:
            return End((*steps, *found[1]), found[0])
    user = only_user(at)
    other = _other(user, at)
    if other is None or not _alike(value_of(user).shape, value_of(at).shape):
        return None
    kind, columns = value_of(user).dtype, value_of(at).shape[-1]
    if kind not in (value_of(end.steps[0]).dtype, torch.float32):
        return None
    value = value_of(other)
    if end.scale is None and is_op(user, "mul") and _alike(value.shape[-1:], (columns,)) and all(
            statically_known_true(extent == 1) for extent in value.shape[:-1]):
        return end._replace(steps=(*steps, user), scale=other)
    if is_op(user, "add") and value.dtype == kind and _leading_ones(value.shape, value_of(user).shape) is not None:
        return end._replace(steps=(*steps, user), residual=other)
    return None


def _other(user: Optional[fx.Node], at: fx.Node) -> Optional[fx.Node]:
    """The other tensor of a sum or product."""
    found = _SUM_OR_PRODUCT.find(user)
    if found is None or found.get("alpha") not in (None, 1):
        return None
    other = found["b"] if found["a"] is at else found["a"]
    return other if other is not at and isinstance(other, fx.Node) and isinstance(value_of(other), Tensor) else None


def _activation(at: fx.Node) -> Optional[tuple[str, list[fx.Node]]]:
    found = _ACTIVATION.find(only_user(at))
    if found is None:
        return None
    name = operation_of(found.root)
    name = {"none": "gelu", "tanh": "gelu_tanh"}.get(found["approximate"]) if name == "gelu" else name
    return (name, [found.root]) if name else None


def _quick_gelu(at: fx.Node) -> Optional[tuple[str, list[fx.Node]]]:
    """x * sigmoid(1.702 * x), written out."""
    every = [_QUICK_GELU.find(user) for user in at.users] if len(at.users) == 2 else []
    found = next((found for found in every if found is not None and found["x"] is at and found.is_whole), None)
    return None if found is None else ("quick_gelu", found.nodes)


# --- what stands before it


def norm_before(x: Any) -> Optional[Norm]:
    """The norm that x is the result of, if it is of no other use."""
    found = NORM.find(x)
    if found is None or len(x.users) != 1:
        return None
    try:
        eps = epsilon(found)
    except Unsupported:
        return None
    shape, source = found["normalized_shape"], found["x"]
    # Cast to another type before it is normalised, or after, a row is not what the kernel reads.
    if not isinstance(shape, (tuple, list)) or len(shape) != 1 or value_of(source).dtype != value_of(x).dtype:
        return None
    return Norm(x, source, found["weight"], found.get("bias"), eps, operation_of(x) == "rms_norm")


def norms_after(result: fx.Node) -> list[fx.Node]:
    return [user for user in result.users if is_op(user, *NORMS)]


# --- the operator


class Linear(FusionPattern):
    name = "linear"
    wins = True
    only_if_timed = True
    operations = ("linear", "addmm")

    def places(self, node: fx.Node) -> Iterator[Match | NoMatch]:
        if is_op(node, "linear") and wants_gradient(value_of(node)):  # see linear_train.py
            return
        try:
            fusion = fusion_of(node)
            why_not = why_no_kernel(fusion)
        except Unsupported as reason:
            why_not = str(reason)
        if why_not:
            yield NoMatch("linear", why_not)
            return
        yield from largest_first(fusion, ends((node,)), norm_before(fusion.x))


def largest_first(fusion: Fusion, every: Sequence[End], norm: Optional[Norm] = None) -> Iterator[Match]:
    """Places of a layer with its ends, each with the norm before it where that can be folded, then without."""
    foldable = norm is not None and fusion.may_fold(norm)
    for end in reversed(every):
        for before in (norm, None) if foldable else (None,):
            found = fusion._replace(end=end, norm=before)
            if not is_changed_between(found.nodes[0], end.last, found.nodes):
                yield found.place()


def fusion_of(node: fx.Node) -> Fusion:
    if is_op(node, "linear"):
        return Fusion(*arguments_of(node).values(), End((node,)), value_of(node).dtype)
    bias, x, across, beta, alpha = arguments_of(node).values()
    if beta != 1 or alpha != 1 or value_of(bias).dim() != 1:
        raise Unsupported("a sum of matrices with factors, or of no bias for each column")
    return Fusion(x, across, bias, End((node,)), value_of(node).dtype, matrix=_transposed)


def _transposed(across: Any) -> Any:
    return across.transpose(0, 1)


def why_not_type(dtype: torch.dtype) -> str:
    return "" if dtype in _TYPES else f"type {str(dtype).removeprefix('torch.')}: the kernels take bfloat16 and float16"


def why_no_kernel(fusion: Fusion) -> str:
    weight = value_of(fusion.weight)
    if weight.dim() != 2:
        return "its weight is no matrix"
    return why_not_type(fusion.dtype) or outside(value_of(fusion.x)) or outside(weight)


linear = Linear()
