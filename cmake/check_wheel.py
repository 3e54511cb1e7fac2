#!/usr/bin/env python3
# cmake/check_wheel.py -- Whether a wheel is one to give away: its size, its tag, what is in it, and that it works.
#
# Usage: check_wheel.py WHEEL. Prints one line per fault and exits 1 if there is any. Needs readelf, and a Python
# that can make environments (venv) to install the wheel to.
# SPDX-License-Identifier: Apache-2.0
import email
import pathlib
import re
import subprocess
import sys
import tempfile
import venv
import zipfile

MOST_BYTES = 7_000_000
TAG = re.compile(r"vitune-[\d.]+-py3-none-manylinux_\d+_\d+_x86_64(\.manylinux\w+)*\.whl$")
LIBRARY, COMMAND, OPERATORS = "vitune/_lib/libvitune.so.0", "vitune/_lib/vitune", "vitune/_lib/libvitune_torch.so"
FILES = [LIBRARY, COMMAND, OPERATORS, "vitune/_lib/share/vitune/winners.db", "vitune/_lib/share/vitune/h200.recording",
         "vitune/_lib/share/vitune/bench_problems.json", "vitune/__init__.py", "vitune/__main__.py", "vitune/py.typed"]
NOTICES = ["LICENSE", "THIRD_PARTY_NOTICES.md"]
FIELDS = ["Version", "Summary", "Author", "License-Expression", "Classifier", "Keywords", "Requires-Python",
          "Description-Content-Type"]
# Every Linux has these, of the version that the tag says; the rest is linked statically.
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
# The operators' exceptions are caught by PyTorch, so the two share the C++ runtime.
OF_PYTORCH = {"libtorch_cpu.so", "libstdc++.so.6", "libgcc_s.so.1"}


def faults_of_binary(path, name):
    """What keeps a program or library from running elsewhere, or from being small."""
    text = subprocess.run(["readelf", "--wide", "--dynamic", "--sections", str(path)], check=True, capture_output=True,
                          text=True).stdout
    allowed = OF_THE_SYSTEM | (OF_PYTORCH if name == OPERATORS else set())
    for needed in sorted(set(re.findall(r"\(NEEDED\).*\[(.+)\]", text)) - allowed):
        yield f"{name} needs {needed}: link it statically (-DVITUNE_STATIC=ON)"
    if re.search(r"\.(symtab|debug_\w+)\b", text):
        yield f"{name} is not stripped: link it with -s"
    if re.search(r"\((RPATH|RUNPATH)\)", text):
        yield f"{name} remembers a folder of the machine that built it"


def faults_of_metadata(text):
    metadata = email.message_from_string(text)
    for field in FIELDS:
        if not metadata.get(field) or metadata[field] == "UNKNOWN":
            yield f"METADATA has no {field}"


def faults_of(wheel):
    """One sentence for each thing that is wrong with the file."""
    if not TAG.match(wheel.name):
        yield f"{wheel.name} is not named for a manylinux: auditwheel has not repaired it"
    if wheel.stat().st_size > MOST_BYTES:
        yield f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {MOST_BYTES:,}"
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        about = next((name.split("/")[0] for name in names if name.endswith(".dist-info/METADATA")), "")
        for name in [*FILES, *(f"{about}/licenses/{notice}" for notice in NOTICES), f"{about}/entry_points.txt",
                     f"{about}/sboms/vitune.cdx.json"]:
            if name not in names:
                yield f"there is no {name}"
        for name in (LIBRARY, COMMAND, OPERATORS):
            if name in names:
                yield from faults_of_binary(archive.extract(name, folder), name)
        if about:
            yield from faults_of_metadata(archive.read(f"{about}/METADATA").decode())


def faults_of_use(wheel):
    """Installs it to an environment of its own and calls it in each of the three ways."""
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = pathlib.Path(folder) / "bin"
        python = str(programs / "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", str(wheel.resolve())]
        for words in (pip, [str(programs / "vitune"), "--version"], [python, "-m", "vitune", "--version"],
                      [python, "-c", "import vitune; print(*vitune.library_version(), sep='.')"],
                      [str(programs / "vitune"), "show", "--preset", "recorded", "--csv"]):
            # Not in a folder that has a `vitune` to import.
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
            if done.returncode != 0:
                yield f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}"
            elif "--version" in words and version not in done.stdout:
                yield f"{' '.join(words)} says {done.stdout.strip()}, not {version}"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_wheel.py WHEEL")
    wheel = pathlib.Path(sys.argv[1])
    faults = [*faults_of(wheel), *faults_of_use(wheel)]
    for fault in faults:
        print(f"check_wheel.py: {fault}", file=sys.stderr)
    if not faults:
        print(f"{wheel}: {wheel.stat().st_size:,} bytes, works")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
