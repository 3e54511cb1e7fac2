# python/vitune/_export/file.py -- Writes a model file, and reads one back: safetensors with the graph in its metadata.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import struct
import tempfile
from typing import Any, NamedTuple

import torch
from torch import Tensor

_NAMES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.bool: "BOOL", torch.uint8: "U8"}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}
_ALIGNMENT = 8  # of the first tensor
_DIGEST = "vitune.digest"


class ModelFile(NamedTuple):
    """What a file holds."""

    graph: dict[str, Any]
    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def write(path: Any, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Puts a whole file in the place of what is at `path`, or leaves that as it is. tensors: contiguous, on the CPU."""
    end, entries = 0, {}
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    metadata = {**metadata, _DIGEST: ""}
    digest = hashlib.sha256(_header(metadata, entries))
    for tensor in tensors.values():
        digest.update(_bytes(tensor))
    header = _header({**metadata, _DIGEST: digest.hexdigest()}, entries)
    target = pathlib.Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(header)
            for tensor in tensors.values():
                file.write(_bytes(tensor))
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _header(metadata: dict[str, str], entries: dict[str, Any]) -> bytes:
    """With its length before it; blanks fill it up, so that tensors lie at multiples of eight bytes. The digest is of a fixed length,
    and is counted as so many blanks behind the header while it is empty."""
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":"), ensure_ascii=False).encode()
    wanted = len(text) + (0 if metadata[_DIGEST] else 64)
    text += b" " * (wanted + (-wanted) % _ALIGNMENT - len(text))
    return struct.pack("<Q", len(text)) + text


def _bytes(tensor: Tensor) -> Any:
    return memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def read(path: Any) -> ModelFile:
    """A file that write() made. What others made is for the library's reader: this one trusts it."""
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__")
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            data = bytearray(file.read(end - begin))
            tensors[name] = torch.frombuffer(data, dtype=torch.uint8).view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
    return ModelFile(json.loads(metadata["vitune.graph"]), tensors, metadata)
