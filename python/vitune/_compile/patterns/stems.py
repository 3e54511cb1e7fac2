# python/vitune/_compile/patterns/stems.py -- Convolutions that make tokens lie with channels last, the first of them by space to depth.
# SPDX-License-Identifier: Apache-2.0
"""Inductor leaves convolutions with channels first where a graph has few of them, as a vision transformer has. With channels last cuDNN's
kernels need no copies of their own, what follows a convolution lies so by itself, and tokens are rows without a copy. Image and weight are
copied for it, which counts in the race that decides. What leaves the graph lies as before. Where a chain of convolutions is taken,
max_pool2d(relu(x)) becomes relu(max_pool2d(x)), which has the same values and gradients: both passes of relu are then of the smaller image.
In training the pool keeps a byte of each window, and not the image (vitune/_ops/max_pool.py)."""
from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ..._ops import max_pool
from . import benchmark
from .benchmark import Times
from .layouts import Layouts
from .match import Match, Rewrite, foreign, gradients_at, is_transformed, value_of, wants_gradient
from .mutations import is_written_after, storages_of
from .patches import pair, patches_of
from .space_to_depth import SpaceToDepth
from .stems_race import Convolution, raced
from .tree import arguments_of, is_op, only_user


class Taken(NamedTuple):
    """A chain of convolutions that lie with channels last."""

    count: int
    by_depth: int  #: how many by space to depth
    times: Times

    def __str__(self) -> str:
        """For people."""
        lie = f"{self.count} convolutions lie" if self.count > 1 else "1 convolution lies"
        first = f", {'the first ' if self.count > 1 else ''}by space to depth" if self.by_depth else ""
        return f"{lie} with channels last{first}: {self.times.ours_us / 1e3:.3g} ms, as they were {self.times.theirs_us / 1e3:.3g}"


def lay_out(module: fx.GraphModule) -> list[Taken]:
    """Changes the graph, after which all values are those of the new strides; the chains that it took."""
    try:
        found = _chains(module.graph)
    except Exception:  # whatever a program calls a convolution with
        return []
    return [taken for chain in found if (taken := _taken(module, chain)) is not None]


# --- the chains


class _Chain(NamedTuple):
    nodes: Sequence[fx.Node]  #: convolutions, and what is made of their results up to the tokens, in the order of the graph
    convolutions: Sequence[Convolution]


#: Operations and functions whose result lies as their first operand does.
_KEEP_LAYOUT = frozenset(("relu", "relu_", "relu6", "leaky_relu", "gelu", "silu", "mish", "hardswish", "add", "iadd", "sub", "mul", "imul",
                          "truediv", "div", "dropout", "batch_norm", "max_pool2d", "avg_pool2d"))


def _chains(graph: fx.Graph) -> list[_Chain]:
    calls = [node for node in graph.nodes if is_op(node, "conv2d")]
    if any(arguments_of(node)["groups"] != 1 for node in calls):
        return []  # of these kernels with channels last may be far slower
    served = {node: found for node in calls if (found := _convolution(node)) is not None}
    joined: list[set[fx.Node]] = []
    for node in served:
        nodes = None if any(node in chain for chain in joined) else _up_to_tokens(node, served)
        if nodes is not None:
            others = [chain for chain in joined if not chain.isdisjoint(nodes)]
            joined = [*(chain for chain in joined if chain not in others), nodes.union(*others)]
    return [_Chain([node for node in graph.nodes if node in nodes],
                   [found._replace(is_first=found.x not in nodes) for node, found in served.items() if node in nodes]) for nodes in joined]


def _convolution(node: fx.Node) -> Optional[Convolution]:
    """What it is of; None: it is left as it is."""
    x, weight, bias, stride, padding, dilation, groups = arguments_of(node).values()
    given, kernel, result = value_of(x), value_of(weight), value_of(node)
    if not all(isinstance(value, Tensor) and value.dim() == 4 and not foreign(value) and all(isinstance(size, int) for size in value.shape)
               for value in (given, kernel, result)):
        return None
    stride, padding, dilation = map(pair, (stride, padding, dilation))
    if stride is None or padding is None or dilation != (1, 1) or result.dtype not in (torch.bfloat16, torch.float16):
        return None
    if patches_of(given, kernel, stride, padding, dilation, groups) is not None or not benchmark.can_race(result.device) or benchmark.must_repeat():
        return None
    return Convolution(node, x, weight, bias, stride, padding)


def _up_to_tokens(first: fx.Node, served: Collection[fx.Node]) -> Optional[set[fx.Node]]:
    """What is made of a convolution's result; None: no tokens, or something else that depends on how it lies."""
    seen, todo, ends = {first}, [first], False
    while todo:
        node = todo.pop()
        for user in node.users:
            if _makes_tokens(user, node):
                ends = True
            elif user in served or getattr(user.target, "__name__", user.target) in _KEEP_LAYOUT:
                todo += [user] if user not in seen else []
                seen.add(user)
            elif user.op != "output":
                return None
    return seen if ends else None


def _makes_tokens(node: fx.Node, image: fx.Node) -> bool:
    """Whether it gives an image's positions as rows of channels, itself or all that is made of it."""
    value, before = value_of(node), value_of(image)
    if not isinstance(value, Tensor) or not isinstance(before, Tensor):
        return False
    if is_op(node, "flatten", "reshape", "view") and before.dim() == 4:
        is_flat = tuple(value.shape) == (*before.shape[:2], before.shape[2:].numel())
        return is_flat and bool(node.users) and all(_makes_tokens(user, node) for user in node.users)
    order = (0, *range(2, before.dim()), 1)
    return is_op(node, "transpose", "permute") and all(tuple(given(value)) == tuple(given(before)[dim] for dim in order)
                                                       for given in (lambda tensor: tensor.shape, Tensor.stride))


