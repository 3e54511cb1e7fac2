# python/vitune/_compile/by_name.py -- backend="vitune": for programs whose own switch takes the name of a backend.
# SPDX-License-Identifier: Apache-2.0
"""Where vitune is installed Dynamo finds it without an import, by the package's entry point; all else is loaded when a graph comes."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

NAME = "vitune"


def by_name(module: Any, inputs: Sequence[Any], *, mode: Optional[str] = None, options: Optional[dict[str, Any]] = None) -> Any:
    """What torch.compile(backend="vitune") calls for each graph. mode, options: as of torch.compile; an option "training" is that of
    vitune.compile(). Of backends that have a name Dynamo lets go of its weak references to parameters, for which torch.utils.swap_tensors
    refuses them."""
    from .backend import Backend

    inductors = dict(options or {})
    training = inductors.pop("training", None)
    return Backend(mode, None, inductors or None, None, True, training)(module, inputs)


def register() -> None:
    """The name, unless Dynamo found it by the entry point."""
    from torch._dynamo.backends import registry

    if NAME not in registry._COMPILER_FNS:
        registry.register_backend(by_name, name=NAME)
