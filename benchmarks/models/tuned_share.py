#!/usr/bin/env python3
# benchmarks/models/tuned_share.py -- Of a compiled model's time, how much tuned kernels serve after `vitune tune MODEL` on an empty database.
#
# Usage: tuned_share.py [MODEL:BATCH ...] [--effort quick]      (a GPU, PyTorch, timm; VITUNE_TEST_LIBRARY names a libvitune.so.0)
#
# Each model has a database of its own, without shipped winners. A call's time is what the floor of its problems says on this GPU, so
# that calls count that nothing serves. Exit code 1 where a share is below 99 %.
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
USUAL = ("vit_base_patch16_224:32", "swin_tiny_patch4_window7_224:32", "vit_large_patch14_dinov2:8")
LEAST = 0.99


def floors(command, problems):
    """Problem -> its floor on this GPU, microseconds."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(problems) + "\n")
        file.flush()
        done = subprocess.run([command, "explain", "--json", "--from", file.name], capture_output=True, text=True, check=False)
    return {entry["problem"]: entry["floor_us"] or 0.0 for entry in json.loads(done.stdout)["problems"]}


def share_of(name, batch):
    """In a process of its own, with the model's database alone: prints the share, as JSON."""
    import timm
    import torch
    import vitune
    from vitune._ops import attention as attention_ops

    if os.environ.get("VITUNE_TEST_LIBRARY"):
        vitune.use_library(os.environ["VITUNE_TEST_LIBRARY"])
    context = vitune.Context(0, database=os.environ["VITUNE_DB"], shipped_database="")
    attention_ops.context_of = lambda device: context
    timm.layers.set_fused_attn(True, experimental=True)
    model = timm.create_model(name).eval().bfloat16().cuda()
    x = torch.randn(batch, *model.pretrained_cfg["input_size"], device="cuda", dtype=torch.bfloat16)
    compiled = vitune.compile(model, mode="reduce-overhead")
    with torch.inference_mode():
        compiled(x)
    asked = [call for call in vitune.report(compiled).calls if call.selections]
    known = floors(str(vitune.command_path()), {each.problem for call in asked for each in call.selections})
    total, exact, lacking = 0.0, 0.0, set()
    for call in asked:
        us = sum(known[each.problem] for each in call.selections)
        total += us
        if all(each.outcome == "exact" for each in call.selections):
            exact += us
        else:
            lacking.update(each.problem for each in call.selections if each.outcome != "exact")
    print(json.dumps({"share": exact / total, "calls": len(asked), "replaced": sum(call.replaced for call in asked),
                      "lacking": sorted(lacking)}))


def measured(name, batch, effort):
    """Tunes the model into an empty database, and what a fresh process finds with it."""
    import vitune
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "VITUNE_DB": str(pathlib.Path(folder) / "vitune.db")}
        for data in (ROOT / "data").glob("*.json"):  # without the shipped winners
            shutil.copy(data, folder)
        command = [str(vitune.command_path()), "tune", name, "--batch", str(batch), "--effort", effort, "--data-dir", folder]
        subprocess.run(command, env=environment, check=False)
        done = subprocess.run([sys.executable, __file__, "--inside", f"{name}:{batch}"], env=environment, stdout=subprocess.PIPE, text=True,
                              check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description="The share of a compiled model's time that tuned kernels serve after vitune tune MODEL.")
    parser.add_argument("models", nargs="*", default=USUAL, metavar="MODEL:BATCH")
    parser.add_argument("--effort", default="normal", help="of vitune tune")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        name, batch = arguments.inside.split(":")
        share_of(name, int(batch))
        return 0
    worst = 1.0
    for model in arguments.models:
        name, batch = model.split(":")
        found = measured(name, int(batch), arguments.effort)
        worst = min(worst, found["share"])
        print(f"{name} b{batch}: {100 * found['share']:.1f} % of the time of {found['calls']} calls has an exact winner,"
              f" {found['replaced']} replaced", *(f"   lacks {problem}" for problem in found["lacking"]), sep="\n", flush=True)
    return 0 if worst >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
