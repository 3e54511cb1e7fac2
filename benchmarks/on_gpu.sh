#!/usr/bin/env bash
# benchmarks/on_gpu.sh -- Everything that needs the GPU, in one call: tests, sanitizer, sweep, tuning.
#
#   benchmarks/on_gpu.sh [tests] [random] [sanitize] [record] [tune] [ceilings] [peers] [norms] [linears] [maps]
#                        [drawn] [ladder] [first_calls] [operators] [runtime] [python] [models] [train_models] [tuner]
#
# All parts if none is named.
#
# BUILD (default build/build-gpu) holds the binaries; they may come from another machine. OUT (default
# build/on_gpu) gets the full logs, the recording, the database and the JSON of the results; what is
# worth keeping is then committed under benchmarks/results/<device>/ and data/. Prints a short table
# last. Every step is bounded in time; a failed step does not stop the later ones. What lies in RESUME
# (default build/on_gpu_resume) is copied to OUT first: with record.db and h200.recording, h200.db, or
# drawn.db of an earlier call there, record, tune and drawn go on where that one ended; with models.json and
# models_cache.tgz.*, models does, which measures the rows that the regular expression ROWS matches (default all: call
# it again until none is unfinished); with train_models.json and train_cache.tgz.*, train_models does, in a process for each visible
# GPU, with TRAIN_ARGS (--losses, --only=REGEX) for all, within TRAIN_LIMIT seconds (default 520). TUNE_OPTIONS (default --budget=4s, five minutes for all problems) goes to tune;
# norms and maps tune into h200.db as well and give their peers NORMS_BUDGET, MAPS_BUDGET seconds (default 260 each); linears tunes there for LINEARS_TUNE
# a problem (default 3s; none: not at all), at most LINEARS_TUNE_LIMIT seconds (default 290), and gives its peers LINEARS_BUDGET
# seconds (default 260) and LINEARS_ARGS: with peers_linear.json of an earlier call in RESUME it measures the rows that are not
# in it, so call it again until none is unfinished; OPERATORS_FILTER (a regular expression, default all) names the benchmarks of
# operators; SEEDS (default five numbers) say which
# problems random draws, RANDOM_OF (default AttentionGpuTest; LinearRandomGpuTest) of which operator; TOOLS (default all four) are those of compute-sanitizer that sanitize runs, in SHARDS
# processes (default one more than CPUs), and CASES (a gtest filter, default all features of attention) its cases, of
# which racecheck looks at the kernels with KERNELS (default vitune_attention) in their names. random and
# sanitize use all visible GPUs. Where LOGS names another folder, logs go there and OUT has them all in one file,
# logs.tgz, renewed after each part, so that a call that is cut off leaves those of the parts that ended;
# table.txt grows with each step. On a machine of several GPUs, benchmarks/on_gpus.sh runs parts side by side.
#
# benchmarks/pack_for_gpu.sh collects what to carry.
# SPDX-License-Identifier: Apache-2.0
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build/build-gpu}
OUT=${OUT:-build/on_gpu}
RESUME=${RESUME:-build/on_gpu_resume}
LOGS=${LOGS:-$OUT}
mkdir -p "$OUT" "$LOGS"
[ -d "$RESUME" ] && cp "$RESUME"/* "$OUT"/
: > "$OUT/table.txt"

row() { printf '%s\n' "$1" >> "$OUT/table.txt"; }  # row TEXT: of the table

# Bundles logs in a folder of their own.
bundle_logs() {
  [ "$LOGS" = "$OUT" ] || { tar -czf "$OUT/logs.tgz.part" -C "$LOGS" . && mv "$OUT/logs.tgz.part" "$OUT/logs.tgz"; }
}

step() {  # step NAME SECONDS COMMAND...: runs it, logs it, notes how it ended and its last words
  local name=$1 seconds=$2 began=$SECONDS status
  shift 2
  timeout -k 5 "$seconds" "$@" > "$LOGS/$name.log" 2>&1
  status=$?
  row "$(printf '%-15s %-8s %5ss  %s' "$name" \
    "$([ $status -eq 0 ] && echo ok || echo "exit $status")" $((SECONDS - began)) \
    "$(tail -n 1 "$LOGS/$name.log" | tr -d '\r' | cut -c1-110)")"
}

run_tests() {
  step gpu_core 60 "$BUILD/tests/vitune_core_test" --gtest_filter='*Gpu*' --gtest_brief=1
  step gpu_features 240 "$BUILD/tests/vitune_tuner_test" --gtest_filter='*AttentionFeatureGpu*.Matches*:*HeldReference*'
  step gpu_large 150 "$BUILD/tests/vitune_tuner_test" --gtest_filter='*AttentionLargeGpu*' --gtest_brief=1
  step gpu_worker 150 "$BUILD/tests/vitune_tuner_test" --gtest_brief=1 \
    --gtest_filter='*Gpu*:-*AttentionFeatureGpu*:*HeldReference*:*AttentionLargeGpu*:*AttentionGpu*:*LinearRandomGpu*:*LinearWeightGrad*:*NormBackward*:*AttentionBackward*'
  step gpu_probe 60 "$BUILD/tests/vitune_probe_test" --gtest_filter='*Gpu*' --gtest_brief=1
  step gpu_random 240 "$BUILD/tests/vitune_tuner_test" --gtest_filter='AttentionGpu*' --gtest_brief=1
  step gpu_linear 240 "$BUILD/tests/vitune_tuner_test" --gtest_filter='LinearRandomGpu*' --gtest_brief=1
  step gpu_norm_backward 120 "$BUILD/tests/vitune_tuner_test" --gtest_filter='*NormBackward*GpuTest*' --gtest_brief=1
  step gpu_attention_backward 300 "$BUILD/tests/vitune_tuner_test" --gtest_filter='*AttentionBackward*GpuTest*' --gtest_brief=1
  step gpu_weight_grad 300 "$BUILD/tests/vitune_tuner_test" --gtest_filter='*LinearWeightGrad*GpuTest*' --gtest_brief=1
}

# The GPUs to be used, in the array gpus.
find_gpus() {
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    IFS=, read -ra gpus <<< "$CUDA_VISIBLE_DEVICES"
  else
    mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader)
  fi
  [ ${#gpus[@]} -ge 1 ] || gpus=(0)
}

# Five thousand random problems, a thousand per process: at most 550 s.
random() {
  local began=$SECONDS seeds gpus i
  find_gpus
  read -ra seeds <<< "${SEEDS:-31 32 33 34 35}"
  for i in "${!seeds[@]}"; do
    CUDA_VISIBLE_DEVICES=${gpus[i % ${#gpus[@]}]} \
      timeout -k 5 540 "$BUILD/tests/vitune_tuner_test" --gtest_filter="${RANDOM_OF:-AttentionGpuTest}.AThousand*" \
      --gtest_shuffle --gtest_random_seed="${seeds[i]}" > "$LOGS/random.$i.log" 2>&1 &
  done
  wait
  cat "$LOGS"/random.*.log > "$LOGS/random.log"
  rm -f "$LOGS"/random.*.log
  row "$(printf '%-15s %-8s %5ss  %s thousand right, %s failed' random '' $((SECONDS - began)) \
    "$(grep -c '^\[       OK' "$LOGS/random.log")" "$(grep -c '^\[  FAILED  \].*(.* ms)' "$LOGS/random.log")")"
}

# The cases of all features under a tool of compute-sanitizer, a share of the cases per process: the tools
# make loading and checking a kernel slow, and most of that is work of one core. All visible GPUs take part.
sanitizer() {  # sanitizer TOOL SECONDS TESTS [OPTION...]
  local tool=$1 seconds=$2 tests=$3 shards=${SHARDS:-$(($(nproc) + 1))} began=$SECONDS shard gpus
  shift 3
  find_gpus
  rm -f "$LOGS/$tool".*.log
  for ((shard = 0; shard < shards; ++shard)); do
    CUDA_VISIBLE_DEVICES=${gpus[shard % ${#gpus[@]}]} \
      GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard timeout -k 5 "$seconds" \
      compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 "$@" \
      "$BUILD/tests/vitune_tuner_test" --gtest_filter="${CASES:-*AttentionFeatureGpu*$tests*:*HeldReferenceGpu*}" \
      > "$LOGS/$tool.$shard.log" 2>&1 || echo "shard $shard: exit $?" >> "$LOGS/$tool.$shard.log" &
  done
  wait
  cat "$LOGS/$tool".*.log > "$LOGS/$tool.log"
  rm -f "$LOGS/$tool".*.log
  row "$(printf '%-15s %-8s %5ss  %s passed, %s failed, %s cut off; summaries: %s' "$tool" '' $((SECONDS - began)) \
    "$(grep -c '^\[       OK' "$LOGS/$tool.log")" "$(grep -c '^\[  FAILED  \].*(.* ms)' "$LOGS/$tool.log")" \
    "$(grep -cE '^shard .*: exit (124|137)' "$LOGS/$tool.log")" \
    "$(grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY' "$LOGS/$tool.log" | sed 's/=* *//' | sort | uniq -c | tr -s ' \n' ' ')")"
}

