# python/vitune/_compile/patterns/windows_train.py -- The pattern of attention in the windows of images that trains, with all that moves pixels around it.
# SPDX-License-Identifier: Apache-2.0
"""As windows.py has it for inference. A place is all from the image to the image again, with the layers between, and from the table of a
relative position's bias on: the gradients of all these are in the race, and so are the copies of PyTorch's backward pass. Scores are those of
scaled_dot_product_attention or of a softmax between two products.

PyTorch's side makes q, k, v and the result's gradient itself, where and as a model does: cuDNN's plans, which PyTorch 2.11 keeps without the
strides of that gradient, are those of the model (graph/subgraph.py).
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

import torch
from torch import Tensor, fx

from ..._ops import attention as attention_ops, window_attention_training as training_ops
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from . import subgraph
from .benchmark import Times
from .distinct import once
from .match import FusionPattern, Match, NoMatch, as_compiled, foreign, is_autocast, outside, selected, value_of, wants_gradient
from .mutations import is_changed_between, is_written_after, storages_of
from .tree import Steps, Tree, arguments_of, is_op
from .attention import VIEWS, Of, Operand, attention, unfused_attention
from .windows import WindowsCall, found_in_windows

_OP = torch.ops.vitune.window_attention_train.default
#: All elements of rows of a table.
_OF_TABLE = Steps(Tree(f"{' '.join(VIEWS)} permute transpose unsqueeze"), Tree("getitem", input="table", index=Steps(
    Tree(" ".join(VIEWS)), "index")).named("rows"), into="moves")


class Parameter(NamedTuple):
    """The tensor that has the gradient of the scores' bias."""

    given: Operand  # [1 or windows, 1 or heads, n, n], or a table [rows, 1 or heads]
    index: Optional[Operand] = None  # of a table: int32 [n, n]
    #: Nodes that a race begins at: the table and its index as the model has them, or what the bias is made of.
    sources: tuple[fx.Node, ...] = ()


