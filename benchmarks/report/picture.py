# benchmarks/report/picture.py -- A picture that matplotlib draws, as SVG for the page or for a file.
# SPDX-License-Identifier: Apache-2.0
"""Texts stay texts, colours become CSS variables, a mark that was given a tip says it under the pointer."""

from __future__ import annotations

import dataclasses
import html
import io
import re
from collections.abc import Callable

import matplotlib

matplotlib.use("svg")
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: E402

from .palette import paint, variables, with_variables  # noqa: E402

_LETTERS = 11
_STYLE = {
    "svg.fonttype": "none",
    "font.size": _LETTERS,
    "font.family": "sans-serif",
    "text.parse_math": False,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **{key: paint("surface") for key in ("figure.facecolor", "axes.facecolor", "legend.facecolor")},
    **{key: paint("ink") for key in ("text.color", "axes.labelcolor")},
    **{key: paint("axis") for key in ("axes.edgecolor", "xtick.color", "ytick.color")},
    **{key: paint("muted") for key in ("xtick.labelcolor", "ytick.labelcolor")},
    "grid.color": paint("grid"),
    "axes.axisbelow": True,
    "legend.frameon": False,
}


class Canvas:
    """One drawing: axes, and the tips of its marks."""

    def __init__(self, width: int, height: int):
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / 72, height / 72))
        self.tips: list[str] = []

    @property
    def narrow(self) -> bool:
        """Whether it is for a small screen."""
        return self.width < 450

    def axes(self, left: float, right: float, top: float, bottom: float) -> Axes:
        """Axes with margins in pixels."""
        box = (left / self.width, bottom / self.height, 1 - (left + right) / self.width,
               1 - (top + bottom) / self.height)
        return self.figure.add_axes(box)

    def tip(self, *lines: str) -> str:
        """A gid for a mark that says these lines."""
        self.tips.append("\n".join(lines))
        return f"tip-{len(self.tips) - 1}"


@dataclasses.dataclass
class Picture:
    """What is drawn, in two widths."""

    name: str  #: of its file
    heading: str
    says: str  #: for those who do not see it
    draw: Callable[[Canvas], None]
    wide: tuple[int, int]
    narrow: tuple[int, int]


def _svg(picture: Picture, size: tuple[int, int], prefix: str) -> str:
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": prefix}):
        canvas = Canvas(*size)
        picture.draw(canvas)
        stream = io.StringIO()
        canvas.figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    svg = stream.getvalue()
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", body, flags=re.S)
    for number, tip in enumerate(canvas.tips):
        mark = f'<g id="tip-{number}">'
        body = body.replace(mark, f'<g class="point"><title>{html.escape(tip)}</title>')
    # In tags only: a text may look like a colour or an id. Ids of one page must differ.
    return re.sub("<[^>]*>", lambda m: with_variables(re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", m[0])), body)


def _open(picture: Picture, size: tuple[int, int], more: str) -> str:
    says = html.escape(picture.says)
    return f'<svg {more}viewBox="0 0 {size[0]} {size[1]}" role="img" aria-label="{says}">'


def inline(picture: Picture) -> str:
    """Both widths, of which the page's style shows one."""
    parts = []
    for form, size in (("wide", picture.wide), ("narrow", picture.narrow)):
        attributes = f'class="chart {form}" style="max-width:{size[0]}px" '
        parts.append(_open(picture, size, attributes) + _svg(picture, size, f"{picture.name}-{form}-") + "</svg>")
    return "\n".join(parts)


def standalone(picture: Picture) -> str:
    """A file that follows the reader's scheme, for a README say."""
    style = (f"<style>svg{{{variables(False)}}}@media (prefers-color-scheme:dark){{svg{{{variables(True)}}}}}"
             "*{stroke-linejoin:round}</style>")
    opened = _open(picture, picture.wide, 'xmlns="http://www.w3.org/2000/svg" '
                   'xmlns:xlink="http://www.w3.org/1999/xlink" ')
    return f"{opened}\n{style}{_svg(picture, picture.wide, '')}</svg>\n"


def short(value: float) -> str:
    """A tick of a logarithmic axis."""
    return f"{value:g}" if value < 1e4 else f"{value / 1e3:g}k"


def logarithmic(axis: object, ticks: list[float]) -> None:
    """Ticks of an axis where they are wanted, in plain figures."""
    axis.set_ticks(ticks)
    axis.set_ticks([], minor=True)
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_formatter(NullFormatter())


def ticks_between(low: float, high: float, steps: tuple[float, ...] = (1, 2, 5)) -> list[float]:
    """Round figures of a logarithmic range; at most eight."""
    found = [step * 10.0**power for power in range(-6, 13) for step in steps]
    found = [value for value in found if low <= value * 1.0001 and value <= high * 1.0001]
    if len(found) > 8 and steps != (1,):
        return ticks_between(low, high, (1, 3) if len(steps) > 2 else (1,))
    return found or [low, high]
