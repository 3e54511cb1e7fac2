# python/vitune/_export/expression.py -- The expressions of `map` nodes: parsed, never executed as code.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from .._runtime.errors import Unsupported
from .graph import MOST_STEPS, OPERANDS, WORDS

_TOKEN = re.compile(r"[a-z_]+|-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|[(),]")
_FUNCTIONS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "min": torch.minimum, "max": torch.maximum,
    "lt": lambda a, b: (a < b).float(), "where": lambda c, a, b: torch.where(c != 0, a, b), "neg": torch.neg, "abs": torch.abs,
    "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos,
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "relu": torch.relu, "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"), "quick_gelu": lambda a: a * torch.sigmoid(1.702 * a), "silu": F.silu,
    "hardswish": F.hardswish}


class Call(NamedTuple):
    """A word and its arguments."""

    word: str
    arguments: tuple["Expression", ...]

    def __str__(self) -> str:
        return f"{self.word}({','.join(map(str, self.arguments))})"


#: A letter and a constant are texts: the constant as it was written.
Expression = Union[Call, str]


def parsed(text: str, letters: str = OPERANDS + "r") -> Expression:
    """Raises Unsupported for what is no expression of format 1."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        raise Unsupported(f"'{text}' is no expression of a map")
    at = iter(tokens)
    expression, rest = _read(next(at, ""), at, letters, 0)
    if rest or steps(expression) > MOST_STEPS:
        raise Unsupported(f"'{text}' is no expression of a map, or has more than {MOST_STEPS} steps")
    return expression


def _read(token: str, tokens: Iterator[str], letters: str, depth: int) -> tuple[Expression, str]:
    """An expression and the token behind it."""
    if token in WORDS and depth <= MOST_STEPS:
        if next(tokens, "") != "(":
            raise Unsupported(f"'{token}' has no arguments")
        arguments = []
        behind = ","
        while behind == ",":
            argument, behind = _read(next(tokens, ""), tokens, letters, depth + 1)
            arguments.append(argument)
        if behind != ")" or len(arguments) != WORDS[token]:
            raise Unsupported(f"'{token}' takes {WORDS[token]} arguments")
        return Call(token, tuple(arguments)), next(tokens, "")
    if len(token) == 1 and token in letters or token[:1] in "-0123456789" and token and math.isfinite(float(token)):
        return token, next(tokens, "")
    raise Unsupported(f"'{token}' is no word, operand or number of an expression")


def steps(expression: Expression) -> int:
    """Words in it."""
    return 1 + sum(map(steps, expression.arguments)) if isinstance(expression, Call) else 0


def letters_of(expression: Expression) -> list[str]:
    """Operands in the order of their first use."""
    if isinstance(expression, Call):
        return list(dict.fromkeys(letter for argument in expression.arguments for letter in letters_of(argument)))
    return [expression] if expression.isalpha() else []


def put(expression: Expression, into: Mapping[str, Expression]) -> Expression:
    """Expressions in the places of letters."""
    if isinstance(expression, Call):
        return Call(expression.word, tuple(put(argument, into) for argument in expression.arguments))
    return into.get(expression, expression)


def evaluated(text: str, operands: Mapping[str, Tensor]) -> Tensor:
    """In fp32."""
    def value(expression: Expression) -> Any:
        if isinstance(expression, Call):
            return _FUNCTIONS[expression.word](*map(value, expression.arguments))
        return operands[expression] if expression.isalpha() else torch.tensor(float(expression))
    return value(parsed(text))
