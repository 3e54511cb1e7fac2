# python/vitune/_compile/patterns/attention.py -- The patterns of attention in Dynamo's graph: a call, and a softmax between two products.
# SPDX-License-Identifier: Apache-2.0
"""q, k and v are taken as the views of the projections that they are; masks that were repeated for every image as they were."""
from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..._dropin import sdpa as sdpa_dropin
from ..._ops import attention as attention_ops, repeating_mask  # noqa: F401  (the operators)
from ..._ops.order import ROWS  # what mostly follows joins the heads
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from ..graph.benchmark import Run, Times, measured, sample
from ..graph.distinct import once
from ..graph.match import FusionPattern, Match, NoMatch, as_compiled, constant, selected, value_of, wants_gradient
from ..graph.mutations import is_changed_between
from ..graph.tree import Tree, arguments_of, is_cast, is_op, is_quiet


FACTORS = ("mul", "mul_")  #: operations


Of = Callable[[fx.Node], fx.Node]  #: what stands in a graph for a node of another one


def itself(node: fx.Node) -> fx.Node:
    return node


class Operand(NamedTuple):
    """A tensor that the graph has, or that can be made of what it has."""

    value: Tensor  # fake
    make: Callable[..., fx.Node]  # of a graph, and of an Of where that is not the one that the operand is of
    node: Optional[fx.Node] = None  # of the graph, that it is; None: it has to be made
    sources: tuple[fx.Node, ...] = ()  # what it is made of
    terms: "tuple[Operand, ...]" = ()  # what it is the sum of, where it is one

    @classmethod
    def of(cls, node: fx.Node) -> "Operand":
        return cls(value_of(node), lambda graph, of=itself: of(node), node, (node,))

    @classmethod
    def sum(cls, terms: "Sequence[Operand]") -> "Operand":
        total = functools.reduce(lambda total, term: total.called(torch.add, term), terms)
        return total._replace(terms=tuple(terms))

    def called(self, function: Any, *others: Any) -> "Operand":
        """The result of a function or method of it; among `others` operands are."""
        operands = [other for other in others if isinstance(other, Operand)]
        values = [other.value if isinstance(other, Operand) else other for other in others]
        call = getattr(Tensor, function) if isinstance(function, str) else function

        @functools.cache  # it may be an operand of several
        def make(graph: fx.Graph, of: Of = itself) -> fx.Node:
            made = (self.make(graph, of), *(other.make(graph, of) if isinstance(other, Operand) else other for other in others))
            return graph.call_method(function, made) if isinstance(function, str) else graph.call_function(function, made)
        sources = dict.fromkeys(source for operand in (self, *operands) for source in operand.sources)
        return Operand(call(self.value, *values), make, sources=tuple(sources))


