#!/usr/bin/env bash
# tests/emulator/bench_variants.sh -- Versions of the templates race on the emulated device, and a
# wrong one is refused.
#
# Usage: bench_variants.sh BENCH TEMPLATES FOLDER. LD_LIBRARY_PATH and CUDA_HOME lead to the emulated device.
# SPDX-License-Identifier: Apache-2.0
set -u
bench=$1 templates=$2 folder=$3
rm -rf "$folder" && mkdir -p "$folder" && cp -r "$templates" "$folder/broken" || exit 1

fail() {
  echo "bench_variants.sh: $*" >&2
  exit 1
}

# Keys beyond the last one are no longer masked.
sed -i 's/if constexpr (kTail || kDiagonal)/if constexpr (kDiagonal)/' "$folder/broken/attention/attention_rows.cuh"
cmp -s "$templates/attention/attention_rows.cuh" "$folder/broken/attention/attention_rows.cuh" &&
  fail "the templates do not mask where this test expects it"
config="kBiasInRegisters=0 kBlockN=32 kConstantKeys=1 kEvenItems=0 kHeadsPerCta=1 kKeySplit=1 kMinCtas=1
  kPersistent=0 kProducer=0 kQueryInRegisters=1 kResident=0 kRowSplit=1 kRowTiles=1 kSpareRows=0 kStages=2
  kSwizzle=0 kValuesFirst=0 kWarps=1"
config=$(tr -d '\n' <<< "$config")
{
  echo "# a comment"
  echo "small/32; bf16 b=1 h=2 n=21 d=16; $config"
  echo "small/24; bf16 b=1 h=2 n=21 d=16; ${config/kBlockN=32/kBlockN=24}"
} > "$folder/cases"
"$bench" --templates now="$templates" --templates broken="$folder/broken" --rounds 3 \
  < "$folder/cases" > "$folder/out" 2> "$folder/errors" || fail "status $?: $(cat "$folder/errors")"
[ "$(grep -c '^small/.* now .*warm .* us' "$folder/out")" -eq 2 ] || fail "times: $(cat "$folder/out")"
grep -q '^small/32 now .*warm .* us 1.000' "$folder/out" || fail "no ratio to the first"
[ "$(grep -c '^small/.* broken .*the kernel' "$folder/out")" -eq 2 ] || fail "verdicts: $(cat "$folder/out")"

# Another operator than attention.
echo "rows; norm fp16 m=37 d=64 weight bias; kEarlyStart=0 kPersistent=0 kRowThreads=4 kRows=32 kSmWarps=32 kStreaming=0 kVector=8" |
  "$bench" --templates now="$templates" --rounds 3 > "$folder/out" 2> "$folder/errors" ||
  fail "norm: status $?: $(cat "$folder/errors")"
grep -q '^rows now .*warm .* us 1.000' "$folder/out" || fail "norm: $(cat "$folder/out")"

for wrong in "--templates now=$folder/nothing" "--templates now=$templates --cases $folder/nothing" \
  "--templates now=$templates --rounds 0" "--templates now=$templates --out $folder/cubins" \
  "--templates now=$templates --compile sm_90 --out $folder/cases" ""; do
  # shellcheck disable=SC2086
  "$bench" $wrong < "$folder/cases" > /dev/null 2> "$folder/errors"
  [ $? -eq 2 ] || fail "'$wrong' was taken: $(cat "$folder/errors")"
done
echo "no case" | "$bench" --templates now="$templates" > /dev/null 2> "$folder/errors"
[ $? -eq 2 ] || fail "a line that is no case was taken"
{ cat "$folder/cases" && sed -n 's/n=21/n=22/p' "$folder/cases"; } |
  "$bench" --templates now="$templates" > /dev/null 2> "$folder/errors"
[ $? -eq 2 ] || fail "two problems in a group: $(cat "$folder/errors")"
env -u LD_LIBRARY_PATH -u CUDA_HOME "$bench" --templates now="$templates" < "$folder/cases" 2> "$folder/errors"
[ $? -eq 3 ] || fail "without a GPU: $(cat "$folder/errors")"
"$bench" --templates now="$templates" --compile sm_x < "$folder/cases" > /dev/null 2> "$folder/errors"
[ $? -eq 1 ] || fail "an architecture that is none: $(cat "$folder/errors")"
"$bench" --templates now="$templates" --compile sm_90 < "$folder/cases" > "$folder/out" 2> "$folder/errors" ||
  fail "compiling: $(cat "$folder/out" "$folder/errors")"
"$bench" --templates now="$templates" --compile sm_90 --out "$folder/cubins" < "$folder/cases" > /dev/null
[ -s "$folder/cubins/small_32_now.cubin" ] || fail "no cubin: $(ls "$folder/cubins")"
[ "$(grep -c 'small/.* registers, 0 bytes spilled' "$folder/out")" -eq 2 ] || fail "facts: $(cat "$folder/out")"
echo "bench_variants.sh: ok"
