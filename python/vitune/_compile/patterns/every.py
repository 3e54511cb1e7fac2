# python/vitune/_compile/patterns/every.py -- THE list of fusion patterns: those of the operators, and those that a program registers.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from ..._ops import decompositions, remembered
from ..._runtime.errors import InvalidArgument
from . import (attention, attention_train, group_norm, heads, linear, linear_pair, linear_train, norm, norm_train, packed, patches, patches_train,
               windows, windows_train)
from .match import FusionPattern

#: The first that can be put in at a node is. An operator adds its patterns in a file of its own, and a word here.
PATTERNS: tuple[FusionPattern, ...] = (windows.windows, windows_train.windows_train,
                                       attention_train.attention_train, attention.attention, attention.unfused_attention,
                                       heads.heads, packed.packed,
                                       linear_train.linear_train, linear_pair.linear_pair, linear.linear,
                                       patches_train.patches_train, patches.patches,
                                       norm_train.norm_train, norm.norm,
                                       group_norm.group_norm)

decompositions.register()


def called_for_ours() -> list[str]:
    """Our operators in whose place Inductor calls the operators' library's."""
    return sorted(map(str, remembered.in_compilers()))


def register(pattern: FusionPattern | type[FusionPattern]) -> Any:
    """Adds a pattern, or one of a class, to those of all models that are compiled from now on, before those that are there. Returns it."""
    global PATTERNS
    made = pattern() if isinstance(pattern, type) else pattern
    if made.name in {each.name for each in PATTERNS}:
        raise InvalidArgument(f"there is a pattern of the name '{made.name}', by which replace=[...] tells them apart: choose another")
    PATTERNS = (made, *PATTERNS)
    return pattern
