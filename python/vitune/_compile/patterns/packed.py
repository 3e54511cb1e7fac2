# python/vitune/_compile/patterns/packed.py -- The pattern of packed attention in Dynamo's graph: PyTorch's varlen_attn, flash-attn's operator.
# SPDX-License-Identifier: Apache-2.0
"""Both are one call of an operator of somebody's, whose offsets stay tensors. What is split by lengths first (transformers' towers by "sdpa") is
no pattern: a graph has its lengths as numbers, for which it was made, and offsets can only be made of them anew for each."""
from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..._ops import packed_attention as packed_ops, refusals
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from .benchmark import Run, Times, measured, sample
from .distinct import once
from .match import FusionPattern, Match, NoMatch, as_compiled, constant, hint, selected, value_of

_OURS = "vitune.packed_attention"
#: Operator -> (what a model calls, the names of its arguments: offsets and bounds of q and k, the scale, whether it is causal).
_CALLS = {
    "torch_attn._varlen_attn": ("varlen_attn", ("query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k", "scale", "is_causal")),
    "flash_attn._flash_attn_varlen_forward": ("flash_attn_varlen_func", ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q",
                                                                         "max_seqlen_k", "softmax_scale", "causal")),
}
#: Arguments that say nothing at these values. Of others there is no kernel.
_QUIET = {"dropout_p": 0.0, "softcap": 0.0, "alibi_slopes": None, "return_softmax": False, "block_table": None, "leftpad_k": None,
          "seqused_k": None, "zero_tensors": False}


def _name(node: fx.Node) -> str:
    return str(node.target).removesuffix(".default") if node.op == "call_function" else ""


def _arguments(node: fx.Node) -> dict[str, Any]:
    """All arguments by name, as the operator's schema has them."""
    schema = getattr(node.target, "default", node.target)._schema
    names = [argument.name for argument in schema.arguments]
    given = {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()}
    return {**given, **dict(zip(names, node.args)), **node.kwargs}


class _Call(NamedTuple):
    node: fx.Node  # theirs, which gives several results
    q: fx.Node
    k: fx.Node
    v: fx.Node
    offsets_q: fx.Node
    offsets_k: Optional[fx.Node]  # None: those of q
    longest_q: Any  # a number, or the node of one
    longest_k: Any
    causal: bool
    scale: Optional[float]

    @classmethod
    def of(cls, node: fx.Node, names: Sequence[str]) -> "_Call":
        """Raises Unsupported where its arguments ask for more than packed attention."""
        found = _arguments(node)
        q, k, v, offsets_q, offsets_k, longest_q, longest_k, scale, causal = (found.pop(name) for name in names)
        causal = _is_causal_window(found) or bool(constant(causal))
        for name, value in found.items():
            if name not in _QUIET or value != _QUIET[name]:
                raise Unsupported(f"{name} is {value}: packed attention has none")
        if offsets_k is offsets_q and _as_many_rows(q, k):
            offsets_k = None
        return cls(node, q, k, v, offsets_q, offsets_k, longest_q, longest_k, causal, constant(scale))

    @property
    def packed(self) -> packed_ops.Packed:
        return packed_ops.Packed(hint(value_of(self.longest_q)), hint(value_of(self.longest_k)), self.causal, self.scale, False)

    def why_not(self) -> Optional[str]:
        return refusals.reason(*map(value_of, self[1:4]), None, 0.0)

    def ask(self) -> Selection:
        nodes = self[1:6]

        def make() -> Selection:
            tensors = [None if node is None else as_compiled(node) for node in nodes]
            return selected(packed_ops.text_of(*tensors, self.packed), value_of(self.q).device.index)
        return once(make, _Call, nodes, self.packed)

    def race(self) -> Optional[Times]:
        device = value_of(self.q).device
        return measured(lambda: self.calls(device), device)

    def calls(self, device: torch.device) -> tuple[Run, Run]:
        """Ours and theirs, of tensors made up, in sequences of equal lengths: the graph does not know them."""
        q, k, v = (sample(as_compiled(node), device) for node in self[1:4])
        offsets_q = _even(value_of(self.offsets_q), q, device)
        offsets_k = None if self.offsets_k is None else _even(value_of(self.offsets_k), k, device)
        bounds = max(self.packed.longest_q, _longest(offsets_q, q)), max(self.packed.longest_k, _longest(offsets_q, k))
        _, names = _CALLS[_name(self.node)]
        made = dict(zip(names, (q, k, v, offsets_q, offsets_q if offsets_k is None else offsets_k, *bounds)))
        theirs = functools.partial(self.node.target, **{**_arguments(self.node), **made})
        ours = functools.partial(torch.ops.vitune.packed_attention.default, q, k, v, offsets_q, offsets_k, *bounds, self.causal, self.scale,
                                 False)
        return ours, theirs

    def build(self, graph: fx.Graph) -> list[fx.Node]:
        made = graph.call_function(torch.ops.vitune.packed_attention.default, (*self[1:], False))
        return [graph.call_function(operator.getitem, (made, 0))]


def _is_causal_window(found: dict[str, Any]) -> bool:
    """Takes the window out: all keys, or none behind the query. Raises Unsupported for others."""
    window = found.pop("window_size", None) or (found.pop("window_size_left", -1), found.pop("window_size_right", -1))
    window = tuple(window)
    if window not in ((-1, -1), (-1, 0)):
        raise Unsupported(f"window_size is {window}: packed attention has no sliding window")
    return window == (-1, 0)


def _as_many_rows(q: fx.Node, k: fx.Node) -> bool:
    """Whether q and k have as many rows, whatever the graph is called with."""
    rows = [value_of(node).shape[0] for node in (q, k)]
    return statically_known_true(rows[0] == rows[1])


def _even(offsets: Tensor, rows: Tensor, device: torch.device) -> Tensor:
    sequences = hint(offsets.shape[0]) - 1
    return torch.tensor([rows.shape[0] * i // sequences for i in range(sequences + 1)], dtype=torch.int32, device=device)


def _longest(offsets: Tensor, rows: Tensor) -> int:
    return -(-rows.shape[0] // (offsets.shape[0] - 1))


class Packed(FusionPattern):
    name = "packed_attention"
    wins = True  # docs/results.md

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        name = _name(node)
        if name == _OURS:
            return NoMatch("vitune.attention_varlen", "it is vitune's already")
        if name not in _CALLS:
            return None
        what, names = _CALLS[name]
        try:
            call = _Call.of(node, names)
            out = _only_output(node)
        except Unsupported as reason:
            return NoMatch(what, str(reason))
        why_not = call.why_not()
        if why_not is not None:
            return NoMatch(what, why_not)
        return Match(what, [out], out, call.build, call.ask, [node], call.race)


def _only_output(node: fx.Node) -> fx.Node:
    """The use of the call's first result; of the others there must be none."""
    used = [user for user in node.users if user.users or user.op == "output"]
    if len(used) != 1 or used[0].target is not operator.getitem or used[0].args[1] != 0:
        raise Unsupported("its log-sum-exp is used too")
    return used[0]


packed = Packed()
