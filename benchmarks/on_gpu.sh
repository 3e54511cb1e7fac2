#!/usr/bin/env bash
# benchmarks/on_gpu.sh -- Everything that needs the GPU, in one call: tests, sanitizer, sweep, tuning.
#
#   benchmarks/on_gpu.sh [tests] [sanitize] [record] [tune]     all four if none is named
#
# BUILD (default build/build-gpu) holds the binaries; they may come from another machine. OUT (default
# build/on_gpu) gets the full logs, the recording, the database and the JSON of the results; what is
# worth keeping is then committed under benchmarks/results/<device>/ and data/. Prints a short table
# last. Every step is bounded in time; a failed step does not stop the later ones.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build/build-gpu}
OUT=${OUT:-build/on_gpu}
mkdir -p "$OUT"
rows=()

step() {  # step NAME SECONDS COMMAND...: runs it, logs it, notes how it ended and its last words
  local name=$1 seconds=$2 began=$SECONDS status
  shift 2
  timeout -k 5 "$seconds" "$@" > "$OUT/$name.log" 2>&1
  status=$?
  rows+=("$(printf '%-14s %-8s %5ss  %s' "$name" \
    "$([ $status -eq 0 ] && echo ok || echo "exit $status")" $((SECONDS - began)) \
    "$(tail -n 1 "$OUT/$name.log" | tr -d '\r' | cut -c1-110)")")
}

run_tests() {
  step gpu_core 60 "$BUILD/tests/vitune_core_test" --gtest_filter='*Gpu*' --gtest_brief=1
  step gpu_features 120 "$BUILD/tests/vitune_tuner_test" --gtest_filter='*AttentionFeatureGpu*' --gtest_brief=1
  step gpu_worker 150 "$BUILD/tests/vitune_tuner_test" --gtest_brief=1 \
    --gtest_filter='*Gpu*:-*AttentionFeatureGpu*:*AttentionGpu*'
  step gpu_random 240 "$BUILD/tests/vitune_tuner_test" --gtest_filter='AttentionGpu*' --gtest_brief=1
}

sanitize() {
  for tool in memcheck racecheck; do
    step "$tool" 280 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 \
      "$BUILD/tests/vitune_tuner_test" --gtest_filter='*AttentionFeatureGpu*' --gtest_brief=1
  done
}

record() {  # exhaustive sweeps of the problems that replay ships with
  step record 560 "$BUILD/vitune" tune --preset recorded --strategy exhaustive --device 0 \
    --db "$OUT/record.db" --record "$OUT/h200.recording"
}

tune() {  # the 40 benchmark problems: winners, their cubins and figures
  step tune 560 "$BUILD/vitune" tune --preset bench --device 0 --db "$OUT/h200.db" --json
  cp "$OUT/tune.log" "$OUT/tune.json"
  step bench 60 "$BUILD/vitune" bench --preset bench --device 0 --db "$OUT/h200.db" --md
  "$BUILD/vitune" db export --db "$OUT/h200.db" > "$OUT/winners.json" 2>> "$OUT/tune.log"
}

for part in "${@:-tests sanitize record tune}"; do
  for name in $part; do
    case $name in
      tests) run_tests ;;
      sanitize) sanitize ;;
      record) record ;;
      tune) tune ;;
      *) echo "on_gpu.sh: no part '$name': tests, sanitize, record or tune" >&2; exit 2 ;;
    esac
  done
done

nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu --format=csv,noheader
printf '%s\n' "${rows[@]}"
