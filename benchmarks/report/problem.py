# benchmarks/report/problem.py -- Operations and least bytes of an attention problem, of its text.
# SPDX-License-Identifier: Apache-2.0
"""The counts are those of docs/problems.md: 4 d operations per visible score, each element once."""

from __future__ import annotations

import dataclasses
import re

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "bool": 1}
_MOST = 2**31
_MOST_DIMS = 8


@dataclasses.dataclass(frozen=True)
class Attention:
    """Extents of a problem, its work and its least traffic."""

    batch: int
    heads: int
    nq: int
    nk: int
    d: int
    plain: bool  #: neither causal nor with a bias or mask
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes


def _pairs(nq: int, nk: int, causal: bool) -> int:
    if not causal:
        return nq * nk
    full = min(nq, nk)
    return full * (full + 1) // 2 + max(nq - nk, 0) * nk


def _distinct(strides: str | None, *extents: int) -> int:
    """Elements in memory: an extent of stride 0 counts once."""
    steps = strides[1:].split(",") if strides and strides.startswith("@") else [""] * len(extents)
    total = 1
    for step, extent in zip(steps, extents):
        total *= 1 if step == "0" else extent
    return total


def _operand_bytes(word: str) -> int:
    """Of a bias or mask: `type:dims[@strides]`."""
    match = re.fullmatch(r"(\w+):([\dx,]+)(@[\d,]+)?", word)
    if not match or match[1] not in _BYTES:
        raise ValueError(word)
    dims = [int(dim) for dim in re.split("[x,]", match[2])]
    if len(dims) > _MOST_DIMS or not all(0 < dim < _MOST for dim in dims):
        raise ValueError(word)
    return _distinct(match[3], *dims) * _BYTES[match[1]]


def attention(text: str) -> Attention | None:
    """None for a text of another operator, or one that is not understood."""
    values: dict[str, str] = {}
    flags = set()
    for word in text.split():
        name, equals, value = word.partition("=")
        (values.__setitem__(name, value) if equals else flags.add(name))
    if flags - {"attention", "causal", "lse", *_BYTES}:
        return None
    try:
        batch, heads, d = (int(values[name]) for name in "bhd")
        nq, nk = (int(values.get(name) or values["n"]) for name in ("nq", "nk"))
        shared = int(values.get("hkv", heads))
        if not all(0 < one < _MOST for one in (batch, heads, shared, nq, nk, d)):
            return None
        causal = "causal" in flags
        keys = min(nq, nk) if causal else nk
        elements = sum(
            d * _distinct(values.get(name), batch, count, rows)
            for name, count, rows in (("q", heads, nq), ("k", shared, keys), ("v", shared, keys), ("o", heads, nq))
        )
        more = sum(_operand_bytes(values[name]) for name in ("bias", "mask") if name in values)
        more += 4 * batch * heads * nq if "lse" in flags else 0
    except (KeyError, ValueError):
        return None
    flops = 4.0 * batch * heads * d * _pairs(nq, nk, causal)
    plain = not causal and "bias" not in values and "mask" not in values
    return Attention(batch, heads, nq, nk, d, plain, flops, elements * 2.0 + more)
