# python/vitune/_compile/report.py -- What vitune.compile() made of a model: each call that it knows, what serves it and why.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import html
from collections import Counter
from typing import Optional

from .._runtime.context import Selection
from .._runtime.structs import NOT_TUNED_HERE
from .patterns.benchmark import Times


_NOTHING = "nothing was compiled yet: call the model once"


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a model that an operator of vitune knows."""

    module: str  #: where in the model: "blocks.0.attn"
    operator: str  #: "attention", "attention_train", "window_attention_train", "linear", "linear_train", "norm", "norm_train", "group_norm"
    call: str  #: as the model makes it: "layer_norm of a sum"
    replaced: bool  #: by vitune's operator; False: it is left to Inductor
    reason: str  #: why it was left; empty if it was replaced
    selection: Optional[Selection]  #: the kernel that serves it, or would; None: not asked, or none can
    times: Optional[Times] = None  #: of it beside PyTorch's, measured as the model was compiled; None: not measured
    tried: tuple["Call", ...] = ()  #: larger ones around the same call that were left, or smaller ones where all were
    further: tuple[Selection, ...] = ()  #: as `selection`, where one call of vitune's is not enough
    trains: bool = False  #: a gradient is wanted of it; `times` are those of forward and backward

    @property
    def selections(self) -> tuple[Selection, ...]:
        return () if self.selection is None else (self.selection, *self.further)

    @property
    def untuned(self) -> tuple[str, ...]:
        """The problems that no winner of this GPU serves of the largest call that has some, of those that were tried."""
        by_size = (*self.tried, self) if self.replaced else (self, *self.tried)
        found = (tuple(each.problem for each in call.selections if each.outcome in NOT_TUNED_HERE) for call in by_size)
        return next(filter(None, found), ())

    def __str__(self) -> str:
        return "\n      ".join([self._line(), *(f"{'' if self.replaced else 'nor '}{call._line()}".replace("\n", "\n   ")
                                               for call in self.tried)])

    def _line(self) -> str:
        made = f"replaced{', forward and backward' if self.trains else ''}" if self.replaced else f"left as it is: {self.reason}"
        if self.selection is None:
            return f"{self.call}: {made}"
        measured = "" if self.times is None else f"{self.times}; "
        served = "\n      ".join(f"{_timed(each)}{each.problem}" for each in self.selections)
        return f"{self.call}: {made}\n      {measured}{served}"


def _timed(found: Selection) -> str:
    """The winner's stored times, or what those of the nearest problems predict."""
    if found.outcome == "exact" and found.cold_us:
        return f"{found.cold_us:.1f} us cold, {found.warm_us:.1f} warm: "
    return f"{found.predicted_us:.1f} us predicted: " if found.predicted_us else ""


@dataclasses.dataclass(frozen=True, repr=False)
class Graph:
    """One graph that Dynamo made of the model: one each for other sizes, types or modes, and after a break."""

    inputs: str  #: shapes of what the model was called with
    calls: tuple[Call, ...]
    error: str = ""  #: why calls that would have been replaced were left to Inductor, all together
    dead_rows: str = ""  #: which calls compute fewer rows than the model's, since nothing reads the others
    stems: str = ""  #: which convolutions lie otherwise than the model's, with their times

    def __str__(self) -> str:
        lines = [f"graph of {self.inputs}: {sum(call.replaced for call in self.calls)} of {len(self.calls)} known calls replaced"]
        if self.error:
            lines.append(f"   left to Inductor together: {self.error}")
        lines += [f"   {note}" for note in (self.dead_rows, self.stems) if note]
        lines += [f"{count:4d} x {text}" for text, count in Counter(str(call) for call in self.calls).items()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows: a row per call, equal ones once."""
        head, *notes = str(self).split("\n")[:1 + sum(map(bool, (self.error, self.dead_rows, self.stems)))]
        rows = "".join(_html_row(call, count) for call, count in Counter(map(_alike, self.calls)).items())
        titles = "".join(f"<th>{title}</th>" for title in ("calls", "call", "", "kernel", "here, us", "PyTorch's, us", "problem"))
        return (f"<p>{html.escape(head)}</p>" + "".join(f"<p>{html.escape(note.strip())}</p>" for note in notes)
                + f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>")


def _alike(call: Call) -> Call:
    """Without what tells apart calls that a reader sees as one."""
    return dataclasses.replace(call, module="", tried=())


def _html_row(call: Call, count: int) -> str:
    times = ("", "") if call.times is None or call.times.untimed else (f"{call.times.ours_us:.1f}", f"{call.times.theirs_us:.1f}")
    kernels = "; ".join(dict.fromkeys(each.outcome for each in call.selections))
    problems = "; ".join(each.problem for each in call.selections)
    cells = (str(count), call.call, "replaced" if call.replaced else f"left: {call.reason}", kernels, *times, problems)
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


@dataclasses.dataclass(frozen=True, repr=False)
class Report:
    """``print(vitune.report(compiled))`` says what was replaced, what not and why; in a notebook it is a table."""

    graphs: tuple[Graph, ...]

    @property
    def calls(self) -> tuple[Call, ...]:
        """Those of all graphs."""
        return tuple(call for graph in self.graphs for call in graph.calls)

    @property
    def untuned(self) -> tuple[str, ...]:
        """The problems that no winner serves: ``vitune.tune(*report.untuned)``. Of a call that was tried in several sizes the
        largest; when that was tuned and is not worth it, the next."""
        return tuple(dict.fromkeys(problem for call in self.calls for problem in call.untuned))

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs)) or _NOTHING

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(graph._repr_html_() for graph in self.graphs) or f"<p>{_NOTHING}</p>"
