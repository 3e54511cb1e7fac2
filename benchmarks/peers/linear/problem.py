# benchmarks/peers/linear/problem.py -- A linear layer that PyTorch's users write, with its norm, activation and residual.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..engine import problems
from ..engine.problems import BadProblem

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "quick_gelu", "silu")
#: The words that are compared here, in the order of the canonical text; a word that ends with = has a value.
_WORDS = (
    *(*DTYPES, "m=", "n=", "k=", "norm=", "bias", "act=", "dact=", "scale"),
    *("x=", "w=", "wt", "wt=", "factor=", "residual", "period=", "out="),
)
_TRAINING = ("wt", "wt=", "dact=", "factor=", "out=")


def _known(word: str) -> str:
    """A word without its value."""
    key, equals, _ = word.partition("=")
    return key + equals


def _check(text: str, words: list[str]) -> None:
    """Refuses what not all peers have a form of. Raises BadProblem."""
    for word in words:
        if _known(word) not in _WORDS or word == "norm=rms" or word.startswith("out=@"):
            raise BadProblem(
                f"problem '{text}': '{word}' is not compared here, so leave it out: the words are "
                + " ".join(_WORDS).replace("norm=", "norm=layer")
            )


@dataclasses.dataclass(frozen=True)
class Problem(problems.Problem):
    """Its words are in the order of the canonical text; what says the default is left out."""

    @property
    def dtype(self) -> str:
        """torch's name of the type of all tensors."""
        return DTYPES[self.text.split()[1]]

    @property
    def activation(self) -> str:
        """One of ACTIVATIONS, or ""."""
        return self._values().get("act", "")

    @property
    def has_norm(self) -> bool:
        """Whether LayerNorm's (x - mean) / std of each row goes in."""
        return "norm" in self._values()

    @property
    def derivative(self) -> str:
        """One of ACTIVATIONS, whose derivative the sums are multiplied by, or ""."""
        return self._values().get("dact", "")

    @property
    def is_transposed(self) -> bool:
        """Whether the weight is [k, n]."""
        return self.has("wt") or "wt" in self._values()

    @property
    def out_dtype(self) -> str:
        """torch's name of the type of the result and the residual."""
        return "float32" if self._values().get("out") == "fp32" else self.dtype

    @property
    def factor_rows(self) -> int:
        """Rows that share a factor; 0: there is none."""
        return int(self._values().get("factor", 0))

    @property
    def is_of_training(self) -> bool:
        """Whether it is what only vitune and PyTorch have a form of here."""
        return any(_known(word) in _TRAINING for word in self.text.split())

    @property
    def period(self) -> int:
        """Rows of the residual: m, unless it repeats."""
        return int(self._values().get("period", self.number("m")))

    def number(self, key: str) -> int:
        """The value of m=, n= or k=."""
        return int(self._values()[key])

    def stride(self, key: str) -> int:
        """Elements from a row of x, w or wt to the next."""
        columns = self.number("n" if key == "wt" else "k")
        return int(self._values().get(key, f"@{columns}")[1:])

    def has(self, word: str) -> bool:
        """Whether bias, scale or residual stands there."""
        return word in self.text.split()

    def _values(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.text.split() if "=" in word)

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Problem":
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""
        text = problems.known_text(entry)
        operator, *words = text.split()
        _check(text, words)
        k = next(word[2:] for word in words if word.startswith("k="))
        m = next(word[2:] for word in words if word.startswith("m="))
        defaults = {"norm=none", "act=none", "dact=none", f"x=@{k}", f"w=@{k}", f"period={m}"}
        words = [word for word in words if word not in defaults]
        words.sort(key=lambda word: _WORDS.index(_known(word)))
        canonical = " ".join([operator, *words])
        return cls.named(entry, canonical)
