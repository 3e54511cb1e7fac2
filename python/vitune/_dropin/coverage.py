# python/vitune/_dropin/coverage.py -- Which attention of a model is served: each site that one pass meets, and its kernel or why none.
# SPDX-License-Identifier: Apache-2.0
"""A site is a call of scaled_dot_product_attention, or a softmax between two matrix products, which vitune is not asked about."""
from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from .._ops import attention as attention_ops
from .._runtime.context import Selection
from .._runtime.errors import VituneError, reason_of
from . import install as install_module, layers, sdpa as sdpa_dropin


@dataclasses.dataclass(frozen=True)
class Site:
    """Attention at one place of a model. ``print(*coverage(model, sample), sep="\\n")`` lists them."""

    module: str  #: where in the model: "blocks.0.attn"
    call: str  #: "scaled_dot_product_attention" or "softmax"
    shape: tuple[int, ...]  #: of the query, or of what the softmax is taken of
    selection: Optional[Selection]  #: the kernel that serves it, as vitune.explain() tells
    reason: str  #: why none does; empty if one does

    def __str__(self) -> str:
        answer = f"served, {self.selection}" if self.selection is not None else f"not served: {self.reason}"
        return f"{self.module or '(the model)'}: {self.call} of {list(self.shape)}: {answer}"


class _Origin(NamedTuple):
    """What a tensor was computed from by steps that keep its number of elements."""

    product: bool = False
    softmaxes: tuple[int, ...] = ()  # places in the list of sites


_PRODUCTS = {"mm": 0, "bmm": 0, "matmul": 0, "linear": 0, "addmm": 1, "baddbmm": 1}  # where the two factors begin
_SOFTMAXES = ("_softmax", "_safe_softmax", "softmax")


class Watch(TorchDispatchMode):
    """Follows the tensors of one pass."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._sites: list[Site] = []
        self._between: set[int] = set()  # softmaxes that a product followed, and calls
        self._origins: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._constants: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._inside: list[tuple[str, Any]] = [("", model)]
        self._paused = False
        if isinstance(model, torch.nn.Module):
            for tensor in (*model.parameters(), *model.buffers()):
                self._constants[tensor] = True

    def sites(self) -> list[Site]:
        return [site for i, site in enumerate(self._sites) if i in self._between]

    def enter_module(self, path: str, module: Any) -> None:
        self._inside.append((path, module))

    def leave_module(self) -> None:
        self._inside.pop()

    def call(self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
             is_causal: bool = False, *, scale: Optional[float] = None, enable_gqa: bool = False) -> Tensor:
        """Stands in for scaled_dot_product_attention; PyTorch answers."""
        selection, reason = None, attention_ops.odd_kind(attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if reason is None:
            q, k, v, mask = sdpa_dropin.cast(query, key, value, attn_mask)
            reason = sdpa_dropin.reason(q, k, v, mask, dropout_p)
        if reason is None:
            try:
                selection = attention_ops.explain(q, k, v, mask, is_causal, scale, enable_gqa, False)
            except VituneError as error:
                reason = reason_of(error)
        self._between.add(len(self._sites))
        self._sites.append(Site(self._inside[-1][0], "scaled_dot_product_attention", tuple(query.shape), selection, reason or ""))
        self._paused = True
        try:
            return sdpa_dropin.original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        finally:
            self._paused = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if not self._paused:
            inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            self._follow(function.overloadpacket.__name__, inputs, [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)])
        return out

    def _follow(self, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        if all(tensor in self._constants for tensor in inputs):
            for tensor in outputs:
                self._constants[tensor] = True
            return
        product = name in _PRODUCTS
        if product:
            factors = inputs[_PRODUCTS[name]:][:2]
            if not any(tensor in self._constants for tensor in factors):
                for tensor in factors:
                    self._between.update(self._origin(tensor).softmaxes)
                inputs = []  # another tensor altogether; a linear layer's result is still made of its softmax
        for tensor in outputs:
            origins = [self._origin(before) for before in inputs if before.numel() == tensor.numel()]
            origin = _Origin(product or any(o.product for o in origins), tuple({i for o in origins for i in o.softmaxes}))
            if name in _SOFTMAXES and origin.product:
                origin = _Origin(softmaxes=(len(self._sites),))
                self._sites.append(Site(self._inside[-1][0], "softmax", tuple(tensor.shape), None, self._why_not_asked()))
            self._origins[tensor] = origin

    def _origin(self, tensor: Tensor) -> _Origin:
        return self._origins.get(tensor, _Origin())

    def _why_not_asked(self) -> str:
        why = "the model multiplies and takes the softmax by itself"
        if any(getattr(module, "fused_attn", None) is False for _, module in self._inside):
            why += "; vitune.torch.enabled(timm=True) has timm call scaled_dot_product_attention"
        return why


def watch(model: Any, run: Any) -> list[Site]:
    """The sites of `run()`, which runs the model where vitune is installed."""
    seen = Watch(model)
    names = install_module.Names(sdpa_dropin.attention, seen.call)
    hooks = []
    for path, module in model.named_modules() if isinstance(model, torch.nn.Module) else ():
        hooks.append(module.register_forward_pre_hook(lambda module, _arguments, path=path: seen.enter_module(path, module)))
        hooks.append(module.register_forward_hook(lambda *_: seen.leave_module(), always_call=True))
    names.bind()
    layers.watched = True
    try:
        with seen:
            run()
    finally:
        layers.watched = False
        names.release()
        for hook in hooks:
            hook.remove()
    return seen.sites()
