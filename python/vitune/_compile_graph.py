# python/vitune/_compile_graph.py -- What patterns need of Dynamo's graph: a call's arguments, tensors as compiled, places, promises kept.
# SPDX-License-Identifier: Apache-2.0
"""Values are fake tensors: `node.meta["example_value"]`, as Dynamo saw them. Their sizes may be symbols."""
from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from . import _torch_op
from ._compile_race import Times
from ._context import Selection
from ._errors import Unsupported


class Recipe(NamedTuple):
    """Tensors that are made of parameters of a graph before it runs."""

    make: Callable[..., tuple[Tensor, ...]]  #: of the sources' values, in this order; one function for all graphs
    words: tuple[Any, ...]  #: further arguments
    sources: tuple[Optional[fx.Node], ...]

    def fakes(self) -> tuple[Tensor, ...]:
        """The results as a compiler sees them."""
        with torch.no_grad():
            return self.make(*map(value_of, self.sources), *self.words)


@dataclasses.dataclass
class Place:
    """Nodes of a graph that one call of an operator can stand for."""

    call: str  #: what the model calls, in words: "layer_norm of a sum"
    #: The first is replaced by what `build` gives first, the second by the second ...; all come after their arguments.
    nodes: Sequence[fx.Node]
    at: fx.Node  #: `build` inserts before it
    build: Callable[..., Sequence[fx.Node]]
    ask: Callable[[], Selection]  #: which kernel would serve; raises VituneError
    covered: Sequence[fx.Node] = ()  #: what is of no use afterwards, in the order of the graph
    #: Times beside what the model calls without us; None where nobody can tell.
    race: Callable[[], Optional[Times]] = lambda: None
    #: What `build` is given after the graph: the nodes of their results (_compile_prepared.py).
    recipes: Sequence[Recipe] = ()
    #: What else its race depends on.
    surroundings: str = ""


@dataclasses.dataclass
class Refusal:
    """A call that an operator knows and cannot serve."""

    call: str
    reason: str  #: types, shapes or arguments that rule the operator out


class Operator(abc.ABC):
    """An operator's patterns."""

    name: str  #: of the operator, as problems' texts begin
    #: Whether its winners are known to be faster than what Inductor makes of the same places.
    wins: bool
    #: Whether a call stays as it is where nobody could time it beside PyTorch's.
    only_if_timed = False
    #: Whether its places hold calls that other operators know too.
    spans = False

    @abc.abstractmethod
    def place(self, node: fx.Node) -> Place | Refusal | None:
        """What begins at this node; None: nothing of this operator's."""

    def places(self, node: fx.Node) -> Iterable[Place | Refusal]:
        """What may begin at this node, the largest first: the first that can be put in is."""
        found = self.place(node)
        return () if found is None else (found,)


