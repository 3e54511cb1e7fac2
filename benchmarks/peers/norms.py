#!/usr/bin/env python3
# benchmarks/peers/norms.py -- vitune's norms beside everybody else's, one process, row by row.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/peers/norms.py [--db FILE] [--library FILE] [--from FILE] [--only REGEX] [--json FILE] [--budget S]

Times as in peers (cold: L2 emptied before each call; warm: CUDA graph replays), rounds in random orders, each row in
the file as soon as it is there. Problems: data/norm_problems.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "python")]

import torch  # noqa: E402
import vitune  # noqa: E402
from peers import device, document, judge, norm_peers  # noqa: E402
from peers.peer import Absent, Call, Refused, sentence  # noqa: E402
from peers.rounds import Limits, run_rounds  # noqa: E402
from peers.samples import Summary, geometric_mean  # noqa: E402
from peers.timing import DeviceTimer  # noqa: E402

SHIPPED = HERE.parents[1] / "data" / "norm_problems.json"


def errors(problem: Any, operands: Any, output: Any) -> dict[str, float]:
    """Largest, root mean square and relative difference from fp64."""
    want = norm_peers.reference(problem, operands)
    difference = norm_peers.result(output).double() - want
    return {"max": difference.abs().max().item(), "rms": difference.pow(2).mean().sqrt().item(),
            "relative": (difference.norm() / want.norm()).item()}


def prepare(problem: Any, operands: Any, peers: list[Any], row: dict[str, Any], absent: dict[str, str]) -> dict[str, Call]:
    """The calls of those that take the problem and answer it rightly."""
    calls = {}
    for peer in peers:
        try:
            call = peer.prepare(problem, operands)
            row["err"][peer.name] = errors(problem, operands, call.run())
            wrong = judge.wrong(row["err"][peer.name]["relative"])
            if wrong:
                row["failed"][peer.name] = wrong
                continue
            row["config"][peer.name] = call.config
            if peer.name == "vitune" and call.outcome != "exact":
                row["flags"].append(f"vitune: served as '{call.outcome}'")
            calls[peer.name] = call
        except Refused as reason:
            row["refused"][peer.name] = sentence(reason)
        except Absent as reason:
            absent[peer.name] = sentence(reason)
        except Exception as error:
            row["failed"][peer.name] = sentence(error)
    return calls


def note(row: dict[str, Any], kind: str, samples: dict[str, list[float]]) -> None:
    """Medians and spreads into the row."""
    for name, values in samples.items():
        if values:
            found = Summary.of(values)
            row["us"].setdefault(name, {}).update({kind: round(found.median, 3), f"{kind}_p10": round(found.p10, 3),
                                                   f"{kind}_p90": round(found.p90, 3), f"{kind}_samples": found.samples})


def measure(problem: Any, peers: list[Any], timer: DeviceTimer, absent: dict[str, str], chance: random.Random,
            seconds: float) -> dict[str, Any]:
    """One row."""
    row = document.new_row(problem.name, problem.group, problem.text, problem.floor_us)
    operands = norm_peers.make_operands(problem)
    with torch.no_grad():
        calls = prepare(problem, operands, [peer for peer in peers if peer.name not in absent], row, absent)
        cold = run_rounds(list(calls), lambda names: timer.cold_round(names, calls), Limits(), seconds, chance)
        note(row, "cold", cold.samples)
        for name, call in list(calls.items()):
            timer.capture(name, call, row["us"][name]["cold"])
        warm = run_rounds(list(calls), lambda names: timer.warm_round(names, calls), Limits(), seconds, chance)
        note(row, "warm", warm.samples)
        timer.forget()
    row["failed"].update(cold.failed | warm.failed)
    return row


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Geometric means over eager and over the best other, per group and kind."""
    lines = []
    for group in dict.fromkeys(row["group"] for row in rows):
        for kind in ("warm", "cold"):
            best, eager, least = [], [], 9.9
            for row in (row for row in rows if row["group"] == group):
                times = {name: us[kind] for name, us in row["us"].items() if kind in us}
                others = [us for name, us in times.items() if not name.startswith("vitune")]
                if "vitune" in times and others:
                    best.append(min(others) / times["vitune"])
                    eager.append(times.get("eager", min(others)) / times["vitune"])
                    least = min(least, best[-1])
            if best:
                lines.append(f"{group:10s} {kind}: over the best {geometric_mean(best):.3f}, least {least:.3f}; "
                             f"over eager {geometric_mean(eager):.3f}; {len(best)} rows")
    return lines


def main() -> int:
    """0: all rows; 1: some are missing; 3: no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="file", type=pathlib.Path, default=SHIPPED)
    parser.add_argument("--only", default="")
    parser.add_argument("--db", type=pathlib.Path)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--objective", choices=("cold", "warm"), default="warm", help="vitune's winners: %(default)s")
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("peers_norm.json"))
    parser.add_argument("--budget", type=float, default=240)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("norms: PyTorch sees no CUDA device; measuring needs one", file=sys.stderr)
        return 3
    if options.library is not None:
        vitune.use_library(options.library)
    problems = [norm_peers.NormProblem(entry["name"], entry["group"], entry["problem"], entry.get("floor_us"))
                for entry in json.loads(options.file.read_text())["problems"]
                if re.search(options.only, entry["name"] + " " + entry["problem"])]
    timer, chance, end = DeviceTimer(), random.Random(options.seed), time.time() + options.budget
    about, versions = device.describe()
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="vitune_norms_") as folder:
        peers = norm_peers.make_peers(options.db and str(options.db.resolve()), os.path.join(folder, "empty.db"),
                                      options.objective)
        found = document.new(about, versions, now, device.METHOD, [peer.name for peer in peers], seed=options.seed,
                             empty_us=timer.empty_us())
        for number, problem in enumerate(problems):
            found["unfinished"] = [each.name for each in problems[number:]]
            left = end - time.time()
            if left <= 0:
                break
            torch.manual_seed(options.seed + number)
            row = measure(problem, peers, timer, found["absent"], chance, min(4.0, left / (len(problems) - number) / 2))
            found["rows"].append(row)
            found["unfinished"] = found["unfinished"][1:]
            document.write(found, options.json)
            print(f"{row['name']:22s}", "  ".join(f"{name} {us['cold']:.1f}/{us['warm']:.2f}" for name, us in row["us"].items()
                                                  if "warm" in us), *row["failed"].items(), *row["flags"], flush=True)
    print("\n".join(summary(found["rows"])))
    return int(bool(found["unfinished"]))


if __name__ == "__main__":
    sys.exit(main())