class Attend(NamedTuple):
    """A call of the operator, whose result has the type of `node`, autocast's where it is on."""

    node: fx.Node
    q: Operand
    k: Operand
    v: Operand
    mask: Optional[Operand]
    is_causal: bool = False
    scale: Optional[float] = None
    enable_gqa: bool = False

    def of_type(self) -> "Attend":
        dtype = value_of(self.node).dtype
        q, k, v = (x if x.value.dtype == dtype else x.called("to", dtype) for x in self[1:4])
        mask = self.mask
        if mask is not None and mask.value.dtype in (torch.float16, torch.bfloat16) and mask.value.dtype != dtype:
            # The kernels read that beside any type, as PyTorch does.
            mask = mask.called("to", torch.float32)._replace(terms=mask.terms)
        return self._replace(q=q, k=k, v=v, mask=mask)

    def why_not(self, dropout_p: float) -> Optional[str]:
        return sdpa_dropin.reason(self.q.value, self.k.value, self.v.value, self.mask and self.mask.value, dropout_p)

    def ask(self) -> Selection:
        given, words = [x and x.value for x in self[1:5]], self[5:]

        def make() -> Selection:
            return selected(attention_ops.described(*map(as_compiled, given), *words, False, ROWS), self.q.value.device.index)
        return once(make, Attend, given, words)

    def race(self) -> Optional[Times]:
        device = self.q.value.device
        return measured(lambda: self.calls(device), device)

    def calls(self, device: torch.device) -> tuple[Run, Run]:
        """Ours and PyTorch's, of tensors made up. What is in q's place before the operator (a cast, a factor) is in neither."""
        q, k, v, mask = (None if x is None else sample(as_compiled(x.value), device) for x in self[1:5])
        if self._repeats_mask():
            every = mask.repeat(q.shape[0] // mask.shape[0], 1, 1, 1)
            return (functools.partial(torch.ops.vitune.attention_repeating_mask.default, q, k, v, mask, self.scale),
                    functools.partial(sdpa_dropin.original, q, k, v, every.to(q.dtype), scale=self.scale))
        theirs = functools.partial(sdpa_dropin.original, q, k, v, mask, 0.0, self.is_causal, scale=self.scale,
                                   enable_gqa=self.enable_gqa)
        return functools.partial(torch.ops.vitune.attention.default, q, k, v, mask, self.is_causal, self.scale,
                                 self.enable_gqa, True, ROWS), theirs

    def _repeats_mask(self) -> bool:
        """Whether the mask has fewer entries than images: one for each window, again and again."""
        if self.mask is None or self.mask.value.dim() != 4 or self.enable_gqa:
            return False
        entries, images = self.mask.value.shape[0], self.q.value.shape[0]
        return not statically_known_true(entries == 1) and statically_known_true(entries < images) and statically_known_true(
            images % entries == 0)

    def build(self, graph: fx.Graph) -> Sequence[fx.Node]:
        q, k, v, mask = (None if x is None else x.make(graph) for x in self[1:5])
        if self._repeats_mask():
            return [graph.call_function(torch.ops.vitune.attention_repeating_mask.default, (q, k, v, mask, self.scale))]
        return [graph.call_function(torch.ops.vitune.attention.default,
                                    (q, k, v, mask, self.is_causal, self.scale, self.enable_gqa, True, ROWS))]


class Found(NamedTuple):
    """Attention as a model makes it: what stands for it, and the nodes before its last one."""

    call: str
    attend: Attend
    covered: Sequence[fx.Node] = ()
    dropout_p: float = 0.0  # of the weights; in training alone there may be some

    def place(self) -> Match:
        attend = self.attend
        return Match(self.call, [attend.node], attend.node, attend.build, attend.ask, self.covered, attend.race)


class Finder(FusionPattern):
    """A pattern of attention."""

    name = "attention"
    wins = True  # docs/results.md

    @abc.abstractmethod
    def find(self, node: fx.Node, trains: bool = False) -> Found | NoMatch | None:
        """As place(). trains: of attention of which a gradient may be wanted, by whichever kernel."""

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        found = self.find(node)
        return found.place() if isinstance(found, Found) else found


# --- the call

class Attention(Finder):
    operations = ("attention", "vitune_attention")

    def find(self, node: fx.Node, trains: bool = False) -> Found | NoMatch | None:
        if is_op(node, "vitune_attention"):
            return NoMatch("vitune.attention", "it is vitune's already")
        if not is_op(node, "attention") or wants_gradient(value_of(node)) and not trains:  # attention_train.py's
            return None
        call = "scaled_dot_product_attention"
        try:
            *qkv, mask, dropout_p, is_causal, scale, enable_gqa = arguments_of(node).values()
            dropout_p, *words = map(constant, (dropout_p, is_causal, scale, enable_gqa))
        except Unsupported as reason:
            return NoMatch(call, str(reason))
        mask = None if mask is None else _without_copies(mask, node) or Operand.of(mask)
        attend = Attend(node, *map(Operand.of, qkv), mask, *words).of_type()
        why_not = None if trains else attend.why_not(dropout_p)
        if why_not is not None:
            return NoMatch(call, why_not)
        return Found(call, attend, dropout_p=dropout_p)


_WITH_COPIES = Tree("add", input="bias", other=Tree("reshape view", input=Tree("expand", input="windows"), shape="copies"), alpha=1)


def _without_copies(mask: fx.Node, last: fx.Node) -> Optional[Operand]:
    """bias + windows' masks, where these were repeated for every image before (Swin): with one entry per window, added before `last`."""
    found = bias_of_windows(mask, last)
    if found is None:
        return None
    bias, windows, _ = found
    return Operand.sum((Operand.of(bias), Operand.of(windows).called("squeeze", 0)))


def bias_of_windows(mask: fx.Node, last: fx.Node) -> Optional[tuple[fx.Node, fx.Node, tuple[fx.Node, ...]]]:
    """The bias and the masks [1, windows, 1, N, N] that a mask is the sum of, these repeated for every image; and the nodes from there on.
    None: it is no such sum, or something changes them before `last`."""
    found = _WITH_COPIES.find(mask)
    if found is None or not isinstance(found["bias"], fx.Node) or value_of(mask).dim() != 4:
        return None
    bias, windows, (repeated, copies, _) = found["bias"], found["windows"], found.nodes
    shape, bias_shape, whole = value_of(windows).shape, value_of(bias).shape, value_of(repeated).shape
    if (len(shape) == 5 and shape[0] == 1 and shape[1:2] == whole[1:2] and value_of(copies).shape[1:] == whole[2:]
            and len(bias_shape) == 4 and bias_shape[0] == 1 and not is_changed_between(repeated, last, found.nodes)):
        return bias, windows, tuple(found.nodes)
    return None


# --- a softmax between two products

#: Operations that give the same elements in another shape.
VIEWS = ("view", "reshape", "flatten", "unflatten", "contiguous")


class WrittenOut(Finder):
    operations = ("softmax",)

    def find(self, node: fx.Node, trains: bool = False) -> Found | NoMatch | None:
        if not is_op(node, "softmax"):
            return None
        last, after = _product_after(node, trains)
        scores = _scores_before(node) if last is not None else None
        if scores is None:
            return None
        call = "softmax between two products"
        if any(len(step.users) > 1 for step in (*scores.steps, node, *after)):
            return NoMatch(call, "its weights or scores are used elsewhere")
        attend = Attend(last, scores.q, scores.k, Operand.of(_factors(last)[1]), scores.mask, scale=scores.scale).of_type()
        if not scores.are_of_type(value_of(last).dtype):
            return NoMatch(call, "its scores are made of tensors of a wider type than its result's")
        if is_changed_between(scores.first, last, [*scores.steps, last]):
            return NoMatch(call, "something between the products changes a tensor that they take")
        why_not = None if trains else attend.why_not(0.0)
        if why_not is not None:
            return NoMatch(call, why_not)
        dropout_p = max((_dropout_of(step) for step in after), default=0.0)
        return Found(call, attend, [*reversed(scores.steps), node, *after], dropout_p)


def _factors(product: fx.Node) -> tuple[Any, Any]:
    """Of a product of matrices."""
    first, second = arguments_of(product).values()
    return first, second


def _dropout_of(node: fx.Node) -> float:
    """With which probability it drops an element."""
    if not is_op(node, "dropout") or is_quiet(node):
        return 0.0
    p = arguments_of(node)["p"]
    return p if isinstance(p, float) else 1.0


def _product_after(softmax: fx.Node, drops: bool = False) -> tuple[Optional[fx.Node], list[fx.Node]]:
    """The product of the weights with v, and the steps before it: none that changes them but for their type, or with `drops` a dropout."""
    axis = arguments_of(softmax)["dim"]
    at, steps = softmax, []
    while axis in (-1, value_of(softmax).dim() - 1):
        products = (user for user in at.users if is_op(user, "matmul"))
        product = next((user for user in products if _factors(user)[0] is at and _factors(user)[1] is not at), None)
        if product is not None:
            return product, steps
        at = next((user for user in at.users if is_cast(user) or is_quiet(user) or drops and is_op(user, "dropout")), None)
        if at is None:
            break
        steps.append(at)
    return None, steps


class _Scores(NamedTuple):
    """What the softmax is taken of: q k^T, scaled, with masks added."""

    first: fx.Node
    steps: Sequence[fx.Node]  # backwards, from the softmax's input to the first
    q: Operand
    k: Operand
    scale: float
    mask: Optional[Operand]
    product: fx.Node

    def are_of_type(self, dtype: torch.dtype) -> bool:
        """Whether q and k had the type, or were cast up from it, which loses nothing."""
        return value_of(self.product).dtype == dtype or all(
            node is not None and _type_cast_from(node) == dtype for node in (self.q.node, _factors(self.product)[1]))


def _type_cast_from(node: Any) -> Optional[torch.dtype]:
    """Of the tensor that it is a cast or a view of a cast of, or its own."""
    while is_op(node, *VIEWS, "transpose", "permute", "squeeze", "unsqueeze", "expand"):
        node = arguments_of(node)["input"]
    return value_of(node.args[0] if is_cast(node) else node).dtype


def _scores_before(softmax: fx.Node) -> Optional[_Scores]:
    at, steps, added = arguments_of(softmax)["input"], [], []
    while is_op(at, "add", "add_", "view", "reshape"):
        step = _mask_of_windows(at) or _mask_added(at)
        if step is None:
            return None
        mask, passed = step
        added.append(mask)
        steps += passed
        at = arguments_of(passed[-1])["input"]
    q_factor, scale = None, 1.0
    while is_op(at, *FACTORS):
        scores, factor = arguments_of(at).values()
        scores, factor = (scores, factor) if isinstance(scores, fx.Node) else (factor, scores)
        if isinstance(factor, fx.Node):
            if q_factor is not None or not _is_per_head(at):
                return None
            q_factor = Operand.of(factor)
        elif isinstance(factor, (int, float)):
            scale *= factor
        else:
            return None
        steps.append(at)
        at = scores
    if not is_op(at, "matmul") or value_of(at).shape != value_of(softmax).shape:
        return None
    steps.append(at)
    product, (queries, keys) = at, _factors(at)
    if is_op(keys, "contiguous"):  # a copy for the product's sake
        steps.append(keys)
        keys = arguments_of(keys)["input"]
    q, k = Operand.of(queries), Operand.of(keys).called("transpose", -2, -1)
    if q_factor is not None:
        q = q.called(torch.mul, q_factor)
    mask = Operand.sum(added[::-1]) if added else None
    return _Scores(steps[-1], steps, q, k, scale, mask, product)


_MASK_ADDED = Tree("add add_", input="scores", other="mask", alpha=1)
_MASK_OF_WINDOWS = Tree("view reshape", input=Tree("add add_", input=Tree("view reshape", input="scores", shape="five"), other="mask", alpha=1))


def _mask_added(total: fx.Node) -> Optional[tuple[Operand, list[fx.Node]]]:
    """scores + mask, the mask no larger than the scores."""
    found = _MASK_ADDED.find(total)
    if found is None or not isinstance(found["mask"], fx.Node):
        return None
    scores, mask = value_of(found["scores"]), value_of(found["mask"])
    if not isinstance(mask, Tensor) or not mask.is_floating_point() or scores.shape != value_of(total).shape:
        return None
    return Operand.of(found["mask"]), [total]


def _mask_of_windows(view: fx.Node) -> Optional[tuple[Operand, list[fx.Node]]]:
    """(scores as [images, windows, heads, nq, nk] + a mask for each window), back as they were."""
    found = _MASK_OF_WINDOWS.find(view)
    added = None if found is None else _mask_added(found.nodes[1])
    if added is None or arguments_of(found.nodes[1])["input"] is not found.nodes[0]:
        return None
    before, total, _ = found.nodes
    mask, whole, scores = added[0], value_of(total).shape, value_of(found["scores"]).shape
    shape = mask.value.shape
    if not (len(whole) == len(shape) == 5 and shape[0] == 1 and shape[1] == whole[1] and scores == value_of(view).shape
            and scores[1:] == whole[2:]):
        return None
    return mask.called("squeeze", 0), [view, total, before]


def _is_per_head(product: fx.Node) -> bool:
    """scores * a factor for each head: as well q's."""
    scores, factor = map(value_of, arguments_of(product).values())
    return isinstance(factor, Tensor) and scores.shape == value_of(product).shape and tuple(factor.shape[-2:]) == (1, 1)


attention = Attention()
unfused_attention = WrittenOut()
