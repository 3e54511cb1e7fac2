#!/usr/bin/env python3
# tests/with_stalls.py -- Runs a command on a machine that stands still at random: a test that fails has a deadline too short.
# SPDX-License-Identifier: Apache-2.0
"""with_stalls.py [--longest SECONDS] [--seed N] COMMAND...

Freezes the command and all its processes for up to --longest seconds (3), lets them run for up to 2, and
so on, as a host does that has too many machines. For example:

  tests/with_stalls.py ctest --preset default -LE gpu -j 3

Needs root and a control group file system of version 2 (its cgroup.freeze). The exit status is the
command's; 2 if it cannot be started.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import time


def group_file_system() -> pathlib.Path:
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2":
            return pathlib.Path(folder)
    sys.exit("with_stalls.py: no control groups of version 2 are mounted (mount -t cgroup2 none FOLDER)")


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[0])
    parser.add_argument("--longest", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("which command?")
    chance = random.Random(options.seed)
    group = group_file_system() / f"vitune-stalls-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        sys.exit(f"with_stalls.py: {group}: {error.strerror}; it needs root")

    def freeze(whether: bool) -> None:
        (group / "cgroup.freeze").write_text("1" if whether else "0")

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    stalls = 0
    try:
        process = subprocess.Popen(options.command, preexec_fn=enter)
        while process.poll() is None:
            time.sleep(chance.uniform(0.1, 2.0))
            freeze(True)
            time.sleep(chance.uniform(0.2, max(0.2, options.longest)))
            freeze(False)
            stalls += 1
    except OSError as error:
        print(f"with_stalls.py: {error}", file=sys.stderr)
        return 2
    finally:
        freeze(False)
        try:
            group.rmdir()
        except OSError:
            pass  # a process outlived the command
    print(f"with_stalls.py: {stalls} stalls, exit status {process.returncode}")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
