#!/usr/bin/env python3
# benchmarks/programs/run.py -- Runs one program by each way, and says how its losses and times compare.
# SPDX-License-Identifier: Apache-2.0
"""run.py PROGRAM [--ways eager compile vitune] [--steps 50] [--device cuda] [--small] [-o FILE]: random weights, generated images. Exit code 1 where
vitune's losses are farther from those of eager mode than rounding and twice what torch.compile's are."""
from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":  # this folder itself must not be on the path: a package lies in it
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path.insert(0, str(HERE.parent))


@dataclasses.dataclass(frozen=True)
class Program:
    """A file of this folder."""

    says: str
    needs: tuple[str, ...]  #: packages


PROGRAMS = {
    "timm_loop": Program("timm's loop: AMP, EMA, mixup, drop path, channels_last, accumulation", ("timm",)),
    "trainer": Program("transformers' Trainer on ViT, then on DINOv2", ("transformers", "accelerate")),
    "lightning_fit": Program("Lightning's Trainer", ("lightning", "torchvision")),
    "fsdp2": Program("timm's DINOv3 in two processes, by FSDP2 with activation checkpointing; on GPUs it takes two", ("timm",)),
    "lora": Program("peft's LoRA on a ViT, merged, unmerged, saved and loaded", ("peft", "transformers")),
}
#: Of losses, at any step: AMP rounds by 2^-9, and a step's update hands on what it rounded.
_BOUND = 5e-2
#: Compiled models draw other numbers for drop path than eager ones, so that torch.compile's losses may be farther away.
_OF_COMPILED = 2.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Trains as a program of others does, by each way.")
    parser.add_argument("program", choices=PROGRAMS, help="; ".join(f"{name}: {each.says}" for name, each in PROGRAMS.items()))
    parser.add_argument("--ways", nargs="+", choices=("eager", "compile", "vitune"), default=("eager", "compile", "vitune"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="a model and images for a CPU")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="JSON")
    return parser.parse_args()


def main() -> int:
    """The command."""
    given = _arguments()
    missing = [each for each in PROGRAMS[given.program].needs if importlib.util.find_spec(each) is None]
    if missing:
        raise SystemExit(f"{given.program} needs {', '.join(missing)}: pip install {' '.join(missing)}")
    import torch

    from programs.switch import EAGER, apart

    program, exact, rows, wrong = importlib.import_module(f"programs.{given.program}"), None, [], False
    for way in dict.fromkeys([EAGER, *given.ways]):
        torch._dynamo.reset()
        run = program.train(way, given.steps, given.device, given.small)
        exact = exact or run.losses
        between = [after - before for before, after in zip(run.seconds, run.seconds[1:])]
        rows.append({"way": way, "losses": run.losses, "ms": round(1e3 * statistics.median(between), 3), "apart": apart(exact, run.losses)})
        bound = max([_BOUND, *(_OF_COMPILED * row["apart"] for row in rows if row["way"] == "compile")])
        is_wrong = way == "vitune" and rows[-1]["apart"] > bound
        wrong |= is_wrong
        print(f"{given.program}, {way:8} {rows[-1]['ms']:9.1f} ms a step; first and last loss {run.losses[0]:.4f} {run.losses[-1]:.4f};"
              f" at most {100 * rows[-1]['apart']:.3f} % from eager's{': WRONG' if is_wrong else ''}", flush=True)
    if given.output:
        name = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
        given.output.write_text(json.dumps({"what": "programs", "program": given.program, "device": name, "torch": torch.__version__,
                                            "steps": given.steps, "rows": rows}, indent=1) + "\n")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
