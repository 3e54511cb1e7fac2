# benchmarks/report/palette.py -- The colours of the report, by what they stand for, in both schemes.
# SPDX-License-Identifier: Apache-2.0
"""matplotlib is given a colour that means "number n of this list"; in the page it becomes a CSS variable.

The hues are those of Okabe and Ito (2008), which colour-blind readers can tell apart, darkened or lightened
for contrast: lines and marks 3 : 1 against the surface, texts 4.5 : 1. Shapes differ as well.
"""

from __future__ import annotations

import re

COLOURS = {
    "page": ("#f6f8fa", "#0d1117"),
    "ink": ("#1b1f24", "#e6e9ee"),
    "muted": ("#57606a", "#a3adb8"),
    "axis": ("#8c959f", "#6e7781"),
    "grid": ("#e4e8ec", "#2c333b"),
    "surface": ("#ffffff", "#161b22"),
    "ours": ("#0067a8", "#58b6f0"),
    "loss": ("#c94f00", "#ff8f45"),
    "peer": ("#b85a00", "#f0a040"),
    "compiled": ("#8a7300", "#e8d84a"),
    "plain": ("#6e7781", "#9aa4af"),
    "kind-gemm": ("#0067a8", "#58b6f0"),
    "kind-attention": ("#c94f00", "#ff8f45"),
    "kind-norm": ("#00805e", "#2ec79b"),
    "kind-activation": ("#8a7300", "#e8d84a"),
    "kind-copies": ("#a83c7a", "#e58fc0"),
    "kind-convolution": ("#5b3fa0", "#b09bf0"),
    "kind-other": ("#6e7781", "#9aa4af"),
}
_NAMES = list(COLOURS)


def paint(name: str) -> str:
    """The colour that stands for a name until css() of the page gives it a value."""
    return f"#0101{_NAMES.index(name):02x}"


def with_variables(tag: str) -> str:
    """Every paint of a tag as `var(--name)`."""
    return re.sub(r"#0101([0-9a-f]{2})", lambda m: f"var(--{_NAMES[int(m[1], 16)]})", tag)


def variables(dark: bool) -> str:
    """The CSS variables of a scheme."""
    return "".join(f"--{name}:{pair[dark]};" for name, pair in COLOURS.items())
