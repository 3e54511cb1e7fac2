# benchmarks/peers/attention/vitune_peers.py -- vitune as a user calls it, and its untuned default kernels.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

import torch
import vitune

from ..engine.peer import Call, Refused
from .operands import Operands
from .problem import Problem


def use_database(path: pathlib.Path | None) -> None:
    """Makes vitune.attention() read this database; before its first call."""
    if path is not None:
        os.environ["VITUNE_DB"] = str(path.resolve())


def _words(problem: Problem) -> dict[str, Any]:
    """vitune.attention()'s arguments beside the tensors."""
    desc = problem.desc
    return {
        "is_causal": bool(desc.causal),
        "enable_gqa": problem.kv_heads != desc.heads,
        "scale": desc.scale or None,
    }


class Vitune:
    """vitune.attention(): the winner of the database, else what the library serves in its place."""

    name = "vitune"

    def make(self, problem: Problem, operands: Operands) -> Call:
        """The call, not made yet: the library is not asked anything."""
        t, words = operands, _words(problem)
        return Call(lambda: vitune.attention(t.q, t.k, t.v, t.mask, **words))

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Refused where the library has no kernel, or would be asked another text."""
        t = operands
        try:
            selection = vitune.explain(t.q, t.k, t.v, t.mask, **_words(problem))
        except vitune.Unsupported as error:
            raise Refused(str(error)) from None
        if selection.problem != problem.text:
            raise Refused(f"vitune.attention() asks '{selection.problem}' of such tensors")
        call = self.make(problem, operands)
        call.config, call.outcome = selection.config, selection.outcome
        call.run()
        return call


class VituneDefault:
    """The kernel that serves a problem nobody tuned: a context without any winner."""

    name = "vitune_default"

    def __init__(self, device: int = 0) -> None:
        self._device = device
        self._folder: Any = None
        self._context: Any = None

    def _open(self) -> Any:
        if self._context is None:
            self._folder = tempfile.TemporaryDirectory(prefix="vitune_peers_")
            self._context = vitune.Context(
                self._device,
                database=os.path.join(self._folder.name, "empty.db"),
                shipped_database="",
                on_miss="default",
            )
        return self._context

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles the default kernel. Raises Refused where there is none."""
        context, t, desc = self._open(), operands, problem.desc
        try:
            selection = context.query(desc)
            context.prepare(desc)
        except vitune.Unsupported as error:
            raise Refused(str(error)) from None
        if selection.outcome != "default":
            raise RuntimeError(f"an empty database gave '{selection.outcome}': {selection.reason}")
        shape = (desc.batch, desc.heads, desc.nq, desc.d)
        strides = (desc.o.batch, desc.o.head, desc.o.row, 1)
        pointers = (
            {}
            if t.mask is None
            else {"mask" if t.mask.dtype is torch.bool else "bias": t.mask.data_ptr()}
        )

        def run() -> torch.Tensor:
            out = torch.empty_strided(shape, strides, dtype=t.q.dtype, device=t.q.device)
            context.forward(
                desc,
                t.q.data_ptr(),
                t.k.data_ptr(),
                t.v.data_ptr(),
                out.data_ptr(),
                stream=torch.cuda.current_stream().cuda_stream,
                **pointers,
            )
            return out

        run()
        return Call(run, selection.config, selection.outcome)
