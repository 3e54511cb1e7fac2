#!/usr/bin/env bash
# examples/ship_a_database/ship.sh -- Tunes into one file on this machine; uses it read-only on another.
#
#   ship.sh make DATABASE TUNE_ARGUMENT...     what `vitune tune` takes: problems, --preset, --from
#   ship.sh use DATABASE PROGRAM [ARGUMENT...]
#
# VITUNE names the command if it is not on the PATH.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
vitune=${VITUNE:-vitune}

usage() {
  sed -n 's/^#   //p' "${BASH_SOURCE[0]}" >&2
  exit 2
}
(($# >= 3)) || usage
verb=$1
database=$2
shift 2

case $verb in
  make)
    "$vitune" tune --db "$database" "$@"
    "$vitune" verify --db "$database"          # once more, from the stored kernels
    "$vitune" db prune --db "$database" --keep 0
    "$vitune" db check --db "$database"
    ls -l "$database"
    ;;
  use)
    chmod 0444 "$database"
    VITUNE_DB=$(realpath "$database") exec "$@"
    ;;
  *) usage ;;
esac
