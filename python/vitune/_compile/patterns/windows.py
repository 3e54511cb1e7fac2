# python/vitune/_compile/patterns/windows.py -- The pattern of attention in the windows of images, with all that moves pixels around it.
# SPDX-License-Identifier: Apache-2.0
"""Swin's roll, pad and partition, the projection, attention, the projection back, and the reverse. Projections are made of each
pixel alone: here they are made of the image, and one call attends in its windows. MaxViT's blocks and grids and Twins' groups are
the same without a roll. What Inductor makes of the copies are mostly addresses of its kernels before and behind them, so that the
call has to be as fast as attention alone."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..._ops import window_attention as window_attention_ops
from ..._ops.window_attention import Windows
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported, VituneError
from . import tree
from .benchmark import Times, measured, sample
from .match import FusionPattern, Match, NoMatch, as_compiled, selected, value_of
from .mutations import is_changed_between, storage_of, written_by
from .tree import QUIET, Either, Steps, Tree, arguments_of, is_op
from .attention import FACTORS, VIEWS, Attend, Found, Of, Operand, attention, itself, transposed, unfused_attention

#: Orders of the dimensions of [images, down, ., across, ., channels] in windows, and in the image again.
_BLOCK, _GRID, _GRID_BACK = (0, 1, 3, 2, 4, 5), (0, 2, 4, 1, 3, 5), (0, 3, 1, 4, 2, 5)


class _Partition(NamedTuple):
    """How the rows of a projection come from an image."""

    x: fx.Node  # [B, H, W, C]
    first: fx.Node  # of what moves its pixels
    windows: Windows
    counts: tuple[int, int]


class _Projection(NamedTuple):
    """q, k and v as views of one linear layer's result."""

    layer: fx.Node
    interleaved: bool
    scale: Optional[float]
    factor: Optional[fx.Node]  # the product of q with the scale, where it is one


class _Return(NamedTuple):
    """How the result gets back into the image."""

    last: fx.Node  # [B, H, W, channels], or a view of it whose rows are the same
    layers: Sequence[fx.Node]  # made of each pixel alone, on the way


class WindowsInPlace(FusionPattern):
    name = "window_attention"
    wins = True  # where it is tuned, and not slower than attention alone
    spans = True
    operations = ("attention", "matmul")

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        found = found_in_windows(attention.find(node) or unfused_attention.find(node), WindowsCall)
        return found.place() if isinstance(found, WindowsCall) else found


def found_in_windows(found: Found | NoMatch | None, kind: type[WindowsCall], behind: str = "") -> WindowsCall | NoMatch | None:
    """Attention as a call of this kind, if it is in windows of an image. behind: words behind its name."""
    if not isinstance(found, Found):
        return None
    parts = _OF_LAYER.find(found.attend.v.node)
    call = f"{found.call} in windows of an image{behind}"
    try:
        partition = None if parts is None else _partition_of(parts["rows"])
        if partition is None:
            return None
        projection, back = _projection_of(found.attend, parts["layer"]), _return_of(found.attend.node, partition)
        if back is None:
            return NoMatch(call, "its result does not go back to where the queries came from")
        return kind(call, found, projection, partition, back)
    except Unsupported as reason:
        return NoMatch(call, str(reason))


