# python/vitune/_dropin/install.py -- Puts vitune's attention in the place of PyTorch's, for the whole process, and takes it out.
# SPDX-License-Identifier: Apache-2.0
"""Only names are changed, so that what a model calls beside attention costs what it did before."""
from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import types
import weakref
from typing import Any, Optional

import torch

from .._ops import originals
from . import layer_norm as dropin_layer_norm, layers, lone_norms, norms as dropin_norms, padding, rms_norm as dropin_rms_norm, sdpa as sdpa_dropin


class Names:
    """The names in loaded modules that hold `theirs`: made to hold `ours`, and back where they still do.

    Modules are searched again only when one was loaded since: the search takes milliseconds.
    """

    #: PyTorch's compiler and its C++ part know their function by these; ours must keep the original.
    KEPT = ("torch._C", "vitune.")

    def __init__(self, theirs: Any, ours: Any) -> None:
        self._theirs, self._ours = theirs, ours
        self._places: list[tuple[dict[str, Any], str]] = []
        self._searched = 0

    def bind(self) -> None:
        self._exchange(self._theirs, self._ours)

    def release(self) -> None:
        self._exchange(self._ours, self._theirs)

    def _exchange(self, held: Any, wanted: Any) -> None:
        if len(sys.modules) != self._searched:
            self._searched = len(sys.modules)
            self._places = [(module.__dict__, name) for path, module in list(sys.modules.items())
                            if isinstance(module, types.ModuleType) and not path.startswith(self.KEPT)
                            for name, value in list(module.__dict__.items()) if value is self._theirs or value is self._ours]
        for names, name in self._places:
            if names.get(name) is held:
                names[name] = wanted


class NormNames(Names):
    """The same, but while norms that are served alone do not pay."""

    def bind(self) -> None:
        if not lone_norms.aside:
            super().bind()


class Function:
    """One name of one module, where PyTorch calls it by."""

    def __init__(self, module: Any, name: str, theirs: Any, ours: Any) -> None:
        self._module, self._name, self._theirs, self._ours = module, name, theirs, ours

    def bind(self) -> None:
        self._exchange(self._theirs, self._ours)

    def release(self) -> None:
        self._exchange(self._ours, self._theirs)

    def _exchange(self, held: Any, wanted: Any) -> None:
        if getattr(self._module, self._name) is held:
            setattr(self._module, self._name, wanted)


class Guarded:
    """What compilers guard where a fused layer stands in a model: it is as true as before, but not the same value."""

    def bind(self) -> None:
        self._before = torch.backends.mha.get_fastpath_enabled()
        self._ours = 1 if self._before else False
        torch.backends.mha.set_fastpath_enabled(self._ours)

    def release(self) -> None:
        if torch.backends.mha.get_fastpath_enabled() is self._ours:  # else somebody switched it meanwhile
            torch.backends.mha.set_fastpath_enabled(self._before)


class Served:
    """Whether what `module` offers in PyTorch's place serves, wherever it is held: by a switch of it."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def bind(self) -> None:
        self._module.serving = True

    def release(self) -> None:
        self._module.serving = False


class TimmSwitch:
    """timm's fused attention where timm leaves it off (Swin and others): models ask when they are made, so those that
    live are switched too."""

    def bind(self) -> None:
        from timm.layers import config

        self._before = (config.use_fused_attn(), config.use_fused_attn(experimental=True))
        config.set_fused_attn(True, experimental=True)
        self._switched = [weakref.ref(module) for module in gc.get_objects() if issubclass(type(module), torch.nn.Module)
                          and type(module).__module__.startswith("timm.") and vars(module).get("fused_attn") is False]
        for module in self._switched:
            module().fused_attn = True

    def release(self) -> None:
        from timm.layers import config

        config.set_fused_attn(*self._before)
        for module in (reference() for reference in self._switched):
            if module is not None:
                module.fused_attn = False


class NaFlexMasks:
    """timm's masks of padded images (NaFlexViT), as those that know where each image ends."""

    def bind(self) -> None:
        from timm import models

        self._name: Optional[Function] = None
        if hasattr(models, "naflexvit"):
            theirs = models.naflexvit.create_attention_mask
            self._name = Function(models.naflexvit, "create_attention_mask", theirs, padding.naflex_mask(theirs))
            self._name.bind()

    def release(self) -> None:
        if self._name is not None:
            self._name.release()


class Installation:
    """Some changes of the process, made while anyone wants them: undone when the last one leaves."""

    def __init__(self, *changes: Any) -> None:
        self._changes = changes
        self._lock = threading.Lock()
        self._inside = 0
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        # Another thread of the parent may have held it.
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                for change in self._changes:
                    change.bind()
            self._inside += 1

    def is_entered(self) -> bool:
        return self._inside > 0

    def renew(self, change: Any) -> None:
        """Makes one of the changes anew, which asks for what differs now."""
        with self._lock:
            if self._inside:
                change.release()
                change.bind()

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for change in reversed(self._changes):
                    change.release()


attention = Installation(
    Guarded(), Served(sdpa_dropin), Names(sdpa_dropin.original, sdpa_dropin.attention),
    Function(torch, "_native_multi_head_attention", originals.heads, layers.heads),
    Function(torch, "_transformer_encoder_layer_fwd", originals.encoder_layer, layers.layer))
_layer_norm_names = NormNames(dropin_layer_norm.original, dropin_layer_norm.layer_norm)
norms = Installation(
    *([Served(dropin_layer_norm)] if dropin_layer_norm.can_serve else []), Served(dropin_norms),
    _layer_norm_names, Names(dropin_rms_norm.original, dropin_rms_norm.rms_norm))
lone_norms.exchange = functools.partial(norms.renew, _layer_norm_names)
timm = Installation(TimmSwitch(), NaFlexMasks())
