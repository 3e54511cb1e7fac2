# benchmarks/peers/engine/vitune_context.py -- vitune as a peer of any operator: a problem's call through a Context.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import vitune

from .peer import Call, Refused, Settings

#: The tensors that a call is given, by vitune's names of them.
Inputs = Callable[[Any], Mapping[str, torch.Tensor | None]]
#: Makes the tensors that a call of these operands writes, in the order of Reference.errors().
Outputs = Callable[[Any, Any, Sequence[str]], Sequence[torch.Tensor]]


def _call(
    context: vitune.Context,
    asked: vitune.Problem,
    inputs: Mapping[str, torch.Tensor | None],
    written: Sequence[str],
    make: Callable[[], Sequence[torch.Tensor]],
    device: Any,
) -> Call:
    """Of a problem that the context has prepared."""
    given = {name: tensor.data_ptr() for name, tensor in inputs.items() if tensor is not None}
    fixed = [given[one.name] if one.given and not one.output else 0 for one in asked.tensors]
    names = [one.name for one in asked.tensors]
    places = [names.index(name) for name in written]
    size = context.workspace_bytes(asked)
    scratch = torch.empty(max(size, 1), dtype=torch.uint8, device=device)

    def run() -> Any:
        outputs = make()
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


class Winner:
    """The winner of a database, else what the library serves in its place."""

    name = "vitune"

    def __init__(self, settings: Settings, inputs: Inputs, outputs: Outputs, order: Sequence[str]) -> None:
        """order: names of an operator's outputs as Reference.errors() takes them."""
        self._options: dict[str, Any] = {"objective": settings.objective}
        if settings.database is not None:
            self._options["database"] = settings.database.resolve()
        self._inputs, self._outputs, self._order = inputs, outputs, order
        self._context: Any = None

    def _open(self) -> vitune.Context:
        if self._context is None:
            self._context = vitune.Context(0, **self._options)
        return self._context

    def _take(self, selection: vitune.Selection) -> None:
        """Raises Refused for a kernel that this peer does not stand for."""

    def prepare(self, problem: Any, operands: Any) -> Call:
        """Raises Refused where the library has no kernel."""
        context, asked = self._open(), vitune.Problem(problem.text)
        known = {one.name for one in asked.tensors if one.given and one.output}
        written = [name for name in self._order if name in known]
        inputs = self._inputs(operands)
        device = next(tensor.device for tensor in inputs.values() if tensor is not None)
        try:
            selection = context.query(asked)
            self._take(selection)
            call = _call(
                context,
                asked,
                inputs,
                written,
                lambda: self._outputs(problem, operands, written),
                device,
            )
        except vitune.Unsupported as error:
            raise Refused(str(error)) from None
        call.config, call.outcome = selection.config, selection.outcome
        call.run()
        return call


class Default(Winner):
    """The kernel that serves a problem nobody tuned: a context without any winner."""

    name = "vitune_default"

    def __init__(self, settings: Settings, inputs: Inputs, outputs: Outputs, order: Sequence[str]) -> None:
        super().__init__(settings, inputs, outputs, order)
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

    def prepare(self, problem: Any, operands: Any) -> Call:
        """Compiles the default kernel. Raises Refused where there is none."""
        call = super().prepare(problem, operands)
        if call.outcome != "default":
            raise RuntimeError(f"an empty database gave '{call.outcome}' for '{problem.text}'")
        return call
