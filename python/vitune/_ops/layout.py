# python/vitune/_ops/layout.py -- How tensors of rank 2 to 5 and a mask become one description, without a copy.
# SPDX-License-Identifier: Apache-2.0
"""Plain integers in and out: no PyTorch here.

A kernel knows two dimensions in front of the rows, batch and head, and each is one stride. What a caller hands
over may have up to three; they are folded where the strides of all tensors allow, and where they do not, the
outermost becomes a loop: one launch for each of its entries. docs/problems.md and the catalogue of models fold alike.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from .._runtime.errors import InvalidArgument, Unsupported

MAX_RANK = 5


class View(NamedTuple):
    """A tensor by its extents and strides, the latter in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Fold(NamedTuple):
    """Which leading dimensions become the loop, the batch and the head, each outermost first."""

    loop: tuple[int, ...]
    batch: tuple[int, ...]
    head: tuple[int, ...]


# The first of several that fit is taken. Rank 5 begins as the catalogue does (cmake/make_timm_models.py).
_FOLDS = {
    0: (Fold((), (), ()),),
    1: (Fold((), (0,), ()),),
    2: (Fold((), (0,), (1,)),),
    3: (Fold((), (0, 2), (1,)), Fold((), (0, 1), (2,)), Fold((), (0,), (1, 2)), Fold((), (1, 2), (0,)),
        Fold((0,), (2,), (1,))),
}
# With grouped heads the third dimension from the end is the head, as PyTorch counts.
_GROUPED_FOLDS = {
    1: (Fold((), (), (0,)),),
    2: (Fold((), (0,), (1,)),),
    3: (Fold((), (0, 1), (2,)), Fold((0,), (1,), (2,))),
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The fields of a description that come from shapes and strides, and the loop around the launches."""

    batch: int
    heads: int
    kv_heads: int
    nq: int
    nk: int
    d: int
    q: tuple[int, int, int]  #: strides of batch, head, row
    k: tuple[int, int, int]
    v: tuple[int, int, int]
    o: tuple[int, int, int]
    mask: tuple[int, int, int, int] | None  #: strides of batch entry, head, query row, key
    mask_batches: int
    launches: int
    steps: tuple[int, ...]  #: elements from one launch to the next of q, k, v, mask, out, lse
    out_shape: tuple[int, ...]  #: q's, its leading dimensions broadcast
    out_strides: tuple[int, ...]
    lse_shape: tuple[int, ...]  #: of the contiguous memory that the kernel writes
    lse_order: tuple[int, ...]  #: permutation that makes it [..., nq] in the caller's order


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


def output_order(rank: int, v_strides: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of an output whose heads are to be joined, outermost first.

    Rank 4 is [batch, rows, heads, d], so that joining the heads costs nothing. Rank 5 follows v's own order where v's
    rows lie outside of another dimension (views of a projection), else rows move outside of the third dimension. Ranks
    2 and 3 are contiguous.
    """
    if rank < 4:
        return tuple(range(rank))
    if rank == 5:
        order = sorted(range(4), key=lambda i: -v_strides[i])
        if order[-1] != 3:
            return (*order, 4)
    return (*range(rank - 3), rank - 2, rank - 3, rank - 1)


def output_strides(q_shape: Sequence[int], v_strides: Sequence[int]) -> tuple[int, ...]:
    """Strides of an output of q's shape (leading dimensions broadcast) in output_order(): dense memory."""
    strides, step = [0] * len(q_shape), 1
    for dimension in reversed(output_order(len(q_shape), v_strides)):
        strides[dimension] = step
        step = step * q_shape[dimension]
    return tuple(strides)


def _expanded(view: View, shape: tuple[int, ...], what: str) -> View:
    """`view` broadcast to `shape`, as torch.Tensor.expand() does it."""
    missing = len(shape) - len(view.shape)
    if missing < 0 or any(mine not in (1, wanted) for mine, wanted in zip(view.shape, shape[missing:])):
        raise InvalidArgument(f"{what} of shape {list(view.shape)} does not broadcast to {list(shape)}")
    strides = [0] * missing + [0 if mine == 1 and wanted != 1 else stride
                               for mine, wanted, stride in zip(view.shape, shape[missing:], view.strides)]
    return View(shape, tuple(strides))


def _folded(view: View, dimensions: tuple[int, ...], strict: bool) -> int | None:
    """The one stride of `dimensions` (two at most), None if they do not fold."""
    if not dimensions:
        return 0
    if len(dimensions) == 1:
        return view.strides[dimensions[0]]
    outer, inner = dimensions
    if view.strides[outer] == view.shape[inner] * view.strides[inner]:
        return view.strides[inner]
    if strict or min(view.shape[outer], view.shape[inner]) != 1:
        return None
    return view.strides[outer if view.shape[inner] == 1 else inner]


def _mask_batches(mask: View, dimensions: tuple[int, ...], strict: bool) -> tuple[int, int] | None:
    """(entries, stride) of the mask's batch; entry i % entries belongs to batch entry i."""
    if all(mask.strides[i] == 0 or mask.shape[i] == 1 for i in dimensions):
        return 1, 0
    stride = _folded(mask, dimensions, strict)
    if stride is not None:
        return math.prod(mask.shape[i] for i in dimensions), stride
    outer, inner = dimensions
    if mask.strides[outer] == 0:  # the same for each image, as window masks are
        return mask.shape[inner], mask.strides[inner]
    return None


def _triple(view: View, fold: Fold, strict: bool) -> tuple[int, int, int] | None:
    batch, head = _folded(view, fold.batch, strict), _folded(view, fold.head, strict)
    return None if batch is None or head is None else (batch, head, view.strides[-2])


def _extent(view: View, dimensions: tuple[int, ...]) -> int:
    return math.prod(view.shape[i] for i in dimensions)


def _try(fold: Fold, q: View, k: View, v: View, o: View, mask: View | None, window: int, strict: bool) -> Layout | None:
    triples = [_triple(view, fold, strict) for view in (q, k, v, o)]
    if None in triples:
        return None
    batches, mask_strides = 0, None
    if mask is not None:
        entries, head = _mask_batches(mask, fold.batch, strict), _folded(mask, fold.head, strict)
        if entries is None or head is None:
            return None
        batches = window or entries[0]
        mask_strides = (entries[1], head, *mask.strides[-2:])
    nq = q.shape[-2]
    lse_dimensions = (*fold.loop, *fold.batch, *fold.head)
    lse_shape = (*(q.shape[i] for i in lse_dimensions), nq)
    order = (*(lse_dimensions.index(i) for i in range(len(lse_dimensions))), len(lse_dimensions))
    batch, heads = _extent(q, fold.batch), _extent(q, fold.head)
    loop = fold.loop[0] if fold.loop else None
    steps = (0,) * 6 if loop is None else (
        *(view.strides[loop] for view in (q, k, v)), mask.strides[loop] if mask is not None else 0,
        o.strides[loop], batch * heads * nq)
    return Layout(batch, heads, _extent(k, fold.head), nq, k.shape[-2], q.shape[-1], *triples, mask_strides, batches,
                  _extent(q, fold.loop), steps, o.shape, o.strides, lse_shape, order)


def _check_shapes(q: View, k: View, v: View, enable_gqa: bool) -> None:
    rank = len(q.shape)
    if not rank == len(k.shape) == len(v.shape):
        raise InvalidArgument(f"q, k and v have the ranks {rank}, {len(k.shape)} and {len(v.shape)}: they must agree")
    if not 2 <= rank <= MAX_RANK:
        raise Unsupported(f"rank {rank}: [rows, d] to [x, batch, heads, rows, d] are understood")
    if q.shape[-1] != k.shape[-1]:
        raise InvalidArgument(f"q has head size {q.shape[-1]} and k {k.shape[-1]}: they must agree")
    if k.shape[-2] != v.shape[-2]:
        raise InvalidArgument(f"k has {k.shape[-2]} rows and v {v.shape[-2]}: they must agree")
    if v.shape[-1] != q.shape[-1]:
        raise Unsupported(f"v has head size {v.shape[-1]} and q {q.shape[-1]}: the kernels need one head size")
    if enable_gqa and rank < 3:
        raise InvalidArgument("enable_gqa needs a head dimension: [..., heads, rows, d]")
    check_head_size(q.shape[-1])
    for name, view in (("q", q), ("k", k), ("v", v)):
        if view.strides[-1] != 1:
            raise Unsupported(f"the last dimension of {name} is not contiguous: use {name}.contiguous()")


def check_head_size(d: int) -> None:
    """Raises Unsupported for a head size that no kernel takes."""
    if d > 128:
        raise Unsupported(f"head size {d} is above 128")
    if d % 8 or d < 8:
        raise Unsupported(f"head size {d} is no multiple of 8")


def _leading_shape(views: Sequence[View], names: Sequence[str]) -> tuple[int, ...]:
    """What the dimensions in front of the rows of all broadcast to."""
    shape = []
    for extents in zip(*(view.shape[:-2] for view in views)):
        wide = {extent for extent in extents if extent != 1}
        if len(wide) > 1:
            shapes = ", ".join(f"{name} {list(view.shape)}" for name, view in zip(names, views))
            raise InvalidArgument(f"these do not broadcast to each other: {shapes} (is enable_gqa wanted?)")
        shape.append(wide.pop() if wide else 1)
    return tuple(shape)


def _grouped(q: View, k: View, v: View) -> tuple[View, View, View]:
    """k and v with their own head extent, the other leading dimensions broadcast."""
    heads, kv_heads = q.shape[-3], k.shape[-3]
    if v.shape[-3] != kv_heads or kv_heads == 0 or heads % kv_heads:
        raise InvalidArgument(f"q has {heads} heads, k {kv_heads} and v {v.shape[-3]}: k and v need the same number,"
                              " a divisor of q's")
    outer = _leading_shape([View(x.shape[:-3] + x.shape[-2:], ()) for x in (q, k, v)], "qkv")
    return tuple(_expanded(x, outer + x.shape[-3:], name) for x, name in zip((q, k, v), "qkv"))


def _windowed(mask: View, shape: tuple[int, ...]) -> tuple[View, int]:
    """A mask whose batch is a divisor of q's batch: entry i % w belongs to batch entry i."""
    w = mask.shape[0]
    wide = _expanded(mask, (w, *shape[1:]), "attn_mask")
    return View(shape, wide.strides), w


def output_shape(q: Sequence[int], k: Sequence[int], v: Sequence[int]) -> tuple[int, ...]:
    """Of a call's operands: q's shape, its leading extents of 1 broadcast to those of k and v, and v's last."""
    if not len(q) == len(k) == len(v):
        return tuple(q)
    # Not the greatest of the three: 1 and 0 broadcast to 0.
    leading = [a if a != 1 else b if b != 1 else c for a, b, c in zip(q[:-2], k[:-2], v[:-2])]
    return (*leading, q[-2], v[-1])


def fold(q: View, k: View, v: View, mask: View | None = None, *, enable_gqa: bool = False,
         window_masks: bool = False, out_strides: Sequence[int] | None = None) -> Layout:
    """The layout of a call. Shapes as PyTorch's scaled_dot_product_attention has them: q [..., heads, nq, d], k and v
    [..., heads, nk, d] (with enable_gqa fewer heads), mask broadcastable to [..., heads, nq, nk]; with
    `window_masks` a rank 4 mask may also have w batch entries, w a divisor of the batch. out_strides: of the
    output, dense, its last 1; those of output_strides() if None.

    Raises InvalidArgument for shapes that contradict each other, Unsupported for what the kernels do not do.
    """
    _check_shapes(q, k, v, enable_gqa)
    own_strides = v.strides  # of a broadcast v too: what a compiler sees
    grouped = enable_gqa and k.shape[-3] != q.shape[-3]
    if grouped:
        q, k, v = _grouped(q, k, v)
    else:
        leading = _leading_shape((q, k, v), "qkv")
        q, k, v = (_expanded(x, leading + x.shape[-2:], name) for x, name in zip((q, k, v), "qkv"))
    o, window = View(q.shape, tuple(out_strides or output_strides(q.shape, own_strides))), 0
    if mask is not None:
        scores = (*q.shape[:-1], k.shape[-2])
        if window_masks and len(mask.shape) == len(scores) == 4 and 1 < mask.shape[0] < scores[0] \
                and scores[0] % mask.shape[0] == 0:
            mask, window = _windowed(mask, scores)
        else:
            mask = _expanded(mask, scores, "attn_mask")
    folds = (_GROUPED_FOLDS if grouped else _FOLDS)[len(q.shape) - 2]
    # Extents of 1 fold with anything: first by what their strides say, which tells a batch of one from windows.
    for strict in (True, False):
        for candidate in folds:
            if candidate.loop and strict:
                continue
            layout = _try(candidate, q, k, v, o, mask, window, strict)
            if layout is not None:
                return layout
    raise Unsupported("the strides of q, k, v and the mask do not fold: use .contiguous()")
