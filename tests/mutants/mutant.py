# tests/mutants/mutant.py -- One changed line of the program, and the tests that should notice it.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Check:
    """Tests of one program: a target of CMake and GoogleTest's filter."""

    target: str
    filter: str
    emulated: bool = False  #: on the emulated device

    def __str__(self) -> str:
        return f"{self.target} {self.filter}{' (emulated)' if self.emulated else ''}"


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str  #: of a named one: what the changed program gets wrong
    file: str
    old: str  #: exact text, once in the file; of a drawn one its whole line
    new: str
    checks: tuple[Check, ...] = ()  #: cheapest first; none: those of the file's room
    safety: bool = False  #: whether it may let a wrong or foreign kernel run, or memory be overwritten
    line: Optional[int] = None  #: of a drawn one, from 0

    def changed(self, text: str) -> str:
        """The file's text with the change. Raises ValueError where the old text is not there once."""
        if self.line is not None:
            lines = text.split("\n")
            if self.line >= len(lines) or lines[self.line] != self.old:
                raise ValueError(f"{self.file}:{self.line + 1} is not the line that was drawn")
            lines[self.line] = self.new
            return "\n".join(lines)
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times the text of '{self.name}': name it anew")
        return text.replace(self.old, self.new)
