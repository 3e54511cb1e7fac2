#!/usr/bin/env bash
# cmake/install_packages.sh -- Installs what a build needs and is missing; Debian and Ubuntu only.
#
# Usage: install_packages.sh build|test|wheel|pip. As root with apt it installs quietly; not as root it prints the
# one command to run and fails; without apt it says so and leaves it to CMake to name what is missing.
# Nothing is downloaded if all is there, and nothing is done with PACKAGES=no in the environment or on make's command line.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

purpose=${1:-build}
packages=(g++ cmake ninja-build make pkg-config git libboost-program-options-dev libfmt-dev
          nlohmann-json3-dev libsqlite3-dev libzstd-dev libspdlog-dev libssl-dev libxxhash-dev libgtest-dev
          libgmock-dev libboost-context-dev libbenchmark-dev)
optional=()  # done without where the distribution lacks them
case $purpose in
  build) ;;
  test)
    packages+=(clang-format-14 python3 python3-venv python3-matplotlib chromium)
    optional=(mkdocs mkdocs-material)
    ;;
  wheel) packages+=(python3 python3-pip python3-venv binutils) ;;
  pip) packages=(python3 python3-pip) ;;
  *)
    echo "usage: install_packages.sh build|test|wheel|pip" >&2
    exit 2
    ;;
esac

is_installed() {
  [[ $(dpkg-query -W -f='${Status}' "$1" 2>/dev/null) == 'install ok installed' ]]
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "no apt-get here: if a library is missing, CMake names it below" >&2
  exit 0
fi

[[ ${PACKAGES:-} == no ]] && exit 0

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
lacking=()
for package in "${optional[@]}"; do
  is_installed "$package" || lacking+=("$package")
done
((${#missing[@]} + ${#lacking[@]} == 0)) && exit 0

if [[ $(id -u) != 0 ]]; then
  if ((${#missing[@]} == 0)); then
    echo "without ${lacking[*]} the documents' site is not built; sudo apt-get install installs them" >&2
    exit 0
  fi
  echo "missing packages; install them with this line, then run make again:" >&2
  echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { apt-get -qq -y install --no-install-recommends "$@" >"$log" 2>&1; }
# The package lists of a fresh container are empty; those of others may do as they are.
install_updated() { install "$@" || { apt-get -qq update >>"$log" 2>&1 && install "$@"; }; }
if ((${#missing[@]} > 0)); then
  echo "installing ${missing[*]}" >&2
  if ! install_updated "${missing[@]}"; then
    cat "$log" >&2
    echo "apt-get could not install the packages; the lines above say why" >&2
    exit 1
  fi
fi
if ((${#lacking[@]} > 0)); then
  echo "installing ${lacking[*]}" >&2
  install_updated "${lacking[@]}" || echo "apt-get has no ${lacking[*]}: the documents' site is not built" >&2
fi