sanitize() {
  local tool
  for tool in ${TOOLS:-memcheck initcheck synccheck racecheck}; do
    if [ "$tool" = racecheck ]; then
      # Each racecheck would have a thread per CPU. A case takes one to eight minutes, all of them several
      # calls of four H200: CASES names those of a call.
      sanitizer racecheck 540 .OneLaunch --racecheck-num-workers 1 \
        --kernel-name "kernel_substring=${KERNELS:-vitune_attention}"
    else
      sanitizer "$tool" 100 .Matches
    fi
  done
}

record() {  # exhaustive sweeps of the problems that replay ships with
  step record 560 "$BUILD/vitune" tune --preset recorded --device 0 \
    --db "$OUT/record.db" --record "$OUT/h200.recording"
}

tune() {  # the 40 benchmark problems: winners, their cubins and figures
  # The document goes to a file of its own: progress is in the log.
  step tune 560 bash -c 'exec "$0" tune --preset bench --device 0 --db "$1" --json $3 > "$2"' \
    "$BUILD/vitune" "$OUT/h200.db" "$OUT/tune.json" "${TUNE_OPTIONS:---budget=4s}"
  step bench 90 "$BUILD/vitune" bench --preset bench --device 0 --db "$OUT/h200.db" --md
  "$BUILD/vitune" db export --db "$OUT/h200.db" > "$OUT/winners.json" 2>> "$LOGS/tune.log"
}

