# python/vitune/_compile/patterns/layouts.py -- Runs a graph with calls of ours on its fake tensors: strides may differ where nobody sees it.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import collections
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..._runtime.errors import Unsupported
from .distinct import alike, once
from .match import ENTERS_AUTOCAST, EXITS_AUTOCAST, TRAINS, Put, Rewrite, hint, is_call, module_of, value_of, wants_gradient
from .mutations import may_write, storages_in, storages_of, written_by


def _same_kind(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.dim() == b.dim() and all(statically_known_true(m == n) for m, n in zip(a.shape, b.shape))


def _same_layout(a: Any, b: Any, but_ones: bool = False) -> bool:
    """Whether types, sizes and strides are the same; but_ones: strides over a single element may differ."""
    return isinstance(a, Tensor) and isinstance(b, Tensor) and _same_kind(a, b) and all(
        statically_known_true(x == y) or but_ones and statically_known_true(m == 1) for m, x, y in zip(a.shape, a.stride(), b.stride()))


def _has_gaps(value: Tensor) -> bool:
    """Whether elements of others lie between its own."""
    steps = sorted((hint(step), hint(size)) for step, size in zip(value.stride(), value.shape) if hint(size) > 1)
    return any(step > last_step * last_size for (last_step, last_size), (step, _) in zip([(1, 1), *steps], steps))


def _is_as_strided(node: fx.Node) -> bool:
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    return name.partition(".")[0].startswith("as_strided")


def _is_foreign(node: fx.Node) -> bool:
    """Whether nobody can tell if its result depends on its arguments' strides: somebody's kernel."""
    if isinstance(node.target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name = node.target._name if isinstance(node.target, torch._ops.OpOverload) else node.target._qualified_op_name
        return name.partition("::")[0] not in ("aten", "prims", "vitune")
    return node.op == "call_module" or node.op == "call_function" and may_write(node.target)


def _trains(node: fx.Node) -> bool:
    """True if a gradient is wanted of it. A node of ours that stands for none of the graph's has no value yet."""
    before = value_of(node)
    return node.meta.get(TRAINS, False) if before is None else wants_gradient(before)


class Misfit(NamedTuple):
    """A place of a graph that cannot take what it would be given."""

    place: str
    reason: str
    ours: frozenset[fx.Node]  #: of us, what reaches it with other strides than before


class Misfits(Unsupported):
    def __init__(self, found: Sequence[Misfit]) -> None:
        super().__init__("; ".join(f"{misfit.place}: {misfit.reason}" for misfit in found))
        self.found = found


def _name_of(node: fx.Node) -> str:
    """A place, for people: what is called, and where in the model."""
    if node.op == "output":
        return "a result of the graph"
    target, module = node.target, module_of(node)
    if isinstance(target, torch._ops.OpOverload):
        target = target._name
    called = getattr(target, "_qualified_op_name", None) or getattr(target, "__name__", target)
    return f"{called} in {module}" if module else str(called)


class Layouts(fx.Interpreter):
    """Runs a graph on its fake tensors, from our nodes on and as far as strides differ from before: a view that was possible
    then need not be now, and what leaves the graph must lie as it did. Raises Misfits, of all such places, and what PyTorch raises
    for a node of ours."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._changed: set[fx.Node] = set()
        #: Storages of results that alias an argument now and did not, or the other way round, and the nodes of these results.
        self._realiased: dict[Any, fx.Node] = {}
        self._ours: set[fx.Node] = set()
        self._may_close_gaps = False
        self._misfits: list[Misfit] = []

    def check(self, ours: set[fx.Node], unread: Collection[fx.Node] = (), may_close_gaps: bool = False) -> list[fx.Node]:
        """Afterwards our nodes have their values, and so has what differs because of them. Returns what it put behind the graph's results,
        so that they have the strides that they had. unread: what is not looked at, since it is about to go. may_close_gaps: a result
        between whose elements others lay may lie without these."""
        nodes = self.module.graph.nodes
        self._ours, self._may_close_gaps = ours, may_close_gaps
        modes = (value.fake_mode for value in map(value_of, nodes) if isinstance(value, FakeTensor))
        entered: dict[fx.Node, Any] = {}
        with next(modes, nullcontext()), enable_python_dispatcher():
            try:
                for node in nodes:
                    if node not in unread:
                        self._step(node, node in ours, entered)
            finally:
                for mode in reversed(entered.values()):
                    torch.amp.autocast_mode._exit_autocast(mode)
            self._expect_other_aliases_unseen()
            orders = self._orders_of_results()
            if self._misfits:
                raise Misfits(self._misfits)
            restored = [made for node, order in orders.items() for made in self._restore(self._output(), node, order)]
        for node in self._changed:  # only now: what cannot be traced stays as it was
            node.meta["example_value"] = self.env[node]
        return restored

    def _step(self, node: fx.Node, is_ours: bool, entered: dict[fx.Node, Any]) -> None:
        before = self.env[node] = value_of(node)
        if node.op == "get_attr" and before is None:
            self.env[node] = self.run_node(node)
        elif is_call(node, ENTERS_AUTOCAST):
            self.env[node] = entered[node] = self.run_node(node)
        elif is_call(node, EXITS_AUTOCAST):
            self.run_node(node)
            del entered[node.args[0]]
        elif is_ours and node.op != "placeholder" or node.op != "output" and not self._changed.isdisjoint(node.all_input_nodes):
            if not is_ours and (_is_as_strided(node) or _is_foreign(node) and self._has_other_strides(node)):
                return self._note(node, "it may depend on strides, which would differ")
            try:
                with torch.set_grad_enabled(_trains(node)):  # as it was there
                    after = self._answer(node) if is_ours else self.run_node(node)
            except Exception as failure:  # whatever PyTorch raises of a view that is none any more
                if is_ours:
                    raise
                return self._note(node, str(failure).partition("\n")[0])
            if before is not None and self._aliases_others(node, before, after):
                self._realiased.update(dict.fromkeys(storages_in(before) | storages_in(after), node))
            if not self._is_as_before(node, before, after):
                self._changed.add(node)
                self.env[node] = after

    def _answer(self, node: fx.Node) -> Any:
        """What a node of ours gives. Our operators give new memory, laid out as they like."""
        name = node.target._name if isinstance(node.target, torch._ops.OpOverload) else ""
        if not name.startswith("vitune::") or _trains(node):
            return self.run_node(node)
        given = fx.node.map_arg((node.args, node.kwargs), self.env.__getitem__)
        return alike(once(lambda: self.run_node(node), node.target, given[0], sorted(given[1].items())))

    def _note(self, node: fx.Node, reason: str, reaches: Optional[fx.Node] = None) -> None:
        """A place that does not fit; what comes after it is looked at as it was before."""
        self._misfits.append(Misfit(_name_of(node), reason, self._origins(reaches or node)))

    def _origins(self, node: fx.Node) -> frozenset[fx.Node]:
        """Nodes of ours from which other strides reach it."""
        found, seen, todo = set(), set(), [node]
        while todo:
            at = todo.pop()
            if at in self._ours:
                found.add(at)
            elif at not in seen:
                seen.add(at)
                todo += [taken for taken in at.all_input_nodes if taken in self._changed]
        return frozenset(found)

    def _is_as_before(self, node: fx.Node, before: Any, after: Any) -> bool:
        """Whether whoever takes it may take what stood there before, which shares its memory with the same tensors."""
        inputs = (self.env[taken] for taken in node.all_input_nodes if taken in self._changed)
        return _same_layout(before, after) and after.untyped_storage()._cdata not in [
            taken.untyped_storage()._cdata for taken in inputs if isinstance(taken, Tensor)]

    def _aliases_others(self, node: fx.Node, before: Any, after: Any) -> bool:
        """Whether it aliases an argument now and did not before, or the other way round."""
        return any(storages_in(before).isdisjoint(storages_of(taken)) != storages_in(after).isdisjoint(storages_in(self.env[taken]))
                   for taken in node.all_input_nodes if value_of(taken) is not None)

    def _has_other_strides(self, node: fx.Node) -> bool:
        return not all(_same_layout(value_of(taken), self.env[taken]) for taken in node.all_input_nodes if taken in self._changed)

    def _expect_other_aliases_unseen(self) -> None:
        """Notes where such a storage is written, or seen twice from outside."""
        nodes = self.module.graph.nodes if self._realiased else ()
        written = [taken for node in nodes for taken in written_by(node)]
        outside = [*self.module.graph.find_nodes(op="placeholder"), *self._output().all_input_nodes]
        for storages in (storages_of, lambda node: storages_in(self.env[node])):
            seen = collections.Counter(storage for node in outside for storage in storages(node))
            twice = {storage for storage, count in seen.items() if count > 1}
            for storage in self._realiased.keys() & twice.union(*map(storages, written)):
                self._note(self._realiased[storage], "a view would become a copy, or a copy a view, of memory that is written or leaves"
                                                     " the graph twice")

    def _output(self) -> fx.Node:
        return self.module.graph.find_nodes(op="output")[0]

    def _orders_of_results(self) -> dict[fx.Node, list[int]]:
        """In which order of its dimensions a copy lies as a result did, of those whose strides differ; notes where none does."""
        output = self._output()
        differ = [node for node in output.all_input_nodes
                  if node in self._changed and not _same_layout(value_of(node), self.env[node], but_ones=True)]
        seen = collections.Counter(storage for node in output.all_input_nodes for storage in storages_of(node))
        orders = {node: self._order_before(node) for node in differ}
        for node, order in orders.items():
            if any(seen[storage] > 1 for storage in storages_of(node)):
                self._note(output, "it would no longer share its memory with another one", node)
            elif order is None:
                self._note(output, "it would have other strides", node)
        return {node: order for node, order in orders.items() if order is not None}

    def _order_before(self, node: fx.Node) -> Optional[list[int]]:
        before, after = value_of(node), self.env[node]
        if isinstance(before, Tensor):
            order = sorted(range(before.dim()), key=lambda dim: (-hint(before.stride(dim)), -hint(before.shape[dim])))
            close = after.permute(order).contiguous().permute(_inverse(order))
            closes_gaps = self._may_close_gaps and _has_gaps(before) and _same_kind(before, close)
            if closes_gaps or _same_layout(before, close, but_ones=True):
                return order
        return None

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


def leave_misfits(module: fx.GraphModule, rewrite: Rewrite) -> dict[Put, str]:
    """Takes back whose results reach a place with other strides than it can take, until all others fit; and says why, of each. Raises Misfits
    where none of them is the cause."""
    left: dict[Put, str] = {}
    while rewrite.ours:
        try:
            Layouts(module).check(rewrite.ours)
            break
        except Misfits as misfits:
            found = {put: f"it reaches {misfit.place}: {misfit.reason}" for misfit in misfits.found
                     for put in rewrite.put_places if not put.made.isdisjoint(misfit.ours)}
            if not found:
                raise
            left.update(found)
            rewrite.take_back(list(found))
    return left
