# benchmarks/lab/training_calls.py -- Host time of training's calls, by Python and remembered by the operators' library, without their launches.
# SPDX-License-Identifier: Apache-2.0
"""Microseconds of a call, the least of seven means. Needs no GPU: tensors are small and on the CPU, and launches do nothing. With the environment
of `make python-test` (LD_LIBRARY_PATH, CUDA_HOME, VITUNE_TEST_LIBRARY) and VITUNE_TEST_OPERATORS:

    cd python && python ../benchmarks/lab/training_calls.py
"""
from __future__ import annotations

import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import torch

from tests import test_torch_remembered as cases
from vitune._ops import attention_training, linear, norm_training, training
from vitune._runtime import native

_CALLS, _BATCHES = 3000, 7


def microseconds(run: Callable[[], Any]) -> float:
    for _ in range(_CALLS // 10):
        run()
    found = []
    for _ in range(_BATCHES):
        began = time.perf_counter()
        for _ in range(_CALLS):
            run()
        found.append((time.perf_counter() - began) / _CALLS * 1e6)
    return min(found)


def addresses_alone(problem: Any, tensors: Any) -> None:
    """What Python does of a launch, before it is one."""
    for tensor in tensors:
        if tensor is not None:
            tensor.data_ptr()


def main() -> None:
    torch.set_num_threads(1)
    case = cases.RememberedTest("test_threads_learn_and_launch_at_once")
    case.setUp()
    skip = native.loaded._library.vitune_torch_staged_skip
    print(f"{'operator':28}{'Python':>8}{'remembered':>12}")
    with torch.no_grad():
        for name, draw in cases.CALLS.items():
            for _ in range(3):
                case.call(name, draw())
            given = draw()
            encoded, remembered = cases.remembered._encoded(given), getattr(cases.NATIVE, name).default
            skip(1)
            quick = microseconds(lambda: remembered(*encoded))
            skip(0)
            patches = [mock.patch.object(module, "launch", addresses_alone) for module in (training, norm_training, attention_training, linear)]
            for patch in patches:
                patch.start()
            slow = microseconds(lambda: getattr(cases.PYTHON, name).default(*given))
            for patch in patches:
                patch.stop()
            print(f"{name:28}{slow:8.1f}{quick:12.1f}")
    case.doCleanups()


if __name__ == "__main__":
    main()
