#!/usr/bin/env bash
# tests/emulator/bench_operators.sh -- bench_operators on the emulated device: problems of every operator, JSON that vitune
# compare reads, a winner that it finds, and what it says without a GPU.
#
# Usage: bench_operators.sh BENCH VITUNE FOLDER. LD_LIBRARY_PATH and CUDA_HOME lead to the emulated device.
# SPDX-License-Identifier: Apache-2.0
set -u
bench=$1 vitune=$2 folder=$3
problem="bf16 b=1 h=1 n=21 d=16"
rm -rf "$folder" && mkdir -p "$folder" || exit 1
export VITUNE_CACHE_DIR=$folder/cache

fail() {
  echo "bench_operators.sh: $*" >&2
  exit 1
}
measure() {  # measure FILE: six rounds of the problem
  "$bench" --problem "$problem" --rounds 6 --benchmark_out="$1" --benchmark_out_format=json \
    > "$folder/console.txt" 2> "$folder/errors.txt" || fail "status $?: $(cat "$folder/errors.txt")"
}
has() { grep -q -- "$1" "$2" || fail "no '$1' in $2: $(head -c 2000 "$2")"; }

measure "$folder/before.json"
grep -q '"exact"' "$folder/before.json" && fail "a winner was found before any was made"
"$vitune" tune "$problem" --budget 3 -j 2 --json -q > "$folder/tune.json" || fail "tune: status $?"
measure "$folder/after.json"
has '"exact": 1' "$folder/after.json"
has '"max_error": ' "$folder/after.json"

for other in before tune; do
  "$vitune" compare "$folder/$other.json" "$folder/after.json" --threshold 1000% --json -q \
    > "$folder/compare.json" || fail "compare with $other.json: status $?"
  has '"kind": "warm"' "$folder/compare.json"
  has '"only_in_a": \[\]' "$folder/compare.json"
  has '"only_in_b": \[\]' "$folder/compare.json"
done

# A problem of each operator, by name, with the counters of its kind.
"$bench" --rounds 2 --benchmark_out="$folder/all.json" --benchmark_out_format=json --problem "$problem" \
  --problem "norm bf16 m=5 d=64 weight bias" --problem "group_norm bf16 n=1 c=32 l=16 g=4 weight bias" \
  --problem "linear bf16 m=16 n=16 k=32 bias" --problem "linear_weight_grad bf16 m=32 n=16 k=16 out=fp32" \
  --problem "map n=5x64 a=bf16 b=bf16@0x1 x=add(a,b) out=bf16" --problem "norm_backward bf16 m=5 d=64 weight bias residual" \
  --problem "packed_attention bf16 h=1 d=16 lengths=5,9" --problem "attention_backward bf16 b=1 h=1 n=17 d=16" \
  --problem "window_attention bf16 b=1 image=7x7 window=7x7 h=1 d=16" \
  --problem "window_attention_backward bf16 b=1 image=6x6 window=3x3 h=1 d=16" --problem "linear bf16 m=16 n=16 k=32 bias" \
  > "$folder/console.txt" 2> "$folder/errors.txt" || fail "status $?: $(cat "$folder/errors.txt") $(cat "$folder/console.txt")"
"$bench" --benchmark_list_tests > "$folder/names.txt" || fail "listing: status $?"
python3 - "$folder" "$(dirname "$0")/../../data" <<'CHECK' || fail "the names or the counters are wrong"
import glob
import json
import sys

folder, data = sys.argv[1:]
runs = [row for row in json.load(open(f"{folder}/all.json"))["benchmarks"] if row["run_type"] == "iteration"]
operators = ("attention", "norm", "group_norm", "linear", "linear_weight_grad", "map", "norm_backward", "packed_attention",
             "attention_backward", "window_attention", "window_attention_backward")
assert [row["name"].split("/")[0] for row in runs] == [name for name in operators for _ in range(4)], runs
for row in runs:
    operator, text, kind = row["name"].split("/")[:3]
    assert row["label"] == f"{operator} {text}" and kind in ("cold", "warm"), row
    rate = "GB/s" if operator in ("norm", "group_norm", "map", "norm_backward") else "TFLOP/s"
    assert row[rate] > 0 and 0 < row["floor_share"] < 1 and ("GB/s" in row) != ("TFLOP/s" in row), row
    assert abs(row["floor_us"] / row["real_time"] / row["floor_share"] - 1) < 1e-3, row
problems = {entry["problem"] for path in glob.glob(f"{data}/*_problems.json") for entry in json.load(open(path))["problems"]}
names = [line.split("/iterations")[0] for line in open(f"{folder}/names.txt")]
assert sorted(names) == sorted(f"{text.replace(' ', '/', 1)}/{kind}" for text in problems for kind in ("cold", "warm"))
CHECK

env -u LD_LIBRARY_PATH -u CUDA_HOME CUDA_VISIBLE_DEVICES= "$bench" --problem "$problem" \
  2> "$folder/errors.txt"
[ $? -eq 3 ] || fail "without a GPU: $(cat "$folder/errors.txt")"
[ "$(wc -l < "$folder/errors.txt")" -eq 1 ] || fail "more than one line without a GPU"
"$bench" --problem "bf16 b=1 h=1 n=21 d=15" 2> "$folder/errors.txt" > /dev/null
[ $? -eq 2 ] || fail "a problem outside the kernels' reach: $(cat "$folder/errors.txt")"
echo "bench_operators.sh: ok"
