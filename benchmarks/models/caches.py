# benchmarks/models/caches.py -- One folder for what torch.compile made, small enough to be carried to the next machine.
# SPDX-License-Identifier: Apache-2.0
"""Knows no PyTorch. What is missing from a cache is made again."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterator

#: Where Inductor and Triton look, in folders of their own.
_FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


def use(folder: pathlib.Path) -> None:
    """By this process and those that it starts. Before PyTorch is loaded."""
    for name, below in _FOLDERS.items():
        path = folder.resolve() / below
        path.mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(path)


def _size(path: pathlib.Path) -> int:
    try:
        if path.is_dir() and not path.is_symlink():
            return sum(_size(each) for each in path.iterdir())
        return path.lstat().st_size
    except OSError:  # it went meanwhile
        return 0


def _entries(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """What can go alone, first what costs least: Triton's folders are found in Inductor's graphs again."""
    by_age = lambda paths: sorted(paths, key=lambda path: path.lstat().st_mtime)  # noqa: E731
    triton, inductor = (folder / below for below in ("triton", "inductor"))
    yield from by_age(triton.iterdir() if triton.is_dir() else [])
    yield from by_age(path for path in inductor.rglob("*") if path.is_file())


def trim(folder: pathlib.Path, most_bytes: int) -> int:
    """Takes out what was made first until it fits; the bytes that are left."""
    left = _size(folder)
    for entry in _entries(folder):
        if left <= most_bytes:
            break
        left -= _size(entry)
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    return left
