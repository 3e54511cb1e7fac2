#!/usr/bin/env python3
# benchmarks/first_logits.py -- From the start of a process to the first logits: vitune run beside other commands.
# SPDX-License-Identifier: Apache-2.0
"""Starts `VITUNE run FILE` on one image of noise again and again and notes when its first result is printed. The first start of each
command is not counted: it brings the file into the page cache and leaves what is compiled in the database. Prints JSON.

    first_logits.py build/vitune vit_b.safetensors --beside "aoti=python load_package.py vit_b.pt2"
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from models.interval import summary  # noqa: E402

_MOST_HEADER = 16 << 20


class Refused(Exception):
    """An argument that cannot be, in a sentence."""


def input_shape(path: pathlib.Path) -> list[int]:
    """Of one image, as the file's graph says. Raises Refused."""
    try:
        with path.open("rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            if length > _MOST_HEADER:
                raise ValueError("its header is too long")
            graph = json.loads(json.loads(file.read(length))["__metadata__"]["vitune.graph"])
        given, = graph["inputs"]
        return [int(extent) for extent in given["shape"][1:]]
    except (OSError, ValueError, KeyError, TypeError, struct.error) as reason:
        raise Refused(f"{path}: is no model file with one input: {reason}") from None


def write_image(path: pathlib.Path, shape: Sequence[int]) -> None:
    """One float32 row of a ramp, as NumPy's files have it."""
    head = repr({"descr": "<f4", "fortran_order": False, "shape": (1, *shape)}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    count = 1
    for extent in shape:
        count *= extent
    values = (((place * 37) % 101) / 50 - 1 for place in range(count))
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack(f"<{count}f", *values))


def seconds_to_first_output(command: Sequence[str], limit: float) -> float:
    """Until it has printed something. Raises Refused if it fails or prints nothing."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        took = time.perf_counter() - began
        try:
            _, said = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Refused(f"{shlex.join(command)}: took more than {limit:g} s") from None
    if process.returncode != 0 or not first:
        words = said.decode(errors="replace").strip().splitlines()
        raise Refused(f"{shlex.join(command)}: ended with {process.returncode}: {words[-1] if words else 'it printed nothing'}")
    return took


def measured(commands: dict[str, Sequence[str]], runs: int, limit: float) -> dict[str, dict[str, float]]:
    """All of them in turn, once in each round; the first round is not counted."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            took = seconds_to_first_output(command, limit)
            if number:
                found[name].append(took)
    return {name: summary(values, "seconds") for name, values in found.items()}


def main(words: list[str] | None = None) -> int:
    """0; 1: a command failed; 2: arguments that cannot be."""
    parser = argparse.ArgumentParser(prog="benchmarks/first_logits.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("vitune", metavar="VITUNE", help="the command")
    parser.add_argument("file", metavar="FILE", type=pathlib.Path, help="a model file")
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--limit", type=float, default=120.0, metavar="SECONDS", help="of one start")
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=COMMAND", help="another command, which prints logits too")
    arguments = parser.parse_args(words)
    try:
        if not 1 <= arguments.runs <= 1000:
            raise Refused("--runs: from 1 to 1000")
        others = dict(text.partition("=")[::2] for text in arguments.beside)
        if not all(name and command for name, command in others.items()) or "vitune" in others:
            raise Refused("--beside: NAME=COMMAND is needed, of another name than vitune")
        shape = input_shape(arguments.file)
    except Refused as reason:
        print(f"first_logits: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        image = pathlib.Path(folder) / "image.npy"
        write_image(image, shape)
        ours = [arguments.vitune, "run", str(arguments.file), str(image), "--batch", "1", "--top", "1"]
        try:
            found = measured({"vitune": ours} | {name: shlex.split(text) for name, text in others.items()}, arguments.runs, arguments.limit)
        except (Refused, OSError) as reason:
            print(f"first_logits: {reason}", file=sys.stderr)
            return 1
    print(json.dumps({"schema": 1, "command": "first_logits", "file": arguments.file.name, "first_logits": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
