#!/usr/bin/env bash
# cmake/with_nvrtc.sh -- Runs a command where NVRTC can be found.
#
# Usage: with_nvrtc.sh [--for-gpu] <vitune> <command...>. With --for-gpu nothing is fetched on a machine
# without a GPU: a replay needs no compiler.
# NVRTC compiles the kernels at run time. Where `vitune doctor` finds none, PyPI's package is unpacked into
# .cache/nvrtc of this tree with pip (its version and hashes are in cmake/nvrtc_requirements*.txt), which
# needs neither root nor a GPU, and CUDA_HOME names it to the command. Without pip or a network a line on stderr says what to install, and the command runs
# nevertheless: what needs no compiler still works.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

for_gpu=
if [[ ${1:-} == --for-gpu ]]; then
  for_gpu=yes
  shift
fi
vitune=${1:?usage: with_nvrtc.sh [--for-gpu] <vitune> <command...>}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
target=$root/.cache/nvrtc

# True if the doctor says ok to the check of this name; its own exit status is about more than that.
is_ok() {
  local checks
  checks=$("$vitune" doctor --csv -q 2>/dev/null || true)
  [[ $checks == *$'\n'"$1,ok,"* ]]
}

# Points CUDA_HOME at the unpacked package, if it is there.
use_unpacked() {
  local library
  library=$(find "$target" -name 'libnvrtc.so.*' -print -quit 2>/dev/null)
  [[ -n $library ]] || return 1
  CUDA_HOME=$(dirname "$(dirname "$library")")
  export CUDA_HOME
  is_ok NVRTC
}

fetch() {
  python3 -m pip --version >/dev/null 2>&1 || "$root/cmake/install_packages.sh" pip || return 1
  local package
  package=$(sed -n 's/^\([a-z0-9-]*==[0-9.]*\).*/\1/p' "$root/cmake/$1")
  echo "no NVRTC here: fetching PyPI's $package into .cache/nvrtc" >&2
  rm -rf "$target"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
    --retries 1 --timeout 15 \
    --only-binary=:all: --require-hashes --target "$target" -r "$root/cmake/$1" >&2
}

if ! is_ok NVRTC && ! use_unpacked && { [[ -z $for_gpu ]] || is_ok GPU; } &&
   ! { fetch nvrtc_requirements.txt && use_unpacked; } &&
   ! { fetch nvrtc_requirements_cu12.txt && use_unpacked; }; then
  unset CUDA_HOME
  echo "NVRTC was not found and could not be fetched: kernels cannot be compiled here. Install the CUDA" >&2
  echo "toolkit, the distribution's libnvrtc, or 'pip install nvidia-cuda-nvrtc'. Replays need none." >&2
fi
exec "$@"
