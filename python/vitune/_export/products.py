# python/vitune/_export/products.py -- Layers, products of matrices, attention.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import fx

from .._compile.patterns.match import value_of
from .._runtime.errors import Unsupported
from .arguments import bound
from .graph import View
from .lower import Lowering, maybe


def emit_layer(at: Lowering, dtype: torch.dtype, x: View, w: View, out_dtype: torch.dtype, out: View, bias: Optional[View] = None,
               scale: Optional[View] = None, residual: Optional[View] = None, activation: Optional[str] = None) -> None:
    """A linear node of x of type `dtype`. Raises Unsupported for types that such a node does not take."""
    _check_types("a layer", dtype, dtype, out_dtype)
    at.emit("linear", {"x": x, "w": w, "bias": bias, "scale": scale, "residual": residual, "out": out}, act=activation)


def _check_types(what: str, a: torch.dtype, b: torch.dtype, out: torch.dtype) -> None:
    if a not in (torch.bfloat16, torch.float16) or a != b or out not in (a, torch.float32):
        types = " and ".join(dict.fromkeys(str(each).removeprefix("torch.") for each in (a, b, out)))
        raise Unsupported(f"{what} of type {types}: operands are of one type of 16 bits, the result of that or float32")


def _linear(at: Lowering, node: fx.Node) -> None:
    x, weight, bias = bound(node, "input weight bias")
    _layer(at, node, x, weight, bias)


def _layer(at: Lowering, node: fx.Node, x: Any, weight: Any, bias: Any, scale: Any = None, residual: Any = None,
           activation: Optional[str] = None) -> None:
    if at.constant(weight) is None:
        if any(each is not None for each in (bias, scale, residual, activation)):
            raise Unsupported("a layer with a weight that depends on the input")
        across = at.view(weight)
        return _product_of_two(at, node, x, across.ordered((1, 0)), value_of(weight).dtype)
    out = at.new(node)
    added = None if residual is None else at.view(residual).expanded(out.extents)
    emit_layer(at, value_of(x).dtype, at.view(x), at.view(weight), value_of(node).dtype, out, maybe(at, bias), maybe(at, scale), added,
               activation)


def _vitune_linear(at: Lowering, node: fx.Node) -> None:
    x, weight, bias, scale, residual, activation, _, *norm = node.args
    if any(each is not None for each in norm):
        raise Unsupported("a norm folded into a layer")
    _layer(at, node, x, weight, bias, scale, residual, activation)


def _addmm(at: Lowering, node: fx.Node) -> None:
    bias, x, across, beta, alpha = bound(node, "input mat1 mat2 beta=1 alpha=1")
    if beta != 1 or alpha != 1:
        raise Unsupported("a sum of matrices with factors")
    if value_of(bias).dim() != 1 or at.constant(across) is None:
        raise Unsupported("a sum of matrices that is no layer")
    emit_layer(at, value_of(x).dtype, at.view(x), at.view(across).ordered((1, 0)), value_of(node).dtype, at.new(node), at.view(bias))


def _matmul(at: Lowering, node: fx.Node) -> None:
    x, across = bound(node, "input mat2" if "mat2" in node.kwargs else "input other")
    if at.constant(across) is not None and value_of(across).dim() == 2 and value_of(x).dim() > 1:
        emit_layer(at, value_of(x).dtype, at.view(x), at.view(across).ordered((1, 0)), value_of(node).dtype, at.new(node))
    else:
        _product_of_two(at, node, x, at.view(across), value_of(across).dtype)


def _product_of_two(at: Lowering, node: fx.Node, x: Any, across: View, dtype: torch.dtype) -> None:
    """Of matrices that may both depend on the input, as many as either has."""
    result = value_of(node)
    if value_of(x).dim() < 2 or len(across.extents) < 2:
        raise Unsupported("a product with a vector")
    _check_types("a product", value_of(x).dtype, dtype, result.dtype)
    _emit_product(at, at.view(x), across, at.new(node))


def _emit_product(at: Lowering, a: View, b: View, out: View, scale: Optional[float] = None) -> None:
    if len(out.extents) > 6:
        raise Unsupported(f"a product of {len(out.extents)} dimensions")
    many = out.extents[:-2]
    a, b = (each.expanded((*many, *each.extents[-2:])) for each in (a, b))
    at.emit("matmul", {"a": a, "b": b, "out": out}, scale=scale)


def _attention(at: Lowering, node: fx.Node) -> None:
    """The operator's, of four dimensions: what has three or five gets or loses one."""
    q, k, v, mask, causal, scale, _ = (*node.args, False, None, False)[:7] if len(node.args) >= 7 else (*node.args[:4], False, node.args[4], False)
    if not _has_kernels(q, v):
        return _by_products(at, node, q, k, v, mask, causal, scale)
    views, added = [at.view(each) for each in (q, k, v)], maybe(at, mask)
    out = at.new(node)
    try:
        views, bias = _of_four([*views, out], added)
    except Unsupported:  # they are put one behind the other
        dense = [at.scratch(value_of(each).dtype, view.extents) for each, view in zip((q, k, v, node), (*views, out))]
        for view, copy in zip(views, dense):
            at.copied(view, copy)
        put = dense[-1]
        views, bias = _of_four(dense, added)
    else:
        put = None
    *views, result = views
    is_bool = mask is not None and value_of(mask).dtype is torch.bool
    at.emit("attention", dict(zip("qkv", views)) | {"mask" if is_bool else "bias": bias, "out": result},
            causal=True if causal else None, scale=None if scale is None else float(scale))
    if put is not None:
        at.copied(put, out)


