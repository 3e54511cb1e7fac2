# benchmarks/peers/attention/problem.py -- An attention problem: what libvitune makes of its text.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import vitune

from ..engine import problems
from ..engine.problems import BadProblem

DTYPES = {vitune.BF16: "bfloat16", vitune.FP16: "float16", vitune.FP32: "float32"}


@dataclasses.dataclass(frozen=True)
class Problem(problems.Problem):
    """Its text is the canonical one."""

    desc: Any = dataclasses.field(compare=False, repr=False)  #: vitune.AttentionDesc

    @property
    def scale(self) -> float:
        """The factor of q k^T."""
        return self.desc.scale or self.desc.d**-0.5

    @property
    def kv_heads(self) -> int:
        """Heads of k and v."""
        return self.desc.kv_heads or self.desc.heads

    @property
    def scores(self) -> int:
        """Pairs of query and key over all heads, masked ones too."""
        return self.desc.batch * self.desc.heads * self.desc.nq * self.desc.nk

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Problem":
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""
        text = problems.text_of(entry)
        try:
            desc = vitune.AttentionDesc.parse(text)
            canonical = desc.text()
        except vitune.VituneError as error:
            raise BadProblem(f"problem '{text}': {error}") from None
        if desc.lse:
            raise BadProblem(f"problem '{text}': outputs are compared, so leave out the word lse")
        return cls.named(entry, canonical, desc)
