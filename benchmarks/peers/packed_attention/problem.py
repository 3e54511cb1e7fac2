# benchmarks/peers/packed_attention/problem.py -- Packed sequences that all peers have a form of: their lengths, heads and type.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..engine import problems
from ..engine.problems import BadProblem

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
#: The words that are compared here; one that ends with = has a value.
_WORDS = ("bf16", "fp16", "tokens=", "longest=", "sequences=", "h=", "d=", "lengths=")


@dataclasses.dataclass(frozen=True)
class Problem(problems.Problem):
    """q, k and v are dense and have the same offsets."""

    @property
    def dtype(self) -> str:
        """torch's name of the type of q, k, v and out."""
        return DTYPES[next(word for word in self.text.split() if word in DTYPES)]

    @property
    def lengths(self) -> list[int]:
        """Of each sequence."""
        found: list[int] = []
        for run in self._values()["lengths"].split(","):
            length, _, count = run.partition("x")
            found += [int(length)] * int(count or 1)
        return found

    def number(self, key: str) -> int:
        """The value of h= or d=."""
        return int(self._values()[key])

    def _values(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.text.split() if "=" in word)

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Problem":
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""
        text = problems.known_text(entry)
        _, *words = text.split()
        for word in words:
            key, equals, _ = word.partition("=")
            if key + equals not in _WORDS:
                raise BadProblem(
                    f"problem '{text}': '{word}' is not compared here, so leave it out: the words are "
                    + " ".join(_WORDS)
                )
        if not any(word.startswith("lengths=") for word in words):
            raise BadProblem(f"problem '{text}': say lengths=, which the peers' calls have")
        return cls.named(entry, text)
