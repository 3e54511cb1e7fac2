# python/vitune/_runtime/doctor.py -- What `vitune doctor` says of this Python, below what the command finds.
# SPDX-License-Identifier: Apache-2.0
"""The command knows no PyTorch. A finding is a dict of strings, as in the command's JSON: check, verdict, detail, advice."""
from __future__ import annotations

import importlib
import json
import os
import subprocess

from .errors import VituneError


def _finding(check: str, verdict: str, detail: str, advice: str = "") -> dict[str, str]:
    return {"check": check, "verdict": verdict, "detail": detail, "advice": advice}


def findings() -> list[dict[str, str]]:
    """PyTorch and the operators' library, as a process of this Python has them."""
    try:
        import torch

        importlib.import_module("vitune.torch")  # loads the operators' library
        from . import native
    except ImportError as reason:
        return [_finding("PyTorch", "warn", f"cannot be imported: {reason}",
                         "needed to serve models; pip install 'vitune[torch]', 2.5 or newer")]
    except VituneError as reason:
        return [_finding("PyTorch", "warn", str(reason), "install vitune again")]
    found = [_finding("PyTorch", "ok", f"{torch.__version__} at {os.path.dirname(torch.__file__)}")]
    missed = native.what_is_missed()
    if missed:
        return [*found, _finding("operators' library", "warn", missed, "attention is served by ctypes all the same")]
    return [*found, _finding("operators' library", "ok", "loaded: LayerNorms are served too")]


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
