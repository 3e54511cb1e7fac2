# benchmarks/models/about.py -- The head of a result: the machine, the versions, the method.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

METHOD = {
    "ms": "time per forward pass: passes in a row that fill about 40 ms, by each way's own time, between two CUDA events, "
    "all ways once per round in a random order; median and its distribution-free 95 % interval",
    "host_ms": "until the calls of one pass had returned, the GPU idle before",
    "gain": "the best of PyTorch's ways over vitune, paired round by round; median and interval",
    "compiled": "torch.compile in its modes default, reduce-overhead and max-autotune, and vitune.compile in that one of the "
    "two that record a graph which was faster (vitune_mode), batches static; compile_s until the first pass had returned, "
    "with what the caches had",
    "files": "in the rows of compiled models, the model as a file: runner, a session of vitune.export()'s file, from Python with the "
    "caller's memory; aoti, torch._inductor.aoti_compile_and_package and its loader; onnxruntime in fp16, its CUDA provider and its CUDA "
    "graph; *_graph, the same call captured in a CUDA graph; seconds until the first answer; gains: of those ways over others, as gain",
    "mj": "of compiled models, millijoules of an image by NVML's energy counter over windows of 5 s, the ways in turn, clocks as they are; the "
    "median of three windows",
    "kinds_us": "kernels of a pass by what their names say they do, of three passes under a profiler, microseconds",
    "floor_us": "the same kinds of operators, each reading its operands and writing its result once and multiplying at the "
    "rates of `ceilings`",
    "memory_mb": "MiB that a pass takes at most over weights and images",
    "error": "largest relative error among the images beside the same weights in fp32; a way whose "
    "error exceeds 1.5 times that of PyTorch's own bf16 (and 2^-9) fails the row",
    "models": "bf16, inference_mode, random weights; timm's fused attention on for all ways",
    "calls": "until an attention call returned, 200 in a row from an idle GPU",
    "plain": "models without attention, inside vitune's drop-in and without",
}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe(device: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(device, versions)."""
    more = {name: _version(name) for name in ("timm", "torchvision", "transformers")}
    if device == "cuda":
        from peers.engine.device import describe as with_gpu

        found, versions = with_gpu()
        return found, versions | more
    versions = {"torch": _version("torch"), "python": platform.python_version()}
    return {"name": f"CPU, {platform.machine()}"}, versions | more