# The winners of this call, else the shipped ones.
winners() { [ -f "$OUT/h200.db" ] && echo "$OUT/h200.db" || echo data/winners.db; }

# The loader asks for this name; a link may have been lost on the way.
link_library() {
  [ -e "$BUILD/libvitune.so.0" ] || ln -s "$(basename "$BUILD"/libvitune.so.0.*)" "$BUILD/libvitune.so.0"
}

# Tunes of ten problems from nothing, TUNER_SEEDS of each (default 4).
tuner() {
  step tuner 590 python3 benchmarks/tuner/run.py "$BUILD/vitune" "$BUILD/benchmarks/vitune_bench_variants" \
    --json "$OUT/tuner.json" --seeds "${TUNER_SEEDS:-4}" --cores "$(nproc)" --limit 560
}

ceilings() {  # what the GPU can do at most
  step ceilings 90 bash -c 'exec "$0" devices --measure --json > "$1"' "$BUILD/vitune" "$OUT/ceilings.json"
}

peers() {  # every peer beside vitune
  link_library
  step peers 560 python3 benchmarks/peers/run.py --library "$BUILD/libvitune.so.0" --db "$(winners)" \
    --budget 520 --json "$OUT/peers.json" --md "$OUT/peers.md"
}

norms() {  # norms and group norms, tuned for warm calls into the call's database, then every peer beside vitune
  link_library
  [ -f "$OUT/h200.db" ] || cp data/winners.db "$OUT/h200.db"
  step norms_tune 270 "$BUILD/vitune" tune --from data/norm_problems.json --device 0 --db "$OUT/h200.db" \
    --objective warm --budget 3s
  step norms 290 python3 benchmarks/peers/run.py --library "$BUILD/libvitune.so.0" --db "$OUT/h200.db" \
    --from data/norm_problems.json --budget "${NORMS_BUDGET:-260}" \
    --json "$OUT/peers_norm.json" --md "$OUT/peers_norm.md"
}

