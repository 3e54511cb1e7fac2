# benchmarks/train_models/cli.py -- The command line of `make train-models`.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import pathlib
from typing import Any

from models.program import WRONG, Program

from . import document, roster

__all__ = ["WRONG", "TrainModels", "main"]

_DESCRIPTION = """Time per training step of whole models: eager, compiled, as CUDA graphs, and by vitune.
The document is on disk after each row. A model that hangs or fails costs its row, a way that fails costs its figure. What the time
did not suffice for is measured by a later call with --resume; compiled models go on with what the caches have by then."""


class TrainModels(Program):
    """Training steps."""

    name, description, document, file = document.COMMAND, _DESCRIPTION, document, "train_models.json"
    list_help = "MODEL:BATCH,MODEL:BATCH:bf16,searched/MODEL:BATCH,graph/MODEL:BATCH,eager/MODEL:BATCH,losses/MODEL:BATCH"
    run_py = pathlib.Path(__file__).with_name("run.py")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--losses", action="store_true", help="also, after steps: how losses fall beside fp32, in some minutes a model")

    def tasks(self, arguments: argparse.Namespace) -> list[roster.Task]:
        if arguments.models:
            return roster.tasks_of(arguments.models)
        return [*roster.TASKS, *(roster.LOSSES if arguments.losses else [])]

    def method(self) -> dict[str, str]:
        from . import about

        return about.METHOD

    def session(self, result: dict[str, Any], arguments: argparse.Namespace, clock: Any, ceilings: Any) -> Any:
        from .session import Session

        return Session(result, arguments.json, arguments.device, clock, ceilings, lambda: self.trim(arguments))


def main(words: list[str] | None = None) -> int:
    """See Program.main()."""
    return TrainModels().main(words)
