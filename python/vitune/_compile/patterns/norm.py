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

from ..._dropin import layer_norm as dropin_layer_norm
from ..._ops import attention as attention_ops, norm as norm_ops
from ..._runtime.context import Problem, Selection
from ..._runtime.errors import Unsupported
from ..graph.match import FusionPattern, Match, NoMatch, arguments, as_compiled, constant, is_call, outside, value_of

LAYER_NORMS = frozenset((dropin_layer_norm.original, torch.layer_norm))
RMS_NORMS = frozenset((torch.rms_norm, torch.nn.functional.rms_norm) if hasattr(torch, "rms_norm") else ())
_SUMS = frozenset((operator.add, torch.add))


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

    def ask(self) -> Selection:
        x, residual, weight, bias = (as_compiled(node) for node in (self.x, self.residual, self.weight, self.bias))
        norm_ops.check(x, residual, weight, bias)
        rows, added = norm_ops.rows(x), None if residual is None else norm_ops.rows(residual)
        text = norm_ops.problem_text(rows, added, weight, bias, self.eps, self.rms, self.return_sum, False, self._out_dtype(), 16)
        return attention_ops.context_of(value_of(self.x).device.index).query(Problem(text))

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

    def place(self, node: fx.Node) -> Match | NoMatch | None:
        rms = is_call(node, RMS_NORMS)
        if not rms and not is_call(node, LAYER_NORMS):
            return None
        call = "rms_norm" if rms else "layer_norm"
        try:
            norm = _norm(node, rms)
        except Unsupported as reason:
            return NoMatch(call, str(reason))
        why_not = outside(value_of(norm.x))
        if why_not:
            return NoMatch(call, why_not)
        if norm.total is None:
            return Match(call, [node], node, norm.build, norm.ask)
        return Match(f"{call} of a sum", [node, norm.total][:1 + norm.return_sum], node, norm.build, norm.ask, [norm.total])


def _norm(node: fx.Node, rms: bool) -> _Norm:
    if rms:
        given = arguments(node, input=None, normalized_shape=None, weight=None, eps=None)
        given = [*given[:3], None, given[3]]
    else:
        given = arguments(node, input=None, normalized_shape=None, weight=None, bias=None, eps=1e-5, cudnn_enable=True)
    x, shape, weight, bias, eps = given[:5]
    if not isinstance(shape, (tuple, list)) or len(shape) != 1:
        raise Unsupported(f"a norm over {shape}: patterns are of one dimension")
    total = _sum_before(node, x)
    return _Norm(node, total, *(total.args if total is not None else (x, None)), weight, bias,
                 norm_ops.RMS_EPS if eps is None else constant(eps), rms)


def _sum_before(node: fx.Node, x: fx.Node) -> Optional[fx.Node]:
    """The sum of two tensors alike that is normalised, if nothing comes between that could change it."""
    if x is not node.prev or not is_call(x, _SUMS) or len(x.args) != 2 or x.kwargs:
        return None
    a, b, total = (value_of(tensor) for tensor in (*x.args, x))
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return None
    return x if a.shape == b.shape == total.shape and a.dtype == b.dtype == total.dtype else None


norm = Norm()
