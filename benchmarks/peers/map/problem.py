# benchmarks/peers/map/problem.py -- A map: what its text says of operands, expression and result.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..engine import problems
from ..engine.problems import BadProblem
from . import expression
from .expression import Expression

DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "u8": "uint8",
    "bool": "bool",
}
LETTERS = "abcdefgh"
REDUCTIONS = ("sum", "mean", "max", "softmax")
#: The words in the order of the canonical text; a word that ends with = has a value.
_WORDS = (
    *("n=", "over="),
    *(f"{letter}=" for letter in LETTERS),
    *("x=", *REDUCTIONS, "y=", "out=", "align="),
)
_DEFAULTS = ("y=r", "align=16")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An operand or the result: torch's name of its type, and its strides in elements."""

    dtype: str
    strides: tuple[int, ...]


def _known(word: str) -> str:
    """A word without its value."""
    key, equals, _ = word.partition("=")
    return key + equals


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text else ()


def _dense(extents: Sequence[int]) -> tuple[int, ...]:
    """Strides of rows that lie one after the other."""
    return tuple(math.prod(extents[i + 1 :]) for i in range(len(extents)))


def _tensor(text: str, shape: Sequence[int]) -> Tensor:
    """Of "bf16@768x1+64": strides along the result, then along what is reduced."""
    name, _, given = text.partition("@")
    strides = _numbers(given.replace("+", "x"))
    return Tensor(DTYPES[name], strides or _dense(shape))


@dataclasses.dataclass(frozen=True)
class Problem(problems.Problem):
    """Its words are in the order of the canonical text; what says the default is left out."""

    @property
    def extents(self) -> tuple[int, ...]:
        """Those of the result, without what a softmax adds."""
        return _numbers(self._values()["n"])

    @property
    def over(self) -> tuple[int, ...]:
        """Those of what is reduced; () for nothing."""
        return _numbers(self._values().get("over", ""))

    @property
    def reduction(self) -> str:
        """One of REDUCTIONS, or "" for none."""
        return next((word for word in self.text.split() if word in REDUCTIONS), "")

    @property
    def out_extents(self) -> tuple[int, ...]:
        """The result's, of a softmax with those of what is reduced."""
        return self.extents + (self.over if self.reduction == "softmax" else ())

    @property
    def operands(self) -> dict[str, Tensor]:
        """By letter, in the order of the alphabet; each has `extents` and `over`."""
        values, shape = self._values(), self.extents + self.over
        return {letter: _tensor(values[letter], shape) for letter in LETTERS if letter in values}

    @property
    def out(self) -> Tensor:
        """The result, of `out_extents`."""
        return _tensor(self._values()["out"], self.out_extents)

    @property
    def x(self) -> Expression:
        """The expression of the operands."""
        return expression.read(self._values()["x"])

    @property
    def y(self) -> Expression:
        """That of what was reduced, "r"."""
        return expression.read(self._values().get("y", "r"))

    def _values(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.text.split() if "=" in word)

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Problem":
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""
        text = problems.known_text(entry)
        operator, *words = text.split()
        words = [word for word in words if word not in _DEFAULTS]
        words.sort(key=lambda word: _WORDS.index(_known(word)))
        written = cls("", "", " ".join([operator, *words]), None)
        canonical = " ".join([operator, *map(written._without_dense_strides, words)])
        return cls.named(entry, canonical)

    def _without_dense_strides(self, word: str) -> str:
        """"a=bf16@768x1" as "a=bf16" where that is the same."""
        key, _, value = word.partition("=")
        if "@" not in value:
            return word
        shape = self.out_extents if key == "out" else self.extents + self.over
        bare = value.partition("@")[0]
        return f"{key}={bare}" if _tensor(value, shape) == _tensor(bare, shape) else word
