# benchmarks/peers/peer.py -- What a peer is: a name, and a call of one problem or a refusal.
# SPDX-License-Identifier: Apache-2.0
"""No PyTorch here: the engine's tests bring peers of their own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

#: What users had before fused kernels, and what vitune itself brings, are no peers to be beaten.
OURS = ("vitune", "vitune_default")
UNFUSED = ("eager",)
#: In the order of tables.
NAMES = (*OURS, "cudnn", "flash", "effic", "fa3", "fa4", "flex", "triton", "compiled", *UNFUSED)
#: Who takes part unless others are named: compiling the plain formula for 40 problems takes long.
USUAL = tuple(name for name in NAMES if name != "compiled")
#: These compile or tune at their first call, which is worth doing ahead and in parallel.
COMPILED = ("flex", "triton", "fa4", "compiled")


class Refused(Exception):
    """The peer does not take this problem; never answered by another backend in its place."""


class Absent(Exception):
    """The peer is not installed here."""


@dataclasses.dataclass
class Call:
    """One peer's call of one problem."""

    run: Callable[[], Any]  #: launches on the current stream, returns the output [b, h, nq, d]
    config: str = ""  #: what it chose, for the reader
    outcome: str = ""  #: vitune: "exact", "nearest" or "default"
    #: Entered around a series of calls: what pins the peer to its backend.
    within: Callable[[], Any] = contextlib.nullcontext


class Peer(Protocol):
    """Makes calls. `prepare` raises Refused, Absent, or whatever the implementation raises."""

    name: str

    def prepare(self, problem: Any, operands: Any) -> Call: ...


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
