# python/vitune/_compile/patterns/attention.py -- The patterns of attention in Dynamo's graph: a call, and a softmax between two products.
# SPDX-License-Identifier: Apache-2.0
"""q, k and v are taken as the views of the projections that they are; masks that were repeated for every image as they were."""
from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..._dropin import sdpa as sdpa_dropin
from ..._ops import attention as attention_ops, repeating_mask  # noqa: F401  (the operators)
from ..._ops.order import ROWS  # what mostly follows joins the heads
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from ..graph.benchmark import Run, Times, measured, sample
from ..graph.match import (FusionPattern, Match, NoMatch, arguments, as_compiled, constant, is_call, is_cast, is_idle_dropout,
                           is_method, value_of)
from ..graph.mutations import is_changed_between


class Operand(NamedTuple):
    """A tensor that the graph has, or that can be made of what it has."""

    value: Tensor  # fake
    make: Callable[[fx.Graph], fx.Node]
    node: Optional[fx.Node] = None  # of the graph, that it is; None: it has to be made

    @classmethod
    def of(cls, node: fx.Node) -> "Operand":
        return cls(value_of(node), lambda graph: node, node)

    def called(self, function: Any, *others: Any) -> "Operand":
        """The result of a function or method of it; among `others` operands are."""
        values = [other.value if isinstance(other, Operand) else other for other in others]
        call = getattr(Tensor, function) if isinstance(function, str) else function

        @functools.cache  # it may be an operand of several
        def make(graph: fx.Graph) -> fx.Node:
            made = (self.make(graph), *(other.make(graph) if isinstance(other, Operand) else other for other in others))
            return graph.call_method(function, made) if isinstance(function, str) else graph.call_function(function, made)
        return Operand(call(self.value, *values), make)


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
            mask = mask.called("to", torch.float32)  # the kernels read that beside any type, as PyTorch does
        return self._replace(q=q, k=k, v=v, mask=mask)

    def why_not(self, dropout_p: float) -> Optional[str]:
        return sdpa_dropin.reason(self.q.value, self.k.value, self.v.value, self.mask and self.mask.value, dropout_p)

    def ask(self) -> Selection:
        tensors = [None if x is None else as_compiled(x.value) for x in self[1:5]]
        desc = attention_ops.described(*tensors, self.is_causal, self.scale, self.enable_gqa, False, ROWS)
        return selected(desc, self.q.value.device.index)

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

    def place(self) -> Match:
        attend = self.attend
        return Match(self.call, [attend.node], attend.node, attend.build, attend.ask, self.covered, attend.race)


class Finder(FusionPattern):
    """A pattern of attention."""

    name = "attention"
    wins = True  # docs/results.md

    @abc.abstractmethod
    def find(self, node: fx.Node) -> Found | NoMatch | None:
        """As place()."""

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        found = self.find(node)
        return found.place() if isinstance(found, Found) else found


def selected(desc: Any, device: Optional[int]) -> Selection:
    """Which kernel would serve what `desc` describes."""
    return attention_ops.context_of(device).query(desc)


# --- the call

_CALLS = frozenset((sdpa_dropin.original, torch.ops.aten.scaled_dot_product_attention.default))
#: What the drop-in (vitune.torch) and the function put there.
_OURS = frozenset((torch.ops.vitune.attention.default, torch.ops.vitune.attention_lse.default))
_NEW_SUMS = frozenset((operator.add, torch.add))
_SUMS = _NEW_SUMS | {operator.iadd}


class Attention(Finder):
    def find(self, node: fx.Node) -> Found | NoMatch | None:
        if is_call(node, _OURS):
            return NoMatch("vitune.attention", "it is vitune's already")
        if not is_call(node, _CALLS):
            return None
        call = "scaled_dot_product_attention"
        try:
            given = arguments(node, query=None, key=None, value=None, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                              enable_gqa=False)
            dropout_p, *rest = map(constant, given[4:])
        except Unsupported as reason:
            return NoMatch(call, str(reason))
        mask = None if given[3] is None else _without_copies(given[3], node) or Operand.of(given[3])
        attend = Attend(node, *map(Operand.of, given[:3]), mask, *rest).of_type()
        why_not = attend.why_not(dropout_p)
        if why_not is not None:
            return NoMatch(call, why_not)
        return Found(call, attend)


def _without_copies(mask: fx.Node, last: fx.Node) -> Optional[Operand]:
    """bias + windows' masks, where these were repeated for every image before (Swin): with one entry per window, added before `last`."""
    if not is_call(mask, _NEW_SUMS) or mask.kwargs or len(mask.args) != 2 or value_of(mask).dim() != 4:
        return None
    for bias, copies in (mask.args, mask.args[::-1]):
        repeated = copies.args[0] if is_method(copies, "reshape", "view") else None
        if not is_method(repeated, "expand") or not isinstance(bias, fx.Node):
            continue
        windows = repeated.args[0]
        shape, bias_shape, whole = value_of(windows).shape, value_of(bias).shape, value_of(repeated).shape
        if (len(shape) == 5 and shape[0] == 1 and shape[1:2] == whole[1:2] and value_of(copies).shape[1:] == whole[2:]
                and len(bias_shape) == 4 and bias_shape[0] == 1
                and not is_changed_between(repeated, last, [repeated, copies, mask])):
            return Operand.of(bias).called(torch.add, Operand.of(windows).called("squeeze", 0))
    return None


# --- a softmax between two products

