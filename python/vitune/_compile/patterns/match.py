# python/vitune/_compile/patterns/match.py -- What patterns need of Dynamo's graph: a call's arguments, tensors as compiled, places.
# SPDX-License-Identifier: Apache-2.0
"""Values are fake tensors: `node.meta["example_value"]`, as Dynamo saw them. Their sizes may be symbols."""
from __future__ import annotations

import abc
import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from ..._ops import attention as attention_ops
from ..._runtime.context import AttentionDesc, Problem, Selection
from ..._runtime.errors import Unsupported
from .benchmark import Times
from .distinct import alike, once
from .forms import Folded


class ConstantFold(NamedTuple):
    """Tensors that are made of parameters of a graph before it runs."""

    kind: Folded
    sources: tuple[Optional[fx.Node], ...]

    def fakes(self) -> tuple[Tensor, ...]:
        """The results as a compiler sees them."""
        with torch.no_grad():
            return alike(once(lambda: self.kind.make(*map(value_of, self.sources)), Folded.make, self))


@dataclasses.dataclass
class Match:
    """Nodes of a graph that one call of an operator can stand for."""

    call: str  #: what the model calls, in words: "layer_norm of a sum"
    #: The first is replaced by what `build` gives first, the second by the second ...; all come after their arguments.
    nodes: Sequence[fx.Node]
    at: fx.Node  #: `build` inserts before it
    build: Callable[..., Sequence[fx.Node]]
    ask: Optional[Callable[[], Selection]]  #: which kernel would serve; raises VituneError; None: it is none of vitune's
    covered: Sequence[fx.Node] = ()  #: what is of no use afterwards, in the order of the graph
    #: Times beside what the model calls without us; None where nobody can tell.
    race: Callable[[], Optional[Times]] = lambda: None
    #: Arguments of `build` after the graph: the nodes of their results (_compile/folded_parameters.py).
    recipes: Sequence[ConstantFold] = ()
    #: Other facts that its race depends on.
    surroundings: str = ""
    #: As `ask`, of the further calls that `build` makes.
    ask_further: Sequence[Callable[[], Selection]] = ()
    #: Why no kernel is asked: where the operator is asked for by name, PyTorch computes what it stands for.
    unserved: str = ""


@dataclasses.dataclass
class NoMatch:
    """A call that an operator knows and cannot serve."""

    call: str
    reason: str  #: types, shapes or arguments that rule the operator out


class FusionPattern(abc.ABC):
    """An operator's patterns: place(), or places() where there may be several at a node."""

    name: str  #: of the operator, as problems' texts begin
    #: True if its winners are known to be faster than what Inductor makes of the same places.
    wins: bool
    #: At which operations its places begin (_compile/patterns/tree.py); (): it looks at every node.
    operations: tuple[str, ...] = ()
    #: True if a call stays as it is where nobody could time it beside PyTorch's.
    only_if_timed = False
    #: True if kernels that were never tuned are raced too. Their answers must be compared in the race.
    races_defaults = False
    #: True if its places hold calls that other operators know too.
    spans = False
    #: True if its places are those of which a gradient is wanted, and its operators have one. All others have none.
    trains = False

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        """What begins at this node, of a pattern with one place there; None: nothing of this operator's."""
        return None

    def places(self, node: fx.Node) -> Iterable[Match | NoMatch]:
        """What may begin at this node, the largest first: the first that can be put in is."""
        found = self.place(node)
        return () if found is None else (found,)


def value_of(node: Any) -> Any:
    """What stood for it while the model was traced; a constant itself."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else node


#: In the meta of a node of ours: whether a gradient is wanted of what it stands for.
TRAINS = "vitune_trains"


def wants_gradient(value: Any) -> bool:
    """Whether a gradient is wanted of a tensor, or of one of several."""
    return any(getattr(leaf, "requires_grad", False) for leaf in tree_leaves(value))


def is_call(node: Any, targets: frozenset) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in targets


_SETS_GRADIENTS = frozenset((torch._C._set_grad_enabled,))
_ENTERS_INFERENCE = frozenset((torch.autograd.grad_mode._enter_inference_mode,))
_EXITS_INFERENCE = frozenset((torch.autograd.grad_mode._exit_inference_mode,))
ENTERS_AUTOCAST = frozenset((torch.amp.autocast_mode._enter_autocast,))
EXITS_AUTOCAST = frozenset((torch.amp.autocast_mode._exit_autocast,))


def _calls(graph: fx.Graph, targets: frozenset) -> bool:
    """Whether it calls one of these."""
    return any(graph.find_nodes(op="call_function", target=target, sort=False) for target in targets)


def gradients_at(graph: fx.Graph, nodes: frozenset[fx.Node]) -> set[Any]:
    """Whether gradients are on where each of the nodes stands: one answer, if nothing turns them on or off between them."""
    state, entered, found = torch.is_grad_enabled(), {}, set()
    if not any(_calls(graph, targets) for targets in (_SETS_GRADIENTS, _ENTERS_INFERENCE)):
        return {state}
    for node in graph.nodes:
        if node in nodes:
            found.add(state)
        elif is_call(node, _SETS_GRADIENTS):
            state = node.args[0]
        elif is_call(node, _ENTERS_INFERENCE):
            entered[node], state = state, ("inference", *node.args)
        elif is_call(node, _EXITS_INFERENCE):
            state = entered.pop(node.args[0], state)
    return found


def is_autocast(node: fx.Node, device: str) -> bool:
    """Whether autocast is on where a node stands; in the body of a checkpoint whether it was on when the model was called."""
    state, entered = torch.is_autocast_enabled(device), {}
    if not _calls(node.graph, ENTERS_AUTOCAST):
        return state
    for at in node.graph.nodes:
        if at is node:
            break
        if is_call(at, ENTERS_AUTOCAST):
            entered[at] = state
            state = bool(at.args[2]) if at.args[0] == device else state
        elif is_call(at, EXITS_AUTOCAST):
            state = entered.pop(at.args[0], state)
    return state


def is_transformed(node: fx.Node) -> bool:
    """Whether a node stands within what torch.func transforms (grad, vmap, jvp ...)."""
    depth = 0
    for at in node.graph.nodes:
        if at is node:
            break
        name = getattr(at.target, "__name__", "")
        depth += name.endswith("_increment_nesting") - name.endswith("_decrement_nesting")
    return depth > 0


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


def selected(problem: str | AttentionDesc, device: Optional[int]) -> Selection:
    """Which kernel would serve a problem on a GPU. Raises VituneError."""
    return attention_ops.context_of(device).query(Problem(problem) if isinstance(problem, str) else problem)


def as_compiled(node: fx.Node | Tensor | None) -> Optional[Tensor]:
    """A tensor of the type, sizes and strides that a node or fake tensor had when the model was compiled, on no device."""
    if node is None:
        return None
    value = value_of(node)
    return torch.empty_strided([hint(size) for size in value.shape], [hint(step) for step in value.stride()], dtype=value.dtype,
                               device="meta")


def is_parameter(node: Optional[fx.Node]) -> bool:
    return node is not None and node.op == "placeholder" and isinstance(value_of(node), torch.nn.Parameter)


def foreign(x: Tensor) -> str:
    """Of which class of somebody's a tensor is; "": of none."""
    return f"a tensor of class {type(x).__name__}" if type(x) is not Tensor and is_traceable_wrapper_subclass(x) else ""


