# python/vitune/_export/graph.py -- What a model file's graph is made of: views, numbers that grow with the batch, nodes.
# SPDX-License-Identifier: Apache-2.0
"""docs/model_file.md says what it means."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._runtime.errors import Unsupported

FORMAT = 1
MOST_DIMS, MOST_OPERANDS, MOST_STEPS = 6, 8, 32
OPERANDS = "abcdefgh"  #: of a map
#: Words of an expression, with how many arguments each takes.
WORDS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "lt": 2, "where": 3, "neg": 1, "abs": 1, "exp": 1, "log": 1,
         "sqrt": 1, "rsqrt": 1, "sin": 1, "cos": 1, "tanh": 1, "sigmoid": 1, "erf": 1, "relu": 1, "gelu": 1, "gelu_tanh": 1,
         "quick_gelu": 1, "silu": 1, "hardswish": 1}


class View(NamedTuple):
    """Elements of a tensor, in elements of its own type."""

    of: str
    offset: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.extents:
            count *= extent
        return count

    def expanded(self, extents: Sequence[int]) -> "View":
        """Broadcast as PyTorch does."""
        missing = len(extents) - len(self.extents)
        strides = [0] * missing + [0 if mine == 1 and wanted != 1 else stride
                                   for mine, wanted, stride in zip(self.extents, extents[missing:], self.strides)]
        return View(self.of, self.offset, tuple(extents), tuple(strides))

    def narrowed(self, dim: int, start: int, length: int) -> "View":
        extents = (*self.extents[:dim], length, *self.extents[dim + 1:])
        return View(self.of, self.offset + start * self.strides[dim], extents, self.strides)

    def ordered(self, dims: Sequence[int]) -> "View":
        return View(self.of, self.offset, tuple(self.extents[dim] for dim in dims), tuple(self.strides[dim] for dim in dims))

    def is_dense(self) -> bool:
        return self.strides == dense(self.extents)

    def document(self, shape: Sequence[int]) -> Any:
        """As the file says it, of a tensor of that shape."""
        if self.offset == 0 and self.extents == tuple(shape) and self.is_dense():
            return self.of
        offset = {"offset": self.offset} if self.offset else {}
        return {"of": self.of, **offset, "extents": list(self.extents), "strides": list(self.strides)}


def dense(extents: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def merged(views: Sequence[View], most: int = MOST_DIMS) -> list[View]:
    """Views of the same extents with as many dimensions as a file takes: neighbours that lie one behind the other in all of them become
    one. Raises Unsupported where that is not enough."""
    keep = [dim for dim, extent in enumerate(views[0].extents) if extent != 1] if len(views[0].extents) > most else None
    views = [view if keep is None else view.ordered(keep) for view in views]
    while len(views[0].extents) > most:
        extents = views[0].extents
        place = next((dim for dim in range(len(extents) - 1) if all(
            view.strides[dim] == view.strides[dim + 1] * extents[dim + 1] for view in views)), None)
        if place is None:
            raise Unsupported(f"{len(extents)} dimensions that cannot be merged: a file takes {most}")
        views = [View(view.of, view.offset, (*extents[:place], extents[place] * extents[place + 1], *extents[place + 2:]),
                      (*view.strides[:place], *view.strides[place + 1:])) for view in views]
    return views


# --- numbers that grow with the batch


def grown(first: Any, second: Any, batches: tuple[int, int], where: str = "") -> Any:
    """The document whose numbers are functions of the batch, of two for these batches. Raises Unsupported where they differ in more
    than numbers."""
    if type(first) is not type(second):
        raise Unsupported(f"{where}: it differs from one batch to another in more than numbers")
    if isinstance(first, dict) and list(first) == list(second):
        at = f"{first['op']} in {first['at']}" if "op" in first else where
        return {key: grown(value, second[key], batches, at) for key, value in first.items()}
    if isinstance(first, list) and len(first) == len(second):
        return [grown(a, b, batches, where) for a, b in zip(first, second)]
    if isinstance(first, int) and not isinstance(first, bool):
        slope, rest = divmod(second - first, batches[1] - batches[0])
        if rest:
            raise Unsupported(f"{where}: a number that does not grow evenly with the batch")
        return affine(first - slope * batches[0], slope)
    if first == second and not isinstance(first, (dict, list)):
        return first
    raise Unsupported(f"{where}: it differs from one batch to another in more than numbers")


def affine(a: int, b: int) -> Any:
    """a + b B, as the file writes it."""
    if b == 0:
        return a
    return [a, b] if a else "B" if b == 1 else f"{b}*B"


def at_batch(number: Any, batch: int) -> int:
    if isinstance(number, list):
        return number[0] + number[1] * batch
    if isinstance(number, str):
        return batch if number == "B" else int(number.removesuffix("*B")) * batch
    return number


def view_at(operand: Any, shapes: dict[str, Sequence[Any]], batch: int) -> View:
    """The view that an operand of the file is, for a batch."""
    if isinstance(operand, str):
        extents = tuple(at_batch(number, batch) for number in shapes[operand])
        return View(operand, 0, extents, dense(extents))
    numbers = [tuple(at_batch(number, batch) for number in operand[key]) for key in ("extents", "strides")]
    return View(operand["of"], at_batch(operand.get("offset", 0), batch), *numbers)
