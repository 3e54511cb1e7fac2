# python/vitune/_compile_graph.py -- What patterns need of Dynamo's graph: a call's arguments, tensors as compiled, places, promises kept.
# SPDX-License-Identifier: Apache-2.0
"""Values are fake tensors: `node.meta["example_value"]`, as Dynamo saw them. Their sizes may be symbols."""
from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Optional

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import _torch_op
from ._compile_race import Times
from ._context import Selection
from ._errors import Unsupported


@dataclasses.dataclass
class Place:
    """Nodes of a graph that one call of an operator can stand for."""

    call: str  #: what the model calls, in words: "layer_norm of a sum"
    #: The first is replaced by what `build` gives first, the second by the second ...; all come after their arguments.
    nodes: Sequence[fx.Node]
    at: fx.Node  #: `build` inserts before it
    build: Callable[[fx.Graph], Sequence[fx.Node]]
    ask: Callable[[], Selection]  #: which kernel would serve; raises VituneError
    covered: Sequence[fx.Node] = ()  #: what is of no use afterwards, in the order of the graph
    #: Times beside what the model calls without us; None where nobody can tell.
    race: Callable[[], Optional[Times]] = lambda: None


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

    @abc.abstractmethod
    def place(self, node: fx.Node) -> Place | Refusal | None:
        """What begins at this node; None: nothing of this operator's."""


def value_of(node: Any) -> Any:
    """What stood for it while the model was traced; a constant itself."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else node


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


def constant(argument: Any) -> Any:
    """A number or None as it stands in the graph. Raises Unsupported for one that is only known when the model runs."""
    if argument is not None and not isinstance(argument, (bool, int, float)):
        raise Unsupported(f"an argument is only known when the model runs: {argument}")
    return argument


def _hint(size: Any) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint
    if hint is None:
        raise Unsupported(f"a size is only known when the model runs: {size}")
    return int(hint)


def as_compiled(node: fx.Node | Tensor | None) -> Optional[Tensor]:
    """A tensor of the type, sizes and strides that a node or fake tensor had when the model was compiled, on no device."""
    if node is None:
        return None
    value = value_of(node)
    return torch.empty_strided([_hint(size) for size in value.shape], [_hint(step) for step in value.stride()], dtype=value.dtype,
                               device="meta")


def outside(x: Tensor) -> str:
    """Why kernels cannot reach a tensor of this kind; "": they can."""
    if type(x) is not Tensor and is_traceable_wrapper_subclass(x):
        return f"a tensor of class {type(x).__name__}"
    return "" if _torch_op.is_on_gpu(x) else f"device {x.device.type}"


def module_of(node: fx.Node) -> str:
    """Where in the model it was called: "blocks.0.attn"."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return path.removeprefix("L['self']").removeprefix(".").replace("._modules", "")


class Rewrite:
    """Calls of ours in the place of a graph's own, which stay beside them until finish() or undo()."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._theirs = set(graph.nodes)
        self._made: list[tuple[fx.Node, fx.Node]] = []  # theirs, ours
        self._covered: list[fx.Node] = []

    @property
    def ours(self) -> set[fx.Node]:
        return set(self._graph.nodes) - self._theirs

    def put(self, place: Place) -> None:
        with self._graph.inserting_before(place.at):
            made = place.build(self._graph)
        for node, new in zip(place.nodes, made):
            new.meta = dict(node.meta)
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


class Layouts(fx.Interpreter):
    """Runs a graph on its fake tensors, from our nodes on and as far as strides differ from before: a view that was possible
    then need not be now. Raises what PyTorch raises."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)

    def check(self, ours: set[fx.Node]) -> None:
        nodes = self.module.graph.nodes
        changed: set[fx.Node] = set()
        modes = (value.fake_mode for value in map(value_of, nodes) if isinstance(value, FakeTensor))
        with next(modes, nullcontext()), enable_python_dispatcher():
            for node in nodes:
                before = self.env[node] = value_of(node)
                if node.op == "get_attr" and before is None:
                    self.env[node] = self.run_node(node)
                elif node in ours or node.op != "output" and any(n in changed for n in node.all_input_nodes):
                    after = self.env[node] = node.meta["example_value"] = self.run_node(node)
                    if not _same_layout(before, after):
                        changed.add(node)
