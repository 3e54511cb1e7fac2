#!/usr/bin/env bash
# tests/emulator/bench_attention.sh -- bench_attention on the emulated device: JSON that vitune
# compare reads, a winner that it finds, and what it says without a GPU.
#
# Usage: bench_attention.sh BENCH VITUNE FOLDER. LD_LIBRARY_PATH and CUDA_HOME lead to the emulated device.
# SPDX-License-Identifier: Apache-2.0
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

# benchmarks/bench_cudnn.sh: says that there is no cuDNN, and reads what a program with cuDNN writes.
beside=$(dirname "$0")/../../benchmarks/bench_cudnn.sh
"$beside" "$bench" "$folder/cudnn.json" --problem "$problem" --rounds 2 > "$folder/console.txt" \
  2> "$folder/errors.txt" && fail "a comparison with a cuDNN that is not there"
has 'no problem was measured beside cuDNN' "$folder/errors.txt"
cat > "$folder/stub" <<'STUB'
#!/usr/bin/env python3
import json, sys
rows = [{"run_name": f"{peer}/{kind}/{name}/iterations:1/repeats:2/manual_time", "real_time": us,
         "aggregate_name": "median"}
        for peer, us in (("vitune", 10.0), ("cudnn", 15.0)) for kind in ("cold", "warm")
        for name in ("ViT-B/16@224 b1",)]
rows.append({"run_name": "cudnn/cold/other/iterations:1", "error_occurred": True,
             "error_message": "no engine", "real_time": 0})
out = [word.split("=", 1)[1] for word in sys.argv if word.startswith("--benchmark_out=")][0]
json.dump({"benchmarks": rows}, open(out, "w"))
sys.exit(0 if "--well" in sys.argv else 7)
STUB
chmod +x "$folder/stub"
"$beside" "$folder/stub" "$folder/cudnn.json" --well > "$folder/console.txt" 2>&1 ||
  fail "bench_cudnn.sh: status $?: $(cat "$folder/console.txt")"
has 'ViT-B/16@224 b1, cold: vitune 10.0 us, cuDNN 15.0 us' "$folder/console.txt"
has 'other: cudnn refused: no engine' "$folder/console.txt"
[ "$(tail -n 1 "$folder/console.txt")" = \
  "cuDNN / vitune, geometric means: cold 1.50 of 1, warm 1.50 of 1" ] || fail "no summary at the end"
"$beside" "$folder/stub" "$folder/cudnn.json" > /dev/null 2>&1
[ $? -eq 7 ] || fail "the program's own status is lost"

env -u LD_LIBRARY_PATH -u CUDA_HOME CUDA_VISIBLE_DEVICES= "$bench" --problem "$problem" \
  2> "$folder/errors.txt"
[ $? -eq 3 ] || fail "without a GPU: $(cat "$folder/errors.txt")"
[ "$(wc -l < "$folder/errors.txt")" -eq 1 ] || fail "more than one line without a GPU"
"$bench" --problem "bf16 b=1 h=1 n=21 d=15" 2> "$folder/errors.txt" > /dev/null
[ $? -eq 2 ] || fail "a problem outside the kernels' reach: $(cat "$folder/errors.txt")"
echo "bench_attention.sh: ok"
