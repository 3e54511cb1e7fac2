# benchmarks/peers/engine/peer.py -- What a peer is: a name, and a call of one problem or a refusal.
# SPDX-License-Identifier: Apache-2.0
"""No PyTorch here: the engine's tests bring peers of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any, Protocol

#: vitune's own ways, which are no peers to be beaten.
OURS = ("vitune", "vitune_own", "vitune_default", "vitune_fixed")


class Refused(Exception):
    """The peer does not take this problem; never answered by another backend in its place."""


class Absent(Exception):
    """The peer is not installed here."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a run asks of vitune."""

    database: pathlib.Path | None = None  #: None: as vitune finds it
    objective: str = "cold"  #: whose winners serve
    own_database: pathlib.Path | None = None  #: what vitune_own is served above it


@dataclasses.dataclass
class Call:
    """One peer's call of one problem."""

    #: Launches on the current stream; returns the output, or a tuple in the order of Reference.errors().
    run: Callable[[], Any]
    config: str = ""  #: what it chose, for the reader
    outcome: str = ""  #: vitune: "exact", "nearest" or "default"
    provider: str = ""  #: whose kernel runs, where that is not told by the peer's name
    #: Why the peer computes another function than was asked ("GELU's tanh form"): shown, not counted.
    instead: str = ""
    #: What a reader of the row must know of this call, a sentence; "" for nothing.
    remark: str = ""
    #: Entered around a series of calls: what pins the peer to its backend.
    within: Callable[[], Any] = contextlib.nullcontext


class Peer(Protocol):
    """Makes calls. `prepare` raises Refused, Absent, or whatever the implementation raises."""

    name: str

    def prepare(self, problem: Any, operands: Any) -> Call: ...


class Missing:
    """A peer whose package is not here."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self._reason = name, reason

    def prepare(self, problem: Any, operands: Any) -> Call:
        """Raises Absent."""
        raise Absent(self._reason)


def is_refusal(error: BaseException) -> bool:
    """Whether PyTorch says that none of the backends that are allowed takes the call."""
    return isinstance(error, RuntimeError) and any(
        words in str(error) for words in ("No available kernel", "No viable backend")
    )


def sentence(error: BaseException, limit: int = 300) -> str:
    """One line of an exception, for tables and JSON."""
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, (Refused, Absent)):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= limit else text[: limit - 1] + "…"