@dataclasses.dataclass
class WindowsCall:
    """Attention in windows that can be in place. Raises Unsupported where it cannot."""

    call: str
    found: Found
    projection: _Projection
    partition: _Partition
    back: _Return

    def __post_init__(self) -> None:
        self.region = _region(self.partition.first, self.back.last)
        known = {*self.found.covered, self.projection.factor}  # scores += mask, q *= scale: the call does as much
        if any(written_by(node) for node in self.region if node not in known):
            raise Unsupported("something on the way through the windows is changed in place")
        if is_changed_between(self.partition.first, self.back.last, self.region):
            raise Unsupported("something on the way changes a tensor that is read")
        self.bias, self.padding = self._bias(), self._padding()

    def place(self) -> Match:
        return Match(self.call, [self.back.last], self.back.last, self.build, self.ask, self.covered, self.race)

    @property
    def covered(self) -> Sequence[fx.Node]:
        """Nodes that are of no use once it is in place."""
        return [*_views_before(self.partition.x)[1:], *self.region]

    @property
    def x(self) -> fx.Node:
        """The image, or what it is a view of with the same rows."""
        return _views_before(self.partition.x)[0]

    @property
    def attend(self) -> Attend:
        return self.found.attend

    @property
    def heads(self) -> tuple[int, int]:
        """Their number and size."""
        shape = self.attend.q.value.shape
        return shape[-3], shape[-1]

    @property
    def split(self) -> tuple[int, int, int]:
        """The projection's columns."""
        heads, d = self.heads
        return (heads, 3, d) if self.projection.interleaved else (3, heads, d)

    def _bias(self) -> Optional[Operand]:
        mask = self.attend.mask
        if mask is None:
            return None
        while mask.value.dim() < 4:
            mask = mask.called("unsqueeze", 0)
        windows, n = self.partition.counts[0] * self.partition.counts[1], self.attend.q.value.shape[-2]
        shape = tuple(mask.value.shape)
        if mask.value.dtype == torch.bool:
            raise Unsupported("its mask is of bool: the windows' kernels add a bias")
        if shape[0] not in (1, windows) or shape[1] not in (1, self.heads[0]) or shape[2:] != (n, n):
            raise Unsupported(f"its bias of {list(shape)} is not one for all images")
        return mask

    def _padding(self) -> Optional[Operand]:
        """What the projection makes of zeros."""
        image, window = value_of(self.partition.x).shape[1:3], self.partition.windows.window
        bias = arguments_of(self.projection.layer)["bias"]
        if bias is None or not any(extent % size for extent, size in zip(image, window)):
            return None
        padding = Operand.of(bias).called("unflatten", 0, self.split)
        return padding.called("transpose", 0, 1) if self.projection.interleaved else padding

    def _of_type(self, operand: Optional[Operand]) -> Optional[Operand]:
        """The same in the type of q."""
        dtype = self.attend.q.value.dtype
        return operand if operand is None or operand.value.dtype == dtype else operand.called("to", dtype)

    def build(self, graph: fx.Graph, of: Of = itself) -> Sequence[fx.Node]:
        image = value_of(self.partition.x).shape[1:3]
        qkv = _layer_of(graph, self.projection.layer, of(self.x), of)
        qkv = graph.call_method("reshape", (qkv, -1, *image, *self.split))
        made = self._call(graph, qkv, lambda operand: None if operand is None else operand.make(graph, of))
        heads, d = self.heads
        made = graph.call_method("reshape", (made, -1, *value_of(self.back.last).shape[1:-1], heads * d))
        for layer in self.back.layers:
            made = _layer_of(graph, layer, made, of)
        return [made]

    def _call(self, graph: fx.Graph, qkv: fx.Node, make: Callable[[Optional[Operand]], Optional[fx.Node]]) -> fx.Node:
        """The operator's call of a projection [B, H, W, *split]."""
        windows, projection = self.partition.windows, self.projection
        return graph.call_function(torch.ops.vitune.window_attention.default, (
            qkv, list(windows.window), list(windows.shift), make(self.bias), make(self._of_type(self.padding)), projection.scale,
            projection.interleaved, windows.grid, windows.pads_first, True))

    def _tensors(self) -> tuple:
        """qkv, bias and padding as compiled, on no device."""
        x = as_compiled(self.partition.x)
        qkv = torch.empty(*x.shape[:3], *self.split, dtype=self.attend.q.value.dtype, device="meta")
        bias, padding = (None if x is None else as_compiled(x.value) for x in (self.bias, self._of_type(self.padding)))
        return qkv, bias, padding

    def problem(self) -> str:
        qkv, bias, padding = self._tensors()
        return window_attention_ops.text_of(qkv, self.partition.windows, bias, padding, self.projection.scale, self.projection.interleaved)

    def ask(self) -> Selection:
        return selected(self.problem(), self.attend.q.value.device.index)

    def race(self) -> Optional[Times]:
        """Beside what attends without it, vitune's or PyTorch's, in windows that are there already."""
        device = self.attend.q.value.device
        try:
            theirs = 0 if self.attend.ask().outcome != "default" else 1
        except VituneError:
            theirs = 1

        def calls():
            qkv, bias, padding = (None if x is None else sample(x, device) for x in self._tensors())
            windows, projection = self.partition.windows, self.projection
            return lambda: torch.ops.vitune.window_attention.default(
                qkv, list(windows.window), list(windows.shift), bias, padding, projection.scale, projection.interleaved, windows.grid,
                windows.pads_first, False), self.attend.calls(device)[theirs]
        times = measured(calls, device)
        return None if times is None else times._replace(rival="attention alone")


