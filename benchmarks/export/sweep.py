#!/usr/bin/env python3
# benchmarks/export/sweep.py -- How many of the catalogued timm models a model file can hold, and why the rest is refused.
#
# Usage: sweep.py [--model GLOB ...] [--seconds N] [--keep FILE] [--check]: prints one line per model and the counts. A glob that no model of
# the catalogue has is one of timm's names. Needs timm and PyTorch, no GPU and no weights. --keep: a file of what is known, to which new lines are added, so that a run that was interrupted goes on. --check:
# weights are drawn, each file is written and checked beside the model. Run it as `nice -n 19`.
# SPDX-License-Identifier: Apache-2.0
import argparse
import collections
import contextlib
import fnmatch
import json
import pathlib
import sys
import tempfile
import time
import warnings
from unittest import mock

import timm
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from vitune._export import export  # noqa: E402


@contextlib.contextmanager
def without_weights():
    """Parameters are put on the meta device as soon as they are a module's; what is computed of sizes alone (buffers) has values."""
    register = torch.nn.Module.register_parameter

    def on_meta(module, name, parameter):
        if parameter is not None and not parameter.is_meta:
            parameter = torch.nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)
    with mock.patch.object(torch.nn.Module, "register_parameter", on_meta):
        yield


def built(name):
    """A model without weights; with some, where its modules compute with them as they are made."""
    try:
        with without_weights():
            return shallow(name)
    except NotImplementedError:
        return shallow(name)


def shallow(name):
    """A model with two blocks where it takes their number: what one block calls, the others call."""
    try:
        return timm.create_model(name, depth=2)
    except (TypeError, ValueError, AssertionError, RuntimeError):
        return timm.create_model(name)


def looked_at(name, check):
    """{"model", "refused": reasons, "seconds"} of one model."""
    begin = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if check:
                torch.manual_seed(0)
                model = timm.create_model(name).eval()
                with tempfile.TemporaryDirectory() as folder:
                    made = export.export(model, f"{folder}/model.safetensors", None, None, "bf16", True, {})
                refused, more = [], {"nodes": made.nodes, "error": made.error}
            else:
                model = built(name).eval().to(torch.bfloat16)
                refused, more = [str(each) for each in export.exportable(model)], {}
    except Exception as failure:  # of timm, of PyTorch or of the exporter: each model's is said
        refused, more = [f"{type(failure).__name__}: {failure}"[:2000]], {}
    return {"model": name, "refused": refused, "seconds": round(time.monotonic() - begin, 1), **more}


def by_turns(names):
    """One model of each file of timm, then the second ones: what is looked at in a short time is of every kind."""
    seen = collections.Counter()

    def turn(name):
        home = timm.models.model_entrypoint(name).__module__
        seen[home] += 1
        return seen[home], home
    return sorted(names, key={name: turn(name) for name in sorted(names)}.get)


def reason_of(line):
    return line.rpartition(": ")[2]


def main():
    parser = argparse.ArgumentParser(description="Counts the timm models that a model file can hold.")
    parser.add_argument("--model", action="append", help="a glob; may be repeated")
    parser.add_argument("--seconds", type=float, default=1e9, help="no model is begun later")
    parser.add_argument("--keep", type=pathlib.Path, help="a file of JSON lines")
    parser.add_argument("--check", action="store_true", help="write and check each file too")
    arguments = parser.parse_args()
    catalogue = json.loads((ROOT / "data" / "timm_models.json").read_text(encoding="utf-8"))["models"]
    names = [model["name"] for model in catalogue]
    if arguments.model:
        names = list(dict.fromkeys(name for glob in arguments.model for name in fnmatch.filter(names, glob) or timm.list_models(glob)))
    kept = arguments.keep and arguments.keep.exists() and arguments.keep.read_text(encoding="utf-8").splitlines() or []
    known = {row["model"]: row for row in map(json.loads, kept)}
    end = time.monotonic() + arguments.seconds
    for name in by_turns(names):
        if name in known or time.monotonic() > end:
            continue
        known[name] = looked_at(name, arguments.check)
        print(name, "whole" if not known[name]["refused"] else f"refused: {known[name]['refused'][0]}", flush=True)
        if arguments.keep:
            with arguments.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known[name]) + "\n")
    rows = [known[name] for name in names if name in known]
    whole = sum(not row["refused"] for row in rows)
    reasons = collections.Counter(reason for row in rows for reason in {reason_of(line) for line in row["refused"]})
    print(f"\n{whole} of {len(rows)} models whole, {len(names) - len(rows)} not looked at; models by what keeps them:")
    for reason, count in reasons.most_common():
        print(f"{count:5}  {reason}")


if __name__ == "__main__":
    main()
