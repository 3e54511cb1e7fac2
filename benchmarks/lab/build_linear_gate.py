#!/usr/bin/env python3
# benchmarks/lab/build_linear_gate.py -- Compiles the kernels and the runner of the linear gate.
#
# Usage: build_linear_gate.py OUT [--only TEXT] [--jobs N]. Needs nvcc, no GPU. Writes into OUT: a cubin per variant (tile,
# epilogue, checked or not), variants.txt (what the runner has to know of each), facts.txt (registers, spills; machine
# code where cuobjdump is on the PATH), the runner and run.sh. Warnings are errors, so also ptxas's that products are
# taken one at a time.
# SPDX-License-Identifier: Apache-2.0
import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TEMPLATES = HERE.parent.parent / "templates"
ARCH = ["-gencode=arch=compute_90a,code=sm_90a", "-std=c++17"]

# name: kBlockM, kBlockN, kStages, kCluster, kPairAlongM, kGroups, kPingPong, kLead, kAhead,
# kStoreColumns, kStoreBuffers
TILES = {
    "coop_192x192_pair": (192, 192, 4, 2, 0, 3, 0, 1, 0, 32, 2),
    "half_192x192_pair": (192, 192, 4, 2, 0, 3, 0, 0, 3, 32, 2),
    "half_192x192_pair_2": (192, 192, 4, 2, 0, 3, 0, 0, 2, 32, 2),
    "half_128x256_pair_m": (128, 256, 4, 2, 1, 2, 0, 0, 3, 32, 2),
    "ping_128x192_pair_m": (128, 192, 5, 2, 1, 2, 1, 0, 0, 32, 2),
    "coop_128x256_pair_m": (128, 256, 4, 2, 1, 2, 0, 1, 0, 32, 2),
    "coop_192x192_single": (192, 192, 4, 1, 0, 3, 0, 1, 0, 32, 2),
    "coop_192x192_pair_lead0": (192, 192, 4, 2, 0, 3, 0, 0, 0, 32, 2),
    "coop_256x192_pair": (256, 192, 3, 2, 0, 2, 0, 1, 0, 32, 2),
    "coop_128x192_pair": (128, 192, 5, 2, 0, 2, 0, 1, 0, 32, 2),
    "coop_128x128_pair": (128, 128, 6, 2, 0, 2, 0, 1, 0, 32, 2),
    "ping_128x128_pair": (128, 128, 6, 2, 0, 2, 1, 0, 0, 32, 2),
    "coop_256x128_pair": (256, 128, 4, 2, 0, 2, 0, 1, 0, 32, 2),
    "coop_128x96_pair": (128, 96, 7, 2, 0, 2, 0, 1, 0, 32, 2),
    "coop_192x128_pair": (192, 128, 5, 2, 0, 3, 0, 1, 0, 32, 1),
    "coop_192x192_pair_s3": (192, 192, 3, 2, 0, 3, 0, 1, 0, 64, 2),
    "coop_192x192_pair_wide": (192, 192, 4, 2, 0, 3, 0, 1, 0, 64, 1),
    "coop_192x192_pair_lead2": (192, 192, 4, 2, 0, 3, 0, 2, 0, 32, 2),
    "coop_192x192_pair_m": (192, 192, 4, 2, 1, 3, 0, 1, 0, 32, 2),
    "ping_128x192_pair": (128, 192, 5, 2, 0, 2, 1, 0, 0, 32, 2),
    "coop_128x256_pair": (128, 256, 4, 2, 0, 2, 0, 1, 0, 32, 2),
    "ping_64x256_pair_m": (64, 256, 5, 2, 1, 2, 1, 0, 0, 32, 2),
}
TILE_KEYS = ("kBlockM", "kBlockN", "kStages", "kCluster", "kPairAlongM", "kGroups", "kPingPong", "kLead", "kAhead",
             "kStoreColumns", "kStoreBuffers")
# name: kNorm, kActivation, kScale, kResidual, kMoments
EPILOGUES = {
    "bias": (0, 0, 0, 0, 0),
    "fold": (1, 0, 0, 0, 0),
    "fold_gelu": (1, 1, 0, 0, 0),
    "residual": (0, 0, 1, 1, 0),
    "residual_moments": (0, 0, 1, 1, 1),
}
EPILOGUE_KEYS = ("kNorm", "kActivation", "kScale", "kResidual", "kMoments")


