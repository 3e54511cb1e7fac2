# benchmarks/peers/problems.py -- Which problems are measured: the shipped file, texts, other files.
# SPDX-License-Identifier: Apache-2.0
"""The text of a problem is parsed by libvitune (docs/problems.md); here is no second parser."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import vitune

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "data" / "bench_problems.json"
DTYPES = {vitune.BF16: "bfloat16", vitune.FP16: "float16", vitune.FP32: "float32"}


class BadProblem(ValueError):
    """A problem or file that is not understood, or outside what this program compares."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One attention problem, with its name in tables and what the hardware needs at least."""

    name: str
    group: str
    text: str  #: canonical
    floor_us: float | None
    desc: Any = dataclasses.field(compare=False, repr=False)  #: vitune.AttentionDesc

    @property
    def scale(self) -> float:
        """The factor of q k^T."""
        return self.desc.scale or self.desc.d**-0.5

    @property
    def kv_heads(self) -> int:
        """Heads of k and v."""
        return self.desc.kv_heads or self.desc.heads

    @property
    def scores(self) -> int:
        """Pairs of query and key over all heads, masked ones too."""
        return self.desc.batch * self.desc.heads * self.desc.nq * self.desc.nk

    def as_json(self) -> dict[str, Any]:
        """What `of` takes back."""
        return {
            "name": self.name,
            "group": self.group,
            "problem": self.text,
            "floor_us": self.floor_us,
        }

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "Problem":
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""
        text = entry.get("problem")
        if not isinstance(text, str):
            raise BadProblem(f"an entry without a text 'problem': {str(entry)[:200]}")
        try:
            desc = vitune.AttentionDesc.parse(text)
            canonical = desc.text()
        except vitune.VituneError as error:
            raise BadProblem(f"problem '{text}': {error}") from None
        if desc.lse:
            raise BadProblem(f"problem '{text}': outputs are compared, so leave out the word lse")
        return cls(
            str(entry.get("name") or canonical),
            str(entry.get("group") or "given"),
            canonical,
            entry.get("floor_us"),
            desc,
        )


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


def collect(
    texts: Sequence[str] = (), files: Iterable[pathlib.Path] = (), only: str | None = None
) -> list[Problem]:
    """The problems of texts and files, the shipped ones if neither is given.

    only: a regular expression that is searched in names, groups and texts. Two entries of one
    canonical text are one problem. Raises BadProblem, also when nothing is left.
    """
    entries = [{"problem": text} for text in texts]
    for path in files:
        entries += entries_of(path)
    if not entries:
        entries = entries_of(SHIPPED)
    found: dict[str, Problem] = {}
    for entry in entries:
        problem = Problem.of(entry)
        found.setdefault(problem.text, problem)
    problems = [
        problem
        for problem in found.values()
        if only is None
        or any(re.search(only, word) for word in (problem.name, problem.group, problem.text))
    ]
    if not problems:
        raise BadProblem(f"no problem is left: '{only}' is in no name, group or text")
    return problems
