# benchmarks/peers/engine/device.py -- The header of a result: which GPU, in which state, which versions.
# SPDX-License-Identifier: Apache-2.0
"""Reads only: clocks and limits are taken as they are found."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import subprocess
from typing import Any

_ASKED = (
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "power.limit",
    "power.draw",
    "temperature.gpu",
)

METHOD = {
    "cold": "a buffer of at least 256 MB and four times the L2 read before each call, never "
    "written; CUDA events around the call while the stream is held until a round is queued; median",
    "warm": "CUDA graph of calls that fill about 2 ms, over one set of buffers; replayed once "
    "untimed, then timed with events; time per call; median",
    "rounds": "every peer once per round, in a random order; all peers share inputs; fresh data "
    "per problem",
    "python_call": "host time per eager call, N calls without synchronisation; `queued` until they "
    "return, `done` with the GPU's part; least of three",
    "error": "max and rms of the difference from fp64 on the same inputs, output blocks poisoned "
    "with NaN before",
    "repeats": "calls of vitune with the same inputs; how many outputs differ from the first one's in "
    "any bit",
    "memory": "peak bytes of a call over what was allocated before it, its output included",
}


_PACKAGES = (
    *("flash-attn", "flash-attn-4", "quack-kernels", "liger-kernel"),
    *("nvidia-cublas", "nvidia-cudnn-frontend", "deep-gemm"),
)


def smi() -> dict[str, str]:
    """nvidia-smi's answers of the first GPU; empty where it is missing."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader", "-i", "0"]
    try:
        line = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(_ASKED, (word.strip() for word in line.splitlines()[0].split(","))))


def _version(module: str) -> str | None:
    try:
        return str(getattr(importlib.import_module(module), "__version__", "unknown"))
    except Exception:  # a broken package is an absent one
        return None


def _distribution(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe() -> tuple[dict[str, Any], dict[str, Any]]:
    """(device, versions) of this machine. Needs PyTorch with a CUDA device."""
    import torch
    import vitune

    facts, asked = torch.cuda.get_device_properties(0), smi()
    device = {
        "name": facts.name,
        "compute_capability": f"{facts.major}.{facts.minor}",
        "sm_count": facts.multi_processor_count,
        "l2_bytes": getattr(facts, "L2_cache_size", None),
        "memory_bytes": facts.total_memory,
        "driver": asked.get("driver_version"),
        "state": {
            key: value for key, value in asked.items() if key not in ("name", "driver_version")
        },
    }
    cudnn = torch.backends.cudnn.version()
    versions = {
        "vitune": ".".join(map(str, vitune.library_version())),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}" if cudnn else None,
        "triton": _version("triton"),
        **{name: _distribution(name) for name in _PACKAGES},
        "python": platform.python_version(),
    }
    return device, versions
