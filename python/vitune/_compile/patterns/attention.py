# python/vitune/_compile/patterns/attention.py -- The patterns of attention in Dynamo's graph: a call, and a softmax between two products.
# SPDX-License-Identifier: Apache-2.0
"""q, k and v are taken as the views of the projections that they are; masks that were repeated for every image as they were."""
from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..._ops import attention as attention_ops, originals, refusals, repeating_mask  # noqa: F401  (the operators)
from ..._ops.order import ROWS  # what mostly follows joins the heads
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from . import tree
from .benchmark import Run, Times, measured, sample
from .distinct import once
from .match import FusionPattern, Match, NoMatch, as_compiled, constant, selected, value_of, wants_gradient
from .mutations import is_changed_between
from .tree import QUIET, Either, Steps, Tree, arguments_of, is_op, is_quiet, only_user


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
        return refusals.reason(self.q.value, self.k.value, self.v.value, self.mask and self.mask.value, dropout_p)

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
                    functools.partial(originals.attention, q, k, v, every.to(q.dtype), scale=self.scale))
        theirs = functools.partial(originals.attention, q, k, v, mask, 0.0, self.is_causal, scale=self.scale,
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

_LEAST_SCALE = 2.0**-40  # of the kernels'; the greatest is its inverse
#: Operations that give the same elements in another shape.
VIEWS = ("view", "reshape", "flatten", "unflatten", "contiguous")


def _is_mask(found: tree.Found) -> bool:
    """Whether what is added is no larger than the scores."""
    scores, mask = value_of(found["scores"]), value_of(found["mask"])
    return _is_floating(mask) and isinstance(scores, Tensor) and scores.shape == value_of(found.root).shape


def _is_mask_of_windows(found: tree.Found) -> bool:
    """Whether [1, windows, 1 or heads, nq, nk] is added to the scores of each image's windows, [images, windows, heads, nq, nk]."""
    scores, mask, whole = value_of(found["scores"]).shape, value_of(found["mask"]), value_of(found["by_windows"]).shape
    return _is_floating(mask) and len(whole) == mask.dim() == 5 and tuple(mask.shape[:2]) == (1, whole[1]) and (
        scores == value_of(found.root).shape and scores[1:] == whole[2:])


def _is_floating(mask: Any) -> bool:
    return isinstance(mask, Tensor) and mask.is_floating_point()


def _is_factor(found: tree.Found) -> bool:
    """Whether it is a number, or one for each head, as well a factor of q."""
    scores, factor = value_of(found["scores"]), value_of(found["factor"])
    return isinstance(factor, (int, float)) or isinstance(factor, Tensor) and isinstance(scores, Tensor) and (
        scores.shape == value_of(found.root).shape and tuple(factor.shape[-2:]) == (1, 1))


def _is_divisor(found: tree.Found) -> bool:
    return isinstance(found["divisor"], (int, float)) and _LEAST_SCALE <= found["divisor"] <= 1 / _LEAST_SCALE


def _scales_q(found: tree.Found) -> bool:
    """Whether it is a number that scales may be, times q in the product's type, which nothing else takes."""
    factor, product = found["factor_of_q"], only_user(found.root)
    types = {getattr(value_of(node), "dtype", None) for node in (found["q"], found.root, product)}
    return isinstance(factor, (int, float)) and _LEAST_SCALE <= factor <= 1 / _LEAST_SCALE and product is not None and len(types) == 1


def _product(first: Any, second: Any) -> Tree:
    return Tree("matmul", input=first, other=second, mat2=second)


def transposed(name: str, *dims: int) -> Tree:
    """Something with two dimensions in each other's place, counted from the end."""
    def fits(found: tree.Found) -> bool:
        rank = value_of(found.root).dim()
        return {found["dim0"] % rank - rank, found["dim1"] % rank - rank} == set(dims)
    return Tree("transpose", input=name).where(fits)


def _keeps_weights(found: tree.Found) -> bool:
    """Whether it rounds weights at most: neither to whole numbers nor to eight bits."""
    kind = getattr(value_of(found.root), "dtype", None)
    return kind is not None and kind.is_floating_point and kind.itemsize >= 2


_MASK = Tree("add add_", input="scores", other="mask", alpha=1).where(_is_mask)
_MASK_OF_WINDOWS = Tree("view reshape", input=Tree("add add_", alpha=1, input=Tree("view reshape", input="scores", shape="five").named("by_windows"),
                                                   other="mask")).where(_is_mask_of_windows)
_FACTOR = Tree(" ".join(FACTORS), input="scores", other="factor").where(_is_factor)
_DIVISOR = Tree("div", input="scores", other="divisor", rounding_mode=None).where(_is_divisor)
_SCALED = Tree("mul", input="q", other="factor_of_q").where(_scales_q)
_PRODUCT = _product(Either(_SCALED, "q"), Either(Tree("contiguous", input="keys"), "keys")).named("product")
_SOFTMAX = Tree("softmax", input=Steps(Either(_MASK_OF_WINDOWS, _MASK), Steps(Either(_FACTOR, _DIVISOR), _PRODUCT, "scores", "factors"), "scores", "masks")).where(
    lambda found: found["dim"] in (-1, value_of(found.root).dim() - 1) and value_of(found["product"]).shape == value_of(found.root).shape)
#: What changes weights in their type alone, or drops some.
_WRITTEN_OUT = _product(Steps(Either(Tree("to dropout").where(_keeps_weights), QUIET), _SOFTMAX, into="kept"), "v")
_OF_CAST = Steps(Tree(" ".join((*VIEWS, "transpose", "permute", "squeeze", "unsqueeze", "expand"))), Either(Tree("to", input="narrow"), "narrow"))


class Written(NamedTuple):
    """A softmax between two products: weights of q k^T, scaled, with masks added."""

    found: tree.Found

    @classmethod
    def of(cls, product: fx.Node) -> Optional["Written"]:
        found = _WRITTEN_OUT.find(product)
        return None if found is None or not isinstance(found["v"], fx.Node) else cls(found)

    @property
    def dropouts(self) -> list[dict[str, Any]]:
        """Arguments of those that drop some."""
        return [step.bound for step in self.found["kept"] if is_op(step.root, "dropout") and not is_quiet(step.root)]

    @property
    def scale(self) -> float:
        start = float(self.found.bound.get("factor_of_q", 1.0))
        return math.prod((factor for factor in self._factors if not isinstance(factor, fx.Node)), start=start)

    @property
    def q(self) -> Operand:
        """With the factors of heads."""
        return functools.reduce(lambda q, factor: q.called(torch.mul, factor), map(Operand.of, self.head_factors), Operand.of(self.found["q"]))

    @property
    def head_factors(self) -> tuple[fx.Node, ...]:
        """Tensors of a number for each head."""
        return tuple(factor for factor in self._factors if isinstance(factor, fx.Node))

    @property
    def _factors(self) -> list[Any]:
        return [1 / step["divisor"] if "divisor" in step.bound else step["factor"] for step in self.found["factors"]]

    @property
    def masks(self) -> list[tuple[fx.Node, bool]]:
        """What is added to the scores, in this order, and whether it is [1, windows, 1 or heads, nq, nk] for the windows of each image."""
        return [(step["mask"], "by_windows" in step.bound) for step in reversed(self.found["masks"])]

    @property
    def mask(self) -> Optional[Operand]:
        every = [Operand.of(mask).called("squeeze", 0) if by_windows else Operand.of(mask) for mask, by_windows in self.masks]
        return Operand.sum(every) if every else None

    def why_not_masks(self) -> str:
        """Why there is no sum of them with one entry for each window."""
        counts = {value_of(mask).shape[1] for mask, by_windows in self.masks if by_windows}
        first = (value_of(mask).shape[0] for mask, by_windows in self.masks if not by_windows and value_of(mask).dim() > 3)
        if counts and not all(statically_known_true(size == 1) or statically_known_true(size == next(iter(counts))) for size in first):
            return "it has a bias for each image beside masks of windows"
        return ""

    def attend(self) -> Attend:
        found = self.found
        return Attend(found.root, self.q, Operand.of(found["keys"]).called("transpose", -2, -1), Operand.of(found["v"]), self.mask,
                      scale=self.scale).of_type()

    def why_not(self) -> str:
        found = self.found
        if not found.is_whole:
            return "its weights or scores are used elsewhere"
        if not self._are_of_type(value_of(found.root).dtype):
            return "its scores are made of tensors of a wider type than its result's"
        if is_changed_between(min(found.nodes), found.root, found.nodes):
            return "something between the products changes a tensor that they take"
        return ""

    def _are_of_type(self, dtype: torch.dtype) -> bool:
        """Whether q and k had the type, or were cast up from it, which loses nothing."""
        return value_of(self.found["product"]).dtype == dtype or all(
            node is not None and value_of(_OF_CAST.find(node)["narrow"]).dtype == dtype for node in (self.q.node, self.found["keys"]))


class WrittenOut(Finder):
    operations = ("matmul",)

    def find(self, node: fx.Node, trains: bool = False) -> Found | NoMatch | None:
        written = Written.of(node)
        if written is None or written.dropouts and not trains:
            return None
        call, why_not = "softmax between two products", written.why_not_masks()
        if why_not:
            return NoMatch(call, why_not)
        attend = written.attend()
        why_not = written.why_not() or not trains and attend.why_not(0.0)
        if why_not:
            return NoMatch(call, why_not)
        dropout_p = max((each["p"] if isinstance(each["p"], float) else 1.0 for each in written.dropouts), default=0.0)
        return Found(call, attend, sorted(written.found.nodes[:-1]), dropout_p)


attention = Attention()
unfused_attention = WrittenOut()
