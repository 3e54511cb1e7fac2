# benchmarks/report/assemble.py -- From what was read to the page, models first.
# SPDX-License-Identifier: Apache-2.0
"""What was not measured has no section."""

from __future__ import annotations

import dataclasses
from typing import Any

from . import documents, first_calls, lengths, models, roofline, speed_up, training
from .page import Page
from .times import Times


@dataclasses.dataclass
class Inputs:
    """The documents of a report, as far as they are there."""

    times: Times | None = None
    models: dict[str, Any] | None = None
    ceilings: dict[str, Any] | None = None
    first_calls: dict[str, Any] | None = None
    cold_start: dict[str, Any] | None = None
    lengths: Times | None = None
    norms: list[Times] = dataclasses.field(default_factory=list)
    train_models: dict[str, Any] | None = None


def _place(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _of_times(times: Times) -> str:
    whole = times.replayed == len(times.rows)
    measured = "Replayed from a recording" if whole else f"{times.replayed} replayed from a recording, others measured" if times.replayed else "Measured"
    return _place(f"{measured} on {times.device or 'an unnamed GPU'}, {times.date}".rstrip(", "), times.versions) + "."


def _of_document(document: dict[str, Any] | None) -> str:
    if document is None:
        return ""
    place = f"Measured on {documents.device_name(document) or 'an unnamed GPU'}, {documents.day(document)}".rstrip(", ")
    return _place(place, documents.versions(document)) + "."


def _header(inputs: Inputs) -> tuple[str, str]:
    """Device, and one sentence with the date of each part and the versions."""
    dated = [("models", documents.day(inputs.models or {})), ("training", documents.day(inputs.train_models or {})), ("attention", inputs.times.date if inputs.times else ""),
             ("ceilings", documents.day(inputs.ceilings or {})), ("long inputs", inputs.lengths.date if inputs.lengths else ""),
             ("first calls", documents.day(inputs.first_calls or {}))]
    parts = ", ".join(f"{name} {date}" for name, date in dated if date)
    known = [document for document in (inputs.models, inputs.train_models, inputs.first_calls, inputs.cold_start, inputs.ceilings) if document]
    device = (inputs.times.device if inputs.times else "") or next(filter(None, map(documents.device_name, known)), "")
    versions = next((text for text in (*([inputs.times.versions] if inputs.times else []),
                                       *map(documents.versions, known)) if text), "")
    return device or "a GPU", _place(f"Dates: {parts}" if parts else "", _peers_words(inputs.times), versions) + "."


def _peers_words(times: Times | None) -> str:
    """Who the peers of attention are, and when they were measured where that was another run."""
    if times is None or not times.peers:
        return ""
    return f"peers of attention: {', '.join(times.peers)}" + (f" ({times.peers_from})" if times.stored_peers and times.peers_from else "")


def assemble(inputs: Inputs) -> Page:
    """Sections in the order of the page."""
    device, subtitle = _header(inputs)
    replayed, rows = (inputs.times.replayed, len(inputs.times.rows)) if inputs.times else (0, 0)
    page = Page(f"vitune on {device}" + (", replayed" if 0 < replayed == rows else ""), subtitle)
    if replayed:
        which = "vitune's times" if replayed == rows else f"{replayed} of vitune's {rows} times"
        page.replayed = f"Replayed: {which} were not measured on this machine; they come from a recording of {device}."
    found = []
    if inputs.models:
        page.tiles += models.tiles(inputs.models)
        found.append(models.section(inputs.models, _of_document(inputs.models)))
    if inputs.train_models:
        page.tiles += training.tiles(inputs.train_models)
        found.append(training.section(inputs.train_models, _of_document(inputs.train_models)))
    if inputs.times:
        page.tiles += speed_up.tiles(inputs.times)
        found.append(speed_up.section(inputs.times, _of_times(inputs.times)))
        found.append(roofline.section(inputs.times, inputs.ceilings, _of_times(inputs.times)))
    found.append(speed_up.norms([(times, _of_times(times)) for times in inputs.norms if times.rows]))
    for times in (inputs.lengths, inputs.times):
        if times and (section := lengths.section(times, _of_times(times))):
            found.append(section)
            break
    measured = inputs.first_calls or inputs.cold_start
    found.append(first_calls.section(inputs.first_calls, inputs.cold_start, _of_document(measured)))
    page.sections = [section for section in found if section]
    return page