@dataclasses.dataclass
class TrainingCall(WindowsCall):
    """Raises Unsupported where it cannot be in place."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parameter = self._parameter()
        if self.bias is not None:
            # Autocast casts what that call is given; a bias that is added to scores of fp32 has their type.
            is_cast = is_op(self.attend.node, "attention") and is_autocast(self.attend.node, self.attend.q.value.device.type)
            bias = self.bias.called("detach")
            self.bias = (self._of_type(bias) if is_cast else bias).called("contiguous")
        why_not = self._why_not()
        if why_not:
            raise Unsupported(why_not)

    def _why_not(self) -> str:
        values = [*map(value_of, self.inputs)]
        kind = next(filter(None, map(foreign, (value for value in values if isinstance(value, Tensor)))), "")
        if kind:
            return kind
        if self.found.dropout_p != 0:
            return f"dropout of {self.found.dropout_p:g}: the kernels that train have none"
        if attention_ops.math_alone():
            return attention_ops.MATH_ALONE
        kept = [source for operand in (self.bias, self.padding, self.parameter and self.parameter.given) if operand is not None
                for source in operand.sources]
        if is_written_after(self.back.last, set().union(*map(storages_of, kept))):
            return "what its backward pass keeps is written to later"
        return outside(self.attend.q.value) if self.attend.q.value.device.type != "cpu" else ""

    # --- the bias and what has its gradient

    def _parameter(self) -> Optional[Parameter]:
        mask = self.attend.mask
        terms = () if mask is None else mask.terms or (mask,)
        wanting = [term for term in terms if wants_gradient(term.value)]
        if not wanting:
            return None
        if len(wanting) == 1:
            one, shape = wanting[0], tuple(self.bias.value.shape)
            while one.value.dim() < 4:
                one = one.called("unsqueeze", 0)
            if tuple(one.value.shape) in ((1, *shape[1:]), shape):
                table = _table_of(wanting[0].node, self.attend.node) if one.value.shape[0] == 1 else None
                return table or Parameter(one, None, one.sources)
        return Parameter(self.bias, None, self.bias.sources)

    # --- the call

    def _call(self, graph: fx.Graph, qkv: fx.Node, make: Callable[[Optional[Operand]], Optional[fx.Node]]) -> fx.Node:
        windows, (given, index, _) = self.partition.windows, self.parameter or Parameter(None)
        return graph.call_function(_OP, (
            qkv, list(windows.window), list(windows.shift), make(self.bias), make(given), make(index), make(self.padding), make(self.filler),
            self.projection.scale, self.projection.interleaved, windows.grid, windows.pads_first))

    @functools.cached_property
    def filler(self) -> Optional[Operand]:
        """The padding, in the type of the products and without a gradient."""
        return None if self.padding is None else self._of_type(self.padding.called("detach"))

    def texts(self) -> list[str]:
        """The problems of both passes."""
        qkv, bias, padding = self._tensors()
        given, index = (None, None) if self.parameter is None else self.parameter[:2]
        wanted = training_ops.Wanted.of(*(None if each is None else as_compiled(each.value) for each in (given, index)))
        windows, projection = self.partition.windows, self.projection
        call = training_ops.Call.of(windows.window, windows.shift, projection.scale, projection.interleaved, windows.grid, windows.pads_first)
        return training_ops.texts(qkv, bias, padding, call, wanted)

    def match(self) -> Match:
        device, is_on_gpu = self.attend.q.value.device, attention_ops.is_on_gpu(self.attend.q.value)
        texts = functools.cache(self.texts)

        def ask(which: int) -> Selection:
            text = texts()[which]
            return once(lambda: selected(text, device.index), TrainingCall, text, device)
        asked = [functools.partial(ask, which) for which in range(2)] if is_on_gpu else []
        return Match(self.call, [self.back.last], self.back.last, self.build, asked[0] if asked else None, self.covered, self.race,
                     surroundings=self._surroundings(), ask_further=asked[1:], unserved="" if is_on_gpu else f"device {device.type}")

    # --- the race

    @functools.cached_property
    def inputs(self) -> list[fx.Node]:
        """Tensors that the place begins at."""
        layers = [each for layer in (self.projection.layer, *self.back.layers) for each in list(arguments_of(layer).values())[1:]]
        sources = self.bias.sources if self.bias is not None else ()
        if self.parameter is not None and self.parameter.index is not None:  # the bias is made of these
            sources = (*self.parameter.sources, *(node for node in sources if not wants_gradient(value_of(node))))
        found = dict.fromkeys([self.x, *layers, *sources])
        return [node for node in found if isinstance(node, fx.Node) and isinstance(value_of(node), Tensor)]

    def _apart(self, graph: fx.Graph, of: Of, given: Sequence[fx.Node] = ()) -> Sequence[fx.Node]:
        """As build(), in a graph that has its inputs alone."""
        made: dict[fx.Node, fx.Node] = {}

        def found(node: fx.Node) -> fx.Node:
            try:
                return of(node)
            except KeyError:
                made[node] = made[node] if node in made else graph.node_copy(node, found)
                return made[node]
        with subgraph.autocast(graph, self.whole):
            return self.build(graph, found)

    @functools.cached_property
    def whole(self) -> subgraph.Subgraph:
        """All that is made of its inputs on the way to its result; made before a race, within which autocast is off."""
        begins, known, todo = set(self.inputs), set(), [self.back.last]
        while todo:
            node = todo.pop()
            if node not in known and node not in begins:
                known.add(node)
                todo += node.all_input_nodes
        nodes: list[fx.Node] = []
        for node in sorted(known):
            if not begins.union(nodes).isdisjoint(node.all_input_nodes):
                nodes.append(node)
        q = self.attend.q.value
        return subgraph.Subgraph(nodes, [self.back.last], [], [], q.dtype if is_autocast(self.attend.node, q.device.type) else None)

    def race(self) -> Optional[Times]:
        region = self.whole
        index = {} if self.parameter is None or self.parameter.index is None else {
            self.parameter.sources[1]: value_of(self.parameter.sources[0]).shape[0]}
        return subgraph.raced_in_training(region, list(dict.fromkeys([*self.inputs, *region.outside()])), self._apart, rows=index)

    def _surroundings(self) -> str:
        kinds = [(value.dtype, tuple(value.shape), value.stride(), wants_gradient(value)) for value in map(value_of, self.inputs)]
        return f"gradients of {kinds}, {len(self.back.layers)} layers behind it"


def _table_of(bias: Optional[fx.Node], last: fx.Node) -> Optional[Parameter]:
    """The table that a bias [..., heads, n, n] is table[index] of, the heads moved to the front, where nothing writes to it on the way."""
    found = _OF_TABLE.find(bias)
    if found is None:
        return None
    at, table, index, moves = found["rows"], found["table"], found["index"], [step.root for step in reversed(found["moves"])]
    values = value_of(table), value_of(index)
    if not all(isinstance(value, Tensor) for value in values) or values[0].dim() != 2 or values[1].dtype not in (torch.int32, torch.int64):
        return None
    shape, steps = tuple(value_of(bias).shape[-3:]), _steps_of(moves, value_of(at))
    heads, n, _ = shape
    wanted = (1, n * heads, heads)
    if steps is None or values[1].numel() != n * n or any(step != right and size > 1 for step, right, size in zip(steps, wanted, shape)):
        return None
    if is_changed_between(at, last, [at, *moves]):
        return None
    rows = Operand.of(index).called("reshape", (n, n)).called("remainder", values[0].shape[0])  # -1 is the last one
    return Parameter(Operand.of(table), rows.called("to", torch.int32), (table, index))


def _steps_of(moves: Sequence[fx.Node], gathered: Tensor) -> Optional[tuple[int, ...]]:
    """Which element of a gathered tensor each of the last three dimensions of a view of it steps to; None: nobody can tell."""
    if not all(isinstance(size, int) for size in gathered.shape):
        return None
    at = whole = torch.empty(gathered.shape, device="meta")
    try:
        for move in moves:
            name, (_, *words) = move.target, arguments_of(move).values()
            if is_op(move, "contiguous"):
                continue
            name = name if isinstance(name, str) else name.__name__
            at = getattr(at, "view" if is_op(move, "reshape", "view") else name)(*words)
    except (RuntimeError, TypeError):
        return None
    is_view = at.untyped_storage()._cdata == whole.untyped_storage()._cdata
    return at.stride()[-3:] if is_view else None


class WindowsTrain(FusionPattern):
    name = "window_attention_train"
    wins = True
    only_if_timed = True
    races_defaults = True
    trains = True
    spans = True
    operations = ("attention", "matmul")

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        if not wants_gradient(value_of(node)):
            return None
        found = attention.find(node, True) or unfused_attention.find(node, True)
        call = found_in_windows(found, TrainingCall, " in training")
        return call.match() if isinstance(call, TrainingCall) else call


windows_train = WindowsTrain()
