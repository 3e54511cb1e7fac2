# benchmarks/peers/norms/vitune_peers.py -- vitune's norms: the database's winners, and untuned kernels.
# SPDX-License-Identifier: Apache-2.0
"""Through a context of one's own: vitune.layer_norm() and group_norm() serve the winners of cold calls only."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
import vitune

from ..engine.peer import Call, Refused, Settings
from .operands import Operands
from .problem import Problem


def _call(context: vitune.Context, asked: vitune.Problem, operands: Operands) -> Call:
    """Of a problem that the context has prepared; outputs are new tensors like x."""
    inputs = {
        name: getattr(operands, name).data_ptr()
        for name in ("x", "weight", "bias", "residual")
        if getattr(operands, name) is not None
    }
    tensors = list(enumerate(asked.tensors))
    fixed = [inputs[one.name] if one.given and not one.output else 0 for _, one in tensors]
    written = {one.name: place for place, one in tensors if one.given and one.output}
    places = [written[name] for name in ("out", "sum") if name in written]
    size, x = context.workspace_bytes(asked), operands.x
    scratch = torch.empty(max(size, 1), dtype=torch.uint8, device=x.device)

    def run() -> Any:
        outputs = [torch.empty_like(x) for _ in places]
        addresses = fixed.copy()
        for place, output in zip(places, outputs):
            addresses[place] = output.data_ptr()
        context.run(
            asked,
            addresses,
            workspace=scratch.data_ptr() if size else 0,
            workspace_bytes=size,
            stream=torch.cuda.current_stream().cuda_stream,
        )
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return Call(run)


class Vitune:
    """The winner of the database, else what the library serves in its place."""

    name = "vitune"

    def __init__(self, settings: Settings) -> None:
        self._options: dict[str, Any] = {"objective": settings.objective}
        if settings.database is not None:
            self._options["database"] = settings.database.resolve()
        self._context: Any = None

    def _open(self) -> vitune.Context:
        if self._context is None:
            self._context = vitune.Context(0, **self._options)
        return self._context

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Raises Refused where the library has no kernel."""
        context, asked = self._open(), vitune.Problem(problem.text)
        try:
            selection = context.query(asked)
            call = _call(context, asked, operands)
        except vitune.Unsupported as error:
            raise Refused(str(error)) from None
        call.config, call.outcome = selection.config, selection.outcome
        call.run()
        return call


class VituneDefault(Vitune):
    """The kernel that serves a problem nobody tuned: a context without any winner."""

    name = "vitune_default"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._folder: Any = None

    def _open(self) -> vitune.Context:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="vitune_peers_")
            self._options = {
                "database": os.path.join(self._folder.name, "empty.db"),
                "shipped_database": "",
                "on_miss": "default",
            }
        return super()._open()

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles the default kernel. Raises Refused where there is none."""
        call = super().prepare(problem, operands)
        if call.outcome != "default":
            raise RuntimeError(f"an empty database gave '{call.outcome}' for '{problem.text}'")
        return call