# --- the graph with channels last


def _taken(module: fx.GraphModule, chain: _Chain) -> Optional[Taken]:
    """Puts a chain in with channels last, if it is faster. None: the graph is as it was."""
    rewrite = Rewrite(module.graph, lambda recipe: ())
    try:
        if any(is_transformed(found.node) for found in chain.convolutions if found.is_first):
            return None
        races = raced(chain.convolutions)
        if races is None:
            return None
        forms, times = races
        for place in (*map(_with_channels_last, chain.convolutions, forms), *_pools(chain.nodes)):
            rewrite.put(place)
        Layouts(module).check(rewrite.ours)
    except Exception:  # whatever PyTorch raises: a view that needs the strides as they were
        benchmark.expect_devices_alive()
        rewrite.undo()
        return None
    rewrite.finish()
    module.recompile()
    return Taken(len(forms), sum(form is not None for form in forms), times)


def _with_channels_last(found: Convolution, form: Optional[SpaceToDepth]) -> Match:
    """A convolution whose weight lies so, and its image if nothing lays that out; form: by space to depth."""
    def build(graph: fx.Graph) -> list[fx.Node]:
        tracer = fx.proxy.GraphAppendingTracer(graph)
        x = arguments_of(found.node)["input"]  # of a convolution before it that was replaced already
        if form is not None:
            image, weight = (_cast(fx.Proxy(node, tracer), value_of(node), found.dtype) for node in (x, found.weight))
            return [graph.call_function(torch.conv2d, (form.image(image).node, form.weight(weight).node, found.bias))]
        given = {node: _copied(fx.Proxy(node, tracer), value_of(node), found.dtype).node
                 for node in ((x, found.weight) if found.is_first else (found.weight,))}
        return [graph.node_copy(found.node, lambda node: given.get(node, node))]
    return Match("", [found.node], found.node, build, None)


def _cast(proxy: fx.Proxy, value: Tensor, dtype: torch.dtype) -> Any:
    """As autocast does, before it is copied, so that the copy has 16 bits."""
    return proxy if value.dtype == dtype else proxy.to(dtype)


def _copied(proxy: fx.Proxy, value: Tensor, dtype: torch.dtype) -> Any:
    lies_so = value.is_contiguous(memory_format=torch.channels_last)
    found = _cast(proxy, value, dtype)
    return found if lies_so else found.contiguous(memory_format=torch.channels_last)


def _pools(nodes: Sequence[fx.Node]) -> Iterator[Match]:
    """relu(max_pool2d(x)) in the place of each max_pool2d(relu(x)), if nothing else sees what relu gives or writes; and in training
    vitune's max pool, where it is of the windows that that has."""
    for pool in nodes:
        if not is_op(pool, "max_pool2d") or arguments_of(pool)["return_indices"] is not False or is_transformed(pool):
            continue
        relu, trains = arguments_of(pool)["input"], _is_trained_by_us(pool)
        is_behind = is_op(relu, "relu") and only_user(relu) is pool and _sees_a_pixel_in_each_window(pool) and _has_one_reader(relu)
        is_behind = is_behind and not (wants_gradient(value_of(pool)) and _may_be_written(pool))
        if is_behind or trains:
            def build(graph: fx.Graph, pool: fx.Node = pool, relu: Optional[fx.Node] = relu if is_behind else None,
                      trains: bool = trains) -> list[fx.Node]:
                x = arguments_of(relu or pool)["input"]
                if trains:
                    made = graph.call_function(operator.getitem, (graph.call_function(torch.ops.vitune.max_pool_train.default, (x,)), 0))
                else:
                    made = graph.node_copy(pool, lambda node: x if node is relu else node)
                    made.meta.pop("example_value", None)
                return [made if relu is None else graph.call_function(F.relu, (made,))]
            yield Match("", [pool], pool, build, None, [relu] if is_behind else [])


def _is_trained_by_us(pool: fx.Node) -> bool:
    words = arguments_of(pool)
    windows = tuple(pair(words[name]) for name in ("kernel_size", "stride", "padding", "dilation"))
    ours = tuple((size, size) for size in (*max_pool.WINDOWS, 1))
    return max_pool.CAN_TRAIN and wants_gradient(value_of(pool)) and windows == ours and not words["ceil_mode"]


def _sees_a_pixel_in_each_window(pool: fx.Node) -> bool:
    """The greatest of no pixel is -inf, of which relu makes 0."""
    found = arguments_of(pool)
    return pair(found["dilation"]) == (1, 1) or pair(found["padding"]) == (0, 0) and found["ceil_mode"] is False


def _has_one_reader(relu: fx.Node) -> bool:
    """Whether relu alone reads what it is given, which nobody has another view of, and gradients are on or off for it and its reader."""
    x, readers = arguments_of(relu)["input"], {relu, *relu.users}
    views = {node for node in relu.graph.nodes if not storages_of(node).isdisjoint(storages_of(x))}
    return only_user(x) is relu and views <= {x, relu} and len(gradients_at(relu.graph, frozenset(readers))) == 1


def _may_be_written(pool: fx.Node) -> bool:
    """Its result, in the graph or behind it: for its gradient relu keeps its result, and a pool does not."""
    storages, output = storages_of(pool), pool.graph.find_nodes(op="output")[0]
    return is_written_after(pool, storages) or any(not storages.isdisjoint(storages_of(node)) for node in output.all_input_nodes)
