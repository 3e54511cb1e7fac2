# benchmarks/peers/engine/judge.py -- Which results count, and what must be said about them.
# SPDX-License-Identifier: Apache-2.0
"""Plain numbers: no PyTorch here."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .peer import OURS

#: 16-bit outputs are 2e-3 to 3e-3 from fp64; above this the peer computed something else.
WRONG = 0.02
#: vitune's error over the best fused peer's from which it is flagged.
WORSE = 1.5


def wrong(relative: float, what: str = "the output") -> str | None:
    """Why an output does not count, given its norm-wise error; None if it does."""
    if not math.isfinite(relative):
        return f"wrong: not every element of {what} is finite and written"
    if relative > WRONG:
        return f"wrong: {what} is {relative:.3g} from fp64 (norm of the difference over norm)"
    return None


def compared(
    row: Mapping[str, Any], names: Iterable[str], unfused: Collection[str] = ()
) -> list[str]:
    """Those of `names` that vitune is compared with in this row: fused, and of the same function."""
    same = row.get("same_function", {})
    return [
        name
        for name in names
        if name not in OURS and name not in unfused and same.get(name, True)
    ]


def error_flags(
    errors: Mapping[str, Mapping[str, float]], others_of: Collection[str]
) -> list[str]:
    """Sentences where vitune's error is more than WORSE times that of the best of these peers."""
    flags = []
    for name in OURS:
        for kind in ("max", "rms"):
            others = {peer: errors[peer][kind] for peer in others_of if peer in errors}
            if name not in errors or not others:
                continue
            best = min(others, key=others.__getitem__)
            if errors[name][kind] > WORSE * others[best]:
                flags.append(
                    f"{name}: {kind} error {errors[name][kind]:.2e} is more than {WORSE} times "
                    f"{best}'s {others[best]:.2e}"
                )
    return flags


def repeat_flags(name: str, repeats: dict[str, int]) -> list[str]:
    """A sentence where calls with the same inputs gave different outputs."""
    if repeats["different"] == 0:
        return []
    return [f"{name}: {repeats['different']} of {repeats['calls']} calls gave other bits"]
