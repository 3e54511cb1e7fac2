# benchmarks/peers/tests/support.py -- Paths to the packages, and what this machine lacks.
# SPDX-License-Identifier: Apache-2.0
"""VITUNE_TEST_LIBRARY names the libvitune.so.0 to test, else the package finds one itself. PyTorch
and Triton are optional: what needs them is skipped, and says so.
"""

import os
import pathlib
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "python")]

import vitune  # noqa: E402


def is_prompt(seconds, action):
    """Whether `action` takes less in one of some tries: a machine that stands still spoils the others."""
    for _ in range(10):
        began = time.monotonic()
        action()
        if time.monotonic() - began < seconds:
            return True
    return False


def _library_missing():
    named = os.environ.get("VITUNE_TEST_LIBRARY")
    try:
        if named:
            vitune.use_library(named)
        vitune.library_version()
    except vitune.LibraryNotFound as reason:
        if named:  # then nothing is skipped
            raise
        return str(reason)
    return ""


LIBRARY_MISSING = _library_missing()
needs_library = unittest.skipIf(LIBRARY_MISSING, f"no libvitune: {LIBRARY_MISSING}")

try:
    import torch
except ImportError:
    torch = None
else:
    torch.set_num_threads(1)  # on a busy machine small tensors wait for a second thread
needs_torch = unittest.skipIf(torch is None, "PyTorch is not installed")
HAS_GPU = (
    torch is not None
    and "emulator" not in os.environ.get("LD_LIBRARY_PATH", "")
    and torch.cuda.is_available()
)


def _triton_missing():
    """Why the kernel cannot run here; it runs on a GPU, else in Triton's interpreter."""
    if torch is None:
        return "PyTorch is not installed"
    if not HAS_GPU:
        os.environ["TRITON_INTERPRET"] = "1"  # before its first import
    try:
        import numpy
        import triton
    except ImportError as reason:
        return str(reason)
    major, minor = (int(word) for word in triton.__version__.split(".")[:2])
    numpy_version = tuple(int(word) for word in numpy.__version__.split(".")[:2])
    if not HAS_GPU and (major, minor) < (3, 9) and numpy_version >= (2, 4):
        return f"the interpreter of Triton {triton.__version__} needs NumPy below 2.4"
    return ""


TRITON_MISSING = _triton_missing()
needs_triton = unittest.skipIf(TRITON_MISSING, f"no Triton: {TRITON_MISSING}")


def row(name="one", group="vit", floor_us=2.0, operator="attention", **us):
    """A row whose peers have the given (cold, warm) microseconds."""
    from peers.engine import document

    made = document.new_row(name, group, f"{operator} bf16 {name}", floor_us)
    made["us"] = {peer: {"cold": times[0], "warm": times[1]} for peer, times in us.items()}
    return made


def result(*rows):
    """A document with these rows."""
    from peers.engine import document

    made = document.new(
        {"name": "A GPU", "driver": "1.2"},
        {"torch": "2.11"},
        "2026-01-02T03:04:05+00:00",
        {"cold": "as it is"},
        ["vitune", "vitune_default", "cudnn", "flash", "eager"],
        empty_us={"cold": 3.2, "warm": 0.6},
    )
    made["rows"] = list(rows)
    return made
