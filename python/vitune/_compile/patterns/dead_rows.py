# python/vitune/_compile/patterns/dead_rows.py -- Leaves out rows that nothing reads: those of the last block but the class token's.
# SPDX-License-Identifier: Apache-2.0
"""A selection of rows (x[:, 0]) commutes with everything that is computed row by row. So it is pushed back from users to inputs, as far as
the place where tokens mix: queries of attention are rows too, keys and values are all read. Where all users of a value read few of its
rows, these alone are computed.

Where a gradient is wanted that of the other rows is zero, so that gradients are the same sums without these zeros. Attention is computed whole
there: the gradients of its queries, keys and values are those of one tensor. What has zeros alone as its gradient keeps these: with none at
all an optimizer would leave it out, and its weight decay."""
from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple, Optional

from torch import fx

from ..._runtime.errors import Unsupported
from .layouts import Layouts
from .match import module_of, value_of, wants_gradient
from .mutations import storages_of, storages_written_by
from .rows import FEW, SELECTIONS, Reads, Rows, index_of, is_move, operands_of, reads_nothing, reads_of, size_of
from .tree import arguments_of, is_op, is_quiet, operation_of, put_argument


class Left(NamedTuple):
    """What is computed of fewer rows than the model computes."""

    nodes: Mapping[fx.Node, Rows]
    sizes: Mapping[fx.Node, int]  #: of the same nodes: rows before

    def __str__(self) -> str:
        """For people: how many of how many rows, and by what they are computed."""
        calls: dict[tuple[int, int], list[fx.Node]] = {}
        for node, rows in self.nodes.items():
            if operation_of(node) in _WORK:
                calls.setdefault((rows.count, self.sizes[node]), []).append(node)
        return "; ".join(f"{count} of {size} rows are read, and no others computed, from {module_of(found[0]) or 'the model'} on: "
                         + ", ".join(f"{number} x {name}" for name, number in Counter(map(operation_of, found)).items())
                         for (count, size), found in calls.items())


#: For what the graph is changed: a norm alone would not pay for other problems of the layers behind it.
_WORTH = ("linear", "attention", "matmul")
_MIXES = ("attention", "matmul", "softmax")  #: rows, of which a gradient is that of all
_WORK = (*_WORTH, "layer_norm", "rms_norm")  #: that is said: the rest is fused with its readers by Inductor


def leave_out(module: fx.GraphModule) -> Optional[Left]:
    """Changes the graph, after which all values are those of the rows that are left; what it left out. None: nothing, as before."""
    edit = _Edit(module)
    try:
        with_gradients = _with_gradients(module.graph)
        edit.make(_plan(module.graph))
        if not any(operation_of(node) in _WORTH for node in edit.kept):
            raise Unsupported("nothing of weight has dead rows")
        unread = edit.unread()
        if with_gradients - _with_gradients(module.graph, {*unread}):
            raise Unsupported("what has a gradient of zeros would have none")
        Layouts(module).check(edit.changed, unread, may_close_gaps=True)
    except Exception:  # whatever PyTorch raises: the graph is as it was
        edit.undo()
        return None
    for node in unread:
        edit.kept.pop(node, None)
        module.graph.erase_node(node)
    return Left(edit.kept, edit.sizes)


def _with_gradients(graph: fx.Graph, unread: Set[fx.Node] = frozenset()) -> set[fx.Node]:
    """Inputs of the graph that its results give a gradient."""
    reached = {taken for node in graph.find_nodes(op="output") for taken in node.all_input_nodes if wants_gradient(value_of(taken))}
    for node in reversed(graph.nodes):
        if node in reached and node not in unread:
            reached.update(taken for taken in node.all_input_nodes if wants_gradient(value_of(taken)))
    return {node for node in reached if node.op in ("placeholder", "get_attr")}


# --- which rows are read


class _Plan(NamedTuple):
    reads: dict[fx.Node, Reads]  #: of what can be computed of fewer rows
    rows: dict[fx.Node, Rows]  #: which these are
    selected: dict[fx.Node, Rows]  #: of their inputs, by selections


def _plan(graph: fx.Graph) -> _Plan:
    # Another value would lie there than others see, or a copy of it.
    fixed = set().union(*map(storages_written_by, graph.nodes), *map(storages_of, graph.find_nodes(op="placeholder")))
    plan, asked = _Plan({}, {}, {}), {}
    for node in reversed(graph.nodes):
        if node not in asked and _gives_a_result_alone(node) or reads_nothing(node):
            continue  # nobody reads it, or it reads nobody
        rows = _all_of(asked.get(node, [None]), node)
        is_free = not (is_op(node, *_MIXES) and wants_gradient(value_of(node))) and fixed.isdisjoint(storages_of(node))
        reads = reads_of(node, rows) if is_free and (rows is not None or operation_of(node) in SELECTIONS) else None
        if reads is not None and rows is not None:
            plan.reads[node], plan.rows[node] = reads, rows
        if reads is not None and operation_of(node) in SELECTIONS:
            plan.selected.update({node: found for found in reads.values()})
        operands = {} if reads is None else {name: each for name, each in operands_of(node).items() if isinstance(each, fx.Node)}
        for name, operand in operands.items():
            wanted = reads.get(name)
            if wanted is None or wanted.count:
                asked.setdefault(operand, []).append(wanted)
        for taken in set(node.all_input_nodes).difference(operands.values()):
            asked.setdefault(taken, []).append(None)
    for node in graph.nodes:  # whole moves of what is computed whole cost nothing, and its gradient lies as without us
        if is_move(node) and wants_gradient(value_of(node)) and plan.reads.keys().isdisjoint(node.all_input_nodes):
            plan.reads.pop(node, None), plan.rows.pop(node, None)
    return plan


