# benchmarks/peers/roster.py -- The peers of a run, by their names.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from .operands import Operands
from .peer import NAMES, Absent, Call
from .problems import Problem
from .torch_peers import torch_peers
from .vitune_peers import Vitune, VituneDefault


class Missing:
    """A peer whose package is not here."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self._reason = name, reason

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Absent."""
        raise Absent(self._reason)


def make_peers(names: list[str]) -> list[Any]:
    """The peers of these names, in the order of NAMES."""

    found = {peer.name: peer for peer in (Vitune(), VituneDefault(), *torch_peers())}
    if "triton" in names:
        try:
            from .triton_attention import TritonPeer

            found["triton"] = TritonPeer()
        except ImportError as error:
            found["triton"] = Missing("triton", f"Triton cannot be imported: {error}")
    return [found[name] for name in NAMES if name in names and name in found]