def _has_kernels(q: fx.Node, v: fx.Node) -> bool:
    d = value_of(q).shape[-1]
    return d % 8 == 0 and d <= 128 and value_of(v).shape[-1] == d


def _raw_attention(at: Lowering, node: fx.Node) -> None:
    q, k, v, mask, p, causal, scale, shared = bound(node, "query key value attn_mask dropout_p=0.0 is_causal=False scale enable_gqa=False")
    if p:
        raise Unsupported("dropout in attention: call model.eval() first")
    if shared and value_of(q).shape[-3] != value_of(k).shape[-3]:
        raise Unsupported("attention of this kind with fewer heads of k and v")
    _by_products(at, node, q, k, v, mask, causal, scale)


def _by_products(at: Lowering, node: fx.Node, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Optional[float]) -> None:
    """Attention of head sizes that have no kernel: two products with a softmax between them."""
    size = value_of(q).shape[-1]
    if causal or mask is not None and value_of(mask).dtype is torch.bool:
        raise Unsupported(f"masked attention with a head size of {size}: it must be a multiple of 8, 128 at most, and that of v")
    for each in (k, v):
        _check_types("attention", value_of(q).dtype, value_of(each).dtype, value_of(node).dtype)
    views = [at.view(each) for each in (q, k, v)]
    extents = (*value_of(node).shape[:-1], value_of(k).shape[-2])
    scores, weights = at.scratch(torch.float32, extents), at.scratch(value_of(q).dtype, extents)
    swapped = (*range(len(extents) - 2), len(extents) - 1, len(extents) - 2)
    _emit_product(at, views[0], views[1].ordered(swapped), scores, size ** -0.5 if scale is None else float(scale))
    added = [] if mask is None else [at.view(mask).expanded(extents)]
    at.map("add(a,b)" if added else "a", [scores, *added], weights, "softmax", 1)
    _emit_product(at, weights, views[2], at.new(node))


def _of_four(views: list[View], mask: Optional[View]) -> tuple[list[View], Optional[View]]:
    """Views of q, k, v and the result, and a mask that broadcasts to them, as [b, h, n, d]. Raises Unsupported where dimensions before
    the last two lie so that no two of them are one."""
    rank = len(views[0].extents)
    if mask is not None:
        mask = mask.expanded((1,) * (rank - len(mask.extents)) + mask.extents)
    while rank < 4:  # the batch is what it has; one without is of one image
        place = 1 if rank == 3 else 0
        views = [_with_one(view, place) for view in views]
        mask = None if mask is None else _with_one(mask, place)
        rank += 1
    while rank > 4:
        every = [*views, *([] if mask is None else [mask])]
        joined = next((made for order in itertools.permutations(range(rank - 2)) if (made := _first_two_as_one(every, order)) is not None), None)
        if joined is None:
            raise Unsupported(f"{rank} dimensions of which no two lie one behind the other")
        views, mask = joined[:len(views)], None if mask is None else joined[-1]
        rank -= 1
    return views, mask


def _with_one(view: View, place: int) -> View:
    return View(view.of, view.offset, (*view.extents[:place], 1, *view.extents[place:]), (*view.strides[:place], 0, *view.strides[place:]))


def _first_two_as_one(views: list[View], order: tuple[int, ...]) -> Optional[list[View]]:
    """Views whose dimensions are taken in this order, the first two of them as one, where all of them lie so."""
    made = []
    for view in views:
        view = view.ordered((*order, len(order), len(order) + 1))
        (many, few), (outer, inner) = view.extents[:2], view.strides[:2]
        if many != 1 and few != 1 and outer != inner * few:
            return None
        made.append(View(view.of, view.offset, (many * few, *view.extents[2:]), (outer if few == 1 else inner, *view.strides[2:])))
    return made if len({view.extents[0] for view in made if view.extents[0] != 1}) < 2 else None


def _window_attention(at: Lowering, node: fx.Node) -> None:
    qkv, window, shift, bias, padding, scale, interleaved, grid, pads_first, *_ = node.args
    words = {"window": list(window), "shift": list(shift) if any(shift) else None, "interleaved": interleaved or None,
             "grid": grid or None, "pads_first": pads_first or None, "scale": None if scale is None else float(scale)}
    at.emit("window_attention", {"x": at.view(qkv), "bias": maybe(at, bias), "padding": maybe(at, padding), "out": at.new(node)}, **words)


PRODUCTS: dict[str, Callable[[Lowering, fx.Node], None]] = {
    "linear": _linear, "addmm": _addmm, "matmul": _matmul, "mm": _matmul, "bmm": _matmul, "scaled_dot_product_attention": _raw_attention,
    "vitune.linear_or_torch": _vitune_linear, "vitune.attention": _attention, "vitune.attention_repeating_mask": _attention,
    "vitune.window_attention": _window_attention}