def _gives_a_result_alone(node: fx.Node) -> bool:
    """Whether it is of no use where nobody reads it."""
    return operation_of(node) != "" and not storages_written_by(node) and (is_quiet(node) or not is_op(node, "dropout"))


def _all_of(asked: Sequence[Optional[Rows]], node: fx.Node) -> Optional[Rows]:
    """The rows that hold all that is asked; None: too many, or of several dimensions."""
    if None in asked or len({rows.dim for rows in asked}) > 1:
        return None
    found = Rows(asked[0].dim, min(rows.first for rows in asked), max(rows.end for rows in asked))
    size = size_of(node, found.dim)
    return found if size is not None and found.count * FEW <= size else None


# --- the graph with these alone


class _Edit:
    """Changes of a graph that can be taken back."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._graph = module.graph
        self.kept: dict[fx.Node, Rows] = {}
        self.sizes: dict[fx.Node, int] = {}
        self._before: dict[fx.Node, tuple[Any, ...]] = {}
        self._narrowed: dict[Any, fx.Node] = {}

    @property
    def changed(self) -> set[fx.Node]:
        return {*self._before, *self._narrowed.values()}

    def make(self, plan: _Plan) -> None:
        for node in list(self._graph.nodes):
            taken = node.args[0] if node.args else None
            if is_op(node, "getitem") and isinstance(value_of(taken), (tuple, list)):
                if taken in self.kept:
                    self._keep(node, self.kept[taken])
            elif operation_of(node) in SELECTIONS and node in plan.selected:
                self._select(node, plan)
            elif node in plan.reads:
                self._compute(node, plan.reads[node], plan.rows[node])

    def undo(self) -> None:
        for node, (op, target, args, kwargs) in self._before.items():
            node.op, node.target, node.args, node.kwargs = op, target, args, kwargs
        for node in self._narrowed.values():
            self._graph.erase_node(node)

    def unread(self) -> list[fx.Node]:
        """What nothing reads any more, users first."""
        found: dict[fx.Node, None] = {}
        for node in reversed(self._graph.nodes):
            if _gives_a_result_alone(node) and found.keys() >= node.users.keys():
                found[node] = None
        return list(found)

    def _keep(self, node: fx.Node, rows: Rows) -> None:
        self.kept[node], self.sizes[node] = rows, size_of(node, rows.dim)

    def _remember(self, node: fx.Node) -> None:
        self._before.setdefault(node, (node.op, node.target, node.args, node.kwargs))

    def _select(self, node: fx.Node, plan: _Plan) -> None:
        source, wanted = arguments_of(node)["input"], plan.selected[node]
        there = self.kept.get(source)
        if there is None and node not in plan.rows:
            return
        index, first = index_of(node), 0 if there is None else there.first
        start = wanted.first - first
        index[wanted.dim] = start if isinstance(index[wanted.dim], int) else slice(start, start + wanted.count)
        self._remember(node)
        node.op, node.target, node.args, node.kwargs = "call_function", operator.getitem, (source, tuple(index)), {}
        if node in plan.rows:
            self._keep(node, plan.rows[node])

    def _compute(self, node: fx.Node, reads: Reads, rows: Rows) -> None:
        operands = operands_of(node)
        given = {name: self._rows_of(operands[name], each, node) for name, each in reads.items() if each.count}
        self._remember(node)
        if is_op(node, "cat"):
            put_argument(node, "tensors", [given[place] for place in sorted(given)])
        else:
            for name, operand in given.items():
                put_argument(node, name, operand)
        if is_op(node, "reshape", "view"):
            shape = list(operands["shape"])
            shape[rows.dim] = rows.count
            put_argument(node, "shape", tuple(shape))
        self._keep(node, rows)

    def _rows_of(self, taken: fx.Node, rows: Rows, user: fx.Node) -> fx.Node:
        """What has these rows of a value alone. Under no_grad it is another one, through which no gradient goes."""
        there = self.kept.get(taken)
        if there == rows:
            return taken
        trains = wants_gradient(value_of(taken)) and wants_gradient(value_of(user))
        key = (taken, rows, trains)
        if key not in self._narrowed:
            first = rows.first - (0 if there is None else there.first)
            index = (*[slice(None)] * (value_of(taken).dim() + rows.dim), slice(first, first + rows.count))
            with self._graph.inserting_before(user):
                made = self._narrowed[key] = self._graph.call_function(operator.getitem, (taken, index))
            whole = value_of(taken)  # so that its memory is known to be that of all rows
            made.meta = {**user.meta, "example_value": whole.detach().requires_grad_(trains)}
        return self._narrowed[key]
