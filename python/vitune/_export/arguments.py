# python/vitune/_export/arguments.py -- The arguments of a recorded call by their names, and numbers as expressions have them.
# SPDX-License-Identifier: Apache-2.0
"""A call whose arguments are not all known is refused: an argument that is left out means something."""
from __future__ import annotations

import math
from typing import Any

from torch import fx

from .._runtime.errors import Unsupported


def plain_name(target: Any) -> str:
    """"add" of torch.add, "add", operator.add, Tensor.__add__ and Tensor.__radd__."""
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        name = name[1:] if name in ("radd", "rmul") else name
    name = name.lstrip("_") if name.startswith("_") and not name.startswith("_to") else name
    return name.partition(".")[0]


def bound(node: fx.Node, names: str) -> list[Any]:
    """Arguments by the names and defaults of a function: "input dim=-1". Raises Unsupported where it has others."""
    order = [word.partition("=")[0] for word in names.split()]
    defaults = {word.partition("=")[0]: _default(word.partition("=")[2]) for word in names.split()}
    given = dict(node.kwargs)
    if len(node.args) > len(order) or not given.keys() <= set(order):
        raise Unsupported(f"with arguments that are not known: {sorted(given.keys() - set(order)) or len(node.args)}")
    return [{**defaults, **dict(zip(order, node.args)), **given}[name] for name in order]


def _default(text: str) -> Any:
    if text in ("", "True", "False"):
        return {"True": True, "False": False}.get(text)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def number(value: Any) -> str:
    """A constant of an expression."""
    value = float(value)
    if not math.isfinite(value):
        return ("-" if value < 0 else "") + "3.4028234663852886e+38" if math.isinf(value) else refuse("a constant that is no number")
    return repr(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(value)


def refuse(reason: str) -> Any:
    raise Unsupported(reason)
