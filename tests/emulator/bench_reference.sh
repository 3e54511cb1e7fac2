#!/usr/bin/env bash
# tests/emulator/bench_reference.sh -- The ladder of plain kernels on the emulated device: every rung
# is right for odd shapes, and the program writes what it measured.
#
# Usage: bench_reference.sh BENCH FOLDER. LD_LIBRARY_PATH and CUDA_HOME lead to the emulated device.
# SPDX-License-Identifier: Apache-2.0
set -u
bench=$1 folder=$2
rm -rf "$folder" && mkdir -p "$folder" || exit 1
export VITUNE_CACHE_DIR=$folder/cache

fail() {
  echo "bench_reference.sh: $*" >&2
  exit 1
}
count() { grep -c -- "\"kernel\": \"$1\"" "$folder/reference.json"; }

# Tails of rows, keys and columns; grouped heads, other layouts, both types, every head size's edge.
problems=("bf16 b=1 h=2 n=21 d=16" "fp16 b=2 h=1 nq=1 nk=33 d=8" "bf16 b=1 h=4 hkv=2 n=130 d=72"
          "fp16 b=1 h=1 nq=65 nk=64 d=128 layout=bhnd" "bf16 b=1 h=1 nq=7 nk=129 d=120")
arguments=()
for problem in "${problems[@]}"; do arguments+=(--problem "$problem"); done
"$bench" "${arguments[@]}" --rounds 1 --out "$folder/reference.json" 2> "$folder/errors.txt" ||
  fail "status $?: $(cat "$folder/errors.txt")"
for kernel in naive tiled register_blocked tensor_core tuned; do
  [ "$(count $kernel)" -eq ${#problems[@]} ] || fail "rows of $kernel: $(count $kernel)"
done
grep -q '"refused": \[\]' "$folder/reference.json" || fail "a kernel was refused"

"$bench" --problem "bf16 b=1 h=1 n=21 d=16 causal" 2> "$folder/errors.txt"
[ $? -eq 2 ] || fail "a causal problem: $(cat "$folder/errors.txt")"
env -u LD_LIBRARY_PATH -u CUDA_HOME CUDA_VISIBLE_DEVICES= "$bench" 2> "$folder/errors.txt"
[ $? -eq 3 ] || fail "without a GPU: $(cat "$folder/errors.txt")"
[ "$(wc -l < "$folder/errors.txt")" -eq 1 ] || fail "more than one line without a GPU"
echo "bench_reference.sh: ok"
