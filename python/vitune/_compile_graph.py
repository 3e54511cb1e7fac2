# python/vitune/_compile_graph.py -- What patterns need of Dynamo's graph: a call's arguments, tensors as compiled, places, promises kept.
# SPDX-License-Identifier: Apache-2.0
"""Values are fake tensors: `node.meta["example_value"]`, as Dynamo saw them. Their sizes may be symbols."""
from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Optional

import torch
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
    if first is last:
        return False
    read = {memory_of(tensor) for step in steps for tensor in step.all_input_nodes if tensor not in steps}
    at = first.next
    while at is not last:
        if at not in steps and writes(at) and any(memory_of(tensor) in read for tensor in at.all_input_nodes):
            return True
        at = at.next
    return False


def memory_of(node: fx.Node) -> Any:
    value = value_of(node)
    return value.untyped_storage()._cdata if isinstance(value, Tensor) else node


def writes(node: fx.Node) -> bool:
    """Whether it may change one of its arguments."""
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    in_place = name in ("iadd", "isub", "imul", "itruediv", "setitem", "__setitem__")
    place = _place_of_inplace(node.target) if node.op == "call_function" else None
    said = bool(node.kwargs.get("inplace")) or place is not None and bool(node.args[place:place + 1] and node.args[place])
    return (in_place or said or "out" in node.kwargs or (name.endswith("_") and not name.endswith("__"))
            or _may_write(node.target))


def _may_write(target: Any) -> bool:
    """Of operators with a schema what that says; others of higher order (Triton kernels, loops) may do anything."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return any(getattr(target, name)._schema.is_mutable for name in target.overloads())
    return target._schema.is_mutable if isinstance(target, torch._ops.OpOverload) else isinstance(target, torch._ops.HigherOrderOperator)


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


def _same_layout(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    return a.dtype == b.dtype and a.dim() == b.dim() and all(
        statically_known_true(x == y) for x, y in zip((*a.shape, *a.stride()), (*b.shape, *b.stride())))


_ENTERS = frozenset((torch.amp.autocast_mode._enter_autocast,))
_EXITS = frozenset((torch.amp.autocast_mode._exit_autocast,))


class Layouts(fx.Interpreter):
    """Runs a graph on its fake tensors, from our nodes on and as far as strides differ from before: a view that was possible
    then need not be now. Raises what PyTorch raises."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._changed: set[fx.Node] = set()

    def check(self, ours: set[fx.Node]) -> None:
        """Afterwards our nodes have their values, and so has what differs because of them."""
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
        for node in self._changed:  # only now: what cannot be traced stays as it was
            node.meta["example_value"] = self.env[node]

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
            with torch.set_grad_enabled(wants_gradient(before)):  # as it was there: of ours none is wanted
                after = self.run_node(node)
            if not self._is_as_before(node, before, after):
                self._changed.add(node)
                self.env[node] = after

    def _is_as_before(self, node: fx.Node, before: Any, after: Any) -> bool:
        """Whether whoever takes it may take what stood there before, which shares its memory with the same tensors."""
        inputs = (self.env[taken] for taken in node.all_input_nodes if taken in self._changed)
        return _same_layout(before, after) and after.untyped_storage()._cdata not in [
            taken.untyped_storage()._cdata for taken in inputs if isinstance(taken, Tensor)]
