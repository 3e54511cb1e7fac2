# benchmarks/report/page.py -- Sections as one HTML page without scripts.
# SPDX-License-Identifier: Apache-2.0
"""Every text is escaped; a section that shows nothing is left out."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

from . import picture
from .picture import Picture
from .style import css

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclasses.dataclass
class Table:
    """Cells of texts; `left` columns of words, then figures."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


@dataclasses.dataclass
class Section:
    """A part of the page."""

    id: str
    heading: str
    caption: str
    source: str  #: device, date and versions of its figures
    pictures: list[Picture] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Page:
    """All of it."""

    title: str
    subtitle: str
    replayed: str = ""  #: a sentence, if any time is of a recording
    tiles: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    sections: list[Section] = dataclasses.field(default_factory=list)


def _cells(table: Table, cells: Sequence[str], of_head: bool) -> str:
    parts = []
    for number, cell in enumerate(cells):
        tag = "th" if of_head or number == 0 else "td"
        kind = ' class="n"' if number >= table.left else ""
        parts.append(f"<{tag}{kind}>{html.escape(cell)}</{tag}>")
    return "<tr>" + "".join(parts) + "</tr>"


def _table(table: Table) -> str:
    rows = "\n".join(_cells(table, row, False) for row in table.rows)
    title = f"<h3>{html.escape(table.title)}</h3>" if table.title else ""
    return (f'{title}<div class="scroll" tabindex="0"><table><thead>{_cells(table, table.head, True)}</thead>'
            f"<tbody>\n{rows}\n</tbody></table></div>")


def _tables(tables: Sequence[Table], source: str) -> str:
    """Folded: the numbers and what they were measured on; the page's head has the dates."""
    if not tables:
        return _paragraphs([source], "note")
    rows = sum(len(table.rows) for table in tables)
    said = f'<summary>The numbers ({rows} row{"s" * (rows != 1)})</summary>'
    hint = '<p class="note hint">Wide tables scroll sideways.</p>'
    return f"<details>{said}{_paragraphs([source], 'note')}{hint}{''.join(map(_table, tables))}</details>\n"


def _paragraphs(texts: Sequence[str], kind: str) -> str:
    return "".join(f'<p class="{kind}">{html.escape(text)}</p>\n' for text in texts if text)


def _figure(drawn: Picture) -> str:
    caption = f"<figcaption>{html.escape(drawn.heading)}</figcaption>" if drawn.heading else ""
    return f'<figure class="panel" style="width:{drawn.wide[0]}px">{caption}{picture.inline(drawn)}</figure>'


def _section(section: Section) -> str:
    panels = "".join(map(_figure, section.pictures))
    return (
        f'<section id="{section.id}" aria-labelledby="{section.id}-h">'
        f'<h2 id="{section.id}-h">{html.escape(section.heading)}</h2>\n'
        + _paragraphs([section.caption], "caption")
        + (f'<div class="panels">{panels}</div>\n' if panels else "")
        + _paragraphs(section.notes, "note")
        + _tables(section.tables, section.source)
        + "</section>\n"
    )


def render(page: Page) -> str:
    """The file's text."""
    tiles = "".join(f"<div><dt>{html.escape(what)}</dt><dd>{html.escape(figure)}</dd></div>"
                    for figure, what in page.tiles)
    links = " ".join(f'<a href="#{one.id}">{html.escape(one.heading)}</a>' for one in page.sections)
    title = html.escape(page.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{title}</title>\n<style>{css()}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n"
        + _paragraphs([page.subtitle], "subtitle")
        + _paragraphs([page.replayed], "subtitle warning")
        + (f'<dl class="tiles">{tiles}</dl>\n' if tiles else "")
        + (f'<nav aria-label="Sections">{links}</nav>\n' if len(page.sections) > 1 else "")
        + "</header>\n<main>\n"
        + "".join(map(_section, page.sections))
        + '</main>\n<footer><p class="note">Written by vitune report; pictures by matplotlib. '
        "Values appear under the pointer and in the tables.</p></footer>\n</body>\n</html>\n"
    )
