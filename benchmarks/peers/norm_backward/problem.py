# benchmarks/peers/norm_backward/problem.py -- The gradients of a LayerNorm in a residual block, as PyTorch's users train it.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..engine import problems
from ..engine.problems import BadProblem

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
EPS = 1e-5  # where the text says none
#: The words that are compared here, in the order of docs/problems.md; a word that ends with = has a value.
_WORDS = (
    *(*DTYPES, "m=", "d=", "weight", "bias", "params=", "x="),
    *("residual", "second=", "factor=", "stats", "eps="),
)
_NEEDED = ("weight", "bias", "residual")


def _known(word: str) -> str:
    """A word without its value."""
    key, equals, _ = word.partition("=")
    return key + equals


@dataclasses.dataclass(frozen=True)
class Problem(problems.Problem):
    """Its words are in the order of docs/problems.md; what says the default is left out."""

    @property
    def dtype(self) -> str:
        """torch's name of the type of dy."""
        return self.dtype_of("")

    @property
    def eps(self) -> float:
        """What was added to the variance."""
        return float(self._values().get("eps", EPS))

    def number(self, key: str) -> int:
        """The value of a word key=."""
        return int(self._values()[key])

    def has(self, word: str) -> bool:
        """Whether the word stands there, with a value or without."""
        return word in map(_known, self.text.split())

    def dtype_of(self, key: str) -> str:
        """torch's name of the type that key= states, else that of dy."""
        return DTYPES[self._values().get(key, self.text.split()[1])]

    def _values(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.text.split() if "=" in word)

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Problem":
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""
        text = problems.known_text(entry)
        operator, *words = text.split()
        for word in words:
            if _known(word) not in _WORDS or "@" in word:
                raise BadProblem(
                    f"problem '{text}': '{word}' is not compared here, so leave it out: the words are "
                    + " ".join(_WORDS)
                )
        if missing := [word for word in _NEEDED if word not in words]:
            raise BadProblem(
                f"problem '{text}': peers take weight, bias and residual, so write '{' '.join(missing)}'"
            )
        dtype = next(word for word in words if word in DTYPES)
        defaults = {f"params={dtype}", f"x={dtype}"}
        words = [word for word in words if word not in defaults]
        words = [word for word in words if _known(word) != "eps=" or float(word[4:]) != EPS]
        words.sort(key=lambda word: _WORDS.index(_known(word)))
        canonical = " ".join([operator, *words])
        return cls.named(entry, canonical)
