# benchmarks/models/cli.py -- The command line of `make models`.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import pathlib
from typing import Any

from . import document, roster
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

    def tasks(self, arguments: argparse.Namespace) -> list[roster.Task]:
        roster.kinds_of_files(arguments.files)
        return roster.tasks_of(arguments.models) if arguments.models else roster.TASKS

    def method(self) -> dict[str, str]:
        from . import about

        return about.METHOD

    def session(self, result: dict[str, Any], arguments: argparse.Namespace, clock: Any, ceilings: Any) -> Any:
        from .session import Session, Settings

        files = roster.kinds_of_files(arguments.files)
        settings = Settings(arguments.device, clock, ceilings, lambda: self.trim(arguments), files)
        return Session(result, arguments.json, settings)


def main(words: list[str] | None = None) -> int:
    """See Program.main()."""
    return Models().main(words)