def _layer_of(graph: fx.Graph, layer: fx.Node, x: fx.Node, of: Of) -> fx.Node:
    """The same layer of another tensor."""
    made = graph.call_function(layer.target, (x, *fx.node.map_arg(tuple(arguments_of(layer).values())[1:], of)))
    made.meta = {key: value for key, value in layer.meta.items() if key != "example_value"}
    return made


def _has_rows_of(view: tree.Found) -> bool:
    """Whether its rows are those of what it is a view of, which lies row after row."""
    source, value = value_of(view["input"]), value_of(view.root)
    return source.is_contiguous() and source.dtype == value.dtype and statically_known_true(source.shape[-1] == value.shape[-1])


_SAME_ROWS = Steps(Tree("view reshape flatten unflatten").where(_has_rows_of), "image")


def _views_before(x: fx.Node) -> list[fx.Node]:
    """The node that x is a view of with the same rows, and the views after it up to x: a layer of these rows is a layer of x, and
    the norm that made them stands right before it."""
    found = _SAME_ROWS.find(x)
    return [found["image"], *found.nodes]


def _region(first: fx.Node, last: fx.Node) -> Sequence[fx.Node]:
    """What is made of `first` before `last`, in the graph's order. Raises Unsupported if anything else is made of it."""
    order = {node: place for place, node in enumerate(last.graph.nodes)}
    region, todo = {first}, [first]
    while todo:
        for user in todo.pop().users:
            if user is last or user in region:
                continue
            if order[user] > order[last]:
                raise Unsupported(f"what is on its way through the windows is used elsewhere: {user}")
            region.add(user)
            todo.append(user)
    return sorted(region, key=order.__getitem__)


# --- from the image to q, k and v

_VIEW = Tree(" ".join(VIEWS))
_OF_LAYER = Steps(Tree(f"to unbind getitem select narrow chunk split squeeze unsqueeze expand permute transpose {' '.join(VIEWS)}"),
                  Tree("linear", input="rows").named("layer"))
_SCALED = Tree(" ".join(FACTORS), input="q", other="scale")


def _projection_of(attend: Attend, layer: fx.Node) -> _Projection:
    """Raises Unsupported where q, k and v are no views of the layer's result, or the kernels know no such order."""
    q, scale, factor = attend.q, attend.scale, None
    scaled = _SCALED.find(q.node)
    if scaled is not None and isinstance(scaled["scale"], float):
        scale = scaled["scale"] * (q.value.shape[-1] ** -0.5 if scale is None else scale)
        factor, q = q.node, Operand.of(scaled["q"])
    if attend.is_causal or attend.enable_gqa:
        raise Unsupported("it is causal, or its heads share keys")
    parts, (heads, n, d) = [part.value for part in (q, attend.k, attend.v)], q.value.shape[-3:]
    if any(part.untyped_storage()._cdata != storage_of(layer) for part in parts):
        raise Unsupported("q, k and v are no views of one layer's result: they are of several, or are changed on the way")
    width = 3 * heads * d
    # [images, windows, heads, n, d], or both are one.
    folded = parts[0].dim() == 4 or (
        parts[0].dim() == 5 and statically_known_true(parts[0].stride(0) == parts[0].shape[1] * parts[0].stride(1)))
    if value_of(layer).is_contiguous() and value_of(layer).shape[-1] == width and folded and all(_is_alike(part, parts[0]) for part in parts):
        offsets = [part.storage_offset() for part in parts]
        for interleaved, step, first in ((False, d, heads * d), (True, 3 * d, d)):
            steps = (n * width, step if heads > 1 else parts[0].stride(-3), width, 1)
            if tuple(parts[0].stride()[-4:]) == steps and offsets == [0, first, 2 * first]:
                return _Projection(layer, interleaved, scale, factor)
    raise Unsupported("q, k and v are not [3, heads, d] or [heads, 3, d] for each pixel")


