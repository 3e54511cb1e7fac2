#!/usr/bin/env python3
# cmake/release.py -- Puts together what a release gives away: wheels, archives, bill of materials, notes, checksums.
#
# Usage: release.py OUT FILE.whl|FILE.tar.gz... Checks first that the version is the same everywhere and that the changelog has
# an entry of it; where the commit has a tag v*, that it is this version's and its entry has a date. Exit status 1 otherwise.
# SPDX-License-Identifier: Apache-2.0
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SBOM = "vitune.cdx.json"
HEADER = "include/vitune/vitune.h"
REPEATED = {"CITATION.cff": r"^version: (\S+)$", "python/vitune/_runtime/structs.py": r"^VERSION = \((.*)\)$"}


class Fault(Exception):
    """What keeps this from being a release."""


def found(file, pattern):
    """The first group of a pattern in a file of the tree."""
    match = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.M)
    if match is None:
        raise Fault(f"{file}: there is no {pattern}")
    return match.group(1)


def version():
    """That of vitune.h, which CMake and pip read there; what repeats it must say the same."""
    ours = ".".join(found(HEADER, rf"^#define VITUNE_VERSION_{part} (\d+)$") for part in ("MAJOR", "MINOR", "PATCH"))
    for file, pattern in REPEATED.items():
        told = found(file, pattern).replace(", ", ".")
        if told != ours:
            raise Fault(f"{file} says {told}, {HEADER} {ours}")
    return ours


def notes(version, dated):
    """The changelog's entry. Raises Fault without one, or if it must have a date and has none."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    match = re.search(rf"^## {re.escape(version)} \(([^)\n]+)\)$\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if match is None:
        raise Fault(f"CHANGELOG.md has no heading '## {version} (...)'")
    if dated and not re.fullmatch(r"\d{4}-\d\d-\d\d", match.group(1)):
        raise Fault(f"CHANGELOG.md: {version} is '{match.group(1)}': a tagged release has its date, as 2027-01-31")
    return match.group(2).strip() + "\n"


def tag():
    """Of the commit, or None."""
    done = subprocess.run(["git", "-C", str(ROOT), "tag", "--points-at", "HEAD", "v*"], capture_output=True, text=True, check=False)
    return done.stdout.split()[0] if done.stdout.split() else None


def sbom_of(file):
    """The bill of materials that was built into a wheel or an archive."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith(f"sboms/{SBOM}")]
            data = archive.read(names[0]) if names else b""
    else:
        with tarfile.open(file) as archive:
            members = [member for member in archive.getmembers() if member.name.endswith(f"/{SBOM}")]
            data = archive.extractfile(members[0]).read() if members else b""
    if not data:
        raise Fault(f"{file.name} has no {SBOM}: it was built by an older tree")
    return data


def put_together(out, files, version):
    """Copies, and SHA256SUMS over all that is there."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for file in files:
        if f"-{version}-" not in file.name:
            raise Fault(f"{file.name} is not of version {version}")
        (out / f"{file.name}.cdx.json").write_bytes(sbom_of(file))
        shutil.copy2(file, out)
    (out / "NOTES.md").write_text(notes(version, tag() is not None), encoding="utf-8")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(sums))


def main():
    """0, 1 with a sentence."""
    if len(sys.argv) < 3:
        print("usage: release.py OUT FILE.whl|FILE.tar.gz...", file=sys.stderr)
        return 2
    out, files = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    try:
        ours = version()
        if tag() not in (None, f"v{ours}"):
            raise Fault(f"the commit's tag is {tag()}, the version {ours}")
        put_together(out, files, ours)
    except Fault as reason:
        print(f"release: {reason}", file=sys.stderr)
        return 1
    print(f"release {ours}: {out}\n" + "".join(f"  {path.name}\n" for path in sorted(out.iterdir())), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
