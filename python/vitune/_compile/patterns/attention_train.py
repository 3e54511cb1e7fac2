# python/vitune/_compile/patterns/attention_train.py -- The pattern of attention that trains: a call or what stands for one, its projection, its bias.
# SPDX-License-Identifier: Apache-2.0
"""Where q, k and v are views of one projection a place begins at the projection: its gradient is written as it lies, and the copies that
PyTorch's backward pass makes of three gradients are in the race, on PyTorch's side. So are the sums of a bias's gradient over windows whose
masks were added to it.

With dropout both sides draw what they drop: answers are judged by the formulas instead, of the first and the last head.
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from ..._ops import attention as attention_ops, attention_dropout as dropout_ops, attention_training as training_ops
from ..._ops.dropout_mask import dropped_of
from ..._ops.order import ROWS  # what mostly follows joins the heads
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported, VituneError
from . import benchmark, subgraph
from .benchmark import Times
from .distinct import once
from .match import FusionPattern, Match, NoMatch, as_compiled, constant, foreign, is_autocast, outside, selected, value_of, wants_gradient
from .mutations import is_written_after, storages_of
from .tree import Steps, Tree, arguments_of, is_op, only_user
from .attention import VIEWS, Written, bias_of_windows, transposed

_OPS = torch.ops.vitune
_CALL = "scaled_dot_product_attention in training"
_WRITTEN_OUT, _WITH_DROPOUT = "softmax between two products in training", "softmax and dropout between two products in training"
_SIXTEEN_BITS = (torch.bfloat16, torch.float16)
#: Views of a tensor, one of the other.
_OF_ONE = Steps(Tree(" ".join((*VIEWS, "getitem", "unbind", "select", "narrow", "chunk", "permute", "transpose", "squeeze", "unsqueeze"))), "whole")
Of = Callable[[fx.Node], Any]


class Bias(NamedTuple):
    """What attn_mask is given, or what it was made of for each image: a bias and the masks of windows."""

    node: fx.Node
    windows: Optional[fx.Node]  # [1, w, 1, N, N]
    steps: tuple[fx.Node, ...]  # from both up to the mask

    @staticmethod
    def of(mask: Any, last: fx.Node) -> "Optional[Bias]":
        """What a call is given. Raises Unsupported: see _hides()."""
        if mask is None:
            return None
        if wants_gradient(value_of(mask)) and _hides(mask):
            raise Unsupported(_HIDES)
        found = bias_of_windows(mask, last)
        return Bias(mask, None, ()) if found is None else Bias(*found)

    @staticmethod
    def added(masks: Sequence[tuple[fx.Node, bool]]) -> "Optional[Bias]":
        """Of what a model adds to the scores itself, see Written.masks. Raises Unsupported.

        A bias is one that is learned. Other things that are added may be as good as infinite for all keys of a row; the weights of such a
        row, which a softmax makes equal, are not what the log-sum-exp that the backward pass is given makes of them."""
        if not masks:
            return None
        (bias, of_windows), *further = masks
        if of_windows or [windows for _, windows in further] not in ([], [True]) or not wants_gradient(value_of(bias)):
            raise Unsupported("what is added to its scores is not a bias that is learned and, at most, masks of windows")
        if any(_hides(mask) for mask, _ in masks):
            raise Unsupported(_HIDES)
        return Bias(bias, further[0][0] if further else None, ())

    @property
    def operands(self) -> list[fx.Node]:
        return [self.node] if self.windows is None else [self.node, self.windows]

    def made(self, of: Of, dtype: torch.dtype) -> Any:
        """With one entry for each window, of a type that the kernels read beside `dtype`."""
        mask = of(self.node) if self.windows is None else of(self.node) + of(self.windows).squeeze(0)
        kind = value_of(self.node).dtype
        return mask.to(torch.float32) if kind in _SIXTEEN_BITS and kind != dtype else mask


#: A number that is as good as infinite beside scores.
_LARGE = 1e5
_HIDES = "scores are masked by a number beyond 100,000: the gradients of a row that is masked as a whole would be others"


def _hides(mask: fx.Node) -> bool:
    """Whether such a number is among what a mask is made of. A row that has it at all keys has a log-sum-exp which rounds to it, and
    exp(score - log-sum-exp) is 1 there for each of the n keys, in the place of 1/n."""
    seen, todo = {mask}, [mask]
    while todo:
        node = todo.pop()
        if any(_is_large(leaf) for leaf in tree_leaves((node.args, node.kwargs))):
            return True
        todo += [taken for taken in node.all_input_nodes if taken not in seen]
        seen.update(node.all_input_nodes)
    return False


def _is_large(word: Any) -> bool:
    """Sizes are positive whole numbers. An infinite number hides a row from PyTorch too."""
    return type(word) is float and _LARGE < abs(word) < math.inf or type(word) is int and word < -_LARGE


class Place(NamedTuple):
    node: fx.Node
    q: fx.Node
    k: fx.Node
    v: fx.Node
    bias: Optional[Bias]
    is_causal: bool
    scale: Optional[float]
    dropout_p: float = 0.0
    factors: tuple[fx.Node, ...] = ()  # of q, a number for each head
    steps: tuple[fx.Node, ...] = ()  # where it is written out, those before `node`
    call: str = _CALL
    projection: Optional[fx.Node] = None  # what q, k and v are views of
    views: tuple[fx.Node, ...] = ()  # from it up to them

    @property
    def dtype(self) -> torch.dtype:
        return value_of(self.node).dtype

    @property
    def qkv(self) -> tuple[fx.Node, fx.Node, fx.Node]:
        return self.q, self.k, self.v

    @property
    def operands(self) -> list[fx.Node]:
        """What the operator takes."""
        first = self.qkv if self.projection is None else (self.projection,)
        return list(dict.fromkeys([*first, *self.factors, *(self.bias.operands if self.bias is not None else [])]))

    @property
    def nodes(self) -> list[fx.Node]:
        """What it stands for, in the order of the graph."""
        return [*sorted({*self.views, *self.steps, *(self.bias.steps if self.bias is not None else ())}), self.node]

    def of_projection(self) -> "Place":
        """The same, from the projection on, if there is one."""
        values = [*map(value_of, self.qkv)]
        if self.factors or not all(map(wants_gradient, values)):
            return self
        ways = [*map(_origins, self.qkv)]
        for projection in ways[0]:
            value = value_of(projection)
            if all(projection in way for way in ways) and _has_heads(value, values[0]) and wants_gradient(value) and training_ops.holds(
                    value, *values):
                return self._replace(projection=projection, views=tuple({node for way in ways for node in way[:way.index(projection)]}))
        return self

    def why_not(self, enable_gqa: bool) -> str:
        tensors = [*self.qkv, *(self.bias.operands if self.bias is not None else []), *self.factors]
        values = [value_of(node) for node in tensors]
        if any(not isinstance(value, Tensor) for value in values):
            return "its operands are no tensors that are known"
        kind = next(filter(None, map(foreign, values)), "")
        if kind:
            return kind
        if self.dropout_p and self.bias is not None:
            return "dropout beside a mask: the kernels have one or the other"
        if self.factors and self.dtype == torch.float16:
            return "its scores have factors of heads, by which fp16 queries could overflow"
        if attention_ops.math_alone():
            return attention_ops.MATH_ALONE
        if values[1].dim() == 4 and values[0].dim() == 4 and values[0].shape[1] != values[1].shape[1] and not enable_gqa:
            return "its heads are broadcast"
        try:
            if self.dropout_p:
                dropped_of(self.dropout_p)
            training_ops.check(*values[:3], None if self.bias is None else values[3], self.is_causal)
        except VituneError as reason:
            return str(reason)
        if is_written_after(self.node, set().union(*map(storages_of, (*tensors, self.node)))):
            return "what its backward pass keeps is written to later"
        return outside(values[0]) if values[0].device.type != "cpu" else ""

    def build(self, graph: fx.Graph, of: Callable[[fx.Node], fx.Node], given: Sequence[fx.Node] = ()) -> list[fx.Node]:
        tracer = fx.proxy.GraphAppendingTracer(graph)
        tensors = self.tensors(lambda node: fx.Proxy(of(node), tracer))
        all_of_it = graph.call_function(self._operator, (*self._words(*(each if each is None else each.node for each in tensors)), ROWS))
        return [graph.call_function(operator.getitem, (all_of_it, 0))]

    @property
    def _operator(self) -> Any:
        if self.dropout_p:
            return (_OPS.attention_dropout_train if self.projection is None else _OPS.attention_qkv_dropout_train).default
        return (_OPS.attention_train if self.projection is None else _OPS.attention_qkv_train).default

    def _words(self, *tensors: Any) -> tuple[Any, ...]:
        """The operator's arguments, without the last: with dropout there is no mask."""
        return *(tensors[:-1] + (self.dropout_p,) if self.dropout_p else tensors), self.is_causal, self.scale

    def tensors(self, of: Of) -> list[Any]:
        """The operator's: q, k and v, or [B, N, 3, H, D], and the mask."""
        def cast(node: fx.Node) -> Any:
            return of(node) if value_of(node).dtype == self.dtype else of(node).to(self.dtype)
        mask = None if self.bias is None else self.bias.made(of, self.dtype)
        if self.factors:  # in the type of both, as scores are multiplied, and rounded once
            return [math.prod(map(of, self.factors), start=of(self.q)).to(self.dtype), *map(cast, self.qkv[1:]), mask]
        if self.projection is None:
            return [*map(cast, self.qkv), mask]
        _, heads, _, d = value_of(self.q).shape
        whole = cast(self.projection)
        return [whole if value_of(self.projection).dim() == 5 else whole.unflatten(-1, (3, heads, d)), mask]

    def texts(self) -> list[str]:
        """The problems of both passes."""
        *tensors, mask = self.tensors(as_compiled)
        q, k, v = tensors if self.projection is None else training_ops.unpacked(*tensors)
        if self.dropout_p:
            given = training_ops.gradients_of(q, k, v, None, False) if self.projection is None else training_ops.packed_gradients_of(
                *tensors, None, False)[1]
            return dropout_ops.texts(q, k, v, given, self.dropout_p, self.is_causal, self.scale, ROWS)
        dbias = self.bias is not None and wants_gradient(value_of(self.bias.node))
        gradients = training_ops.gradients_of(q, k, v, mask, dbias) if self.projection is None else training_ops.packed_gradients_of(
            *tensors, mask, dbias)[1]
        return training_ops.texts(q, k, v, mask, gradients, self.is_causal, self.scale, ROWS)

    def match(self) -> Match:
        device, is_on_gpu = value_of(self.q).device, attention_ops.is_on_gpu(value_of(self.q))

        def ask(which: int) -> Selection:
            text = once(self.texts, Place, self)[which]
            return once(lambda: selected(text, device.index), Place, text, device)
        asked = [functools.partial(ask, which) for which in range(2)] if is_on_gpu else []
        return Match(self.call, [self.node], self.node, lambda graph: self.build(graph, lambda node: node), asked[0] if asked else None,
                     self.nodes[:-1], self.race, surroundings=self._surroundings(), ask_further=asked[1:],
                     unserved="" if is_on_gpu else f"device {device.type}")

    @property
    def region(self) -> subgraph.Subgraph:
        is_cast = is_autocast(self.node, value_of(self.q).device.type)
        return subgraph.Subgraph(self.nodes, [self.node], [], [], self.dtype if is_cast else None)

    def _inputs(self) -> list[fx.Node]:
        """What the region takes: sizes that are only known when the model runs too."""
        return list(dict.fromkeys([*self.operands, *self.region.outside()]))

    def race(self) -> Optional[Times]:
        return subgraph.raced_in_training(self.region, self._inputs(), self.build, keeps_plans=True,
                                          judged=self.difference if self.dropout_p else None)

    def difference(self) -> str:
        """With dropout: how far the operators' answers are from the formulas' of the same choice, of random numbers; "": no further than
        rounding."""
        device = value_of(self.q).device
        made = {node: subgraph.made_up(node, device) for node in self.operands}
        *tensors, _ = self.tensors(made.__getitem__)
        words = self.dropout_p, self.is_causal, self.scale
        out, lse, random = self._operator(*tensors, *words, ROWS)
        dout = torch.empty_like(out).copy_(benchmark.sample(torch.empty(out.shape, dtype=out.dtype, device="meta"), device))
        if self.projection is None:
            qkv, grads = tensors, _OPS.attention_dropout_backward(dout, *tensors, out, lse, random, *words)
        else:
            qkv, grads = map(training_ops.unpacked, (*tensors, _OPS.attention_qkv_dropout_backward(dout, *tensors, out, lse, random, *words)))
        return benchmark.difference(*dropout_ops.on_some_heads(*qkv, dout, (out, lse, *grads), random, *words))

    def _surroundings(self) -> str:
        kinds = [(value.dtype, tuple(value.shape), value.stride(), wants_gradient(value)) for value in map(value_of, self.operands)]
        return f"gradients of {kinds}, {len(self.nodes)}" + (f", dropout of {self.dropout_p:g}" if self.dropout_p else "")


