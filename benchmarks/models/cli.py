# benchmarks/models/cli.py -- The command line of `make models`.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import pathlib
from typing import Any

from . import document, energy, roster
from .program import WRONG, Program

__all__ = ["WRONG", "Models", "main"]

_DESCRIPTION = """Time per forward pass of whole models: PyTorch's attention beside vitune's, as they are and compiled.
The document is on disk after each row. A model that hangs or fails costs its row. What the time did not suffice for is
measured by a later call with --resume; compiled models go on with what the caches have by then."""


class Models(Program):
    """Forward passes."""

    name, description, document, file = "models", _DESCRIPTION, document, "models.json"
    list_help = "MODEL:BATCH,compiled/MODEL:BATCH,plain/MODEL:BATCH,calls"
    run_py = pathlib.Path(__file__).with_name("run.py")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--files", default="runner,aoti,onnxruntime", metavar="LIST",
                            help="as which files a compiled model is run beside torch.compile, of runner, aoti and onnxruntime; none")
        parser.add_argument("--energy-seconds", type=float, default=energy.SECONDS, metavar="S",
                            help="of a window in which a compiled model's joules are counted, three for each way; 0: none")

    def tasks(self, arguments: argparse.Namespace) -> list[roster.Task]:
        roster.kinds_of_files(arguments.files)
        if not 0 <= arguments.energy_seconds <= 60:
            raise ValueError(f"--energy-seconds {arguments.energy_seconds:g}: from 0 to 60")
        return roster.tasks_of(arguments.models) if arguments.models else roster.TASKS

    def method(self) -> dict[str, str]:
        from . import about

        return about.METHOD

    def session(self, result: dict[str, Any], arguments: argparse.Namespace, clock: Any, ceilings: Any) -> Any:
        import torch
        from vitune._compile.benchmark_model import energy_counter

        from .session import Session, Settings

        files = roster.kinds_of_files(arguments.files)
        counter = energy_counter(torch.device(arguments.device)) if arguments.energy_seconds else None
        meter = energy.Meter(counter, arguments.energy_seconds) if counter else None
        settings = Settings(arguments.device, clock, ceilings, lambda: self.trim(arguments), files, meter)
        return Session(result, arguments.json, settings)


def main(words: list[str] | None = None) -> int:
    """See Program.main()."""
    return Models().main(words)
