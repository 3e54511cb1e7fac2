# python/vitune/_runtime/native.py -- The operators' library (libvitune_torch.so), where there is one for this PyTorch.
# SPDX-License-Identifier: Apache-2.0
"""It holds what _ops/attention.py does otherwise by ctypes: checks, plans, launches. The context of a GPU stays the package's, and
so do counts and warnings of fallbacks."""
from __future__ import annotations

import atexit
import ctypes
import os
import pathlib
from collections.abc import Callable, Sequence

import torch

from . import library as _library
from .counters import counters
from .errors import LibraryNotFound, VituneError, error_of

NAME = "libvitune_torch.so"
#: PyTorch's stable ABI has had what the library calls since.
OLDEST = (2, 10)

_Context = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p))
_Fallback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class _Host(ctypes.Structure):
    _fields_ = [("context", _Context), ("fallback", _Fallback)]


#: "" for the one beside libvitune; else this one; None for none. To be set before attention_ops is imported.
wanted: str | os.PathLike[str] | None = ""
#: Why there is none in this process; "" where it is loaded, or `wanted` is None.
missing = ""
#: That of this process, once the operators are there.
loaded: "Native | None" = None


def _path() -> pathlib.Path | None:
    if wanted is None:
        return None
    if wanted:
        return pathlib.Path(wanted)
    beside = _library.library_candidates()
    if _library._loaded_from is not None:
        beside.insert(0, _library._loaded_from)
    elif not any(path.is_file() for path in beside):
        beside += filter(None, [_library.of_loader()])
    return next((path.parent / NAME for path in beside if (path.parent / NAME).is_file()), None)


class Native:
    """The loaded library."""

    def __init__(self, path: pathlib.Path, context_of: Callable) -> None:
        self.path = path
        torch.ops.load_library(str(path))
        self._library = ctypes.CDLL(str(path))
        self._library.vitune_torch_served.restype = self._library.vitune_torch_norms.restype = ctypes.c_uint64

        def context(device: int, handle: ctypes._Pointer, library: ctypes._Pointer) -> int:
            try:
                library[0] = _library.library()._handle
                handle[0] = context_of(device)._handle
            except VituneError as error:
                return error.status  # vitune_last_error() of the thread has its text, if there is a library
            return 0

        self._host = _Host(_Context(context), _Fallback(lambda reason: counters.fall_back(reason.decode("utf-8", "replace"))))
        self._library.vitune_torch_use_host(ctypes.byref(self._host))
        atexit.register(self._library.vitune_torch_use_host, None)
        counters.others.append(self._library.vitune_torch_served)
        self.norms: Callable[[], int] = self._library.vitune_torch_norms  #: calls of layer_norm that were served
        self._library.vitune_torch_note_launch.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t, ctypes.c_uint64]
        self._library.vitune_torch_remembered.restype = ctypes.c_uint64
        #: Of operators whose calls are remembered (python/native/remembered.h): whether this thread is in one that is to be learnt, and
        #: how many were launched without Python.
        self.is_learning: Callable[[], int] = self._library.vitune_torch_is_learning
        self.note_other: Callable[[], None] = self._library.vitune_torch_note_other
        self.remembered: Callable[[], int] = self._library.vitune_torch_remembered

    def describe(self, name: str, kinds: str, results: int) -> bool:
        """Says what the arguments of an operator are; False: the library has none of that name."""
        return bool(self._library.vitune_torch_describe(name.encode(), kinds.encode(), results))

    def note_launch(self, text: str, addresses: Sequence[int], scratch_bytes: int) -> None:
        self._library.vitune_torch_note_launch(text.encode(), (ctypes.c_uint64 * len(addresses))(*addresses), len(addresses), scratch_bytes)

    def note_error(self, error: BaseException, interrupts: bool) -> None:
        """interrupts: whether Ctrl-C is to be raised once more, by Python's handler of signals."""
        try:
            text = str(error) or type(error).__name__
        except Exception:
            text = type(error).__name__
        self._library.vitune_torch_note_error(text.encode("utf-8", "replace").replace(b"\0", b" "), interrupts and isinstance(error, KeyboardInterrupt))

    def error(self, error: RuntimeError) -> Exception:
        """What an operator raised, as the package's own."""
        status = self._library.vitune_torch_take_status(str(error).encode("utf-8", "replace"))
        return error_of(status, str(error)) if status else error


def is_for_this_pytorch() -> bool:
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= OLDEST


def load(context_of: Callable) -> Native | None:
    """The library that lies beside libvitune, or what `wanted` says; None: `missing` says why."""
    global missing, loaded
    missing = ""
    if wanted is None:
        return None
    path = _path()
    if not is_for_this_pytorch():
        missing = f"it needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer, and this is {torch.__version__}"
    elif path is None:
        missing = f"{NAME} is not beside {_library.NAME}: install vitune again (pip install --force-reinstall)"
    else:
        try:
            loaded = Native(path, context_of)
            return loaded
        except OSError as reason:
            if wanted:
                raise LibraryNotFound(f"cannot load {path}: {reason}") from None
            missing = f"cannot load {path}: {reason}"
    return None


def what_is_missed() -> str:
    """What is not served without the library, and why it is not there; "" where nothing is missed."""
    return missing and f"LayerNorms stay PyTorch's and calls cost more host time without the operators' library: {missing}"
