# tests/mutants/draw.py -- Mutants by chance: an operator, a file, a place in it, all by one seed.
# SPDX-License-Identifier: Apache-2.0
import hashlib
import itertools
import pathlib
import re
from collections.abc import Iterator

from mutant import Mutant

#: Where mutants are drawn: rooms whose tests need no GPU.
FOLDERS = ("core", "db", "generator", "runtime", "tuner/judge", "tuner/loop")

_HIDDEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*')
#: Lines that declare or only speak, rows of tables, and lengths of time: a change there says nothing of what the
#: program decides, or nothing that a test which no slow machine fails could tell.
_LEFT_OUT = re.compile(r"^\s*(?:#|using |template|static_assert|case |enum |\[\[|extern |\{[^;]*\},?$)"
                       r"|log\(|formatted\(|operator[<>]|\b(?:nano|micro|milli)?seconds(?: \w+)?[{(]\d")
_IF = re.compile(r"^(\s*(?:\} else )?if \()(.*)(\) (?:\{|return\b.*;|continue;|break;|throw\b.*;)\s*)$")
_GUARD = re.compile(r"^\s*if \(.*\) (?:return\b.*|continue|break);\s*$")
_DECLARES = re.compile(r"\b(?:auto|const|int|bool|Row|void)\b[\w\s:<>&*]* = ")
#: `a > b ... ? a : b`: at the bound both give the same.
_SAME_AT_BOUND = re.compile(r"\b(\w+) [<>]=? (\w+)\b[^?;]*\? (?:\1 : \2|\2 : \1)\b")
_NUMBER = re.compile(r"(?<![\w.'])(?:0|[1-9]\d*)(?![\w.'])")


def _masked(line: str) -> str:
    """The line with the insides of strings and comments blanked."""
    return _HIDDEN.sub(lambda found: " " * len(found.group(0)), line)


def _replaced(line: str, places: Iterator[re.Match], new) -> Iterator[str]:
    for place in places:
        yield line[:place.start()] + new(place.group(0)) + line[place.end():]


def _negations(line: str, masked: str) -> Iterator[str]:
    found = _IF.match(masked)
    if found and not _DECLARES.search(found.group(2)) and ";" not in found.group(2):
        begin, end = found.span(2)
        yield f"{line[:begin]}!({line[begin:end]}){line[end:]}"


def _bounds(line: str, masked: str) -> Iterator[str]:
    if _SAME_AT_BOUND.search(masked):
        return iter(())
    other = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > "}
    return _replaced(line, re.finditer(r" [<>]=? ", masked), other.__getitem__)


def _guards(line: str, masked: str) -> Iterator[str]:
    if _GUARD.match(masked) and not _DECLARES.search(masked):
        yield ""


def _numbers(line: str, masked: str) -> Iterator[str]:
    return _replaced(line, _NUMBER.finditer(masked), lambda number: str(int(number) + 1))


def _connectives(line: str, masked: str) -> Iterator[str]:
    other = {" && ": " || ", " || ": " && "}
    return _replaced(line, re.finditer(r" (?:&&|\|\|) ", masked), other.__getitem__)


OPERATORS = {"negated condition": _negations, "moved bound": _bounds, "dropped guard": _guards,
             "number plus one": _numbers, "other connective": _connectives}


def places(text: str, operator: str) -> list[tuple[int, str, str]]:
    """Every change that the operator can make: number of the line from 0, the line, the line changed."""
    found = []
    for number, line in enumerate(text.split("\n")):
        masked = _masked(line)
        if line.strip() and not _LEFT_OUT.search(masked):
            found += [(number, line, new) for new in OPERATORS[operator](line, masked)]
    return found


def _chosen(options: list, *words: object):
    """The option whose digest with the words is the least: any is as likely, and the others need not stay the same."""
    return min(options, key=lambda option: hashlib.sha256(repr((*words, option)).encode()).digest())


def drawn(root: pathlib.Path, seed: int) -> Iterator[Mutant]:
    """One after the other, each once; every operator is as frequent as the others. A change of the program redraws
    what is drawn from the files that it changes and leaves the rest."""
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
             for folder in FOLDERS for path in (root / folder).rglob("*.cpp")}
    seen = set()
    for turn in itertools.count():
        for operator in OPERATORS:
            file = _chosen(list(texts), seed, turn, operator)
            changes = places(texts[file], operator)
            if not changes:
                continue
            # By the texts, not by the number of the line, which changes with the lines before it.
            old, new = _chosen([change for _, *change in changes], seed, turn, operator, file)
            number = next(number for number, *change in changes if change == [old, new])
            mutant = Mutant(f"{file}:{number + 1} {operator}", file, old, new, line=number)
            if (mutant.name, new) not in seen:
                seen.add((mutant.name, new))
                yield mutant