def _origins(node: fx.Node) -> list[fx.Node]:
    """A tensor, what it is a view of, and so on."""
    found = _OF_ONE.find(node)
    return [*reversed(found.nodes), found["whole"]]


def _has_heads(whole: Any, q: Tensor) -> bool:
    """Whether a tensor is [B, N, 3, H, D] or [B, N, 3 H D] for a query [B, H, N, D] of known numbers of heads."""
    if not (isinstance(whole, Tensor) and whole.dim() in (3, 5) and all(isinstance(q.shape[i], int) for i in (1, 3))):
        return False
    b, h, n, d = q.shape
    return all(map(training_ops.is_same, whole.shape, (b, n, 3, h, d) if whole.dim() == 5 else (b, n, 3 * h * d)))


_OF_K = transposed("k", -2, -1)


def _written_out(product: fx.Node) -> Iterator[Match | NoMatch]:
    """With one dropout between the products at most."""
    written = Written.of(product)
    if written is None or len(written.dropouts) > 1:
        return
    dropout = next(iter(written.dropouts), {"p": 0.0, "inplace": False})
    if dropout["inplace"] or not isinstance(dropout["p"], (int, float)):
        return
    call, keys = _WITH_DROPOUT if written.dropouts else _WRITTEN_OUT, _OF_K.find(written.found["keys"])
    try:
        if keys is None or only_user(keys.root) is None:
            raise Unsupported("its keys are not as the graph has them")
        place = Place(product, written.found["q"], keys["k"], written.found["v"], Bias.added(written.masks), False, written.scale,
                      float(dropout["p"]), written.head_factors, tuple(sorted((keys.root, *written.found.nodes[:-1]))), call)
        why_not = written.why_not() or written.why_not_masks() or place.why_not(False)
    except Unsupported as reason:
        why_not = str(reason)
    yield NoMatch(call, why_not) if why_not else place.of_projection().match()


class AttentionTrain(FusionPattern):
    name = "attention_train"
    wins = True
    only_if_timed = True
    races_defaults = True
    trains = True
    operations = ("attention", "matmul")

    def places(self, node: fx.Node) -> Iterator[Match | NoMatch]:
        if not wants_gradient(value_of(node)):
            return
        if is_op(node, "matmul"):
            yield from _written_out(node)
            return
        try:
            q, k, v, mask, dropout_p, is_causal, scale, enable_gqa = arguments_of(node).values()
            dropout_p, is_causal, scale, enable_gqa = map(constant, (dropout_p, is_causal, scale, enable_gqa))
            place = Place(node, q, k, v, Bias.of(mask, node), is_causal, scale, float(dropout_p))
            why_not = place.why_not(enable_gqa)
        except Unsupported as reason:
            why_not = str(reason)
        if why_not:
            yield NoMatch(_CALL, why_not)
            return
        yield place.of_projection().match()


attention_train = AttentionTrain()
