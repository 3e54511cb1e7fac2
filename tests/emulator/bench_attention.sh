#!/usr/bin/env bash
# tests/emulator/bench_attention.sh -- bench_attention on the emulated device: JSON that vitune
# compare reads, a winner that it finds, and what it says without a GPU.
#
# Usage: bench_attention.sh BENCH VITUNE FOLDER. LD_LIBRARY_PATH and CUDA_HOME lead to the emulated device.
set -u
bench=$1 vitune=$2 folder=$3
problem="bf16 b=1 h=1 n=21 d=16"
rm -rf "$folder" && mkdir -p "$folder" || exit 1
export VITUNE_CACHE_DIR=$folder/cache

fail() {
  echo "bench_attention.sh: $*" >&2
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

env -u LD_LIBRARY_PATH -u CUDA_HOME CUDA_VISIBLE_DEVICES= "$bench" --problem "$problem" \
  2> "$folder/errors.txt"
[ $? -eq 3 ] || fail "without a GPU: $(cat "$folder/errors.txt")"
[ "$(wc -l < "$folder/errors.txt")" -eq 1 ] || fail "more than one line without a GPU"
"$bench" --problem "bf16 b=1 h=1 n=21 d=15" 2> "$folder/errors.txt" > /dev/null
[ $? -eq 2 ] || fail "a problem outside the kernels' reach: $(cat "$folder/errors.txt")"
echo "bench_attention.sh: ok"
