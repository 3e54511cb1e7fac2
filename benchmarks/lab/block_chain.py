# benchmarks/lab/block_chain.py -- A ViT by hand of vitune's own operators, in one CUDA graph: what each fusion of the chain is worth.
# SPDX-License-Identifier: Apache-2.0
"""The whole encoder in bf16: patch embedding as a matrix product, statistics of rows and folded norms, attention, projections with
their residual. Each row of the table turns one fusion off, for PyTorch's operators one by one; others are PyTorch alone
(cuBLASLt's linear layers) and what compilers make of the same model. Logits are compared with fp64.

    PYTHONPATH=python python benchmarks/lab/block_chain.py --json block_chain.json          # a GPU; about 8 minutes, most of it tuning
    PYTHONPATH=python python benchmarks/lab/block_chain.py --no-tune --batch 32             # with the winners that there are
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vitune
from vitune._ops import linear as linear_ops

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from peers.engine import capture  # noqa: E402

ERROR_LIMIT = 1.1  #: times eager bf16's rms error against fp64
_ROUNDS = 9
_ROUND_MS = 30.0


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of a ViT."""

    image: int = 224
    patch: int = 16
    width: int = 768
    heads: int = 12
    depth: int = 12
    hidden: int = 3072
    classes: int = 1000

    @property
    def patches(self) -> int:
        return (self.image // self.patch) ** 2


@dataclasses.dataclass(frozen=True)
class Parts:
    """What of the chain is fused; all else is PyTorch's operators one by one."""

    linear: bool = True  #: vitune's linear layers; False: PyTorch's, and nothing can be fused with them
    patches: bool = True  #: the patch embedding as a linear layer with the position embedding; False: a convolution
    norm: str = "folded"  #: into the next layer, of which statistics are left; "own": vitune.layer_norm; "torch"
    gelu: bool = True
    residual: bool = True
    attention: bool = True  #: vitune's; False: scaled_dot_product_attention


CHAINS = {
    "all fused": Parts(),
    "patch embedding apart": Parts(patches=False),
    "norms apart (vitune.layer_norm)": Parts(norm="own"),
    "norms apart (PyTorch)": Parts(norm="torch"),
    "GELU apart": Parts(gelu=False),
    "residual apart": Parts(residual=False),
    "attention PyTorch's": Parts(attention=False),
    "linear layers alone": Parts(patches=False, norm="torch", gelu=False, residual=False),
    "attention and norms alone": Parts(linear=False, patches=False, norm="own", gelu=False, residual=False),
    "PyTorch": Parts(linear=False, patches=False, norm="torch", gelu=False, residual=False, attention=False),
}


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(shape.width, eps=1e-6) for _ in range(2))
        self.qkv, self.proj = nn.Linear(shape.width, 3 * shape.width), nn.Linear(shape.width, shape.width)
        self.fc1, self.fc2 = nn.Linear(shape.width, shape.hidden), nn.Linear(shape.hidden, shape.width)
        self.heads = shape.heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    """As timm's vit_base_patch16_224, with weights that make every part count."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Conv2d(3, shape.width, shape.patch, shape.patch)
        self.first = nn.Parameter(torch.randn(1, 1, shape.width))
        self.positions = nn.Parameter(torch.randn(1, 1 + shape.patches, shape.width) / 2)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.norm, self.head = nn.LayerNorm(shape.width, eps=1e-6), nn.Linear(shape.width, shape.classes)
        for name, parameter in self.named_parameters():
            if "norm" in name:
                nn.init.normal_(parameter, 1.0 if name.endswith("weight") else 0.0, 0.1)
            elif name.endswith("bias"):
                nn.init.normal_(parameter, 0.0, 0.1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def _moments(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation of rows, fp32."""
    variance, mean = torch.var_mean(x.float(), -1, correction=0)
    return mean, torch.rsqrt(variance + eps)


