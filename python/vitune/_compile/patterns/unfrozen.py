# python/vitune/_compile/patterns/unfrozen.py -- Parameters that are frozen when a model is compiled and train later get their gradients.
# SPDX-License-Identifier: Apache-2.0
"""Dynamo does not look at a module's parameters while nobody writes to its dict of these, and requires_grad_() does not write there. Under
torch.compile a parameter that is unfrozen therefore stays without a gradient, and nothing says so."""
from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._dynamo import config
from torch._dynamo.callback import callback_handler
from torch._guards import CompileContext

from .match import is_parameter, value_of

_SKIPS = "skip_tensor_guards_with_matching_dict_tags"


def _restore(*_: Any) -> None:
    """When Dynamo has built the guards; all that are built until then are of the same model."""
    setattr(config, _SKIPS, True)
    callback_handler.end_callbacks = [each for each in callback_handler.end_callbacks if each is not _restore]  # it is being walked


def guard(graph: fx.Graph) -> None:
    """While Dynamo compiles a graph: a parameter that wants no gradient is looked at in every call, where one could be had. That costs 17 us a
    call for 150 parameters, so that no other graph pays for it. Elsewhere nothing is done: nobody would say when it has ended."""
    if CompileContext.current_compile_id() is None:
        return
    frozen = (node for node in graph.find_nodes(op="placeholder") if is_parameter(node) and not value_of(node).requires_grad)
    if torch.is_grad_enabled() and getattr(config, _SKIPS, False) and next(frozen, None) is not None:
        setattr(config, _SKIPS, False)
        callback_handler.register_end_callback(_restore)