# Tunes vitune's own kernels where a library's won, into linear_own.db; the log has the rest.
own_winners() {
  local made=$OUT/linear_own
  rm -f "$made".json "$made".db
  "$BUILD/vitune" db export "$made.tuned.json" --db "$OUT/h200.db" &&
    python3 benchmarks/peers/linear/own_winners.py "$made.tuned.json" "$made.json"
  local status=$?
  rm -f "$made.tuned.json"
  [ -f "$made.json" ] || return $status
  "$BUILD/vitune" db import "$made.json" --db "$made.db" && "$BUILD/vitune" verify --db "$made.db" --device 0 \
    --from data/linear_problems.json --objective warm && return $status
}

linears() {  # linear layers, tuned for warm calls into the call's database, then every peer beside vitune
  local budget=${LINEARS_BUDGET:-260} limit=${LINEARS_TUNE_LIMIT:-290} own=()
  # Tuned and served with the cuBLASLt that PyTorch has: a winner of another version's would not serve in its process.
  local -x VITUNE_CUBLASLT=${VITUNE_CUBLASLT:-$(python3 -c 'import torch
print(next((line.split()[-1] for line in open("/proc/self/maps") if "libcublasLt.so" in line), ""))')}
  link_library
  [ -f "$OUT/h200.db" ] || cp data/winners.db "$OUT/h200.db"
  if [ "${LINEARS_TUNE:-3s}" != none ]; then
    step linears_tune "$limit" "$BUILD/vitune" tune --from data/linear_problems.json --device 0 \
      --db "$OUT/h200.db" --objective warm --budget "${LINEARS_TUNE:-3s}"
  fi
  own_winners > "$LOGS/linears_own.log" 2>&1 || row "linears: vitune_own lacks kernels, linears_own.log says which"
  [ -f "$OUT/linear_own.db" ] && own=(--own-db "$OUT/linear_own.db")
  step linears $((budget + 30)) python3 benchmarks/peers/run.py --library "$BUILD/libvitune.so.0" --db "$OUT/h200.db" "${own[@]}" \
    --from data/linear_problems.json --budget "$budget" --row-seconds 15 --resume --json "$OUT/peers_linear.json" \
    --md "$OUT/peers_linear.md" ${LINEARS_ARGS:-}
}

maps() {  # maps, tuned for warm calls into the call's database, then Inductor's kernels beside vitune's
  link_library
  [ -f "$OUT/h200.db" ] || cp data/winners.db "$OUT/h200.db"
  step maps_tune 150 "$BUILD/vitune" tune --from data/map_problems.json --device 0 --db "$OUT/h200.db" \
    --objective warm --budget 8s
  step maps $((${MAPS_BUDGET:-260} + 30)) python3 benchmarks/peers/run.py --library "$BUILD/libvitune.so.0" --db "$OUT/h200.db" \
    --from data/map_problems.json --budget "${MAPS_BUDGET:-260}" \
    --json "$OUT/peers_map.json" --md "$OUT/peers_map.md"
}

drawn() {  # the problems drawn at random: tuned for three seconds each, then every peer beside vitune
  link_library
  [ -f "$OUT/drawn.db" ] || cp "$(winners)" "$OUT/drawn.db"
  step drawn_tune 300 "$BUILD/vitune" tune --from data/drawn_problems.json --device 0 \
    --db "$OUT/drawn.db" --budget 3s
  step drawn 260 python3 benchmarks/peers/run.py --library "$BUILD/libvitune.so.0" --db "$OUT/drawn.db" \
    --from data/drawn_problems.json --budget 240 --json "$OUT/drawn.json" --md "$OUT/drawn.md"
}

ladder() {  # the reference kernels and PyTorch on data/reference_problems.json: at most 500 s
  local db=$OUT/ladder.db n lengths=()
  link_library
  [ -f "$db" ] || cp "$(winners)" "$db"
  for n in 512 1024 2048 4096 8192; do lengths+=(--problem "bf16 b=1 h=16 n=$n d=64"); done
  # These five are not among the 40; an unfinished search costs them their exact winner only.
  step ladder_tune 150 "$BUILD/vitune" tune "${lengths[@]}" --budget 12s --device 0 --db "$db"
  VITUNE_DB=$db step reference 150 "$BUILD/benchmarks/vitune_bench_reference" --out "$OUT/reference.json"
  step reference_peers 200 python3 benchmarks/peers/run.py --library "$BUILD/libvitune.so.0" --db "$db" \
    --from data/reference_problems.json --peers vitune,cudnn,flash,compiled,eager --budget 165 \
    --json "$OUT/reference_peers.json" --md "$OUT/reference_peers.md"
}

first_calls() {  # the first call of cuDNN, vitune and others in processes of their own: at most 150 s
  link_library
  step first_calls 150 python3 benchmarks/peers/run.py --library "$BUILD/libvitune.so.0" \
    --db "$(winners)" --first-calls "$OUT/first_calls.json" --budget 130
}

operators() {  # whole calls of every operator's shipped problems, or of those whose names match: at most 560 s
  link_library
  VITUNE_DB=$(winners) step operators 560 "$BUILD/benchmarks/vitune_bench_operators" --rounds 15 \
    --benchmark_filter="${OPERATORS_FILTER:-.}" --benchmark_out="$OUT/bench_operators.json" --benchmark_out_format=json
}

runtime() {  # libvitune: answers, graphs, damage; serving while the same problems are tuned; its times
  link_library
  step library 150 "$BUILD/tests/vitune_runtime_test" --gtest_filter='*Library*GpuTest.*' --gtest_brief=1
  step serve_and_tune 330 tests/runtime/serve_while_tuning.sh "$BUILD/vitune" \
    "$BUILD/tests/vitune_serve" "$LOGS/serve.db" 12s 250 "bf16 b=32 h=12 n=197 d=64" \
    "fp16 b=8 h=16 n=577 d=64" "bf16 b=512 h=3 n=49 d=32 bias=bf16:1x3x49x49" \
    "bf16 b=1 h=12 n=197 d=64" "bf16 b=16 h=16 n=257 d=80" "bf16 b=32 h=12 n=50 d=64" \
    "bf16 b=64 h=16 nq=1 nk=729 d=72" "bf16 b=256 h=8 n=77 d=64 causal" "bf16 b=8 h=16 n=256 d=72"
  for name in dispatch cold_start; do
    step "$name" 75 "$BUILD/benchmarks/vitune_bench_$name" --benchmark_out="$OUT/$name.json" \
      --benchmark_out_format=json
  done
}

python_tests() {  # the package with PyTorch on the GPU
  VITUNE_TEST_LIBRARY=$PWD/$BUILD/libvitune.so.0 step python 280 \
    bash -c 'cd python && exec python3 -m unittest -v tests.test_torch_gpu'
  VITUNE_TEST_LIBRARY=$PWD/$BUILD/libvitune.so.0 step python_training 500 \
    bash -c 'cd python && exec python3 -m unittest -v tests.test_torch_train_gpu'
}

models() {  # whole models, as they are and compiled, PyTorch beside vitune; needs timm. ROWS: of these names alone
  local resume=() rows=() cache=${MODELS_CACHE:-build/models_cache}
  link_library
  [ -f "$RESUME/models.json" ] && resume=(--resume)
  [ -n "${ROWS:-}" ] && rows=(--rows "$ROWS")
  mkdir -p "$cache"
  # The results of earlier compiles, in pieces that any way of carrying takes.
  if [ -f "$RESUME/models_cache.tgz.00" ]; then cat "$RESUME"/models_cache.tgz.* | tar -xz -C "$cache"; fi
  step models 560 python3 benchmarks/models/run.py --library "$BUILD/libvitune.so.0" --db "$(winners)" \
    --limit 520 --cache "$cache" --cache-mb "${MODELS_CACHE_MB:-128}" --json "$OUT/models.json" "${resume[@]}" "${rows[@]}"
  rm -f "$OUT"/models_cache.tgz.*
  tar -cz -C "$cache" . | split -b 15m -d - "$OUT/models_cache.tgz."
}

# Training steps of whole models, PyTorch's ways beside vitune's; needs timm. A process for each visible GPU measures a share of the
# rows, into a file of its own; they are merged last.
train_models() {
  local began=$SECONDS cache=${TRAIN_CACHE:-build/train_cache} limit=${TRAIN_LIMIT:-520} found=() arguments gpus count threads status i
  link_library
  find_gpus
  count=${#gpus[@]} threads=$(($(nproc) / ${#gpus[@]}))
  read -ra arguments <<< "${TRAIN_ARGS:-}"
  mkdir -p "$cache"
  # The results of earlier compiles, in pieces that any way of carrying takes.
  if [ -f "$RESUME/train_cache.tgz.00" ]; then cat "$RESUME"/train_cache.tgz.* | tar -xz -C "$cache"; fi
  for i in "${!gpus[@]}"; do
    found+=("$LOGS/train_models.$i.json")
    rm -f "${found[i]}"
    [ ! -f "$RESUME/train_models.json" ] || cp "$RESUME/train_models.json" "${found[i]}"
    CUDA_VISIBLE_DEVICES=${gpus[i]} TORCHINDUCTOR_COMPILE_THREADS=$((threads > 1 ? threads : 1)) timeout -k 5 $((limit + 40)) \
      python3 benchmarks/train_models/run.py --library "$BUILD/libvitune.so.0" --db "$(winners)" --resume --shard "$i/$count" \
      --limit "$limit" --cache "$cache/$i" --cache-mb $((${TRAIN_CACHE_MB:-128} / count)) --json "${found[i]}" \
      "${arguments[@]}" > "$LOGS/train_models.$i.log" 2>&1 &
  done
  wait
  # A process that found no device left no file.
  for i in "${!found[@]}"; do [ -f "${found[i]}" ] || unset "found[i]"; done
  python3 benchmarks/train_models/run.py --json "$OUT/train_models.json" "${arguments[@]}" --merge "${found[@]}" \
    > "$LOGS/train_models.log" 2>&1
  status=$?
  row "$(printf '%-15s %-8s %5ss  %s' train_models "$([ $status -eq 0 ] && echo ok || echo "exit $status")" $((SECONDS - began)) \
    "$(tail -n 1 "$LOGS/train_models.log" | cut -c1-110)")"
  for i in "${!gpus[@]}"; do row "  GPU ${gpus[i]}: $(tail -n 1 "$LOGS/train_models.$i.log" | tr -d '\r' | cut -c1-110)"; done
  rm -f "$OUT"/train_cache.tgz.*
  grep -q ' 0 tasks unfinished' "$LOGS/train_models.log" || tar -cz -C "$cache" . | split -b 15m -d - "$OUT/train_cache.tgz."
}

for part in "${@:-tests random sanitize record tune ceilings peers norms linears maps drawn ladder first_calls operators runtime python models train_models tuner}"; do
  for name in $part; do
    case $name in
      tests) run_tests ;;
      random) random ;;
      sanitize) sanitize ;;
      record) record ;;
      tune) tune ;;
      ceilings) ceilings ;;
      peers) peers ;;
      norms) norms ;;
      linears) linears ;;
      maps) maps ;;
      drawn) drawn ;;
      ladder) ladder ;;
      first_calls) first_calls ;;
      operators) operators ;;
      runtime) runtime ;;
      python) python_tests ;;
      models) models ;;
      train_models) train_models ;;
      tuner) tuner ;;
      *) echo "on_gpu.sh: no part '$name'; the first lines of this file name them" >&2; exit 2 ;;
    esac
    bundle_logs
  done
done

# A row a line, as results are kept: those of C++ programs come otherwise.
results=()
for name in tune ceilings reference bench_attention dispatch cold_start; do results+=("$OUT/$name.json"); done
python3 benchmarks/one_row_a_line.py "${results[@]}" > "$OUT/rows.log" 2>&1 || row "$(cat "$OUT/rows.log")"
rm -f "$OUT/rows.log"

nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu --format=csv,noheader
cat "$OUT/table.txt"
