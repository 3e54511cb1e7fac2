# python/vitune/_compile/checkpoints.py -- The bodies of activation checkpoints, which are graphs of their own within Dynamo's.
# SPDX-License-Identifier: Apache-2.0
"""Bodies with a policy of their own, which names operators that are kept (selective checkpointing), are left alone: ours are not among
these."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from .patterns.match import copied

_CHECKPOINTS = frozenset((torch.ops.higher_order.tag_activation_checkpoint,))


def _names(module: fx.GraphModule) -> list[str]:
    """Of the attributes that hold them, each once."""
    calls = (node for node in module.graph.nodes if node.op == "call_function" and node.target in _CHECKPOINTS)
    taken = (node.args[0] for node in calls if node.args and isinstance(node.args[0], fx.Node) and node.args[0].op == "get_attr")
    found = dict.fromkeys(node.target for node in taken)
    return [name for name in found if _may_change(getattr(module, name, None))]


def _may_change(body: Any) -> bool:
    return isinstance(body, fx.GraphModule) and "_checkpoint_context_fn" not in body.meta


def bodies(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """All of them, those within others too."""
    for name in _names(module):
        body = getattr(module, name)
        yield body
        yield from bodies(body)


def copy_bodies(module: fx.GraphModule) -> None:
    """Puts copies in their places: Dynamo goes on with its own."""
    for name in _names(module):
        body = getattr(module, name)
        copy_of = fx.GraphModule(body, copied(body.graph), type(body).__name__)
        copy_of.meta = dict(body.meta)
        setattr(module, name, copy_of)
        copy_bodies(copy_of)