class Chain:
    """A model's forward pass with `parts` of it fused. Tensors on the meta device: only `problems` is filled."""

    def __init__(self, model: ViT, parts: Parts, compiled: bool) -> None:
        self.model, self.parts, self.problems = model, parts, []
        self._moments = torch.compile(_moments, dynamic=False) if compiled else _moments
        self._folded = {}
        if parts.norm == "folded":
            for block in model.blocks:
                for norm, layer in ((block.norm1, block.qkv), (block.norm2, block.fc1)):
                    self._folded[layer] = vitune.fold_norm(layer.weight, layer.bias, norm.weight, norm.bias)

    def __call__(self, images: Tensor) -> Tensor:
        model = self.model
        x = self._embedded(images)
        for block in model.blocks:
            qkv = self._after_norm(x, block.norm1, block.qkv, None)
            q, k, v = qkv.unflatten(-1, (3, block.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            x = self._onto(x, self._attend(q, k, v).transpose(1, 2).flatten(2), block.proj)
            x = self._onto(x, self._after_norm(x, block.norm2, block.fc1, "gelu"), block.fc2)
        first = model.norm(x[:, 0])
        return self._linear(first, model.head.weight, model.head.bias) if self.parts.linear else model.head(first)

    def _embedded(self, images: Tensor) -> Tensor:
        model, shape = self.model, self.model.shape
        if not self.parts.patches:
            x = model.embed(images).flatten(2).transpose(1, 2)
            return torch.cat([model.first.expand(x.shape[0], -1, -1), x], 1) + model.positions
        side = shape.image // shape.patch
        tiles = images.reshape(-1, 3, side, shape.patch, side, shape.patch).permute(0, 2, 4, 1, 3, 5)
        x = self._linear(tiles.reshape(-1, side * side, 3 * shape.patch**2), model.embed.weight.flatten(1), model.embed.bias,
                         residual=model.positions[0, 1:])
        return torch.cat([(model.first + model.positions[:, :1]).expand(x.shape[0], -1, -1), x], 1)

    def _after_norm(self, x: Tensor, norm: nn.LayerNorm, layer: nn.Linear, activation: Optional[str]) -> Tensor:
        inside = activation if self.parts.gelu else None
        if self.parts.norm == "folded":
            weight, bias, sums = self._folded[layer]
            mean, rstd = self._moments(x, norm.eps)
            y = self._linear(x, weight, bias, activation=inside, mean=mean, rstd=rstd, weight_sums=sums)
        else:
            own = self.parts.norm == "own" and not x.is_meta
            h = vitune.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps) if own else norm(x)
            y = self._linear(h, layer.weight, layer.bias, activation=inside) if self.parts.linear else layer(h)
        return F.gelu(y) if activation and not inside else y

    def _onto(self, x: Tensor, h: Tensor, layer: nn.Linear) -> Tensor:
        if self.parts.residual:
            return self._linear(h, layer.weight, layer.bias, residual=x)
        return x + (self._linear(h, layer.weight, layer.bias) if self.parts.linear else layer(h))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.parts.attention and q.is_meta:
            self.problems.append(vitune.problem_text(q, k, v))
        return (vitune.attention if self.parts.attention and not q.is_meta else F.scaled_dot_product_attention)(q, k, v)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor, **options: Any) -> Tensor:
        if not x.is_meta:
            return vitune.linear(x, weight, bias, **options)
        given = {name: value for name, value in options.items() if name in ("activation", "residual")}
        self.problems.append(linear_ops.text_of(x, weight, bias, norm="layer" if "rstd" in options else None, **given))
        return x.new_empty(*x.shape[:-1], weight.shape[0])


def problems_of(shape: Shape, batches: list[int]) -> list[str]:
    """What all chains ask of attention and linear layers."""
    found: dict[str, None] = {}
    with torch.device("meta"), torch.no_grad():
        model = ViT(dataclasses.replace(shape, depth=1)).bfloat16()
        for batch in batches:
            images = torch.empty(batch, 3, shape.image, shape.image, dtype=torch.bfloat16)
            for parts in CHAINS.values():
                chain = Chain(model, parts, False)
                chain(images)
                found.update(dict.fromkeys(chain.problems))
    return list(found)


def error_of(logits: Tensor, exact: Tensor) -> float:
    """Root mean square of the difference over that of the answer."""
    return ((logits.double() - exact).square().mean() / exact.square().mean()).sqrt().item()


def _graph_of(call: Callable[[Tensor], Tensor], images: Tensor) -> tuple[Callable[[], None], Tensor]:
    """A CUDA graph of a forward pass, as a call, and where its answer lies."""
    stream = torch.cuda.Stream()
    capture.warm(lambda: call(images), stream, 3)
    graph, out = capture.capture(lambda: call(images), stream)
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay, out


def _us(replay: Callable[[], None], calls: int, device: torch.device) -> float:
    if device.type != "cuda":
        begin = time.perf_counter()
        for _ in range(calls):
            replay()
        return (time.perf_counter() - begin) / calls * 1e6
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls * 1e3


