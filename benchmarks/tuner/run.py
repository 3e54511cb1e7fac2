#!/usr/bin/env python3
# benchmarks/tuner/run.py -- Tunes the same problems from nothing again and again, then races all winners beside each other.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/tuner/run.py --help says what it takes. Needs the standard library only, and a GPU."""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
sys.path.insert(0, str(HERE.parent))

from peers.engine import document  # noqa: E402
from tuner import figures, race  # noqa: E402

#: Outside of the presets and of what winners are shipped for.
PROBLEMS = (
    "attention bf16 b=32 h=8 nq=196 nk=196 d=48 layout=packed",
    "attention bf16 b=8 h=16 nq=785 nk=785 d=64 layout=packed",
    "attention bf16 b=64 h=6 nq=145 nk=145 d=64 layout=packed",
    "attention bf16 b=1 h=16 nq=577 nk=577 d=88 layout=packed",
    "linear bf16 m=6272 n=1536 k=384 bias act=gelu",
    "linear bf16 m=8192 n=1408 k=352 bias residual",
    "linear bf16 m=200 n=3072 k=768 bias act=gelu",
    "linear bf16 m=12544 n=576 k=192 bias",
    "norm bf16 m=6272 d=448 weight bias residual sum",
    "window_attention bf16 b=16 image=28x28 window=7x7 shift=3x3 h=8 d=32 bias=bf16:16x8x49x49",
)


def tune(command: str, problems: list[str], seed: int, cores: int, folder: pathlib.Path) -> list[dict[str, Any]]:
    """Rows of one tune from nothing. Raises RuntimeError with what the command said."""
    database = folder / f"{cores}-{seed}.db"
    began = time.monotonic()
    run = subprocess.run([command, "tune", "--quiet", "--json", "--fresh", "--seed", str(seed), "--objective", "warm", "--jobs", str(cores),
                          "--db", str(database), *problems], capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"'{command} tune' ended with {run.returncode}: {run.stderr.strip()[-500:]}")
    seconds = time.monotonic() - began
    print(f"seed {seed}, {cores} cores: {seconds:.1f} s", flush=True)
    return [{"problem": one["problem"], "seed": seed, "cores": cores, "seconds": round(one["seconds"], 2), "trials": one["trials"],
             "config": race.text_of(one["winner"]["config"])} for one in json.loads(run.stdout)["results"] if one["winner"]]


def raced(rows: list[dict[str, Any]], known: list[dict[str, Any]], arguments: argparse.Namespace, folder: pathlib.Path) -> None:
    """Notes in each row what its config takes and what the best one of its problem does, all configs of a problem in one race."""
    times = race.times_of([*rows, *known], arguments.variants, arguments.templates, folder)
    for row in rows:
        of_problem = times[row["problem"]]
        row["warm_us"], row["best_us"] = of_problem[row["config"]], min(of_problem.values())


def main(words: list[str] | None = None) -> int:
    """0; 1: the command, the race or a file failed."""
    parser = argparse.ArgumentParser(prog="benchmarks/tuner/run.py", description=__doc__)
    add = parser.add_argument
    add("command", help="vitune")
    add("variants", help="vitune_bench_variants, for the race")
    add("--json", type=pathlib.Path, default=pathlib.Path("tuner.json"), metavar="FILE")
    add("--seeds", type=int, default=4, help="tunes of each problem")
    add("--first-seed", type=int, default=1)
    add("--limit", type=float, default=3600, metavar="SECONDS", help="no further tune begins that would leave less than a fifth of it to the race")
    add("--cores", type=int, default=16, help="compile processes")
    add("--known", type=pathlib.Path, metavar="FILE", help="an earlier document, or lines {problem, config}, whose configs race too")
    add("--templates", type=pathlib.Path, default=HERE.parents[1] / "templates", metavar="FOLDER")
    add("--problem", action="append", metavar="TEXT", help="instead of the usual ones")
    arguments = parser.parse_args(words)
    problems = arguments.problem or list(PROBLEMS)
    began = time.monotonic()
    try:
        name = race.device_name(arguments.command)
        if not name:
            raise ValueError(f"'{arguments.command}' finds no usable GPU, and a recording does not have these problems: '{arguments.command} doctor'"
                             " says what is missing")
        known = race.known_from(arguments.known) if arguments.known else []
        with tempfile.TemporaryDirectory() as folder:
            rows: list[dict[str, Any]] = []
            longest = 0.0
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                now = time.monotonic()
                if now - began + longest > 0.8 * arguments.limit:
                    print(f"no time is left for seed {seed} and those after it", flush=True)
                    break
                rows += tune(arguments.command, problems, seed, arguments.cores, pathlib.Path(folder))
                longest = max(longest, time.monotonic() - now)
            if not rows:
                raise ValueError("no problem was tuned")
            raced(rows, [one for one in known if one["problem"] in problems], arguments, pathlib.Path(folder))
        found = {"schema": 1, "command": "tuner", "device": {"name": name},
                 "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "figures": figures.of(rows), "rows": rows}
        document.write(found, arguments.json)
    except (OSError, RuntimeError, ValueError) as reason:
        print(f"tuner: {reason}", file=sys.stderr)
        return 1
    print(*(f"{name}: {value}" for name, value in found["figures"].items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
