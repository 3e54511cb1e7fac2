# benchmarks/programs/fsdp2.py -- timm's DINOv3 in two processes: FSDP2 with bf16 parameters, activation checkpointing, accumulation, clipping.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Callable

import timm
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from .switch import COMPILED, Run, images

_ACCUMULATE, _CLASSES, _RANKS = 2, 10, 2


def _sharded(way: str, device: str, small: bool, narrow: bool) -> torch.nn.Module:
    """RoPE on the patches, register tokens, LayerScale, SwiGLU, drop path. From LayerScales of 1e-5, as they begin, blocks would learn nothing."""
    torch.manual_seed(0)
    sizes = {"img_size": 64, "embed_dim": 32, "num_heads": 2, "depth": 2} if small else {"img_size": 224}
    model = timm.create_model("vit_small_plus_patch16_dinov3", num_classes=_CLASSES, drop_path_rate=0.1, init_values=0.1, **sizes).to(device).train()
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if narrow else MixedPrecisionPolicy()
    for place, block in enumerate(model.blocks):
        block = checkpoint_wrapper(block)
        if way in COMPILED:
            block.compile(**COMPILED[way])
        model.blocks[place] = fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def learn(way: str, steps: int, device: str, small: bool, narrow: bool = True, look: Callable[[torch.nn.Module], None] = lambda model: None) -> Run:
    """One process of the group. look: is shown the model when a step's gradients are there, before they are clipped."""
    model, run = _sharded(way, device, small, narrow), Run()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 if small else 1e-4)
    batch = 4 if small else 32
    for step in range(steps):
        total = torch.zeros((), device=device)
        for micro in range(_ACCUMULATE):
            seed = _RANKS * (_ACCUMULATE * step + micro) + dist.get_rank()
            torch.manual_seed(seed)
            given, labels = images(batch if step % 5 else batch - 1, 64 if small else 224, _CLASSES, seed, device)
            model.set_requires_gradient_sync(micro == _ACCUMULATE - 1)
            loss = F.cross_entropy(model(given).float(), labels) / _ACCUMULATE
            loss.backward()
            total += loss.detach()
        look(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        run.note(total.item() / _RANKS)
    return run


def join(rank: int, device: str, folder: str) -> None:
    """The group of processes, which meet in a folder."""
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=_RANKS)


def _process(rank: int, folder: str, way: str, steps: int, device: str, small: bool) -> None:
    join(rank, device, folder)
    run = learn(way, steps, device, small)
    if rank == 0:
        pathlib.Path(folder, "run.json").write_text(json.dumps({"losses": run.losses, "seconds": run.seconds}))
    dist.destroy_process_group()


def train(way: str, steps: int, device: str, small: bool) -> Run:
    """small: a model and images for a CPU. Losses are means over the processes, each of which has a GPU of its own."""
    if device == "cuda" and torch.cuda.device_count() < _RANKS:
        raise SystemExit(f"fsdp2 needs {_RANKS} GPUs, and {torch.cuda.device_count()} are here: --device cpu --small runs it without")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_process, (folder, way, steps, device, small), nprocs=_RANKS)
        return dataclasses.replace(Run(), **json.loads(pathlib.Path(folder, "run.json").read_text()))
