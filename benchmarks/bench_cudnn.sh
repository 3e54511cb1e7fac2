#!/usr/bin/env bash
# benchmarks/bench_cudnn.sh -- vitune_bench_attention beside cuDNN, with the libraries that PyTorch brings.
#
#   benchmarks/bench_cudnn.sh PROGRAM OUT.json [OPTION...]
#
# PROGRAM is of a build with -DVITUNE_WITH_CUDNN=ON. cuDNN, the CUDA runtime and NVRTC are taken from
# the system, else from the wheels beside PyTorch. Prints what both took and fails if cuDNN took nothing.
# SPDX-License-Identifier: Apache-2.0
set -u
program=$1 out=$2
shift 2
wheels=$(python3 - <<'FIND'
import glob
import importlib.util

places = []
for name, pattern in (("nvidia", "/*/lib"), ("torch", "/lib")):
    spec = importlib.util.find_spec(name)
    for root in (spec.submodule_search_locations or []) if spec else []:
        places += sorted(glob.glob(root + pattern))
print(":".join(places))
FIND
) || wheels=
path=${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH=$path${path:+${wheels:+:}}$wheels
"$program" --benchmark_out="$out" --benchmark_out_format=json "$@" || exit
exec python3 - "$out" <<'READ'
import json
import math
import sys

us, why = {}, {}
for row in json.load(open(sys.argv[1]))["benchmarks"]:
    peer, kind, name = row["run_name"].split("/", 2)
    key = (name.split("/iterations:")[0], kind)
    if row.get("error_occurred"):
        why[key[0], peer] = row.get("error_message", "no reason")
    elif row.get("aggregate_name") == "median":
        us.setdefault(key, {})[peer] = row["real_time"]
ratios = {}
for (name, kind), times in us.items():
    if {"vitune", "cudnn"} <= set(times):
        ratios.setdefault(kind, []).append(times["cudnn"] / times["vitune"])
        print(f"{name}, {kind}: vitune {times['vitune']:.1f} us, cuDNN {times['cudnn']:.1f} us")
for (name, peer), reason in why.items():
    print(f"{name}: {peer} refused: {reason}")
if not ratios:
    sys.exit("no problem was measured beside cuDNN: is the program built with -DVITUNE_WITH_CUDNN=ON?")
means = (f"{kind} {math.exp(sum(map(math.log, r)) / len(r)):.2f} of {len(r)}" for kind, r in ratios.items())
print("cuDNN / vitune, geometric means: " + ", ".join(means))
READ
