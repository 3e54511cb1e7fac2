# python/vitune/_compile/inputs.py -- Inputs of a graph that is replayed as a CUDA graph: each copied to where that reads it by a copy of its own.
# SPDX-License-Identifier: Apache-2.0
"""PyTorch copies what is no parameter by one kernel for all inputs, whose blocks take 65,536 elements each: one photo is work for
three of an H200's 132 multiprocessors, 15 us where a copy takes 2. So inputs are static for PyTorch, as parameters are: memory of
ours at one address, into which each call copies what it was given."""
from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor import config as inductor_config
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from .patterns.match import outside, value_of, wants_gradient
from .patterns.mutations import storage_of, storages_of, storages_written_by

_STATIC = "_dynamo_static_input_type"  # Dynamo's word for it, in what a placeholder knows of its tensor
_ALIGNED = 16  # bytes; Inductor compiles for what it sees


def are_graphs(options: Mapping[str, Any]) -> bool:
    """Whether Inductor replays CUDA graphs with these options."""
    return bool(options.get("triton.cudagraphs", inductor_config.triton.cudagraphs))


class Results:
    """The memory of what the graphs of a model gave at their first call: where there are several, PyTorch knows that the next one's
    inputs lie still, and copies none of them."""

    def __init__(self) -> None:
        self._memory: list[StorageWeakRef] = []

    def add(self, results: Any) -> None:
        self._memory = [each for each in self._memory if not each.expired()]
        self._memory += [StorageWeakRef(each.untyped_storage()) for each in tree_leaves(results) if isinstance(each, Tensor)]

    def has(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in [each.cdata for each in self._memory if not each.expired()]


class Inputs:
    """Those of one graph."""

    def __init__(self, graph: fx.Graph, given: Sequence[Any], results: Results) -> None:
        """Makes those static that can be. given: what the graph is compiled with; later calls have the same sizes and strides."""
        self._results, nodes = results, graph.find_nodes(op="placeholder")
        kept = _kept(graph)  # placeholders of prepared weights come after those that are given
        self._places = [place for place, (node, each) in enumerate(zip(nodes, given)) if self._can_be_static(node, each, kept)]
        for node in (nodes[place] for place in self._places):
            node.meta["tensor_dict"] = {**node.meta.get("tensor_dict", {}), _STATIC: "unguarded"}
        self._alike = [(_alike(given[place]), given[place].device) for place in self._places]
        self._of_thread = threading.local()  # as PyTorch's CUDA graphs are

    def _can_be_static(self, node: fx.Node, given: Any, kept: set[Any]) -> bool:
        seen = value_of(node)
        if type(given) is not Tensor or not isinstance(seen, Tensor) or outside(given):
            return False
        if node.meta.get("tensor_dict", {}).get(_STATIC) or storage_of(node) in kept or wants_gradient(seen) or seen._version:
            return False  # Dynamo ran the graph on what it saw: whatever wrote to it counted a version up
        sizes = (*seen.shape, *seen.stride())
        return (all(isinstance(size, int) for size in sizes) and _alike(given).stride() == given.stride()
                and given.data_ptr() % _ALIGNED == 0 and not self._results.has(given))

    def _memory(self) -> list[Tensor]:
        """Of this thread."""
        found = getattr(self._of_thread, "memory", None)
        if found is None:
            with torch.inference_mode(False):
                found = [torch.empty_like(like, device=device) for like, device in self._alike]
            self._of_thread.memory = found
        return found

    def served(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """`compiled`, which reads the static inputs where they lie still."""
        is_first = True

        def call(*given: Any) -> Any:
            nonlocal is_first
            taken = list(given)
            for place, still in zip(self._places, self._memory()):
                taken[place] = still.copy_(taken[place])
            results = compiled(*taken)
            if is_first:
                is_first = False
                self._results.add(results)
            return results
        return call


def _alike(given: Tensor) -> Tensor:
    """On no device; of the same strides, unless elements lie apart or several at one place."""
    return torch.empty_like(given, device="meta")


def _kept(graph: fx.Graph) -> set[Any]:
    """Memory that others see after the call: what is written, and what results lie in. All of it in a graph for training, whose
    backward pass reads inputs later."""
    results = graph.find_nodes(op="output")[0].all_input_nodes
    if any(wants_gradient(value_of(result)) for result in results):
        return set().union(*map(storages_of, graph.nodes))
    return set().union(*map(storages_of, results), *map(storages_written_by, graph.nodes))
