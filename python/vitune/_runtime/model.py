# python/vitune/_runtime/model.py -- Model files and their sessions by the C interface: whole passes without PyTorch.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Optional

from . import structs as _structs
from .context import Context, ProblemTensor, _encoded, _integer, problem_tensor
from .errors import InvalidArgument
from .library import check, library


def _destroy(function: Callable[[int], None], handle: int, process: int, _keeps: object) -> None:
    if os.getpid() == process:  # CUDA does not survive a fork
        function(handle)


class Model:
    """A model file that vitune.export() wrote, open for one context; needs no PyTorch.

    Its weights are on the GPU once, whatever the number of sessions. The context must live longer.
    Raises InvalidArgument for what is no sound file, Unsupported for one of a newer format.
    """

    def __init__(self, path: str | os.PathLike[str], context: Context) -> None:
        self._native, handle = library(), ctypes.c_void_p()
        check(self._native.vitune_model_open(context._handle, _encoded("path", os.fspath(path)), ctypes.byref(handle)))
        self.context = context
        self._handle = handle.value
        weakref.finalize(self, _destroy, self._native.vitune_model_destroy, handle.value, os.getpid(), context).atexit = False
        inputs, outputs = ctypes.c_size_t(), ctypes.c_size_t()
        check(self._native.vitune_model_counts(self._handle, ctypes.byref(inputs), ctypes.byref(outputs)))
        #: how many tensors a pass takes and gives
        self.counts = inputs.value, outputs.value

    def tensors(self, batch: int) -> tuple[ProblemTensor, ...]:
        """The inputs of a pass of so many images, then its results; each lies row after row."""
        found = []
        for place in range(sum(self.counts)):
            tensor = _structs.TensorStruct(size=ctypes.sizeof(_structs.TensorStruct))
            check(self._native.vitune_model_tensor(self._handle, place, _integer("batch", batch, ctypes.c_int64),
                                                   ctypes.byref(tensor)))
            found.append(problem_tensor(tensor))
        return tuple(found)

    def text(self, key: str) -> str:
        """A text of the file, "source" or "license" say; "" where it has none."""
        length = ctypes.c_size_t()
        check(self._native.vitune_model_text(self._handle, _encoded("key", key), None, 0, ctypes.byref(length)))
        buffer = ctypes.create_string_buffer(length.value + 1)
        check(self._native.vitune_model_text(self._handle, _encoded("key", key), buffer, len(buffer), None))
        return buffer.value.decode()

    def session(self, batch: int, *, graph: bool = True) -> "Session":
        """Memory, kernels and, if `graph`, a CUDA graph for passes of so many images."""
        return Session(self, batch, graph=graph)


class Session:
    """A model's pass for one batch (Model.session()). One thread and one stream at a time."""

    def __init__(self, model: Model, batch: int, *, graph: bool = True) -> None:
        self._native, handle = library(), ctypes.c_void_p()
        options = _structs.SessionOptions(size=ctypes.sizeof(_structs.SessionOptions), no_graph=not graph)
        check(self._native.vitune_session_create(model._handle, _integer("batch", batch, ctypes.c_int64), ctypes.byref(options),
                                                 ctypes.byref(handle)))
        self.model, self.batch = model, batch
        self._handle = handle.value
        # The finalizer holds the model, which must live longer.
        weakref.finalize(self, _destroy, self._native.vitune_session_destroy, handle.value, os.getpid(), model).atexit = False

    def buffer(self, place: int) -> int:
        """The address of an input, or behind these of a result, which may be written and read there between passes."""
        address = ctypes.c_void_p()
        check(self._native.vitune_session_buffer(self._handle, _integer("place", place, ctypes.c_size_t), ctypes.byref(address)))
        return address.value or 0

    def bytes(self) -> tuple[int, int]:
        """Device memory of the model's weights and of this session's values."""
        weights, arena = ctypes.c_size_t(), ctypes.c_size_t()
        check(self._native.vitune_session_bytes(self._handle, ctypes.byref(weights), ctypes.byref(arena)))
        return weights.value, arena.value

    def steps(self) -> tuple[tuple[str, str], ...]:
        """The path of the module and the problem of each step."""
        length = ctypes.c_size_t()
        check(self._native.vitune_session_text(self._handle, None, 0, ctypes.byref(length)))
        buffer = ctypes.create_string_buffer(length.value + 1)
        check(self._native.vitune_session_text(self._handle, buffer, len(buffer), None))
        return tuple(tuple(line.split("\t", 1)) for line in buffer.value.decode().splitlines())

    def refresh(self) -> bool:
        """Makes it again where the context has other kernels for it since, and whether it did: buffer() then gives other addresses.
        Nothing that it was asked to run may be going on."""
        renewed = ctypes.c_int32()
        check(self._native.vitune_session_refresh(self._handle, ctypes.byref(renewed)))
        return bool(renewed.value)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], *, stream: int = 0, images: Optional[int] = None) -> None:
        """Runs the pass on `stream` (a cudaStream_t as an integer; 0: the default stream) and returns at once.

        inputs, outputs: device addresses, one for each; 0, or that of buffer(), is not copied. images: how many there are, the batch
        at most and unless given. Raises Unsupported for fewer where results may depend on other images.
        """
        for name, given, wanted in zip(("inputs", "outputs"), (inputs, outputs), self.model.counts):
            if len(given) != wanted:
                raise InvalidArgument(f"{len(given)} {name} are given: the model has {wanted}")
        check(self._native.vitune_session_run_images(
            self._handle, self.batch if images is None else _integer("images", images, ctypes.c_int64),
            (ctypes.c_void_p * len(inputs))(*inputs), (ctypes.c_void_p * len(outputs))(*outputs), stream))
