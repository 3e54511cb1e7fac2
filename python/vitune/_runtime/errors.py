# python/vitune/_runtime/errors.py -- The exceptions of the package, one per status of the library that callers treat apart.
# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each carries the library's status: ``error.status`` and ``error.status_name``."""
from __future__ import annotations

OK = 0
INVALID_ARGUMENT = 1
UNSUPPORTED = 2
NO_DEVICE = 3
NOT_PREPARED = 4
NO_COMPILER = 5
DATABASE = 6
DEVICE_ERROR = 7
INVALID_CONTEXT = 8
OUT_OF_MEMORY = 9
DISABLED = 10
INTERNAL = 11

STATUS_NAMES = (
    "VITUNE_OK", "VITUNE_INVALID_ARGUMENT", "VITUNE_UNSUPPORTED", "VITUNE_NO_DEVICE", "VITUNE_NOT_PREPARED",
    "VITUNE_NO_COMPILER", "VITUNE_DATABASE", "VITUNE_DEVICE_ERROR", "VITUNE_INVALID_CONTEXT",
    "VITUNE_OUT_OF_MEMORY", "VITUNE_DISABLED", "VITUNE_INTERNAL",
)


class VituneError(RuntimeError):
    """A call that failed. The text says what was tried, on what, and what to do next."""

    #: The vitune_status of include/vitune/vitune.h.
    status: int = INTERNAL

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        if status is not None:
            self.status = status

    @property
    def status_name(self) -> str:
        """``VITUNE_NO_DEVICE`` and so on."""
        known = 0 <= self.status < len(STATUS_NAMES)
        return STATUS_NAMES[self.status] if known else f"status {self.status}"


class InvalidArgument(VituneError, ValueError):
    """Shapes, types or pointers that contradict each other."""

    status = INVALID_ARGUMENT


class Unsupported(VituneError, NotImplementedError):
    """Well formed, but no kernel does it: use another implementation for it."""

    status = UNSUPPORTED


class NotPrepared(VituneError):
    """Nothing is loaded for the problem while a stream is captured, or ``on_miss`` is ``error``."""

    status = NOT_PREPARED


class NoDevice(VituneError):
    """No driver, no such GPU, or memory of another one."""

    status = NO_DEVICE


class LibraryNotFound(VituneError, OSError):
    """libvitune cannot be loaded; the text names the places that were tried."""

    status = NO_DEVICE


class TorchNotFound(VituneError, ImportError):
    """PyTorch is needed for this and cannot be imported."""

    status = UNSUPPORTED


class CommandError(VituneError):
    """The ``vitune`` command ended with another exit code than 0: ``error.exit_code``."""

    status = INTERNAL

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        #: See "Exit codes" in docs/environment.md.
        self.exit_code = exit_code


_BY_STATUS = {error.status: error for error in (InvalidArgument, Unsupported, NotPrepared, NoDevice)}


def error_of(status: int, sentence: str) -> VituneError:
    """The exception of a status that is not VITUNE_OK."""
    return _BY_STATUS.get(status, VituneError)(sentence, status)


def reason_of(error: VituneError) -> str:
    """A text that is the same for all calls that fail alike, but for the problem in it."""
    return str(error) if type(error) in (InvalidArgument, Unsupported) else f"{error.status_name}: {error}"
