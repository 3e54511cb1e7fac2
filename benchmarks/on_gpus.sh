#!/usr/bin/env bash
# benchmarks/on_gpus.sh -- Parts of on_gpu.sh side by side, a list for each GPU of a machine.
#
#   benchmarks/on_gpus.sh "peers runtime" "random sanitize" ...      the first list on GPU 0, and so on
#
# Each list gets an equal share of the CPUs, its results in OUT/gpu0, OUT/gpu1 ... and its logs there in one
# file, logs.tgz. BUILD, RESUME and the other variables of on_gpu.sh are the same for all. Prints a table for each
# GPU last; ends with status 2 if a list was refused.
# SPDX-License-Identifier: Apache-2.0
set -u
cd "$(dirname "$0")/.." || exit 1
OUT=${OUT:-build/on_gpu}
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }

logs=$(mktemp -d) cpus=$(($(nproc) / $#)) running=()
trap 'rm -rf "$logs"' EXIT
[ "$cpus" -ge 1 ] || { echo "on_gpus.sh: $# lists for $(nproc) CPUs" >&2; exit 2; }
number=0
for parts in "$@"; do
  read -ra words <<< "$parts"
  mkdir -p "$OUT/gpu$number"
  CUDA_VISIBLE_DEVICES=$number OUT=$OUT/gpu$number LOGS=$logs/gpu$number \
    taskset -c "$((number * cpus))-$(((number + 1) * cpus - 1))" \
    benchmarks/on_gpu.sh "${words[@]}" > "$logs/gpu$number.log" 2>&1 &
  running+=($!)
  number=$((number + 1))
done
status=0
for ((i = 0; i < number; ++i)); do
  wait "${running[i]}" || status=$?
  echo "GPU $i:"
  tail -n 30 "$logs/gpu$i.log"
done
exit $status
