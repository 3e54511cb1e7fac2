#!/usr/bin/env python3
# cmake/check_installed.py -- Whether vitune as pip installed it, before PyTorch came, serves a LayerNorm.
#
# Usage: PYTHON check_installed.py OPERATORS, by the environment's own Python, on the emulated device (tests/emulator).
# The operators' library that was installed must load into this PyTorch. It takes tensors of GPUs, so the LayerNorm is
# that of OPERATORS: the same sources for tensors of the CPU.
# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess
import sys

import torch

import vitune
from vitune._runtime import native


def faults_of_norm(operators):
    native.wanted = operators
    import vitune.torch
    from vitune._ops import attention as attention_ops
    attention_ops.is_on_gpu = lambda tensor: True
    x, norm = torch.randn(2, 197, 64, dtype=torch.float16), torch.nn.LayerNorm(64, dtype=torch.float16)
    with torch.inference_mode():
        want = norm(x)
        vitune.torch.install()
        got = norm(x)
    stats = vitune.torch.stats()
    if stats.norms != 1:
        yield f"the LayerNorm was not served: {stats}"
    if (got - want).abs().max() > 2**-8:
        yield "the LayerNorm's answer is not PyTorch's"


def faults(operators):
    """One sentence for each thing that is wrong."""
    folder = pathlib.Path(vitune.__file__).parent
    if pathlib.Path(sys.prefix) not in folder.parents:
        yield f"{folder} is not what pip installed to {sys.prefix}"
    said = subprocess.run([sys.executable, "-m", "vitune", "doctor"], capture_output=True, text=True).stdout
    if "operators' library: loaded" not in said:
        yield f"vitune doctor does not say that the operators' library is loaded:\n{said}"
    yield from faults_of_norm(operators)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_installed.py OPERATORS")
    found = list(faults(sys.argv[1]))
    for fault in found:
        print(f"check_installed.py: {fault}", file=sys.stderr)
    if not found:
        print(f"vitune {vitune.__version__} with PyTorch {torch.__version__}: a LayerNorm is served")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
