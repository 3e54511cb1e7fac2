#!/usr/bin/env python3
# benchmarks/peers/linear/own_winners.py -- Of an export, the best kernel of vitune's own families for each linear layer and weight gradient.
# SPDX-License-Identifier: Apache-2.0
"""What vitune_own is served where a library's kernel won: --own-db, a layer above --db.

    vitune db export --db tuned.db tuned.json
    benchmarks/peers/linear/own_winners.py tuned.json own.json [--objective warm]
    vitune db import own.json --db own.db
    vitune verify --db own.db --from data/linear_problems.json --objective warm
    benchmarks/peers/run.py --from data/linear_problems.json --db tuned.db --own-db own.db

In the place of each winner of a family that calls a library comes the fastest right trial of another
family; a problem without one is named. `verify` judges it before it serves. OUT is not written where
vitune's own kernels won everything. Needs neither a GPU nor PyTorch.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any

#: Families that call a library for the product (docs/kernels.md).
LIBRARIES = ("cublaslt", "chain")
#: Operators that have such families.
OPERATORS = ("linear", "linear_weight_grad")

_EVIDENCE = (
    *("config", "kernel_key", "origin", "cold", "warm", "low_confidence"),
    *("max_error", "rms_error", "max_bound", "rms_bound"),
)


def family_of(config: str) -> str:
    """Of a config's text, "family=sm80 kBlockM=64 ..."; "" where it names none."""
    first = config.split(maxsplit=1)[0] if config.split() else ""
    return first.removeprefix("family=") if first.startswith("family=") else ""


def is_own(config: str) -> bool:
    """Whether no library computes the product."""
    return family_of(config) not in LIBRARIES


def _calls_library(config: dict[str, int]) -> bool:
    """Of a config as exports have it: the families that call a library store its version."""
    return config.get("kLibrary", 0) > 0


def _replaced(winner: dict[str, Any], trial: dict[str, Any]) -> dict[str, Any]:
    """The winner's row with another kernel and its evidence; nothing was raced against it."""
    return {
        **winner,
        **{key: trial[key] for key in _EVIDENCE},
        **{"verified": False, "runner_up": None},
        **{"lead_percent": 0.0, "lead_low_percent": 0.0, "lead_high_percent": 0.0},
    }


def own(export: dict[str, Any], objective: str) -> tuple[dict[str, Any], list[str]]:
    """(an export of what takes the place of a library's winners; the texts of which there is nothing)."""
    problems, found, missing = export["problems"], [], []
    best: dict[tuple[int, int], dict[str, Any]] = {}
    for trial in export.get("trials", []):
        if trial["status"] != "ok" or _calls_library(trial["config"]):
            continue
        key, us = (trial["device"], trial["problem"]), trial[objective]["median_us"]
        if us > 0 and (key not in best or us < best[key][objective]["median_us"]):
            best[key] = trial
    for winner in export["winners"]:
        problem = problems[winner["problem"]]
        if problem["operator"] not in OPERATORS or winner["objective"] != objective:
            continue
        if not _calls_library(winner["config"]):
            continue
        if trial := best.get((winner["device"], winner["problem"])):
            found.append(_replaced(winner, trial))
        else:
            missing.append(problem["text"])
    return {**export, "winners": found, "trials": [], "requests": []}, missing


def main() -> int:
    """0, 1 if problems have no kernel of vitune's own, 2 for a file that is no export."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("export", type=pathlib.Path, help="of `vitune db export`, with its trials")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--objective", choices=("warm", "cold"), default="warm")
    options = parser.parse_args()
    try:
        export = json.loads(options.export.read_text())
        if export["format"] != "vitune-export":
            raise KeyError("format")
        made, missing = own(export, options.objective)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"own_winners.py: {options.export} is no export of vitune's: {error}", file=sys.stderr)
        return 2
    options.out.unlink(missing_ok=True)
    if made["winners"]:
        options.out.write_text(json.dumps(made) + "\n")
    for text in missing:
        print(f"own_winners.py: no trial of vitune's own kernels: {text}", file=sys.stderr)
    print(f"{len(made['winners'])} winners of a library's gave way to vitune's own kernels")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
