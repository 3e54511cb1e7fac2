# benchmarks/peers/map/expression.py -- A map's expression: add(a,mul(b,0.5)) as a tree.
# SPDX-License-Identifier: Apache-2.0
"""Reads what libvitune has accepted; the words are in docs/problems.md. No PyTorch here."""

from __future__ import annotations

import re
import struct
from typing import Any

#: A letter, a constant, or a word with its arguments: ("add", "a", ("mul", "b", 0.5)).
Expression = Any

_TOKEN = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|[a-z_]+|[(),]")
#: Words of which a negative argument has no number.
_OF_POSITIVE = {"log", "sqrt", "rsqrt"}


def _fp32(text: str) -> float:
    """The constant as kernels have it."""
    return struct.unpack("f", struct.pack("f", float(text)))[0]


def _argument(tokens: list[str]) -> Expression:
    token = tokens.pop(0)
    if not token[0].isalpha():
        return _fp32(token)
    if not tokens or tokens[0] != "(":
        return token
    parts: list[Expression] = [token]
    while tokens.pop(0) != ")":  # a bracket or a comma, and an argument behind it
        parts.append(_argument(tokens))
    return tuple(parts)


def read(text: str) -> Expression:
    """The tree of an expression that libvitune reads."""
    return _argument(_TOKEN.findall(text))


def words_of(expression: Expression) -> set[str]:
    """The words in it, each once."""
    if not isinstance(expression, tuple):
        return set()
    word, *arguments = expression
    return {word}.union(*(words_of(argument) for argument in arguments))


def needs_positive(expression: Expression) -> bool:
    """Whether it has a word that makes no number of a negative one."""
    return bool(words_of(expression) & _OF_POSITIVE)
