#!/usr/bin/env python3
# benchmarks/models/end_to_end.py -- ViT-B/16 whole, by a session of a model file beside eager PyTorch: time, rates, energy.
# SPDX-License-Identifier: Apache-2.0
"""Fills the last table of docs/works.md: end_to_end.json belongs into the folder of results that benchmarks/report/works.py reads.
Rows that are in FILE already stay, so that another call goes on."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import pathlib
import random
import sys
from collections.abc import Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":  # this folder itself must not be on the path: a package lies in it
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "python")]

from models import document, energy  # noqa: E402

COMMAND, MODEL = "end_to_end", "vit_base_patch16_224"
SIZES, BATCHES = (224, 384, 512), (1, 32)
METHOD = {
    "ms": "time per forward pass, as in models.json: torch, eager; torch_graph, a CUDA graph of it; runner, a session of the exported file, "
    "called by ctypes with the caller's memory; runner_graph, that call captured",
    "flops, bytes": "of PyTorch's operators: products counted as two operations, operands and results of each operator once; the same "
    "for all ways, so that a fused way's bandwidth is an effective one",
    "floor_us": "the sum over these operators of the longer of products and bytes at the rates of `ceilings`: the roofline",
    "joules": "per image, by NVML's energy counter over windows of passes, the ways in turn, the median of the windows",
}


def numbers(name: str, text: str) -> list[int]:
    """Of "1,32". Raises ValueError."""
    words = text.split(",")
    if not all(word.isdigit() and 0 < int(word) <= 4096 for word in words):
        raise ValueError(f"{name} '{text}': whole numbers from 1 to 4096 with commas between are needed")
    return list(dict.fromkeys(int(word) for word in words))


def measured(size: int, batch: int, device: str, clock: Any, ceilings: Any, seconds: float) -> dict[str, Any]:
    """The row of that size and batch."""
    import torch

    from models import row, whole, zoo
    from models.floor import Ceilings, watched
    from vitune._compile.benchmark_model import energy_counter

    model, _ = zoo.build(f"{MODEL}@{size}", device)
    images = zoo.images(batch, size, device)
    subject = row.subject_of(model, images)
    watch = watched(subject.forward, ceilings or Ceilings(1.0, 1.0))
    found: dict[str, Any] = {"size": size, "batch": batch, "flops": watch.flops, "bytes": watch.bytes}
    if ceilings:
        found["floor_us"] = round(sum(watch.us.values()), 2)
    files = whole.Files(model, images, clock, (whole.RUNNER,))
    runs: dict[str, Any] = {}
    try:
        with torch.inference_mode():
            ways = row.candidates("eager", subject, {"torch": contextlib.nullcontext}, clock)
            if "graph" in clock.modes:
                ways["torch_graph"] = row.candidates("graph", subject, {"": contextlib.nullcontext}, clock)[""]
            ways |= files.candidates()
            runs = energy.noted(ways)
            race = row.Race(tuple(name for name in ways if name.startswith("torch")), whole.RUNNER, 6.0, random.Random(0), by_kind=False)
            found |= row.measure("whole", subject, ways, clock, race) | files.says()
            counter = energy_counter(images.device) if seconds > 0 else None
            if counter:
                timed = {name: runs[name] for name in found["ms"]}
                found["joules"] = energy.joules(timed, counter, clock.synchronize, batch, seconds)
    finally:
        runs.clear()
        files.forget()
        clock.release()
    return found


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/models/end_to_end.py", description=__doc__)
    add = parser.add_argument
    add("--json", type=pathlib.Path, default=pathlib.Path("end_to_end.json"), metavar="FILE")
    add("--sizes", default=",".join(map(str, SIZES)), metavar="LIST", help="sides of the images in pixels, multiples of 16")
    add("--batches", default=",".join(map(str, BATCHES)), metavar="LIST")
    add("--seconds", type=float, default=energy.SECONDS, metavar="S", help="of a window of energy; 0: none")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: for trying it out")
    add("--library", metavar="FILE", help="libvitune.so.0; else the package finds it")
    add("--db", type=pathlib.Path, metavar="FILE", help="winners; else the user's own")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """0; 1: no device or no sound FILE; 2: arguments that cannot be; 6: a session failed."""
    arguments = _arguments(sys.argv[1:] if words is None else words)
    try:
        sizes, batches = numbers("--sizes", arguments.sizes), numbers("--batches", arguments.batches)
        if any(size % 16 for size in sizes):
            raise ValueError(f"--sizes '{arguments.sizes}': the model's patches are of 16 pixels: give multiples of 16")
        if not 0 <= arguments.seconds <= 600:
            raise ValueError("--seconds: from 0 to 600")
    except ValueError as reason:
        print(f"end_to_end: {reason}", file=sys.stderr)
        return 2
    if arguments.db:
        os.environ["VITUNE_DB"] = str(arguments.db.resolve())
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("end_to_end: PyTorch sees no CUDA device", file=sys.stderr)
        return 1
    if arguments.library:
        import vitune

        vitune.use_library(arguments.library)
    return _measure_all(arguments, sizes, batches)


def _measure_all(arguments: argparse.Namespace, sizes: list[int], batches: list[int]) -> int:
    from models import about, clock
    from models.floor import Ceilings

    machine, versions = about.describe(arguments.device)
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    result = document.new(machine, versions, date, METHOD, COMMAND, ("rows",))
    if arguments.json.exists():
        try:
            former = document.read(arguments.json, COMMAND, ("rows",))
            document.alike(result | {"ceilings": former.get("ceilings")}, former)
        except document.BadDocument as reason:
            print(f"end_to_end: {reason}; name another file by --json", file=sys.stderr)
            return 1
        result["rows"] = former["rows"]
    ceilings = Ceilings.of(machine["name"])
    if ceilings:
        result["ceilings"] = {"tflops": ceilings.tflops, "tb_s": ceilings.tb_s}
    timer = clock.CudaClock() if arguments.device == "cuda" else clock.CpuClock()
    done = {(row["size"], row["batch"]) for row in result["rows"]}
    for size, batch in ((size, batch) for size in sizes for batch in batches if (size, batch) not in done):
        row = measured(size, batch, arguments.device, timer, ceilings, arguments.seconds)
        result["rows"].append(row)
        document.write(result, arguments.json)
        print(f"{size} px, batch {batch}: {row['ms']} {row['failed'] or ''}", flush=True)
    return 6 if any("runner" in row["failed"] for row in result["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
