# benchmarks/lab/step_memory.py -- What lives at the peak of a training step, as it is called and as it is captured.
# SPDX-License-Identifier: Apache-2.0
"""Needs a GPU. Live memory by the line that asked for it, largest first, for a model and a batch of `make train-models`:

    python benchmarks/lab/step_memory.py LIBRARY vit_small_patch16_224 8
"""
from __future__ import annotations

import collections
import gc
import pathlib
import sys
from collections.abc import Callable
from typing import Any

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parents[2] / "python")]

import torch
import vitune
from train_models import zoo
from train_models.graph import Captures
from train_models.step import Training

_MIB, _LINES, _EVENTS = 2**20, 22, 1_000_000


def _line_of(event: dict[str, Any]) -> str:
    """Of the program, not of PyTorch's own machinery."""
    frames = [frame for frame in event["frames"] if "/torch/" not in frame["filename"] or "_inductor" in frame["filename"]]
    return " < ".join(f"{pathlib.Path(frame['filename']).name}:{frame['line']} {frame['name']}" for frame in frames[:2]) or "?"


def show(title: str, run: Callable[[], Any]) -> None:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.cuda.memory._record_memory_history(max_entries=_EVENTS, stacks="python")
    run()
    torch.cuda.synchronize()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    over = torch.cuda.max_memory_allocated() - before
    print(f"{title}: {before / _MIB:.1f} MiB before, {over / _MIB:.1f} more at the peak, {torch.cuda.memory_allocated() / _MIB:.1f} after", flush=True)
    live: dict[int, dict[str, Any]] = {}
    size = peak = 0
    at_peak: list[dict[str, Any]] = []
    for event in events:
        if event["action"] == "alloc":
            live[event["addr"]] = event
            size += event["size"]
        elif event["action"] == "free_completed":
            size -= event["size"]
            live.pop(event["addr"], None)
        if size > peak:
            peak, at_peak = size, list(live.values())
    _print_by_line(at_peak)


def show_garbage() -> None:
    """What a first step leaves that nobody can reach, which is there until Python's collector comes by."""
    blocks = [block for segment in torch.cuda.memory._snapshot()["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"]
    before = torch.cuda.memory_allocated()
    gc.collect()
    left = {block["address"] for segment in torch.cuda.memory._snapshot()["segments"] for block in segment["blocks"]
            if block["state"] == "active_allocated"}
    print(f"garbage: {(before - torch.cuda.memory_allocated()) / _MIB:.1f} MiB")
    _print_by_line([block for block in blocks if block["address"] not in left])


def _print_by_line(blocks: list[dict[str, Any]]) -> None:
    held = collections.Counter()
    for block in blocks:
        held[_line_of(block)] += block["size"]
    for line, held_bytes in held.most_common(_LINES):
        print(f"  {held_bytes / _MIB:8.1f} MiB  {line[:150]}")


def main(library: str, name: str, count: str) -> None:
    vitune.use_library(library)
    model, size = zoo.build(name, "amp", "cuda")
    images, labels = zoo.batch(int(count), size, model.num_classes, "amp", "cuda")
    training = Training(model, images, labels, "amp")
    step = training.step(vitune.compile(model, dynamic=False, training=True))
    torch.cuda.memory._record_memory_history(max_entries=_EVENTS, stacks="python")
    step()
    torch.cuda.synchronize()
    training.forget_gradients()
    show_garbage()
    torch.cuda.memory._record_memory_history(enabled=None)
    print(f"between steps: {training.standing_bytes() / _MIB:.1f} MiB of weights, optimizer and batch; {torch.cuda.memory_allocated() / _MIB:.1f} allocated")
    for title, steps in (("the second step", 1), ("four more", 4)):
        show(title, lambda steps=steps: [step() for _ in range(steps)])
        training.forget_gradients()
    captures = Captures(training)
    captures.warm(step)
    training.forget_gradients()
    gc.collect()  # as a capture does
    show("captured", lambda: captures.capture(step))


if __name__ == "__main__":
    if len(sys.argv) != 4 or not torch.cuda.is_available():
        sys.exit(__doc__ if torch.cuda.is_available() else "step_memory: PyTorch finds no GPU here")
    main(*sys.argv[1:])