_PRODUCTS = frozenset((operator.matmul, torch.matmul, torch.bmm))
_SOFTMAXES = frozenset((F.softmax, torch.softmax))
FACTORS = frozenset((operator.mul, operator.imul, torch.mul))


class WrittenOut(Finder):
    def find(self, node: fx.Node) -> Found | NoMatch | None:
        if not (is_call(node, _SOFTMAXES) or is_method(node, "softmax")) or not node.args:
            return None
        last, after = _product_after(node)
        scores = _scores_before(node) if last is not None else None
        if scores is None:
            return None
        call = "softmax between two products"
        if any(len(step.users) > 1 for step in (*scores.steps, node, *after)):
            return NoMatch(call, "its weights or scores are used elsewhere")
        attend = Attend(last, scores.q, scores.k, Operand.of(last.args[1]), scores.mask, scale=scores.scale).of_type()
        if not scores.are_of_type(value_of(last).dtype):
            return NoMatch(call, "its scores are made of tensors of a wider type than its result's")
        if is_changed_between(scores.first, last, [*scores.steps, last]):
            return NoMatch(call, "something between the products changes a tensor that they take")
        why_not = attend.why_not(0.0)
        if why_not is not None:
            return NoMatch(call, why_not)
        return Found(call, attend, [*reversed(scores.steps), node, *after])


def _is_product(node: Any) -> bool:
    return is_call(node, _PRODUCTS) and len(node.args) == 2 and not node.kwargs


def _product_after(softmax: fx.Node) -> tuple[Optional[fx.Node], list[fx.Node]]:
    """The product of the weights with v, and the steps before it: none that changes them but for their type."""
    axis = softmax.kwargs.get("dim", softmax.args[1] if len(softmax.args) > 1 else None)
    at, steps = softmax, []
    while axis in (-1, value_of(softmax).dim() - 1):
        product = next((user for user in at.users if _is_product(user) and user.args[0] is at and user.args[1] is not at), None)
        if product is not None:
            return product, steps
        at = next((user for user in at.users if is_cast(user) or is_idle_dropout(user)), None)
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
            node is not None and _type_cast_from(node) == dtype for node in (self.q.node, self.product.args[1]))


def _type_cast_from(node: Any) -> Optional[torch.dtype]:
    """Of the tensor that it is a cast or a view of a cast of, or its own."""
    while is_method(node, "transpose", "permute", "view", "reshape", "contiguous", "flatten", "unflatten", "squeeze", "unsqueeze", "expand"):
        node = node.args[0]
    return value_of(node.args[0] if is_cast(node) else node).dtype


def _scores_before(softmax: fx.Node) -> Optional[_Scores]:
    at, steps, added = softmax.args[0], [], []
    while is_call(at, _SUMS) or is_method(at, "view", "reshape"):
        step = _mask_of_windows(at) or _mask_added(at)
        if step is None:
            return None
        mask, passed = step
        added.append(mask)
        steps += passed
        at = passed[-1].args[0]
    q_factor, scale = None, 1.0
    while is_call(at, FACTORS) and len(at.args) == 2 and not at.kwargs:
        scores, factor = at.args if isinstance(at.args[0], fx.Node) else at.args[::-1]
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
    if not _is_product(at) or value_of(at).shape != value_of(softmax).shape:
        return None
    steps.append(at)
    product, keys = at, at.args[1]
    if is_method(keys, "contiguous"):  # a copy for the product's sake
        steps.append(keys)
        keys = keys.args[0]
    q, k = Operand.of(at.args[0]), Operand.of(keys).called("transpose", -2, -1)
    if q_factor is not None:
        q = q.called(torch.mul, q_factor)
    mask = None
    for each in reversed(added):
        mask = each if mask is None else mask.called(torch.add, each)
    return _Scores(steps[-1], steps, q, k, scale, mask, product)


def _mask_added(total: fx.Node) -> Optional[tuple[Operand, list[fx.Node]]]:
    """scores + mask, the mask no larger than the scores."""
    if not is_call(total, _SUMS) or len(total.args) != 2 or total.kwargs or not isinstance(total.args[1], fx.Node):
        return None
    scores, mask = map(value_of, total.args)
    if not isinstance(mask, Tensor) or not mask.is_floating_point() or scores.shape != value_of(total).shape:
        return None
    return Operand.of(total.args[1]), [total]


def _mask_of_windows(view: fx.Node) -> Optional[tuple[Operand, list[fx.Node]]]:
    """(scores as [images, windows, heads, nq, nk] + a mask for each window), back as they were."""
    total = view.args[0] if is_method(view, "view", "reshape") else None
    found = _mask_added(total) if total is not None else None
    if found is None or not is_method(total.args[0], "view", "reshape"):
        return None
    mask, whole = found[0], value_of(total).shape
    shape = mask.value.shape
    scores = value_of(total.args[0].args[0]).shape
    if not (len(whole) == len(shape) == 5 and shape[0] == 1 and shape[1] == whole[1] and scores == value_of(view).shape
            and scores[1:] == whole[2:]):
        return None
    return mask.called("squeeze", 0), [view, total, total.args[0]]


def _is_per_head(product: fx.Node) -> bool:
    """scores * a factor for each head: as well q's."""
    scores, factor = map(value_of, product.args)
    return isinstance(factor, Tensor) and scores.shape == value_of(product).shape and tuple(factor.shape[-2:]) == (1, 1)


attention = Attention()
unfused_attention = WrittenOut()