def value_of(node: Any) -> Any:
    """What stood for it while the model was traced; a constant itself."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else node


def wants_gradient(value: Any) -> bool:
    """Whether a gradient is wanted of a tensor, or of one of several."""
    return any(getattr(leaf, "requires_grad", False) for leaf in tree_leaves(value))


def is_call(node: Any, targets: frozenset) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in targets


def is_method(node: Any, *names: str) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_method" and node.target in names


def arguments(node: fx.Node, **names: Any) -> list[Any]:
    """The arguments of a call by the names and defaults of its function. Raises Unsupported where it has others."""
    if len(node.args) > len(names) or not node.kwargs.keys() <= names.keys():
        raise Unsupported(f"arguments that are not known: {node.format_node()}")
    given = dict(zip(names, node.args), **node.kwargs)
    return [given.get(name, default) for name, default in names.items()]


def is_cast(node: fx.Node) -> bool:
    return is_method(node, "to", "type_as", "float", "half", "bfloat16") and isinstance(value_of(node), Tensor)


def is_idle_dropout(node: fx.Node) -> bool:
    if not is_call(node, frozenset((torch.nn.functional.dropout,))):
        return False
    _, p, training, _ = arguments(node, input=None, p=0.5, training=True, inplace=False)
    return training is False or p == 0.0


def constant(argument: Any) -> Any:
    """A number or None as it stands in the graph. Raises Unsupported for one that is only known when the model runs."""
    if argument is not None and not isinstance(argument, (bool, int, float)):
        raise Unsupported(f"an argument is only known when the model runs: {argument}")
    return argument


def hint(size: Any) -> int:
    if isinstance(size, int):
        return size
    known = size.node.hint
    if known is None:
        raise Unsupported(f"a size is only known when the model runs: {size}")
    return int(known)


def as_compiled(node: fx.Node | Tensor | None) -> Optional[Tensor]:
    """A tensor of the type, sizes and strides that a node or fake tensor had when the model was compiled, on no device."""
    if node is None:
        return None
    value = value_of(node)
    return torch.empty_strided([hint(size) for size in value.shape], [hint(step) for step in value.stride()], dtype=value.dtype,
                               device="meta")


def is_parameter(node: Optional[fx.Node]) -> bool:
    return node is not None and node.op == "placeholder" and isinstance(value_of(node), torch.nn.Parameter)


def outside(x: Tensor) -> str:
    """Why kernels cannot reach a tensor of this kind; "": they can."""
    if type(x) is not Tensor and is_traceable_wrapper_subclass(x):
        return f"a tensor of class {type(x).__name__}"
    return "" if _torch_op.is_on_gpu(x) else f"device {x.device.type}"


def is_changed_between(first: fx.Node, last: fx.Node, steps: Sequence[fx.Node]) -> bool:
    """Whether memory that the steps read is written before the last one: ours reads all of it there."""
    inside = set(steps)
    read = {memory for step in steps for tensor in step.all_input_nodes if tensor not in inside for memory in memories_of(tensor)}
    return any(not read.isdisjoint(memories_written_by(node)) for node in _between(first, last))


def _between(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    """The nodes after the first and before the last; none where they are one."""
    at = last if first is last else first.next
    while at is not last:
        yield at
        at = at.next


def memory_of(node: fx.Node) -> Any:
    value = value_of(node)
    return value.untyped_storage()._cdata if isinstance(value, Tensor) else node


def memories_in(value: Any) -> set[Any]:
    """Those of the tensors of a value, which may be several. Sparse ones have none that others share."""
    tensors = (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.layout is torch.strided)
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def memories_of(node: fx.Node) -> set[Any]:
    return memories_in(value_of(node))


def memories_written_by(node: fx.Node) -> set[Any]:
    return {memory for tensor in written_by(node) for memory in memories_of(tensor)}


#: Operators on two operands whose first is changed: operator.iadd, Tensor.__iadd__ ...
_IN_PLACE = frozenset(f"i{name}" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
                                              "lshift", "rshift"))
#: What changes tensors after its first where an argument says so, which no version counts: (its name, its place, its default).
#: Statistics of the batches; weights of a greatest norm.
_CHANGES_LATER_ONES = {F.batch_norm: ("training", 5, False), torch.batch_norm: ("training", 5, False),
                       F.instance_norm: ("use_input_stats", 5, True), torch.instance_norm: ("use_input_stats", 5, True),
                       F.embedding: ("max_norm", 3, None), F.embedding_bag: ("max_norm", 4, None)}
#: Modules of functions that change nothing but what their names, arguments or schemas say.
_PURE = frozenset(("torch", "_operator", "operator", "math", "builtins", "einops", "vitune"))


def written_by(node: fx.Node) -> list[fx.Node]:
    """Which of its arguments it may change."""
    if node.op not in ("call_function", "call_method"):
        return list(node.all_input_nodes) if node.op == "call_module" else []
    first = _nodes_in(node.args[:1]) or list(node.all_input_nodes)
    if node.op == "call_method":
        return first if _is_in_place(node.target) else []
    if isinstance(node.target, torch._ops.OpOverload):
        return _written_by_schema(node)
    if _may_write(node.target):
        return list(node.all_input_nodes)
    said = _CHANGES_LATER_ONES.get(node.target)
    if said is not None and _is_said(_argument(node, *said)):
        return [tensor for tensor in node.all_input_nodes if tensor not in first]
    place = _place_of_inplace(node.target)
    in_place = place is not None and _is_said(_argument(node, "inplace", place, False))
    written = _nodes_in(node.kwargs.get("out"))
    return written + first if in_place or _is_in_place(getattr(node.target, "__name__", "")) else written


def _is_said(value: Any) -> bool:
    return value is not None and value is not False  # 0.0 is a greatest norm


def _nodes_in(argument: Any) -> list[fx.Node]:
    return [leaf for leaf in tree_leaves(argument) if isinstance(leaf, fx.Node)]


def _argument(node: fx.Node, name: str, place: int, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _is_in_place(name: str) -> bool:
    """Whether a function or method of that name changes its first argument."""
    plain = name[2:-2] if name.startswith("__") and name.endswith("__") else name
    return plain in _IN_PLACE or plain == "setitem" or plain.endswith("_")


def _written_by_schema(node: fx.Node) -> list[fx.Node]:
    written: list[fx.Node] = []
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += _nodes_in(_argument(node, argument.name, place, None))
    return written


def _may_write(target: Any) -> bool:
    """Of operators with a schema what that says; operators of higher order (Triton kernels, loops) and functions that Dynamo was told not
    to look into may do anything."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return any(getattr(target, name)._schema.is_mutable for name in target.overloads())
    if isinstance(target, torch._ops.HigherOrderOperator):
        return True
    return inspect.isfunction(target) and (target.__module__ or "").partition(".")[0] not in _PURE


