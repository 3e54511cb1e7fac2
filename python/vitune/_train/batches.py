# python/vitune/_train/batches.py -- What a step is called with: its tensors, and what tells one graph's batches from another's.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from .._runtime.errors import InvalidArgument

CONSTANTS = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.Size)
_TENSORS = (Tensor, torch.nn.Parameter)


class Batch:
    """Arguments in any nest of tuples, lists and dicts."""

    def __init__(self, args: Sequence[Any], keywords: dict[str, Any]) -> None:
        """Raises InvalidArgument for what a step cannot be called with."""
        self._spec: Any = None
        if not keywords and all(type(each) is Tensor for each in args):  # what most calls are: nothing is to be flattened
            self._leaves = list(args)
        else:
            self._leaves, self._spec = tree_flatten((args, keywords))
        self.tensors = [leaf for leaf in self._leaves if isinstance(leaf, Tensor)]
        self.key: tuple[Hashable, ...] = (self._spec, *map(_key_of, self._leaves))

    def on(self, device: torch.device) -> tuple[Any, Any]:
        """Arguments and keywords, copied there where they are elsewhere."""
        return self.made_of([tensor.to(device, non_blocking=True) for tensor in self.tensors])

    def made_of(self, tensors: Sequence[Tensor]) -> tuple[Any, Any]:
        """The same arguments with these tensors in the place of theirs."""
        if self._spec is None:
            return tuple(tensors), {}
        ours = iter(tensors)
        return tree_unflatten([next(ours) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves], self._spec)

    def __str__(self) -> str:
        """Shapes and types, and the constants among them."""
        return ", ".join(f"{list(leaf.shape)} {str(leaf.dtype).rpartition('.')[2]}" if isinstance(leaf, Tensor) else repr(leaf)
                         for leaf in self._leaves)


def _key_of(leaf: Any) -> Hashable:
    if type(leaf) in _TENSORS:
        if leaf.layout is not torch.strided or leaf.is_nested:
            raise InvalidArgument(f"a step was called with a {'nested' if leaf.is_nested else 'sparse'} tensor, whose memory differs from batch to"
                                  " batch: hand in a dense one (tensor.to_dense(), tensor.to_padded_tensor(0.0))")
        if leaf.requires_grad:
            raise InvalidArgument("a step was called with a tensor that requires a gradient: only parameters are trained; hand in tensor.detach()")
        return leaf.shape, leaf.dtype, leaf.stride()
    if not isinstance(leaf, CONSTANTS):
        raise InvalidArgument(f"a step was called with an object of class {type(leaf).__name__}: it takes tensors, numbers, strings and None,"
                              " in tuples, lists and dicts")
    return type(leaf), leaf


def copy_into(own: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """A new batch over the one that a graph reads. No copy waits for the GPU: what is in pageable memory is copied to pinned memory first."""
    for mine, theirs in zip(own, given):
        if mine.is_cuda and not theirs.is_cuda and not theirs.is_pinned():
            theirs = theirs.pin_memory()
        mine.copy_(theirs, non_blocking=True)
