# benchmarks/report/output.py -- Writes a file that the user named, by the rules of core/output_file.h.
# SPDX-License-Identifier: Apache-2.0
"""Links are followed and stay, permissions are kept; pipes and devices are written into, never replaced."""

from __future__ import annotations

import os
import pathlib
import stat
import tempfile


def _permissions(there: os.stat_result | None) -> int:
    if there is not None:
        return stat.S_IMODE(there.st_mode) & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _replace(path: pathlib.Path, text: str, there: os.stat_result | None) -> None:
    part = ""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            part = file.name
            file.write(text)
        os.chmod(part, _permissions(there))
        os.replace(part, path)
    except OSError:
        if part:
            pathlib.Path(part).unlink(missing_ok=True)
        raise


def write(path: pathlib.Path, text: str) -> None:
    """A regular file whole or not at all: an older one stays where this fails. Raises OSError."""
    try:
        there = path.stat()
    except FileNotFoundError:
        there = None
    target = pathlib.Path(os.path.realpath(path))
    # A link of /proc/self/fd may be to what has no such name.
    if there is None or (stat.S_ISREG(there.st_mode) and target.exists() and target.samefile(path)):
        _replace(target, text, there)
    else:
        path.write_text(text, encoding="utf-8")
