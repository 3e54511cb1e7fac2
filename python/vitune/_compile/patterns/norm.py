# python/vitune/_compile/patterns/norm.py -- The patterns of norms over the last dimension in Dynamo's graph.
# SPDX-License-Identifier: Apache-2.0
"""layer_norm and rms_norm, with the sum that is normalised where it stands right before.

Inductor makes one kernel of such a norm, or fuses it with what is around it: these are put in where they are asked for.
"""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple, Optional

import torch
from torch import fx

from ..._ops import norm as norm_ops
from ..._runtime.context import Selection
from ..._runtime.errors import Unsupported
from .distinct import once_of_kind
from .match import FusionPattern, Match, NoMatch, as_compiled, constant, outside, selected, value_of
from .tree import Found, Tree, arguments_of, operation_of

NORMS = ("layer_norm", "rms_norm")
NORM = Tree(" ".join(NORMS), input="x")
_NORM_OF_SUM = Tree(" ".join(NORMS), input=Tree("add", input="x", other="residual", alpha=1))


class _Norm(NamedTuple):
    """A call of the operator."""

    node: fx.Node
    total: Optional[fx.Node]  # the sum that it is of
    x: fx.Node
    residual: Optional[fx.Node]
    weight: Optional[fx.Node]
    bias: Optional[fx.Node]
    eps: float
    rms: bool

    @property
    def return_sum(self) -> bool:
        return self.total is not None and len(self.total.users) > 1

    @once_of_kind
    def ask(self) -> Selection:
        tensors = (as_compiled(node) for node in (self.x, self.residual, self.weight, self.bias))
        text = norm_ops.text_of(*tensors, self.eps, self.rms, self.return_sum, False, self._out_dtype())
        return selected(text, value_of(self.x).device.index)

    def _out_dtype(self) -> Optional[torch.dtype]:
        dtype = value_of(self.node).dtype  # autocast's, where it is on
        return None if dtype == value_of(self.x).dtype else dtype

    def build(self, graph: fx.Graph) -> Sequence[fx.Node]:
        results = graph.call_function(torch.ops.vitune.norm.default, (
            self.x, self.residual, self.weight, self.bias, self.eps, self.rms, self.return_sum, False, self._out_dtype()))
        return [graph.call_function(operator.getitem, (results, i)) for i in range(1 + self.return_sum)]


class Norm(FusionPattern):
    name = "norm"
    wins = False
    operations = NORMS

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        call = operation_of(node)
        try:
            norm = _norm(node)
        except Unsupported as reason:
            return NoMatch(call, str(reason))
        why_not = outside(value_of(norm.x))
        if why_not:
            return NoMatch(call, why_not)
        if norm.total is None:
            return Match(call, [node], node, norm.build, norm.ask)
        return Match(f"{call} of a sum", [node, norm.total][:1 + norm.return_sum], node, norm.build, norm.ask, [norm.total])


def _norm(node: fx.Node) -> _Norm:
    if not isinstance(shape := arguments_of(node)["normalized_shape"], (tuple, list)) or len(shape) != 1:
        raise Unsupported(f"a norm over {shape}: patterns are of one dimension")
    of_sum = _NORM_OF_SUM.find(node)
    found = of_sum if of_sum is not None and _is_of_two_alike(of_sum) else NORM.find(node)
    return _Norm(node, found.nodes[0] if found is of_sum else None, found["x"], found.get("residual"), found["weight"],
                 found.get("bias"), epsilon(found), operation_of(node) == "rms_norm")


def epsilon(norm: Found) -> float:
    """Raises Unsupported where it is only known when the model runs."""
    return norm_ops.RMS_EPS if norm["eps"] is None else constant(norm["eps"])


def _is_of_two_alike(found: Found) -> bool:
    """Whether the sum is of two tensors alike, and nothing comes between it and the norm that could change it."""
    total, norm = found.nodes
    values = [value_of(node) for node in (found["x"], found["residual"], total)]
    return total is norm.prev and all(isinstance(value, torch.Tensor) for value in values) and all(
        (value.shape, value.dtype) == (values[2].shape, values[2].dtype) for value in values[:2])


norm = Norm()
