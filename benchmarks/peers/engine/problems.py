# benchmarks/peers/engine/problems.py -- Which problems are measured: texts and files, of one roster.
# SPDX-License-Identifier: Apache-2.0
"""The texts are parsed by libvitune (docs/problems.md); each roster makes problems of its own of them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

ROOT = pathlib.Path(__file__).resolve().parents[3]


class BadProblem(ValueError):
    """A problem or file that is not understood, or outside what this program compares."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One problem, with its name in tables and what the hardware needs at least."""

    name: str
    group: str
    text: str  #: equal texts are one problem
    floor_us: float | None

    @classmethod
    def named(cls, entry: Mapping[str, Any], text: str, *more: Any) -> Self:
        """Of a canonical text, with what the entry says besides; its name is the text if it has none. more: a subclass's own fields."""
        name, group = entry.get("name") or text, entry.get("group") or "given"
        return cls(str(name), str(group), text, entry.get("floor_us"), *more)

    def as_json(self) -> dict[str, Any]:
        """What Roster.problem() takes back."""
        return {
            "name": self.name,
            "group": self.group,
            "problem": self.text,
            "floor_us": self.floor_us,
        }


def text_of(entry: Any) -> str:
    """The text of an entry of a file. Raises BadProblem."""
    text = entry.get("problem") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        raise BadProblem(f"an entry without a text 'problem': {str(entry)[:200]}")
    return text


def known_text(entry: Any) -> str:
    """The same, of a problem that libvitune knows. Raises BadProblem."""
    import vitune  # tables read results without it

    text = text_of(entry)
    try:
        vitune.Problem(text)
    except vitune.VituneError as error:
        raise BadProblem(f"problem '{text}': {error}") from None
    return text


def _json_document(path: pathlib.Path) -> list[dict[str, Any]]:
    document = json.loads(path.read_text())
    entries = document.get("problems") if isinstance(document, dict) else None
    if not isinstance(entries, list) or document.get("schema") != 1:
        raise BadProblem(f'{path}: expected an object with "schema": 1 and "problems": [...]')
    return entries


def _lines(path: pathlib.Path) -> list[dict[str, Any]]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    return [
        json.loads(line) if line.startswith("{") else {"problem": line}
        for line in lines
        if line and not line.startswith("#")
    ]


def entries_of(path: pathlib.Path) -> list[dict[str, Any]]:
    """The entries of a .json, .jsonl or .txt file (docs/problems.md). Raises BadProblem."""
    try:
        return _json_document(path) if path.suffix == ".json" else _lines(path)
    except (OSError, json.JSONDecodeError) as error:
        raise BadProblem(f"cannot read the problems of {path}: {error}") from None


def _one_roster(problems: Sequence[Problem], roster_of: Callable[[str], Any]) -> Any:
    """The roster of all of them. Raises BadProblem if they have several."""
    found: dict[str, list[Problem]] = {}
    for problem in problems:
        found.setdefault(roster_of(problem.text).name, []).append(problem)
    if len(found) > 1:
        told = " and ".join(f"{name} ({len(of)})" for name, of in found.items())
        patterns = ["|".join(roster_of(of[0].text).words) for of in found.values()]
        raise BadProblem(
            f"the problems are of {told}, which have peers of their own: measure each in a run of its "
            "own, from a file of one of them or with "
            + " or ".join(f"--only '^({pattern}) '" for pattern in patterns)
        )
    return roster_of(problems[0].text)


def _matcher(only: str | None) -> Callable[[Problem], bool]:
    """Whether the regular expression is in a problem's name, group or text. Raises BadProblem."""
    if only is None:
        return lambda problem: True
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise BadProblem(f"--only '{only}' is no regular expression: {error}") from None
    return lambda problem: any(
        pattern.search(word) for word in (problem.name, problem.group, problem.text)
    )


def collect(
    roster_of: Callable[[str], Any],
    texts: Sequence[str],
    files: Iterable[pathlib.Path] = (),
    only: str | None = None,
) -> tuple[Any, list[Problem]]:
    """The roster and the problems of texts and files, the shipped ones if neither is given.

    roster_of: tells it by a text. only: a regular expression that is searched in names, groups and
    texts. Two entries of one text are one problem. Raises BadProblem, also when nothing is left or
    what is left has several rosters.
    """
    wanted, files = _matcher(only), list(files)
    entries: list[Any] = [{"problem": text} for text in texts]
    for path in files if texts or files else [roster_of("").shipped]:
        entries += entries_of(path)
    if not entries:
        raise BadProblem(f"no problem is in {', '.join(map(str, files))}")
    found: dict[str, Problem] = {}
    for entry in entries:
        problem = roster_of(text_of(entry)).problem(entry)
        found.setdefault(problem.text, problem)
    problems = [problem for problem in found.values() if wanted(problem)]
    if not problems:
        raise BadProblem(f"no problem is left: '{only}' is in no name, group or text")
    return _one_roster(problems, roster_of), problems