def shared_bytes(t):
    """As LinearTraits counts it, which checks it."""
    ring = t["kStages"] * (t["kBlockM"] + t["kBlockN"]) * 128
    staging = t["kGroups"] * 4 * t["kStoreBuffers"] * 32 * t["kStoreColumns"]
    return ring + staging + t["kGroups"] * t["kBlockN"] * 8 + 8 * (2 * t["kStages"] + t["kGroups"])


def source_of(config):
    members = "\n".join(f"  static constexpr int {key} = {value};" for key, value in config.items())
    return (f'#include "linear/gemm_sm90.cuh"\nstruct Config {{\n{members}\n}};\n'
            f'extern "C" __global__ void __launch_bounds__({config["kCtaThreads"]}, 1)\n'
            "vitune_linear(const __grid_constant__ vitune::LinearParams p,\n"
            "              const __grid_constant__ vitune::LinearTensorMaps maps) {\n"
            "  vitune::linear<Config>(p, maps);\n}\n")


def variants():
    for tile, tile_values in TILES.items():
        for epilogue, epilogue_values in EPILOGUES.items():
            if epilogue.startswith("residual") and tile.startswith("half"):
                continue  # not built: kAhead leaves the residual's slots out
            for checked in (0, 1):
                config = dict(kElement=1, **dict(zip(EPILOGUE_KEYS, epilogue_values)), **dict(zip(TILE_KEYS, tile_values)),
                              kChecked=checked)
                config["kCtaThreads"] = 128 * (config["kGroups"] + 1)
                config["kSharedBytes"] = shared_bytes(config)
                yield f"{tile}.{epilogue}.{'checked' if checked else 'timed'}", tile, epilogue, config


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def compile_kernel(out, name, config):
    """The line of facts.txt."""
    source, cubin = out / f"{name}.cu", out / f"{name}.cubin"
    source.write_text(source_of(config))
    code, log = run(["nvcc", *ARCH, "-cubin", "-Xptxas=-v", f"-I{TEMPLATES}", f"-I{HERE}", source, "-o", cubin])
    source.unlink()
    if code != 0 or "arning" in log or "serialized" in log:
        raise RuntimeError(f"{name}:\n{log}")
    registers = re.search(r"Used (\d+) registers", log).group(1)
    spills = "/".join(re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log).groups())
    facts = f"{name:46} registers {registers} stack/stores/loads {spills} bytes {cubin.stat().st_size}"
    if not shutil.which("cuobjdump"):
        return facts
    _, sass = run(["cuobjdump", "--dump-sass", cubin])
    count = lambda pattern: len(re.findall(pattern, sass))
    return (f"{facts} instructions {count(r'/[*][0-9a-f]{4,}[*]/ '):5} "
            f"HGMMA {count('HGMMA'):3} MUFU {count('MUFU'):3} F2FP {count('F2FP'):3} STSM {count('STSM'):2} "
            f"LDSM {count('LDSM'):2} local {count('LDL|STL'):2}")


def main():
    parser = argparse.ArgumentParser(description="Compiles the kernels and the runner of the linear gate.")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", default="", help="compile only variants whose name has this text; keep the other cubins")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    everything = list(variants())
    chosen = [v for v in everything if arguments.only in v[0]]
    too_large = [name for name, _, _, config in chosen if config["kSharedBytes"] > 232448]
    if too_large:
        raise RuntimeError("more than 227 KB of shared memory: " + ", ".join(too_large))
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        facts = list(pool.map(lambda v: compile_kernel(arguments.out, v[0], v[3]), chosen))
    with open(arguments.out / "facts.txt", "a" if arguments.only else "w", encoding="utf-8") as file:
        file.write("\n".join(facts) + "\n")
    lines = [" ".join([tile, epilogue, f"{name}.cubin", *(str(value) for value in config.values())])
             for name, tile, epilogue, config in everything if (arguments.out / f"{name}.cubin").exists()]
    (arguments.out / "variants.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(facts))
    if not (HERE / "linear_gate.cu").exists():
        return 0
    code, log = run(["nvcc", *ARCH, "-O3", "-cudart=static", "-Xcompiler=-static-libstdc++,-static-libgcc,-Wall",
                     f"-I{TEMPLATES.parent}", HERE / "linear_gate.cu", "-o", arguments.out / "linear_gate",
                     "-L/usr/local/cuda/lib64/stubs", "-lcuda", "-ldl"])
    if code != 0 or "arning" in log:
        raise RuntimeError(f"the runner:\n{log}")
    shutil.copy(HERE / "run_linear_gate.sh", arguments.out / "run.sh")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(str(error))
