# benchmarks/peers/map/operands.py -- The tensors of a map on the device, as they lie in a model, and its formula in PyTorch.
# SPDX-License-Identifier: Apache-2.0
"""Fresh data each time: normal, or between 0.5 and 1.5 where the expression has roots or logarithms.

Operands of one type and the same strides whose elements leave a gap in which another's lie are views of one storage, as in a model: the
halves of a projection that SwiGLU takes, the even and odd columns that RoPE turns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import vitune

from .expression import Expression, needs_positive
from .problem import Problem, Tensor

#: (of which storage, offset in elements)
Place = tuple[int, int]


@dataclasses.dataclass
class Operands:
    """By letter: views of the extents of the result and of what is reduced, 0 strides where they repeat."""

    by_letter: dict[str, torch.Tensor]

    @property
    def given(self) -> tuple[torch.Tensor, ...]:
        """In the order of the alphabet."""
        return tuple(self.by_letter.values())


def room(extents: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The first gap that these elements leave: how far a second such tensor is shifted to lie in it, and how many lie side by side.

    Without a gap that takes a second one: (0, 1).
    """
    filled = 1
    for stride, extent in sorted(zip(strides, extents)):
        if extent == 1 or stride == 0:
            continue
        if stride != filled:
            return (filled, stride // filled) if stride >= 2 * filled else (0, 1)
        filled *= extent
    return 0, 1


def places(problem: Problem) -> dict[str, Place]:
    """Where each operand lies. None is shifted to where its pointer has less than the alignment that the problem states."""
    shape = problem.extents + problem.over
    alignments = {one.name: one.alignment for one in vitune.Problem(problem.text).tensors}
    members: dict[Tensor, list[str]] = {}
    found: dict[str, Place] = {}
    storages = 0
    for letter, tensor in problem.operands.items():
        shift, most = room(shape, tensor.strides)
        sharing = members.setdefault(tensor, [])
        offset = len(sharing) * shift
        bytes_off = offset * getattr(torch, tensor.dtype).itemsize
        if sharing and len(sharing) < most and bytes_off % alignments[letter] == 0:
            found[letter] = (found[sharing[0]][0], offset)
            sharing.append(letter)
        else:
            found[letter] = (storages, 0)
            members[tensor] = [letter]
            storages += 1
    return found


def span(extents: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one, both counted."""
    return 1 + sum((extent - 1) * stride for extent, stride in zip(extents, strides))


def _random(size: int, dtype: torch.dtype, device: str, positive: bool) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.randint(2, (size,), dtype=torch.uint8, device=device).bool()
    if dtype == torch.uint8:
        return torch.randint(256, (size,), dtype=dtype, device=device)
    made = torch.empty(size, dtype=dtype, device=device)
    return made.uniform_(0.5, 1.5) if positive else made.normal_()


def make_operands(problem: Problem, device: str = "cuda") -> Operands:
    """Random operands of a problem; seed PyTorch before."""
    shape, tensors, where = problem.extents + problem.over, problem.operands, places(problem)
    positive = needs_positive(problem.x) or needs_positive(problem.y)
    sizes: dict[int, int] = {}
    for letter, (storage, offset) in where.items():
        size = offset + span(shape, tensors[letter].strides)
        sizes[storage] = max(size, sizes.get(storage, 0))
    types = {where[letter][0]: getattr(torch, tensor.dtype) for letter, tensor in tensors.items()}
    memory = {one: _random(size, types[one], device, positive) for one, size in sizes.items()}
    return Operands(
        {
            letter: memory[storage].as_strided(shape, tensors[letter].strides, offset)
            for letter, (storage, offset) in where.items()
        }
    )


def make_out(problem: Problem, device: Any) -> torch.Tensor:
    """Memory of a result, with the strides of the text."""
    dtype = getattr(torch, problem.out.dtype)
    return torch.empty_strided(problem.out_extents, problem.out.strides, dtype=dtype, device=device)


_INFIX: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}
_FUNCTIONS: Mapping[str, Callable[..., torch.Tensor]] = {
    "min": torch.minimum,
    "max": torch.maximum,
    "lt": lambda a, b: (a < b).to(a.dtype),
    "where": lambda c, a, b: torch.where(c != 0, a, b),
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
    "quick_gelu": lambda a: a * torch.sigmoid(1.702 * a),
    "silu": F.silu,
    "hardswish": F.hardswish,
}


def _softmax(x: torch.Tensor, dimensions: Sequence[int]) -> torch.Tensor:
    return x.flatten(-len(dimensions)).softmax(-1).reshape(x.shape)


_REDUCTIONS: Mapping[str, Callable[[torch.Tensor, Sequence[int]], torch.Tensor]] = {
    "": lambda x, dimensions: x,
    "sum": lambda x, dimensions: x.sum(dimensions),
    "mean": lambda x, dimensions: x.mean(dimensions),
    "max": lambda x, dimensions: x.amax(dimensions),
    "softmax": _softmax,
}


def _value(expression: Expression, values: Mapping[str, torch.Tensor]) -> Any:
    """A tensor, or a number where there is no letter in it."""
    if isinstance(expression, str):
        return values[expression]
    if not isinstance(expression, tuple):
        return expression
    word, *arguments = expression
    found = [_value(argument, values) for argument in arguments]
    tensors = [one for one in found if isinstance(one, torch.Tensor)]
    if word in _INFIX and tensors:
        return _INFIX[word](*found)
    like = tensors[0] if tensors else next(iter(values.values()))
    dtype = like.dtype
    for one in tensors[1:]:
        dtype = torch.promote_types(dtype, one.dtype)
    made = [
        one.to(dtype) if isinstance(one, torch.Tensor) else like.new_full((), one, dtype=dtype)
        for one in found
    ]
    return {**_INFIX, **_FUNCTIONS}[word](*made)


def formula(problem: Problem, dtype: torch.dtype | None) -> Callable[..., None]:
    """(out, *operands): computes the expression in `dtype`, and writes it into out.

    None: in the types of the operands, as eager models do, bytes in fp32.
    """
    letters, x, y = tuple(problem.operands), problem.x, problem.y
    reduce = _REDUCTIONS[problem.reduction]
    dimensions = tuple(range(-len(problem.over), 0))

    def converted(operand: torch.Tensor) -> torch.Tensor:
        if dtype is not None:
            return operand.to(dtype)
        return operand if operand.is_floating_point() else operand.float()

    def write(out: torch.Tensor, *operands: torch.Tensor) -> None:
        values = dict(zip(letters, map(converted, operands)))
        reduced = reduce(_value(x, values), dimensions)
        out.copy_(_value(y, {"r": reduced}))

    return write