def _is_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dim() == b.dim() and all(statically_known_true(x == y) for x, y in zip((*a.shape, *a.stride()), (*b.shape, *b.stride())))


def _order_of(node: fx.Node) -> Optional[tuple[int, ...]]:
    """Where the dimensions of the six of a tensor in windows go."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or value.dim() != 6 or not is_op(node, "permute", "transpose"):
        return None
    order = list(range(6))
    if is_op(node, "permute"):
        return arguments_of(node)["dims"]
    _, a, b = arguments_of(node).values()
    order[a], order[b] = order[b], order[a]
    return tuple(order)


def _turned(of: Any) -> Tree:
    return Tree("permute transpose", input=of).where(lambda found: _order_of(found.root) is not None).named("turned")


def _pads_of(pad: tree.Found) -> Optional[tuple[int, int]]:
    """Rows and columns of zeros that are added at the bottom and to the right."""
    pads = pad["pad"]
    if pad["value"] not in (None, 0) or len(pads) % 2 or not all(isinstance(each, int) for each in pads):
        return None
    left, right, top, bottom = (*pads, *(0,) * 8)[2:6]
    is_plain = not any((*pads[:2], left, top, *pads[6:])) and right >= 0 and bottom >= 0
    return (bottom, right) if is_plain else None


_PADDED = Tree("pad", mode="constant").where(lambda found: _pads_of(found) is not None)
_ROLLED = Tree("roll", dims=(1, 2)).where(lambda found: isinstance(found["shifts"], tuple) and all(isinstance(each, int) for each in found["shifts"]))
_PARTITION = Steps(_VIEW, _turned(Tree(" ".join(VIEWS), input=Steps(Either(_PADDED, _ROLLED), "image", into="moves")).named("cut")))


def _partition_of(rows: fx.Node) -> Optional[_Partition]:
    found = _PARTITION.find(rows)
    order = None if found is None else _order_of(found["turned"])
    if order not in (_BLOCK, _GRID):
        return None
    (_, down, first, across, second, channels), x = value_of(found["cut"]).shape, value_of(found["image"])
    extents = (down, first, across, second, channels, *x.shape[1:])
    if x.dim() != 4 or not all(isinstance(extent, int) for extent in extents) or value_of(rows).shape[-1] != channels:
        return None
    counts, window = ((down, across), (first, second))[::1 if order == _BLOCK else -1]
    whole, shift, moves = tuple(x.shape[1:3]), (0, 0), ""
    for move in reversed(found["moves"]):
        if is_op(move.root, "roll"):
            shift, moves = tuple(-each % extent for each, extent in zip(move["shifts"], whole)), moves + "r"
        elif _pads_of(move) != (0, 0):
            whole, moves = tuple(map(sum, zip(whole, _pads_of(move)))), moves + "p"
    fits = whole == tuple(map(math.prod, zip(counts, window))) and x.shape[3] == channels and all(
        -(-extent // size) == count for extent, size, count in zip(x.shape[1:3], window, counts))
    if not fits or moves not in ("", "r", "p", "rp", "pr") or order == _GRID and moves:
        return None
    return _Partition(found["image"], found.nodes[0], Windows(window, shift, order == _GRID, moves == "pr"), counts)


# --- and back

_JOINED = Steps(Either(_VIEW, Tree("linear"), QUIET), transposed("out", -3, -2))
_BACK = Steps(Tree(f"roll getitem {' '.join(VIEWS)}"), _turned(_JOINED), into="moves")


def _return_of(out: fx.Node, partition: _Partition) -> Optional[_Return]:
    found = (_return(found, partition) for found in _BACK.around("out", out))
    return next((each for each in found if each is not None), None)


def _return(found: tree.Found, partition: _Partition) -> Optional[_Return]:
    windows, turned, (*_, heads, _, d) = partition.windows, found["turned"], value_of(found["out"]).shape
    layers, channels = [step.root for step in reversed(found["steps"]) if is_op(step.root, "linear")], heads * d
    for layer in layers:
        if value_of(arguments_of(layer)["input"]).shape[-1] != channels:
            return None
        channels = value_of(layer).shape[-1]
    there = _order_of(turned), tuple(value_of(arguments_of(turned)["input"]).shape[1:])
    if there != (_GRID_BACK if windows.grid else _BLOCK, (*partition.counts, *windows.window, channels)):
        return None
    steps = [turned, *(step.root for step in reversed(found["moves"]))]
    return _Return(found.root, layers) if _is_image_again(steps, partition, channels) else None


def _is_image_again(steps: Sequence[fx.Node], partition: _Partition, channels: int) -> bool:
    """Whether the last step is [B, H, W, channels] again, cut and rolled back where that was padded and rolled, or a view of it with the same
    rows: what is added to it then stands right behind the layer."""
    windows, image = partition.windows, tuple(value_of(partition.x).shape[1:3])
    extents = tuple(map(math.prod, zip(partition.counts, windows.window)))
    wanted = [*["crop"] * (extents != image), *["roll"] * any(windows.shift)][::-1 if windows.pads_first else 1]
    first = next((i for i, step in enumerate(steps) if tuple(value_of(step).shape[1:]) == (*extents, channels)), None)
    if first is None or not all(is_op(step, *VIEWS) for step in steps[1:first + 1]):
        return False
    for step in steps[first + 1:]:
        if wanted[:1] == ["roll"] and _unrolls(step, windows.shift, extents):
            wanted.pop(0)
        elif wanted[:1] == ["crop"] and _crops(step, image):
            extents = image
            wanted.pop(0)
        elif not (_crops(step, extents) or is_op(step, "contiguous") or not wanted and _has_rows(step, channels, value_of(steps[first]).dtype)):
            return False
    return not wanted


def _has_rows(node: fx.Node, channels: int, dtype: torch.dtype) -> bool:
    """Whether it is a view of so many channels, of known extents."""
    value = value_of(node)
    return is_op(node, *VIEWS) and value.dtype == dtype and value.shape[-1] == channels and all(isinstance(extent, int) for extent in value.shape[1:])


def _unrolls(node: fx.Node, shift: Sequence[int], extents: Sequence[int]) -> bool:
    found = _ROLLED.find(node)
    return found is not None and all((a - b) % extent == 0 for a, b, extent in zip(found["shifts"], shift, extents))


_CROPPED = Tree("getitem").where(lambda found: isinstance(found["index"], tuple) and value_of(found.root).dim() == 4 and all(
    isinstance(each, slice) for each in found["index"]))


def _crops(node: fx.Node, extents: Sequence[int]) -> bool:
    """Whether it is the first `extents` rows and columns of all images."""
    found = _CROPPED.find(node)
    if found is None:
        return False
    cropped, slices = found["input"], found["index"]
    starts = all(each.start in (None, 0) and each.step in (None, 1) for each in slices)
    source = value_of(cropped).shape
    rest = statically_known_true(value_of(node).shape[0] == source[0]) and value_of(node).shape[3] == source[3]
    return starts and rest and tuple(value_of(node).shape[1:3]) == tuple(extents)


windows = WindowsInPlace()
