# benchmarks/peers/linear_weight_grad/problem.py -- A weight gradient that PyTorch's users ask for, with that of the bias.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..engine import problems
from ..engine.problems import BadProblem

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
#: The words that are compared here, in the order of the canonical text; a word that ends with = has a value.
_WORDS = ("bf16", "fp16", "m=", "n=", "k=", "bias", "dy=", "x=", "out=")


def _known(word: str) -> str:
    """A word without its value."""
    key, equals, _ = word.partition("=")
    return key + equals


@dataclasses.dataclass(frozen=True)
class Problem(problems.Problem):
    """Its words are in the order of the canonical text; what says the default is left out."""

    @property
    def dtype(self) -> str:
        """torch's name of the type of dy and x."""
        return DTYPES[self.text.split()[1]]

    @property
    def out_dtype(self) -> str:
        """torch's name of the type of the gradients."""
        return DTYPES[self._values().get("out", self.text.split()[1])]

    @property
    def has_bias(self) -> bool:
        """Whether the bias' gradient is asked for."""
        return "bias" in self.text.split()

    def number(self, key: str) -> int:
        """The value of m=, n= or k=."""
        return int(self._values()[key])

    def stride(self, key: str) -> int:
        """Elements from a row of dy or x to the next."""
        return int(self._values().get(key, f"@{self.number('n' if key == 'dy' else 'k')}")[1:])

    def _values(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.text.split() if "=" in word)

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Problem":
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""
        text = problems.known_text(entry)
        operator, *words = text.split()
        for word in words:
            if _known(word) not in _WORDS:
                raise BadProblem(
                    f"problem '{text}': '{word}' is not compared here, so leave it out: the words are "
                    + " ".join(_WORDS)
                )
        values = dict(word.split("=", 1) for word in words if "=" in word)
        dtype = next(word for word in words if word in DTYPES)
        defaults = {f"dy=@{values['n']}", f"x=@{values['k']}", f"out={dtype}"}
        words = [word for word in words if word not in defaults]
        words.sort(key=lambda word: _WORDS.index(_known(word)))
        canonical = " ".join([operator, *words])
        return cls.named(entry, canonical)