def measured(ways: dict[str, Callable[[Tensor], Tensor]], images: Tensor, exact: Tensor, eager_error: float) -> list[dict[str, Any]]:
    """A row for each way: medians of rounds in turn, and errors of what was timed. A way that fails is a row with its reason."""
    rows, ready = [], {}
    for name, call in ways.items():
        try:
            if images.is_cuda:
                replay, out = _graph_of(call, images)
            else:
                replay, out = (lambda call=call: call(images)), call(images)
            error = error_of(out, exact)
            ready[name] = (replay, max(1, round(_ROUND_MS * 1e3 / _us(replay, 2, images.device))) if images.is_cuda else 1)
            rows.append({"way": name, "error": error, "error_over_eager": error / eager_error})
        except Exception as failure:  # one that cannot run keeps no other from being measured
            rows.append({"way": name, "failed": f"{type(failure).__name__}: {failure}"[:500]})
    times: dict[str, list[float]] = {name: [] for name in ready}
    chance = random.Random(0)
    for _ in range(_ROUNDS if images.is_cuda else 1):
        for name in chance.sample(list(ready), len(ready)):  # at the power limit a way slows the one behind it
            replay, calls = ready[name]
            times[name].append(_us(replay, calls, images.device))
    for row in rows:
        if row["way"] in times:
            row.update(us=statistics.median(times[row["way"]]), least_us=min(times[row["way"]]), most_us=max(times[row["way"]]))
    return rows


def run(shape: Shape, batch: int, device: torch.device, compilers: bool) -> list[dict[str, Any]]:
    """The rows of one batch size."""
    torch.manual_seed(0)
    model = ViT(shape).bfloat16().to(device).eval()
    images = torch.randn(batch, 3, shape.image, shape.image).bfloat16().to(device)
    wide = ViT(shape).to(device).double().eval()
    wide.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    exact = wide(images.double())
    del wide
    eager_error = error_of(model(images), exact)
    on_gpu = device.type == "cuda"
    ways: dict[str, Callable[[Tensor], Tensor]] = {name: Chain(model, parts, on_gpu) for name, parts in CHAINS.items()}
    if compilers:
        torch._dynamo.reset()
        ways["torch.compile"] = torch.compile(model)
        ways["vitune.compile"] = vitune.compile(model)
    rows = measured(ways, images, exact, eager_error)
    return [{"batch": batch, **row} for row in rows]


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as text: median and least times, the difference to all fused, errors over eager bf16's."""
    whole = {row["batch"]: row.get("us") for row in rows if row["way"] == "all fused"}
    lines = [f"{'batch':>5}  {'way':32} {'us':>9} {'more':>8} {'least':>9}  error / eager's"]
    for row in rows:
        if "failed" in row:
            lines.append(f"{row['batch']:5d}  {row['way']:32} failed: {row['failed'][:80]}")
            continue
        more = f"{row['us'] - whole[row['batch']]:+8.1f}" if whole.get(row["batch"]) else ""
        lines.append(f"{row['batch']:5d}  {row['way']:32} {row['us']:9.1f} {more:>8} {row['least_us']:9.1f}  {row['error_over_eager']:.3f}"
                     + ("" if row["error_over_eager"] <= ERROR_LIMIT else f"  over {ERROR_LIMIT}"))
    return "\n".join(lines)


def main(arguments: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", default="32,1", help="images, a list")
    parser.add_argument("--no-tune", action="store_true", help="take the winners that there are")
    parser.add_argument("--budget", default="12s", help="of each problem that has no winner (12s)")
    parser.add_argument("--no-compilers", action="store_true", help="leave torch.compile and vitune.compile out")
    parser.add_argument("--json", help="where to write rows, with what they were measured on")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("block_chain.py needs PyTorch with a GPU", file=sys.stderr)
        return 1
    batches, shape, device = [int(word) for word in options.batch.split(",")], Shape(), torch.device("cuda")
    if not options.no_tune:
        vitune.tune(*problems_of(shape, batches), budget=options.budget)
    with torch.inference_mode():
        rows = [row for batch in batches for row in run(shape, batch, device, not options.no_compilers)]
    print(table(rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "vitune": vitune.__version__,
                       "model": dataclasses.asdict(shape), "rows": rows}, file, indent=1)
    return 0 if all(row.get("error_over_eager", 0.0) <= ERROR_LIMIT for row in rows if row["way"] in CHAINS) else 2


if __name__ == "__main__":
    sys.exit(main())
