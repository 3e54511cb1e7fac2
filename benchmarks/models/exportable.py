#!/usr/bin/env python3
# benchmarks/models/exportable.py -- Which of timm's models a model file can hold whole, and what keeps the others from it.
#
# Usage: exportable.py [--out FILE] [MODEL ...]      (PyTorch and timm; no GPU, no weights; FILE is gone on with)
#
# Without names: the models of data/timm_calls.json, at their own size, on the meta device. FILE has a JSON row a line; --check writes
# the models named, with drawn weights, and holds each against its forward pass in fp32, as vitune.export() does.
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))


def names_of(path=ROOT / "data" / "timm_calls.json"):
    return [each["name"] for each in json.loads(path.read_text())["models"]]


def refusals_of(name):
    """A row: what vitune.exportable() says of a model."""
    import timm
    import torch
    import vitune

    start = time.process_time()
    with torch.device("meta"):
        model = timm.create_model(name).eval()
    found = vitune.exportable(model, torch.empty(2, *model.pretrained_cfg["input_size"], device="meta"))
    return {"model": name, "refused": sorted({str(each) for each in found})[:8], "cpu_s": round(time.process_time() - start, 1)}


def written_of(name):
    """A row: the file of a model with drawn weights, its error beside the pass in fp32."""
    import timm
    import torch
    import vitune

    torch.manual_seed(0)
    model = timm.create_model(name).eval()
    start, wall = time.process_time(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        written = vitune.export(model, pathlib.Path(folder) / "model.safetensors")
    return {"model": name, "refused": [], "nodes": written.nodes, "error": written.error, "rounding": written.rounding,
            "cpu_s": round(time.process_time() - start, 1), "wall_s": round(time.monotonic() - wall, 1)}


def row_of(name, check):
    """A row, of a model that cannot be made too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return (written_of if check else refusals_of)(name)
    except Exception as failure:  # whatever a model raises: the next one is looked at
        return {"model": name, "refused": [f"{type(failure).__name__}: {failure}"[:400]]}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(argv)
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out and options.out.exists() else []
    known = {row["model"] for row in rows}
    for name in options.models or names_of():
        if name in known:
            continue
        rows.append(row_of(name, options.check))
        line = json.dumps(rows[-1])
        if options.out is None:
            print(line)
        else:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    whole = sum(not row["refused"] for row in rows)
    print(f"{whole} of {len(rows)} models are held whole", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
