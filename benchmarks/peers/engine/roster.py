# benchmarks/peers/engine/roster.py -- What the folder of an operator's peers provides to the engine.
# SPDX-License-Identifier: Apache-2.0
"""A later operator is a folder with such a class and a line in ../rosters.py.

Tables read results without PyTorch, and first calls time its import: importing a roster must not import
PyTorch. What needs it is imported in the methods.
"""

from __future__ import annotations

import abc
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .peer import Peer, Settings
from .problems import Problem


@dataclasses.dataclass(frozen=True)
class Errors:
    """Difference from fp64: largest, root mean square, and norm over the norm of the outputs."""

    max: float
    rms: float
    relative: float


class Reference(Protocol):
    """The right answer of a problem on given operands, in fp64."""

    #: A remark that a reader needs ("judged on 4 of 64 heads"), "" for nothing.
    remark: str

    def errors(self, output: Any) -> Mapping[str, Errors]:
        """By output, the one that peers are compared by first. What is not finite gives infinite errors."""

    def instead(self, output: Any) -> str:
        """Which other function a right-looking output is of, "" for none; asked where Call.provider is set."""


@dataclasses.dataclass(frozen=True)
class FirstCalls:
    """Whose first call is a launch and no compilation of minutes, and of which problems by default."""

    peers: tuple[str, ...]  #: they also have make(): the call as prepare() gives it, not made yet
    problems: tuple[str, str]  #: that of the first call, and one that the same process asks next


class Roster(abc.ABC):
    """The peers of the operators of one folder, which are measured in one run."""

    #: That of the folder.
    name: str
    #: First words of the texts of its problems.
    words: tuple[str, ...]
    #: Measured if no problem is named.
    shipped: pathlib.Path
    #: All peers, in the order of tables. "vitune" and others of peer.OURS are among them.
    names: tuple[str, ...]
    #: Who takes part unless others are named.
    usual: tuple[str, ...]
    #: These compile or tune at their first call, which is worth doing ahead and in parallel.
    compiled: tuple[str, ...] = ()
    #: Ways from before fused kernels: shown, and no peers to be beaten.
    unfused: tuple[str, ...] = ()
    #: Which of peer.OURS the tables compare with the peers, what users get first.
    ways: tuple[str, ...] = ("vitune",)
    #: True if the tables also say how vitune stands if those count.
    counts_unfused: bool = False
    #: Which of vitune's winners serve, "cold" or "warm": the first unless --objective names another.
    objectives: tuple[str, ...] = ("cold",)
    #: Peers and groups in the words of a reader.
    labels: Mapping[str, str] = {}
    groups: Mapping[str, str] = {}
    #: None: they are not measured.
    first_calls: FirstCalls | None = None

    @abc.abstractmethod
    def problem(self, entry: Mapping[str, Any]) -> Problem:
        """Of an object with `problem` and optionally name, group, floor_us. Raises BadProblem."""

    @abc.abstractmethod
    def operands(self, problem: Any, device: str = "cuda") -> Any:
        """Fresh random inputs; seed PyTorch before. Raises ValueError for what no peer takes."""

    @abc.abstractmethod
    def reference(self, problem: Any, operands: Any) -> Reference:
        """The right answer, on the operands' device."""

    @abc.abstractmethod
    def output_bytes(self, problem: Any, operands: Any) -> Sequence[int]:
        """Sizes of the outputs: so much memory is poisoned before the call that is judged."""

    @abc.abstractmethod
    def peers(self, names: Sequence[str], settings: Settings) -> list[Peer]:
        """Those of these names, in the order of `names` above."""

    def shares(self, peer: str, problem: Any) -> tuple[Any, ...]:
        """Problems for which this is equal share a compiling peer's kernels: one process compiles them."""
        return (problem.text,)

    def compile_ahead(
        self, peer: str, problem: Any, operands: Any, settings: Settings
    ) -> None:
        """Fills a compiling peer's caches on disk. Raises as a peer's prepare()."""
        self.peers([peer], settings)[0].prepare(problem, operands)

    def broken(self, names: Sequence[str]) -> Mapping[str, str]:
        """Which of these peers give wrong answers on this GPU, and why: they are not timed."""
        return {}
