#!/usr/bin/env python3
# benchmarks/bench_merge.py -- How long `vitune db merge` takes for many shard files, and how much memory.
#
# Usage: bench_merge.py VITUNE [SHARDS] [WINNERS]. Writes the shards (20,000 winners in 1,000 files unless told
# otherwise, each problem in two of them) under the temporary directory, merges them on one core into an empty
# database, and prints seconds and peak memory. Only the standard library is used.
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import pathlib
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time

EMPTY = {"format": "vitune-export", "schema": 1, "devices": [], "problems": []}
DEVICE_KEY = "bench device"
# A config of the attention's space, so that its kernel key is derived as for a winner of a tuning.
CONFIG = ("kBiasInRegisters=0 kBlockN=200 kConstantKeys=1 kEvenItems=0 kHeadsPerCta=1 kKeySplit=1 kMinCtas=1 kPersistent=1 kProducer=2 "
          "kQueryInRegisters=0 kResident=1 kRowSplit=1 kRowTiles=1 kSpareRows=8 kStages=2 kSwizzle=128 kValuesFirst=0 kWarps=12")
COMPILER = "nvrtc 13.0 e65868e6f307"


def encode(value):  # docs/cache_format.md, "Row digests"
    if value is None:
        return b"n"
    if isinstance(value, int):
        return b"i" + struct.pack("<q", value)
    if isinstance(value, float):
        return b"r" + struct.pack("<d", value + 0.0)
    tag, data = (b"t", value.encode()) if isinstance(value, str) else (b"b", value)
    return tag + struct.pack("<Q", len(data)) + data


def insert(db, table, row):
    digest = hashlib.sha256(b"".join(map(encode, [table, *row]))).digest()
    db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * (len(row) + 1))})", [*row, digest])


def short_id(text):
    return hashlib.sha256(text.encode()).digest()[:16]


def write_shard(path, shard, problems):
    device = short_id(DEVICE_KEY)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA synchronous = OFF")
        insert(db, "device", [device, DEVICE_KEY, 9, 0, 132, 232448, 233472, 65536, 2048, 62914560, 6144, 3201000,
                              1980000, "bench", 150000000000, 13000])
        for n in problems:
            text = f"attention bf16 b={n + 1} h=12 nq=197 nk=197 d=64 layout=packed"
            problem = short_id(f"attention\n{text}")
            insert(db, "problem", [problem, "attention", text])
            us = 10.0 + (n + shard) % 7
            timing = [us, us - 0.1, us + 0.1, 40]
            insert(db, "winner", [device, problem, "cold", CONFIG, hashlib.sha256(CONFIG.encode()).digest(), None, "measured", 1,
                                  *timing, *timing, 0, 0.01, 0.001, 0.02, 0.002, None, 1.0, 0.5, 1.5, 20.0, 400,
                                  13000, COMPILER, f"2026-01-01T00:00:{shard % 60:02}Z"])
    db.close()


def main():
    vitune = sys.argv[1]
    shards = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    winners = int(sys.argv[3]) if len(sys.argv) > 3 else 20000
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        empty = root / "empty.db"
        subprocess.run([vitune, "db", "import", "-", "--db", empty], input=json.dumps(EMPTY), text=True, check=True,
                       capture_output=True)
        each = winners // shards
        files = [root / f"shard{n}.db" for n in range(shards)]
        for n, path in enumerate(files):
            shutil.copy(empty, path)
            # The next shard's problems too, so that every problem meets a rival.
            write_shard(path, n, [(n * each + i) % winners for i in range(2 * each)])
        start = time.monotonic()
        done = subprocess.run([vitune, "db", "merge", *files, "--db", root / "all.db", "--json"], capture_output=True,
                              text=True, preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
        seconds = time.monotonic() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            sys.exit(done.stderr[-2000:])
        report = json.loads(done.stdout)
        print(f"{shards} shards, {report['winners_added']} winners, {report['winners_replaced']} replaced: "
              f"{seconds:.1f} s ({cpu.ru_utime + cpu.ru_stime:.1f} s of CPU), {peak:.0f} MiB")


if __name__ == "__main__":
    main()
