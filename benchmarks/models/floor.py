# benchmarks/models/floor.py -- How long a pass must take at least, by kind: its operators' flops and bytes at the GPU's rates.
# SPDX-License-Identifier: Apache-2.0
"""Each operator at its own floor: it reads its operands and writes its result once. Operators that are fused may go below the
sum, and copies may go altogether. What is watched is PyTorch's own pass."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from .kinds import ACTIVATIONS, KINDS

_KINDS = [
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("attention", r"attention|softmax"),
        ("norm", r"(layer|group|batch|rms)_norm"),
        ("convolution", r"conv"),
        ("gemm", r"^(add|b|badd)?mm$|^(linear|matmul|addmv|mv|dot|_scaled_mm)$"),
        ("activation", ACTIVATIONS),
        ("copies", r"^(clone|copy_|_to_copy|cat|stack|roll|contiguous|gather|repeat|flip|fill_|zero_|zeros|ones|full|new_zeros)$"
                   r"|^index(_select)?$|pad|_copy$"),
    )
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """What a GPU does at most: of products of matrices, and from and to its memory."""

    tflops: float
    tb_s: float

    @classmethod
    def of(cls, device: str) -> "Ceilings | None":
        """Of a GPU by its name, measured (docs/measuring.md); None where nobody did."""
        return next((cls(*rates) for name, rates in _MEASURED.items() if name in device), None)

    @classmethod
    def parse(cls, text: str) -> "Ceilings":
        """Of "TFLOPS,TB/S". Raises ValueError."""
        rates = [float(word) for word in text.split(",")]
        if len(rates) != 2 or not all(0 < rate < 1e6 for rate in rates):
            raise ValueError(f"'{text}' is no TFLOPS,TB/S: two numbers above 0")
        return cls(*rates)

    def us(self, flops: float, size: float) -> float:
        return max(flops / self.tflops, size / self.tb_s) / 1e6


#: bf16 products in TFLOP/s, copies in TB/s (read and written bytes).
_MEASURED = {"H200": (790.0, 4.3)}


def kind_of(operator: str) -> str:
    """Of ATen's operators by name; one of KINDS."""
    return next((kind for kind, pattern in _KINDS if pattern.search(operator)), "other")


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Of the elements that lie in memory: an expanded dimension has one."""
    total = 0
    for tensor in tensors:
        elements = tensor.element_size()
        for size, step in zip(tensor.shape, tensor.stride()):
            elements *= size if step else min(size, 1)
        total += elements
    return total


def _flops(packet: Any, arguments: Any, named: Any, out: Any) -> float:
    counted = flop_registry.get(packet)
    if counted is not None:
        return counted(*arguments, **named, out_val=out)
    if "scaled_dot_product" in packet.__name__:
        return sdpa_flop_count(*(tensor.shape for tensor in arguments[:3]))
    return 0.0


class Watch(TorchDispatchMode):
    """Adds up the floors of the operators that run within it, by kind."""

    kinds: tuple[str, ...] = KINDS

    def __init__(self, ceilings: Ceilings) -> None:
        super().__init__()
        self.ceilings = ceilings
        self.us = dict.fromkeys(self.kinds, 0.0)
        self.flops = self.bytes = 0.0

    def kind_of(self, operator: str) -> str:
        """One of `kinds`."""
        return kind_of(operator)

    def moved(self, kind: str, operator: str, arguments: Any, given: list[Tensor], made: list[Tensor]) -> int:
        """Bytes that it reads and writes."""
        if kind == "attention":
            made = made[:1]  # and not what a backward pass would want
        if kind == "copies" and operator.endswith("_"):
            given = given[1:]  # what is overwritten is not read
        return bytes_of(given) + bytes_of(made)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        out = func(*args, **named)
        packet = func._overloadpacket
        name = packet.__name__
        given = [leaf for leaf in tree_leaves((args, named)) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        kind = self.kind_of(name)
        if not self.does_nothing(func, name, given, made):
            flops, moved = _flops(packet, args, named, out), self.moved(kind, name, args, given, made)
            self.us[kind] += self.ceilings.us(flops, moved)
            self.flops += flops
            self.bytes += moved
        return out

    @staticmethod
    def does_nothing(func: Any, name: str, given: list[Tensor], made: list[Tensor]) -> bool:
        """Whether nothing runs on the device: views, and tensors whose values nobody sets."""
        if not made or name.startswith(("empty", "new_empty")) or func.is_view:
            return True
        storages = {tensor.untyped_storage().data_ptr() for tensor in given if tensor.numel()}
        aliases = all(tensor.untyped_storage().data_ptr() in storages for tensor in made if tensor.numel())
        return aliases and not func._schema.is_mutable  # reshape, where it was a view


def watched(run: Callable[[], Any], ceilings: Ceilings) -> Watch:
    """One pass, outside of inference_mode."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # else encoder layers are one operator
    try:
        # no_grad, and not inference_mode, in which composite operators would come whole
        with torch.no_grad(), Watch(ceilings) as watch:
            run()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return watch


def floor_us(run: Callable[[], Any], ceilings: Ceilings) -> dict[str, float]:
    """Microseconds of each kind in one pass, kinds without any left out. Outside of inference_mode."""
    return {kind: round(us, 2) for kind, us in watched(run, ceilings).us.items() if us}