@functools.cache
def _place_of_inplace(function: Any) -> Optional[int]:
    """Which argument of F.relu, F.dropout ... it is."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin, which says nothing
        return None
    return names.index("inplace") if "inplace" in names else None


def module_of(node: fx.Node) -> str:
    """Where in the model it was called: "blocks.0.attn"."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return path.removeprefix("L['self']").removeprefix(".").replace("._modules", "")


def copied(graph: fx.Graph) -> fx.Graph:
    """A graph of the same nodes, with the same values and with what AOT looks for at inputs."""
    copy_of = copy.deepcopy(graph)  # of the nodes alone
    for node, theirs in zip(copy_of.find_nodes(op="placeholder"), graph.find_nodes(op="placeholder")):
        if hasattr(theirs, "_dynamo_source"):
            node._dynamo_source = theirs._dynamo_source
    return copy_of


class Rewrite:
    """Calls of ours in the place of a graph's own, which stay beside them until finish() or undo()."""

    def __init__(self, graph: fx.Graph, prepared: Callable[[Recipe], Sequence[fx.Node]]) -> None:
        self._graph, self._prepared = graph, prepared
        self._theirs = set(graph.nodes)
        self._made: list[tuple[fx.Node, fx.Node]] = []  # theirs, ours
        self._covered: list[fx.Node] = []

    @property
    def ours(self) -> set[fx.Node]:
        return set(self._graph.nodes) - self._theirs

    def left(self) -> list[fx.Node]:
        """The graph's own nodes that nothing of ours is in the place of."""
        gone = {node for node, _ in self._made}.union(self._covered)
        return [node for node in self._graph.nodes if node in self._theirs and node not in gone]

    def put(self, place: Place) -> None:
        given = [node for recipe in place.recipes for node in self._prepared(recipe)]
        with self._graph.inserting_before(place.at):
            made = place.build(self._graph, *given)
        for node, new in zip(place.nodes, made):
            new.meta = {**node.meta, **new.meta}
            node.replace_all_uses_with(new)
            self._made.append((node, new))
        self._covered += place.covered

    def finish(self) -> None:
        """Takes out what is of no use any more."""
        useless = {node for node, _ in self._made} | set(self._covered)
        for node in reversed(list(self._graph.nodes)):
            if node in useless and not node.users:
                self._graph.erase_node(node)

    def undo(self) -> None:
        for node, new in reversed(self._made):
            new.replace_all_uses_with(node)
        ours = self.ours
        for node in reversed(list(self._graph.nodes)):
            if node in ours:
                self._graph.erase_node(node)


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
    return node.op == "call_module" or node.op == "call_function" and _may_write(node.target)


class Layouts(fx.Interpreter):
    """Runs a graph on its fake tensors, from our nodes on and as far as strides differ from before: a view that was possible
    then need not be now, and what leaves the graph must lie as it did. Raises Unsupported, and what PyTorch raises."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._changed: set[fx.Node] = set()
        #: Memory of results that are views now and were copies, or the other way round.
        self._turned: set[Any] = set()

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
            self._expect_no_turned_view_matters()
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
            if not is_ours and self._is_turned(node, before, after):
                self._turned |= memories_in(before) | memories_in(after)
            if not self._is_as_before(node, before, after):
                self._changed.add(node)
                self.env[node] = after

    def _is_as_before(self, node: fx.Node, before: Any, after: Any) -> bool:
        """Whether whoever takes it may take what stood there before, which shares its memory with the same tensors."""
        inputs = (self.env[taken] for taken in node.all_input_nodes if taken in self._changed)
        return _same_layout(before, after) and after.untyped_storage()._cdata not in [
            taken.untyped_storage()._cdata for taken in inputs if isinstance(taken, Tensor)]

    def _is_turned(self, node: fx.Node, before: Any, after: Any) -> bool:
        """Whether it shares its memory with an argument now and did not before, or the other way round."""
        return any(memories_in(before).isdisjoint(memories_of(taken)) != memories_in(after).isdisjoint(memories_in(self.env[taken]))
                   for taken in node.all_input_nodes)

    def _has_other_strides(self, node: fx.Node) -> bool:
        return not all(_same_layout(value_of(taken), self.env[taken]) for taken in node.all_input_nodes if taken in self._changed)

    def _expect_no_turned_view_matters(self) -> None:
        """Raises Unsupported where such memory is written, or seen twice from outside."""
        nodes = self.module.graph.nodes
        written = [taken for node in nodes for taken in written_by(node)]
        outside = [*self.module.graph.find_nodes(op="placeholder"), *self._output().all_input_nodes]
        for memories in (memories_of, lambda node: memories_in(self.env[node])):
            seen = [memory for node in outside for memory in memories(node)]
            twice = {memory for memory in seen if seen.count(memory) > 1}
            if not self._turned.isdisjoint(twice.union(*map(memories, written))):
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