def outside(x: Tensor) -> str:
    """Why kernels cannot reach a tensor of this kind; "": they can."""
    return foreign(x) or ("" if attention_ops.is_on_gpu(x) else f"device {x.device.type}")


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


@dataclasses.dataclass(eq=False)
class Put:
    """A place that calls of ours stand for."""

    pairs: list[tuple[fx.Node, fx.Node]]  #: theirs, ours
    made: set[fx.Node]  #: all of ours that came with it, and prepared weights that it may share with others
    gone: set[fx.Node]  #: theirs, and what is covered


class Rewrite:
    """Calls of ours in the place of a graph's own, which stay beside them until finish() or undo()."""

    def __init__(self, graph: fx.Graph, prepared: Callable[[ConstantFold], Sequence[fx.Node]]) -> None:
        self._graph, self._prepared = graph, prepared
        self._theirs = set(graph.nodes)
        self._known = set(self._theirs)
        self._put: list[Put] = []
        self._gone: set[fx.Node] = set()  # theirs, and what is covered

    @property
    def ours(self) -> set[fx.Node]:
        return set(self._graph.nodes) - self._theirs

    @property
    def put_places(self) -> Sequence["Put"]:
        """What is in, in the order of the calls of put()."""
        return self._put

    def left(self) -> Iterator[fx.Node]:
        """The graph's own nodes that nothing of ours is in the place of when they are reached."""
        for node in list(self._graph.nodes):
            if node in self._theirs and node not in self._gone:
                yield node

    def put(self, place: Match) -> None:
        given = [node for recipe in place.recipes for node in self._prepared(recipe)]
        with self._graph.inserting_before(place.at):
            made = place.build(self._graph, *given)
        pairs = list(zip(place.nodes, made))
        for node, new in pairs:
            new.meta = {**node.meta, **new.meta}
            node.replace_all_uses_with(new)
        fresh = {node for node in self._graph.nodes if node not in self._known}
        trains = any(wants_gradient(value_of(node)) for node in place.nodes)
        for node in fresh:
            node.meta[TRAINS] = trains
        self._known |= fresh
        self._put.append(Put(pairs, fresh.union(given), {*place.nodes, *place.covered}))
        self._gone |= self._put[-1].gone

    def finish(self) -> None:
        """Takes out what is of no use any more."""
        self._erase(self._gone)

    def take_back(self, those: Sequence["Put"]) -> None:
        """Puts the graph's own nodes back in their places; all others of ours stay."""
        for put in reversed(self._put):
            if put in those:
                for node, new in reversed(put.pairs):
                    self._keep_type(node, new)
                    new.replace_all_uses_with(node)
        self._put = [put for put in self._put if put not in those]
        self._gone = set().union(*(put.gone for put in self._put))
        self._erase(self.ours - set().union(*(put.made for put in self._put)))

    def _keep_type(self, node: fx.Node, new: fx.Node) -> None:
        """What is of ours and takes `new` was made for its type, which may be narrower than that of `node`."""
        was, is_now = value_of(node), value_of(new)
        takers = {user for user in new.users if user not in self._theirs}
        if not takers or not isinstance(was, torch.Tensor) or not isinstance(is_now, torch.Tensor) or was.dtype == is_now.dtype:
            return
        with self._graph.inserting_after(node):
            cast = self._graph.call_method("to", (node, is_now.dtype))
        cast.meta[TRAINS] = wants_gradient(was)
        self._known.add(cast)
        new.replace_all_uses_with(cast, delete_user_cb=lambda user: user in takers)

    def undo(self) -> None:
        self.take_back(self._put)

    def _erase(self, nodes: set[fx.Node]) -> None:
        for node in reversed(list(self._graph.nodes)):
            if node in nodes and not node.users:
                self._graph.erase_node(node)
