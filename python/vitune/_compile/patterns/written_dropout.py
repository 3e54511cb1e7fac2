# python/vitune/_compile/patterns/written_dropout.py -- Attention with dropout that a model writes out: two products, softmax and dropout between them.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import NamedTuple, Optional

from torch import fx

from ..graph.match import constant, value_of
from ..graph.mutations import is_changed_between
from ..graph.tree import arguments_of, is_cast, is_op, is_quiet, only_user
from .attention import _factors, _scores_before


class WrittenDropout(NamedTuple):
    node: fx.Node  # the product with v
    q: fx.Node
    k: fx.Node
    v: fx.Node
    scale: float
    dropout_p: float
    steps: tuple[fx.Node, ...]  # before that node, from the keys' transpose on
    why_not: str = ""

    @staticmethod
    def of(softmax: fx.Node) -> "Optional[WrittenDropout]":
        """None: there is no such dropout between two products."""
        if arguments_of(softmax)["dim"] not in (-1, value_of(softmax).dim() - 1):
            return None
        dropout_p, steps, at = 0.0, [softmax], only_user(softmax)
        while at is not None and (is_op(at, "dropout") or is_cast(at) or is_quiet(at)):
            if is_op(at, "dropout") and not is_quiet(at):
                if dropout_p or arguments_of(at)["inplace"]:
                    return None
                dropout_p = float(constant(arguments_of(at)["p"]))
            steps.append(at)
            at = only_user(at)
        if not (dropout_p and is_op(at, "matmul") and _factors(at)[0] is steps[-1] and isinstance(_factors(at)[1], fx.Node)):
            return None
        scores = _scores_before(softmax)
        if scores is None:
            return None
        keys = _factors(scores.product)[1]
        while is_op(keys, "contiguous"):  # a copy for the product's sake, among the scores' steps
            keys = arguments_of(keys)["input"]
        is_known = scores.q.node is not None and _is_transpose(keys) and only_user(keys) is not None
        k = arguments_of(keys)["input"] if is_known else keys
        every = (*([keys] if is_known else []), *reversed(scores.steps), *steps)
        found = WrittenDropout(at, scores.q.node or scores.product, k, _factors(at)[1], scores.scale, dropout_p, every)
        return found._replace(why_not=_why_not(found, scores.mask is not None, is_known, scores.are_of_type(value_of(at).dtype)))


def _is_transpose(keys: object) -> bool:
    """Of the last two dimensions."""
    if not is_op(keys, "transpose"):
        return False
    found, rank = arguments_of(keys), value_of(keys).dim()
    return {found["dim0"] % rank, found["dim1"] % rank} == {rank - 2, rank - 1}


def _why_not(found: WrittenDropout, has_mask: bool, is_known: bool, is_of_type: bool) -> str:
    if has_mask:
        return "dropout beside a mask: the kernels have one or the other"
    if not is_known:
        return "its queries or keys are not as the graph has them"
    if any(len(step.users) > 1 for step in found.steps):
        return "its weights or scores are used elsewhere"
    if not is_of_type:
        return "its scores are made of tensors of a wider type than its result's"
    if is_changed_between(found.steps[0], found.node, [*found.steps, found.node]):
        return "something between the products changes a tensor that they take"
    return ""
