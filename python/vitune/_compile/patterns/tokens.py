# python/vitune/_compile/patterns/tokens.py -- Lays out tokens that a convolution made, before the patterns look at what is made of them.
# SPDX-License-Identifier: Apache-2.0
"""flatten(2) and transpose(1, 2) of an image's channels are tokens whose channels lie apart, and so lies each sum with them, through
the whole model where no class token is put before them (SigLIP). Inductor chooses other strides as it likes; our kernels read rows,
and would copy them at every call. So they are copied once, which Inductor does together with what follows."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .layouts import Layouts
from .match import value_of
from .mutations import storages_of, storages_written_by
from .tree import Tree, arguments_of, is_op


def lay_out(module: fx.GraphModule) -> list[fx.Node]:
    """Puts copies behind such tokens, after which all values are those of the new strides; what it put in."""
    made = []
    nodes = list(module.graph.nodes)
    written = set().union(*map(storages_written_by, nodes))
    for node in nodes:
        if _lie_apart(node) and written.isdisjoint(storages_of(node)):  # what is written may be seen through other views of it
            with module.graph.inserting_after(node):
                copy = module.graph.call_method("contiguous", (node,))
            copy.meta = {name: value for name, value in node.meta.items() if name != "example_value"}
            node.replace_all_uses_with(copy, lambda user, copy=copy: user is not copy)
            made.append(copy)
    if made:
        try:
            made += Layouts(module).check(set(made))
        except Exception:  # whatever PyTorch raises: a view that needs the strides as they were
            take_out(module, made)
            return []
    return made


def take_out(module: fx.GraphModule, made: Iterable[fx.Node]) -> None:
    """Of what lay_out() put in."""
    for copy in made:
        copy.replace_all_uses_with(copy.args[0])
        module.graph.erase_node(copy)


_TURNED = Tree("transpose", dim0=1, dim1=2), Tree("transpose", dim0=2, dim1=1), Tree("permute", dims=(0, 2, 1))


def is_turned(node: Any) -> bool:
    """Whether it is [images, channels, positions] as [images, positions, channels]."""
    return any(tree.find(node) is not None for tree in _TURNED)


def _lie_apart(node: fx.Node) -> bool:
    value = value_of(node)
    if not is_turned(node) or not is_op(arguments_of(node)["input"], "flatten") or not isinstance(value, Tensor) or value.dim() != 3:
        return False
    lies_close = statically_known_true(value.stride(-1) == 1)
    return not lies_close and not all(is_op(user, "contiguous") for user in node.users)
