# python/tests/support.py -- What the tests share: the library under test, a device without PyTorch, a plain reference.
# SPDX-License-Identifier: Apache-2.0
"""VITUNE_TEST_LIBRARY names the libvitune.so.0 to test; else the package finds one itself. VITUNE_TEST_OPERATORS names
the operators' library, with kernels for tensors of the CPU (tests/torch_ops); without it ctypes is tested.

Tests that launch need a driver: the emulated one (tests/emulator/README.md) through LD_LIBRARY_PATH and CUDA_HOME, or a
GPU's. Without one they are skipped, and say so.
"""
import array
import atexit
import ctypes
import math
import os
import pathlib
import random
import shutil
import struct
import tempfile
import unittest

import vitune

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: The user's own database and captured files stay out of the tests.
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="vitune_python_"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
os.environ["VITUNE_DB"] = str(FOLDER / "vitune.db")
for variable in ("VITUNE_CAPTURE", "VITUNE_DISABLE", "VITUNE_MISS", "VITUNE_CACHE_DIR"):
    os.environ.pop(variable, None)


def _load():
    try:
        if os.environ.get("VITUNE_TEST_LIBRARY"):
            vitune.use_library(os.environ["VITUNE_TEST_LIBRARY"])
        vitune.library_version()
    except vitune.LibraryNotFound as reason:
        # A library that was named must be there: then nothing is skipped.
        if os.environ.get("VITUNE_TEST_LIBRARY"):
            raise
        return str(reason)
    return ""


LIBRARY_MISSING = _load()
needs_library = unittest.skipIf(LIBRARY_MISSING, f"no libvitune: {LIBRARY_MISSING}")

try:
    import torch
except ImportError:
    torch = None
needs_torch = unittest.skipIf(torch is None, "PyTorch is not installed")
#: Path of the operators' library under test; None: there is none.
OPERATORS = os.environ.get("VITUNE_TEST_OPERATORS") or None
if torch is not None:
    from vitune._runtime import native
    native.wanted = OPERATORS


class Device:
    """Memory of GPU 0 by the driver alone, in the primary context as PyTorch would have it."""

    def __init__(self):
        self._cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        for status in (self._cuda.cuInit(0), self._cuda.cuDeviceGet(ctypes.byref(device), 0),
                       self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)):
            if status:
                raise OSError(f"the driver answers {status}")
        self._context = context

    def _check(self, status):
        if status:
            raise AssertionError(f"the driver answers {status}")

    def allocate(self, size):
        """The address of `size` bytes, which are never freed: tests are short."""
        address = ctypes.c_uint64()
        self._check(self._cuda.cuCtxSetCurrent(self._context))
        self._check(self._cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(size, 1))))
        return address.value

    def upload(self, data):
        address = self.allocate(len(data))
        self.write(address, data)
        return address

    def write(self, address, data):
        self._check(self._cuda.cuCtxSetCurrent(self._context))
        self._check(self._cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), bytes(data), ctypes.c_size_t(len(data))))

    def download(self, address, size):
        data = ctypes.create_string_buffer(max(size, 1))
        self._check(self._cuda.cuCtxSynchronize())
        self._check(self._cuda.cuMemcpyDtoH_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size)))
        return data.raw[:size]


def _open_device():
    try:
        return Device(), ""
    except OSError as reason:
        return None, str(reason)


DEVICE, DEVICE_MISSING = _open_device()
needs_device = unittest.skipIf(LIBRARY_MISSING or DEVICE is None,
                               f"no library or no CUDA device, not even the emulated one: {DEVICE_MISSING}")


def to_bf16(values):
    """The two bytes of each, rounded to nearest even."""
    out = array.array("H")
    for value in values:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        out.append((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF)
    return out.tobytes()


def from_bf16(data):
    return [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in array.array("H", data)]


def random_bf16(seed, count):
    """Values that bf16 holds exactly."""
    generator = random.Random(seed)
    return from_bf16(to_bf16(generator.gauss(0, 1) for _ in range(count)))


def attention_row(q, keys, values, scale, bias):
    """One row of the output and its log-sum-exp, in doubles; a bias of -inf leaves a key out."""
    scores = [scale * sum(a * b for a, b in zip(q, key)) + extra for key, extra in zip(keys, bias)]
    top = max(scores, default=-math.inf)
    if top == -math.inf:
        return [0.0] * len(q), -math.inf
    weights = [math.exp(score - top) for score in scores]
    total = sum(weights)
    return ([sum(w * value[i] for w, value in zip(weights, values)) / total for i in range(len(q))],
            top + math.log(total))
