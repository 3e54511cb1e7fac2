# python/vitune/_export/interpret.py -- The reference interpreter of a model file: in fp32, on the CPU, node by node. What it computes is what format 1 means.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .expression import evaluated
from .graph import OPERANDS, View, view_at, at_batch

_ACTIVATIONS = {"relu": torch.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
                "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x)}


class Interpreter:
    """Runs a graph on one batch. tensors: those of the file, of any type."""

    def __init__(self, graph: dict[str, Any], tensors: dict[str, Tensor], batch: int) -> None:
        self._graph, self._batch = graph, batch
        self._shapes = {each["name"]: each["shape"] for each in (*graph["inputs"], *graph["values"])}
        self._shapes.update((name, tuple(tensor.shape)) for name, tensor in tensors.items())
        self._tensors = {name: _wide(tensor).contiguous().reshape(-1) for name, tensor in tensors.items()}
        self._last = {}  # value -> place of the last node that names it
        for place, node in enumerate(graph["nodes"]):
            for view in _views(node):
                self._last[view if isinstance(view, str) else view["of"]] = place

    @torch.no_grad()
    def run(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        for each in self._graph["inputs"]:
            self._tensors[each["name"]] = _wide(inputs[each["name"]]).contiguous().reshape(-1)
        kept = {output["of"] if isinstance(output["of"], str) else output["of"]["of"] for output in self._graph["outputs"]}
        values = {each["name"] for each in self._graph["values"]}
        for place, node in enumerate(self._graph["nodes"]):
            getattr(self, f"_{node['op']}")(node)
            for view in _views(node):
                name = view if isinstance(view, str) else view["of"]
                if self._last[name] == place and name in values and name not in kept:
                    self._tensors.pop(name, None)
        return {output["name"]: self._read(output["of"]).clone() for output in self._graph["outputs"]}

    def _view(self, operand: Any) -> View:
        return view_at(operand, self._shapes, self._batch)

    def _read(self, operand: Any) -> Tensor:
        view = self._view(operand)
        return torch.as_strided(self._tensors[view.of], view.extents, view.strides, view.offset)

    def _maybe(self, node: dict[str, Any], key: str) -> Optional[Tensor]:
        return self._read(node[key]) if key in node else None

    def _write(self, operand: Any, result: Tensor) -> None:
        view = self._view(operand)
        if view.of not in self._tensors:
            elements = 1
            for number in self._shapes[view.of]:
                elements *= at_batch(number, self._batch)
            self._tensors[view.of] = torch.full((elements,), float("nan"))  # what nobody writes is no number
        torch.as_strided(self._tensors[view.of], view.extents, view.strides, view.offset).copy_(result.reshape(view.extents))

    def _normed(self, x: Tensor, kind: str, weight: Optional[Tensor], bias: Optional[Tensor], eps: float) -> Tensor:
        if kind == "layer":
            return F.layer_norm(x, x.shape[-1:], weight, bias, eps)
        x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        x = x if weight is None else x * weight
        return x if bias is None else x + bias

    def _linear(self, node: dict[str, Any]) -> None:
        x, w = self._read(node["x"]), self._read(node["w"])
        w = w.reshape(w.shape[0], -1)
        if "norm" in node:
            norm = node["norm"]
            x = self._normed(x, norm["kind"], self._maybe(norm, "weight"), self._maybe(norm, "bias"), norm["eps"])
        y = F.linear(x.reshape(-1, w.shape[1]), w, self._maybe(node, "bias"))
        if "act" in node:
            y = _ACTIVATIONS[node["act"]](y)
        if "scale" in node:
            y = y * self._read(node["scale"])
        if "residual" in node:
            y = y + self._read(node["residual"]).reshape(y.shape)
        self._write(node["out"], y)

    def _norm(self, node: dict[str, Any]) -> None:
        x = self._read(node["x"])
        if "residual" in node:
            x = x + self._read(node["residual"])
        if "sum" in node:
            self._write(node["sum"], x)
        self._write(node["out"], self._normed(x, node["kind"], self._maybe(node, "weight"), self._maybe(node, "bias"), node["eps"]))

    def _group_norm(self, node: dict[str, Any]) -> None:
        y = F.group_norm(self._read(node["x"]), node["groups"], self._maybe(node, "weight"), self._maybe(node, "bias"), node["eps"])
        self._write(node["out"], {None: lambda x: x, "silu": F.silu, "mish": F.mish}[node.get("act")](y))

    def _matmul(self, node: dict[str, Any]) -> None:
        self._write(node["out"], self._read(node["a"]) @ self._read(node["b"]) * node.get("scale", 1.0))

    def _attention(self, node: dict[str, Any]) -> None:
        q, k, v = (self._read(node[key]) for key in "qkv")
        bias = self._maybe(node, "bias")
        if "mask" in node:
            bias = torch.where(self._read(node["mask"]) != 0, 0.0, float("-inf"))
        if bias is not None and bias.shape[0] not in (1, q.shape[0]):
            bias = bias.repeat(q.shape[0] // bias.shape[0], 1, 1, 1)
        self._write(node["out"], _attend(q, k, v, bias, node.get("causal", False), node.get("scale")))

    def _window_attention(self, node: dict[str, Any]) -> None:
        x = self._read(node["x"])
        x = x.transpose(3, 4) if node.get("interleaved") else x  # [B, H, W, 3, heads, d]
        batch, height, width, _, heads, d = x.shape
        (rows, columns), shift = node["window"], node.get("shift", [0, 0])
        down, across = -(-height // rows), -(-width // columns)
        pads = (down * rows - height, across * columns - width)
        padding = self._maybe(node, "padding")

        def padded(image: Tensor) -> Tensor:
            full = torch.zeros(batch, down * rows, across * columns, 3, heads, d) if padding is None else padding.expand(
                batch, down * rows, across * columns, 3, heads, d).clone()
            full[:, :height, :width] = image
            return full if any(pads) else image
        rolled = lambda image, sign: torch.roll(image, (-sign * shift[0], -sign * shift[1]), (1, 2))  # noqa: E731
        x = rolled(padded(x), 1) if node.get("pads_first") else padded(rolled(x, 1))
        grid = node.get("grid", False)
        cut = x.reshape(batch, *((rows, down, columns, across) if grid else (down, rows, across, columns)), 3, heads, d)
        order = (0, 2, 4, 1, 3) if grid else (0, 1, 3, 2, 4)
        cut = cut.permute(*order, 5, 6, 7)  # [B, down, across, rows, columns, 3, heads, d]
        q, k, v = cut.reshape(batch * down * across, rows * columns, 3, heads, d).permute(2, 0, 3, 1, 4)
        bias = self._maybe(node, "bias")
        if bias is not None and bias.shape[0] != 1:
            bias = bias.repeat(batch, 1, 1, 1)
        out = _attend(q, k, v, bias, False, node.get("scale")).transpose(1, 2)
        out = out.reshape(batch, down, across, rows, columns, heads, d)
        back = (0, 3, 1, 4, 2, 5, 6) if grid else (0, 1, 3, 2, 4, 5, 6)
        out = out.permute(*back).reshape(batch, down * rows, across * columns, heads, d)
        if node.get("pads_first"):
            out = rolled(out, -1)[:, :height, :width]
        else:
            out = rolled(out[:, :height, :width], -1)
        self._write(node["out"], out)

    def _map(self, node: dict[str, Any]) -> None:
        out = self._view(node["out"])
        operands = {letter: self._read(node[letter]) for letter in OPERANDS if letter in node}
        result = evaluated(node["x"], operands)
        by, over = node.get("by"), node.get("over", 0)
        if by is not None:
            kept = result.dim() - over
            extents = result.shape[:kept]
            flat = result.reshape(*extents, -1)
            if by == "softmax":
                result = torch.softmax(flat, -1).reshape(result.shape)
            else:
                result = {"sum": flat.sum, "mean": flat.mean, "max": flat.amax}[by](-1)
        if "y" in node:
            result = evaluated(node["y"], {**operands, "r": result})
        self._write(node["out"], result.expand(out.extents))


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], causal: bool, scale: Optional[float]) -> Tensor:
    """A row without keys is 0."""
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return torch.nan_to_num(torch.softmax(scores, -1), nan=0.0) @ v


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().float()


def _views(node: dict[str, Any]) -> list[Any]:
    """All operands of a node, results among them."""
    found = [value for key, value in node.items() if key in ("w", "bias", "scale", "residual", "out", "sum", "weight", "q", "k", "v",
                                                             "mask", "padding", *OPERANDS)
             or key == "x" and node["op"] != "map"]
    return [view for view in found if isinstance(view, (str, dict))] + [
        value for key, value in node.get("norm", {}).items() if key in ("weight", "bias")]
