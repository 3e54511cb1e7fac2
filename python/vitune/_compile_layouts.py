# python/vitune/_compile_layouts.py -- Runs a graph with calls of ours on its fake tensors: strides may differ where nobody sees it.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import collections
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._compile_graph import hint, is_call, value_of, wants_gradient
from ._compile_writes import may_write, storages_in, storages_of, written_by
from ._errors import Unsupported


def _same_layout(a: Any, b: Any, but_ones: bool = False) -> bool:
    """Whether types, sizes and strides are the same; but_ones: strides over a single element may differ."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.dtype != b.dtype or a.dim() != b.dim():
        return False
    return all(statically_known_true(m == n) and (statically_known_true(x == y) or but_ones and statically_known_true(m == 1))
               for m, n, x, y in zip(a.shape, b.shape, a.stride(), b.stride()))


_ENTERS = frozenset((torch.amp.autocast_mode._enter_autocast,))
_EXITS = frozenset((torch.amp.autocast_mode._exit_autocast,))


def _is_as_strided(node: fx.Node) -> bool:
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    return name.partition(".")[0].startswith("as_strided")


def _is_foreign(node: fx.Node) -> bool:
    """Whether nobody can tell if its result depends on its arguments' strides: somebody's kernel."""
    if isinstance(node.target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name = node.target._name if isinstance(node.target, torch._ops.OpOverload) else node.target._qualified_op_name
        return name.partition("::")[0] not in ("aten", "prims", "vitune")
    return node.op == "call_module" or node.op == "call_function" and may_write(node.target)


class Layouts(fx.Interpreter):
    """Runs a graph on its fake tensors, from our nodes on and as far as strides differ from before: a view that was possible
    then need not be now, and what leaves the graph must lie as it did. Raises Unsupported, and what PyTorch raises."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._changed: set[fx.Node] = set()
        #: Storages of results that alias an argument now and did not, or the other way round.
        self._realiased: set[Any] = set()

    def check(self, ours: set[fx.Node]) -> list[fx.Node]:
        """Afterwards our nodes have their values, and so has what differs because of them. Returns what it put behind the graph's results,
        so that they have the strides that they had."""
        nodes = self.module.graph.nodes
        modes = (value.fake_mode for value in map(value_of, nodes) if isinstance(value, FakeTensor))
        entered: dict[fx.Node, Any] = {}
        with next(modes, nullcontext()), enable_python_dispatcher():
            try:
                for node in nodes:
                    self._step(node, node in ours, entered)
            finally:
                for mode in reversed(entered.values()):
                    torch.amp.autocast_mode._exit_autocast(mode)
            self._expect_other_aliases_unseen()
            restored = self._restored_results()
        for node in self._changed:  # only now: what cannot be traced stays as it was
            node.meta["example_value"] = self.env[node]
        return restored

    def _step(self, node: fx.Node, is_ours: bool, entered: dict[fx.Node, Any]) -> None:
        before = self.env[node] = value_of(node)
        if node.op == "get_attr" and before is None:
            self.env[node] = self.run_node(node)
        elif is_call(node, _ENTERS):
            self.env[node] = entered[node] = self.run_node(node)
        elif is_call(node, _EXITS):
            self.run_node(node)
            del entered[node.args[0]]
        elif is_ours and node.op != "placeholder" or node.op != "output" and not self._changed.isdisjoint(node.all_input_nodes):
            if not is_ours and (_is_as_strided(node) or _is_foreign(node) and self._has_other_strides(node)):
                raise Unsupported(f"it may depend on strides, which would differ: {node}")
            with torch.set_grad_enabled(wants_gradient(before)):  # as it was there: of ours none is wanted
                after = self.run_node(node)
            if not is_ours and self._aliases_others(node, before, after):
                self._realiased |= storages_in(before) | storages_in(after)
            if not self._is_as_before(node, before, after):
                self._changed.add(node)
                self.env[node] = after

    def _is_as_before(self, node: fx.Node, before: Any, after: Any) -> bool:
        """Whether whoever takes it may take what stood there before, which shares its memory with the same tensors."""
        inputs = (self.env[taken] for taken in node.all_input_nodes if taken in self._changed)
        return _same_layout(before, after) and after.untyped_storage()._cdata not in [
            taken.untyped_storage()._cdata for taken in inputs if isinstance(taken, Tensor)]

    def _aliases_others(self, node: fx.Node, before: Any, after: Any) -> bool:
        """Whether it aliases an argument now and did not before, or the other way round."""
        return any(storages_in(before).isdisjoint(storages_of(taken)) != storages_in(after).isdisjoint(storages_in(self.env[taken]))
                   for taken in node.all_input_nodes)

    def _has_other_strides(self, node: fx.Node) -> bool:
        return not all(_same_layout(value_of(taken), self.env[taken]) for taken in node.all_input_nodes if taken in self._changed)

    def _expect_other_aliases_unseen(self) -> None:
        """Raises Unsupported where such a storage is written, or seen twice from outside."""
        nodes = self.module.graph.nodes if self._realiased else ()
        written = [taken for node in nodes for taken in written_by(node)]
        outside = [*self.module.graph.find_nodes(op="placeholder"), *self._output().all_input_nodes]
        for storages in (storages_of, lambda node: storages_in(self.env[node])):
            seen = collections.Counter(storage for node in outside for storage in storages(node))
            twice = {storage for storage, count in seen.items() if count > 1}
            if not self._realiased.isdisjoint(twice.union(*map(storages, written))):
                raise Unsupported("a view would become a copy, or a copy a view, of memory that is written or leaves the graph twice")

    def _output(self) -> fx.Node:
        return self.module.graph.find_nodes(op="output")[0]

    def _restored_results(self) -> list[fx.Node]:
        """Copies behind results whose strides differ. Raises Unsupported where no copy lies so."""
        output = self._output()
        differ = [node for node in output.all_input_nodes
                  if node in self._changed and not _same_layout(value_of(node), self.env[node], but_ones=True)]
        orders = {node: self._order_before(node) for node in differ}  # of all, before the graph changes
        return [made for node, order in orders.items() for made in self._restore(output, node, order)]

    def _order_before(self, node: fx.Node) -> list[int]:
        before, after = value_of(node), self.env[node]
        if isinstance(before, Tensor):
            order = sorted(range(before.dim()), key=lambda dim: (-hint(before.stride(dim)), -hint(before.shape[dim])))
            if _same_layout(before, after.permute(order).contiguous().permute(_inverse(order)), but_ones=True):
                return order
        raise Unsupported(f"a result would have other strides: {node}")

    def _restore(self, output: fx.Node, node: fx.Node, order: list[int]) -> list[fx.Node]:
        made = [node]
        with self.module.graph.inserting_before(output):
            for method, words in (("permute", (order,)), ("contiguous", ()), ("permute", (_inverse(order),))):
                made.append(self.module.graph.call_method(method, (made[-1], *words)))
                made[-1].meta["example_value"] = getattr(self.env[made[-2]], method)(*words)
                self.env[made[-1]] = value_of(made[-1])
        output.replace_input_with(node, made[-1])
        return made[1:]


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(dim) for dim in range(len(order))]
