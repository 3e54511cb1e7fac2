# benchmarks/peers/attention_backward/problem.py -- Gradients of an attention that PyTorch's users ask for.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import vitune

from ..attention import problem as attention_problem
from ..engine import problems
from ..engine.problems import BadProblem

_OWN = ("do=", "dq=", "dk=", "dv=", "dbias=")


@dataclasses.dataclass(frozen=True)
class Problem(problems.Problem):
    """Its text is the canonical one."""

    forward: attention_problem.Problem = dataclasses.field(compare=False, repr=False)
    has_dbias: bool = False

    @property
    def desc(self) -> Any:
        """vitune.AttentionDesc of the call whose gradients are asked for."""
        return self.forward.desc

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Problem":
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""
        text = problems.known_text(entry)
        _, *words = text.split()
        for word in words:
            if word.startswith(_OWN):
                raise BadProblem(
                    f"problem '{text}': '{word}' is not compared here, so leave it out: peers choose "
                    "where gradients lie and their types"
                )
        asked = " ".join(["attention", *(word for word in words if word != "dbias")])
        forward = attention_problem.Problem.of({"problem": asked})
        has_dbias = "dbias" in words
        canonical = "attention_backward" + forward.text.removeprefix("attention") + " dbias" * has_dbias
        return cls.named(entry, canonical, forward, has_dbias)
