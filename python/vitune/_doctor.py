# python/vitune/_doctor.py -- What `vitune doctor` says of this Python, below what the command finds.
# SPDX-License-Identifier: Apache-2.0
"""The command knows no PyTorch. A finding is a dict of strings, as in the command's JSON: check, verdict, detail, advice."""
from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess

from ._runtime.errors import VituneError


#: The cuBLASLt whose algorithms shipped winners call: with another one those are passed over (docs/linear_kernels.md).
CUBLASLT = "13.1.0"


def _finding(check: str, verdict: str, detail: str, advice: str = "") -> dict[str, str]:
    return {"check": check, "verdict": verdict, "detail": detail, "advice": advice}


def _version(*packages: str) -> str | None:
    """Of the first of these distributions that is installed."""
    for name in packages:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _cuda(cuda: str | None) -> list[dict[str, str]]:
    """The libraries that come with a PyTorch of this CUDA version; None: it has no CUDA."""
    if cuda is None:
        return [_finding("PyTorch's CUDA", "warn", "this PyTorch was built without CUDA: nothing is served",
                         "install one with CUDA, as https://pytorch.org says")]
    major = cuda.split(".")[0]
    cublas = _version("nvidia-cublas", f"nvidia-cublas-cu{major}")
    nvrtc = _version("nvidia-cuda-nvrtc", f"nvidia-cuda-nvrtc-cu{major}")
    found = [_finding("PyTorch's CUDA", "ok", cuda)]
    if cublas is None:
        found.append(_finding("PyTorch's cuBLASLt", "ok", "none of its own: that of the toolkit or the loader's path is called"))
    elif cublas.startswith(CUBLASLT):
        found.append(_finding("PyTorch's cuBLASLt", "ok", cublas))
    else:
        found.append(_finding("PyTorch's cuBLASLt", "warn", f"{cublas}: shipped winners that call one are of {CUBLASLT} and are passed over",
                              "tune linear layers with this version: docs/linear_kernels.md"))
    if nvrtc is None:
        return [*found, _finding("PyTorch's NVRTC", "warn", "none: kernels are compiled by the NVRTC that the command found, if any",
                                 f"pip install nvidia-cuda-nvrtc{'-cu12' if major == '12' else ''}")]
    return [*found, _finding("PyTorch's NVRTC", "ok", nvrtc)]


def _models() -> list[dict[str, str]]:
    """What models come from. Nothing needs it but they."""
    return [_finding(name, "ok", version if (version := _version(name)) else f"not installed: {name}'s models alone need it")
            for name in ("timm", "transformers")]


def findings() -> list[dict[str, str]]:
    """PyTorch, the CUDA libraries beside it, the operators' library and where models come from, as a process of this Python has them."""
    try:
        import torch

        from ._ops import attention  # noqa: F401  (loads the operators' library)
        from ._runtime import native
    except ImportError as reason:
        return [_finding("PyTorch", "warn", f"cannot be imported: {reason}",
                         "needed to serve models; pip install 'vitune[torch]', 2.5 or newer")]
    except VituneError as reason:
        return [_finding("PyTorch", "warn", str(reason), "install vitune again")]
    found = [_finding("PyTorch", "ok", f"{torch.__version__} at {os.path.dirname(torch.__file__)}"), *_cuda(torch.version.cuda)]
    missed = native.what_is_missed()
    if missed:
        found.append(_finding("operators' library", "warn", missed, "attention is served by ctypes all the same"))
    else:
        found.append(_finding("operators' library", "ok", "loaded: LayerNorms are served too"))
    return [*found, *_models()]


def run(command: str, words: list[str]) -> int:
    """`COMMAND doctor WORDS` with the findings of this Python behind its own; its exit code."""
    if "--json" not in words:
        code = subprocess.run([command, "doctor", *words]).returncode
        for found in findings():
            print(f"{found['verdict']:<5} {found['check']}: {found['detail']}")
            if found["advice"]:
                print(f"      -> {found['advice']}")
        return code
    done = subprocess.run([command, "doctor", *words], stdout=subprocess.PIPE, text=True)
    try:
        document = json.loads(done.stdout)
        document["checks"] += findings()
    except (ValueError, KeyError):
        print(done.stdout, end="")
    else:
        print(json.dumps(document, indent=2))
    return done.returncode
