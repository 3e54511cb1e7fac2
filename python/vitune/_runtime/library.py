# python/vitune/_runtime/library.py -- Finds libvitune and the vitune command, and loads the library once.
# SPDX-License-Identifier: Apache-2.0
"""No environment variable names this library: a program that wants another one says use_library()."""
from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import sys
import sysconfig
import threading

from . import structs as _structs
from .errors import LibraryNotFound, VituneError, error_of

NAME = "libvitune.so.0"
COMMAND = "vitune"

_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None
_loaded_from: pathlib.Path | None = None


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)  # another thread of the parent may have held it


def _lib_folders(prefix: pathlib.Path) -> list[pathlib.Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    return [prefix / "lib" / multiarch, prefix / "lib", prefix / "lib64"]


def library_candidates() -> list[pathlib.Path]:
    """The files that are tried, in this order, before the loader's own path."""
    package = pathlib.Path(__file__).resolve().parents[1]
    folders = [package / "_lib"]  # inside a wheel
    # python/vitune of a source tree, share/vitune/python/vitune of an installed one
    folders.append(package.parent.parent / "build" / "default")
    if len(package.parents) > 3 and package.parents[2].name == "share":
        folders += _lib_folders(package.parents[3])
    for prefix in dict.fromkeys([sys.prefix, sys.base_prefix, "/usr/local"]):
        folders += _lib_folders(pathlib.Path(prefix))
    return [folder / NAME for folder in folders]


def _declare(library: ctypes.CDLL, name: str) -> None:
    try:
        for function, (result, arguments) in _structs.FUNCTIONS.items():
            symbol = getattr(library, function)
            symbol.restype, symbol.argtypes = result, arguments
    except AttributeError as missing:
        raise LibraryNotFound(f"{name} is no libvitune of version 0.1 or newer: {missing}") from None


def _open(name: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(name)
    except OSError as reason:
        raise LibraryNotFound(f"cannot load {name}: {reason}") from None
    _declare(library, name)
    return library


def _find() -> tuple[ctypes.CDLL, pathlib.Path | None]:
    candidates = library_candidates()
    for candidate in candidates:
        if candidate.is_file():
            return _open(str(candidate)), candidate
    try:
        return _open(NAME), _mapped()
    except LibraryNotFound:
        places = "".join(f"\n  {candidate}" for candidate in candidates)
        raise LibraryNotFound(
            f"{NAME} is neither on the loader's path nor at one of{places}\n"
            "Build it with 'make', install it with 'make install', or name it with vitune.use_library(path).") from None


def _mapped() -> pathlib.Path | None:
    """The file that the loader took, beside which the others of the package are."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = pathlib.Path(line.rstrip("\n").split(maxsplit=5)[-1])
            if path.name.startswith(NAME) and path.is_file():
                return path
    return None


def of_loader() -> pathlib.Path | None:
    """The file that the loader takes by itself, which is not yet the one that is used; None: it finds none."""
    try:
        ctypes.CDLL(NAME)
    except OSError:
        return None
    return _mapped()


def use_library(path: str | os.PathLike[str]) -> None:
    """Loads libvitune from `path`, before anything else of this package has loaded one.

    Raises LibraryNotFound if it cannot be loaded, VituneError if another one is loaded already.
    """
    global _loaded, _loaded_from
    wanted = pathlib.Path(path).resolve()
    with _lock:
        if _loaded is not None:
            if _loaded_from == wanted:
                return
            raise VituneError(f"cannot use {wanted}: {_loaded_from or NAME} is loaded already; call use_library() first")
        _loaded, _loaded_from = _open(str(wanted)), wanted


def library() -> ctypes.CDLL:
    """The loaded library; finds and loads it at the first call. Raises LibraryNotFound."""
    global _loaded, _loaded_from
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            _loaded, _loaded_from = _find()
    return _loaded


def check(status: int) -> None:
    """Raises what the last call of this thread left, unless `status` is VITUNE_OK."""
    if status:
        text = library().vitune_last_error() or library().vitune_status_name(status)
        raise error_of(status, text.decode("utf-8", "replace"))


def command_beside() -> pathlib.Path | None:
    """The `vitune` command that belongs to the library that is or would be loaded; None: there is none."""
    beside = _loaded_from or next((path for path in library_candidates() if path.is_file()), None)
    folders = [] if beside is None else [beside.parent, *(parent / "bin" for parent in beside.parents[1:3])]
    commands = (folder / COMMAND for folder in folders)
    return next((path for path in commands if path.is_file() and os.access(path, os.X_OK)), None)


def command_path() -> pathlib.Path:
    """The `vitune` command that belongs to the library, else the one on PATH. Raises VituneError."""
    found = command_beside() or shutil.which(COMMAND)
    if found is None:
        raise VituneError("the vitune command is neither beside libvitune nor on PATH: build it with 'make command'"
                          " or install it with 'make install'")
    return pathlib.Path(found)
