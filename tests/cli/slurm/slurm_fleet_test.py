#!/usr/bin/env python3
# tests/cli/slurm/slurm_fleet_test.py -- A fleet under a real Slurm finds what one machine alone finds.
#
# Usage: slurm_fleet_test.py VITUNE. An array of 8 shards replays a recording; one is killed and requeued; the
# merge behind them gives the database that one run alone gives. Ends with 77 where Slurm or munge is missing.
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from private_cluster import PrivateCluster, missing_programs  # noqa: E402

SHARDS, KILLED, LAST = 8, 3, 7
MOST_SECONDS = 540  # less than the test's TIMEOUT
# Whole spaces: a search of one problem begins at winners of those before it, and a shard has fewer.
SEARCH = ["--preset", "recorded", "--device", "replay:h200", "--strategy", "exhaustive"]

# Stops the shard to be killed in the midst of its work, and keeps the last from ending before it is requeued: the
# merge waits for the end of the array only.
PROGRAM = """#!/bin/bash
if [[ ${{SLURM_ARRAY_TASK_ID:-}} == {killed} && -z ${{SLURM_RESTART_COUNT:-}} ]]; then
  '{vitune}' "$@" &
  until [[ -e '{out}/shard-0000{killed}-of-0000{shards}.json' ]]; do sleep 0.01; done
  kill -STOP $!
  echo $! > '{folder}/part' && mv '{folder}/part' '{folder}/stopped'
  wait $!
  exit
fi
until [[ ${{SLURM_ARRAY_TASK_ID:-}} != {last} || -e '{folder}/requeued' || $SECONDS -gt 300 ]]; do sleep 0.1; done
exec '{vitune}' "$@"
"""


def vitune(program, *arguments, status=0):
    result = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    if result.returncode != status:
        raise RuntimeError(f"vitune {arguments} ended with {result.returncode}: {result.stderr}")
    return result.stdout


def found(program, database):
    """The digest of a database's results, and its winners without their dates."""
    digest = json.loads(vitune(program, "db", "digest", "--results", "--json", "--db", database))["digest"]
    export = json.loads(vitune(program, "db", "export", "--winners-only", "--db", database))
    for winner in export["winners"]:
        del winner["tuned_at"]
    return digest, sorted(json.dumps(winner, sort_keys=True) for winner in export["winners"])


def write_job(program, folder, out):
    stand_in = folder / "vitune"
    stand_in.write_text(PROGRAM.format(vitune=program, folder=folder, out=out, killed=KILLED, last=LAST, shards=SHARDS))
    stand_in.chmod(0o755)
    script = folder / "job.sh"
    script.write_text(vitune(program, "fleet", "slurm", *SEARCH, "--shards", str(SHARDS), "--gpu", "h200", "--cpus", "1",
                             "--program", str(stand_in), "--out", str(out)))
    return script


def kill_and_requeue(cluster, folder, out, task, merge):
    cluster.wait("shard to kill", 60, (folder / "stopped").exists)
    record = json.loads((out / f"shard-{KILLED:05}-of-{SHARDS:05}.json").read_text())
    assert record["state"] == "running", record
    os.kill(int((folder / "stopped").read_text()), signal.SIGKILL)
    cluster.wait("end of the killed task", 60, lambda: cluster.state(task) == "FAILED")
    assert not (out / f"shard-{KILLED:05}-of-{SHARDS:05}.db").exists()
    assert cluster.state(merge) == "PENDING"
    cluster.run("scontrol", "requeue", task)
    (folder / "requeued").touch()


def run_fleet(program, folder):
    out = folder / "shared folder"
    script = write_job(program, folder, out)
    with PrivateCluster(folder, cpus=4, gpu="h200") as cluster:
        said = cluster.run("bash", str(script))
        array, merge = re.search(r"shards: job (\d+), merge: job (\d+)", said).groups()
        kill_and_requeue(cluster, folder, out, f"{array}_{KILLED}", merge)
        cluster.wait("end of the merge", 240, lambda: cluster.state(merge) in ("COMPLETED", "FAILED"))
        log = (out / "log" / f"{merge}-merge.txt").read_text()
        assert cluster.state(merge) == "COMPLETED", log
    vitune(program, "fleet", "status", str(out))  # all shards are done, or it fails
    return found(program, str(out / "vitune.db"))


def give_up(number, _):
    raise TimeoutError(f"stopped by signal {number}")


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    missing = missing_programs()
    if missing:
        print(f"skipped: no {', '.join(missing)} (Debian: slurm-wlm and munge)")
        return 77
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, give_up)  # an exception, so that all is put away
    signal.alarm(MOST_SECONDS)
    # Paths of sockets are short, those of build folders may not be.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="vitune-slurm-"))
    try:
        os.chmod(folder, 0o755)
        fleet = run_fleet(program, folder)
        vitune(program, "tune", *SEARCH, "-q", "--db", str(folder / "alone.db"))
        alone = found(program, str(folder / "alone.db"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert len(alone[1]) >= SHARDS, alone
    assert fleet == alone, f"the fleet found {fleet}, one machine alone {alone}"
    print(f"{len(alone[1])} winners in {SHARDS} shards, digest {alone[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
