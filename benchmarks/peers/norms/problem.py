# benchmarks/peers/norms/problem.py -- A norm that PyTorch's users write: LayerNorm, also of a sum, or GroupNorm.
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
_WORDS = {
    "norm": (*DTYPES, "m=", "d=", "weight", "bias", "residual", "sum", "eps="),
    "group_norm": (
        *(*DTYPES, "n=", "c=", "l=", "g=", "nhwc", "weight", "bias", "silu", "mish", "eps="),
    ),
}


def _known(word: str) -> str:
    """A word without its value."""
    key, equals, _ = word.partition("=")
    return key + equals


def _check(text: str, operator: str, words: list[str]) -> None:
    """Refuses what not all peers have a form of. Raises BadProblem."""
    known = _WORDS[operator]
    for word in words:
        if _known(word) not in known:
            raise BadProblem(
                f"problem '{text}': '{word}' is not compared here, so leave it out: the words are "
                + " ".join(known)
            )
    if not {"weight", "bias"} <= set(words):
        raise BadProblem(f"problem '{text}': peers take weight and bias, so write both words")
    if ("residual" in words) != ("sum" in words):
        raise BadProblem(f"problem '{text}': peers write the sum, so write 'residual sum'")


@dataclasses.dataclass(frozen=True)
class Problem(problems.Problem):
    """Its words are in the order of docs/problems.md; the eps of EPS is left out."""

    @property
    def is_group(self) -> bool:
        """Whether it is a GroupNorm."""
        return self.text.startswith("group_norm ")

    @property
    def dtype(self) -> str:
        """torch's name of the type of all tensors."""
        return DTYPES[self.text.split()[1]]

    @property
    def eps(self) -> float:
        """What is added to the variance."""
        return float(self._values().get("eps", EPS))

    def number(self, key: str) -> int:
        """The value of a word key=."""
        return int(self._values()[key])

    def has(self, word: str) -> bool:
        """Whether the word stands there."""
        return word in self.text.split()

    def _values(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.text.split() if "=" in word)

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Problem":
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""
        text = problems.known_text(entry)
        operator, *words = text.split()
        _check(text, operator, words)
        words = [word for word in words if _known(word) != "eps=" or float(word[4:]) != EPS]
        words.sort(key=lambda word: _WORDS[operator].index(_known(word)))
        canonical = " ".join([operator, *words])
        return cls.named(entry, canonical)
