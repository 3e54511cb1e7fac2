#!/usr/bin/env python3
# benchmarks/train_models/host.py -- What a replayed step of vitune.train_step() takes on the host, without a GPU: the graph does nothing.
# SPDX-License-Identifier: Apache-2.0
"""host.py LIBVITUNE_TORCH|- [MODEL ...]; PYTHONPATH says whose vitune, "-" that it goes without the operators' library. Microseconds of the
thread's CPU time, median and tenth percentile: of a step, until its graph is launched, and of the look before; with caches that 64 MiB were
written through before each, and warm. Needs timm."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import timm
import torch
import torch.nn.functional as F

MODELS = ("vit_small_patch16_224", "vit_base_patch16_224", "swin_tiny_patch4_window7_224")
_ROUNDS, _BEFORE = 40, 8
_written = torch.zeros(64 * 2**20 // 8, dtype=torch.int64)


class _Graph:
    """Says when it was launched."""

    launched = 0

    def replay(self) -> None:
        type(self).launched = time.thread_time_ns()


class _Graphs:
    """In the place of vitune._train.graphs.CudaGraphs."""

    def eagerly(self, run: Callable[[], Any]) -> Any:
        return run()

    def capture(self, run: Callable[[], Any]) -> tuple[Any, Any]:
        return _Graph(), run()

    def wait(self) -> None:
        pass


def settled(name: str) -> Callable[[], Any]:
    """A step of that model that is replayed."""
    import vitune
    from vitune._train import step as step_module

    step_module.maker_of_graphs = lambda device: _Graphs
    size = 32 if name.startswith("vit") else 224  # of images: the host's time does not depend on it
    model = timm.create_model(name, img_size=size).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)
    step = vitune.train_step(model, lambda model, images, labels: F.cross_entropy(model(images), labels), optimizer, compile=False)
    images, labels = torch.randn(1, 3, size, size), torch.zeros(1, dtype=torch.long)
    for _ in range(_BEFORE):
        step(images, labels)
    run = lambda: step(images, labels)  # noqa: E731
    run.look = step._graphed._standing.change
    return run


def microseconds(run: Callable[[], Any], cold: bool, until: Callable[[], int]) -> str:
    found = []
    for _ in range(_ROUNDS):
        if cold:
            _written.add_(1)
        began = time.thread_time_ns()
        run()
        found.append((until() - began) / 1e3)
    found.sort()
    return f"{found[_ROUNDS // 2]:.0f} ({found[_ROUNDS // 10]:.0f})"


def main(library: str, *models: str) -> None:
    from vitune._runtime import native

    native.wanted = None if library == "-" else library
    torch.set_num_threads(1)
    for name in models or MODELS:
        run = settled(name)
        gc.collect()
        gc.disable()
        for what, measured, until in (("step", run, time.thread_time_ns), ("until its launch", run, lambda: _Graph.launched),
                                      ("look", run.look, time.thread_time_ns)):  # fmt: skip
            print(f"{name}: {what}: cold {microseconds(measured, True, until)}, warm {microseconds(measured, False, until)}", flush=True)
        gc.enable()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
