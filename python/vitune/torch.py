# python/vitune/torch.py -- Drop-in for PyTorch: install() replaces attention and layer_norm, stats() says how it went.
# SPDX-License-Identifier: Apache-2.0
"""Models run unchanged::

    vitune.torch.install()
    with torch.inference_mode():
        model(images)
    print(vitune.torch.stats())

Attention that vitune cannot serve goes to PyTorch's own implementation: counted by reason in stats(), and a FallbackWarning
the first time that a reason is met. layer_norm over the last dimension is served too, where the operators' library is loaded;
other norms, and those under autocast, are PyTorch's as before. Calls that need a gradient are served where a CUDA graph captures them, or
all of them with install(training=True).
"""
from __future__ import annotations

import dataclasses
from typing import Any, Optional

import torch

from ._dropin import coverage as coverage_module, flash, install as install_module, lone_norms, training as dropin_training
from ._dropin.coverage import Site
from ._ops import attention as attention_ops
from ._runtime import native
from ._runtime.counters import FallbackWarning, counters
from ._runtime.library import library

__all__ = ["FallbackWarning", "Site", "Stats", "coverage", "enabled", "install", "reset_stats", "stats", "uninstall"]

NOTHING_ASKED = ("nothing was asked: no call of scaled_dot_product_attention was seen (those of a replayed CUDA graph are not). timm's"
                 " Swin and others make one inside enabled(timm=True); vitune.torch.coverage(model, sample) lists a model's attention")


@dataclasses.dataclass(frozen=True)
class Stats:
    """What became of attention calls in this process since reset_stats(), and of norms.

    ``served`` and ``fallbacks`` count calls of attention, ``norms`` those of layer_norm, the other three launches of both: a call
    of rank 5 whose views do not fold makes one launch per image. Replays of a CUDA graph are not seen. A compiled model counts a fallback that is decided by
    types or shapes when it is compiled, not at every call.
    """

    served: int  #: calls that vitune answered, also those of vitune.attention()
    exact: int  #: launches of a kernel tuned for this very problem
    nearest: int  #: launches of one tuned for another problem of its class
    default: int  #: launches of a kernel that was not tuned
    fallbacks: int  #: calls that PyTorch answered
    reasons: dict[str, int]  #: the same by reason
    norms: int = 0  #: calls of layer_norm, and of rms_norm in training, that vitune answered
    missed: str = ""  #: what is not served here at all, and why: without the operators' library no LayerNorm is
    transferred: int = 0  #: launches of a kernel made by the config of a winner on another GPU

    def __sub__(self, before: "Stats") -> "Stats":
        """What happened between `before` and this."""
        reasons = {reason: count - before.reasons.get(reason, 0) for reason, count in self.reasons.items()}
        return Stats(*(getattr(self, field.name) - getattr(before, field.name) for field in dataclasses.fields(self)[:5]),
                     {reason: count for reason, count in reasons.items() if count}, self.norms - before.norms, self.missed,
                     self.transferred - before.transferred)

    def __str__(self) -> str:
        head = (f"served {self.served} ({self.exact} exact, {self.nearest} nearest, {self.transferred} transferred, {self.default} default launches),"
                f" fell back {self.fallbacks}" + (f"; {self.norms} norms" if self.norms else ""))
        lines = [f"{count:6d} x {reason}" for reason, count in sorted(self.reasons.items())]
        if self.served == self.fallbacks == 0:
            lines = [NOTHING_ASKED]
        return "\n  ".join([head, *lines, *([self.missed] if self.missed else [])])


_baseline: dict[Any, Any] = {}
_norms_before = 0


def stats() -> Stats:
    """Calls by what served them, and fallbacks by reason, in this process since reset_stats()."""
    launches = [0, 0, 0, 0]
    for context in attention_ops.contexts():
        now, before = context.stats(), _baseline.get(context)
        for i, name in enumerate(("exact_calls", "nearest_calls", "default_calls", "transferred_calls")):
            launches[i] += getattr(now, name) - (getattr(before, name) if before is not None else 0)
    reasons = dict(counters.fallbacks)
    *others, transferred = launches
    return Stats(counters.served, *others, sum(reasons.values()), reasons, attention_ops.norms_served() - _norms_before,
                 native.what_is_missed() or (lone_norms.WHY if lone_norms.aside and install_module.norms.is_entered() else ""), transferred)


def reset_stats() -> None:
    """Counts from 0 again. Reasons that were warned about are not warned about again."""
    global _norms_before
    counters.reset()
    _norms_before = attention_ops.norms_served()
    _baseline.clear()
    _baseline.update({context: context.stats() for context in attention_ops.contexts()})


class enabled:
    """A context manager in which vitune serves scaled_dot_product_attention and layer_norm, in all threads of the process.

    May be nested, entered again, and used inside of install(). A model may be compiled inside of it, with fullgraph=True
    too. timm=True also switches on the fused attention of timm's models where timm leaves it off, Swin and others, and gives NaFlexViT
    sequences in the place of masks of padding; models that live are looked for among all of Python's objects, which may take some tenths of a
    second: enter it once, not for each step. norms=False leaves norms PyTorch's. A FallbackWarning says once where the operators'
    library, which serves them in inference, is missing.
    training: which calls that need a gradient are served: True, all; False, none; None, what those around it say, or else those that a CUDA
    graph captures. Of several inside one another, or inside of install(), the innermost that says something decides. Where blocks are
    checkpointed the backward pass computes them again, and must come inside too.
    Raises LibraryNotFound where libvitune cannot be loaded.
    """

    def __init__(self, *, timm: bool = False, norms: bool = True, training: Optional[bool] = None) -> None:
        library()
        if norms:
            counters.warn_once(native.what_is_missed())
        self._parts = [part for part, wanted in ((install_module.timm, timm), (install_module.attention, True), (install_module.norms, norms),
                                                 (dropin_training.Asking(training), True)) if wanted]

    def __enter__(self) -> "enabled":
        for part in self._parts:
            part.enter()
        if lone_norms.aside and dropin_training.asked == dropin_training.ALL:
            lone_norms.come_back()
        return self

    def __exit__(self, *error: object) -> None:
        for part in self._parts:
            part.leave()


_installed: list[enabled] = []


def install(*, timm: bool = False, norms: bool = True, training: Optional[bool] = None) -> None:
    """enabled() from now on, until uninstall(). Installing again only changes what the arguments say."""
    wanted = enabled(timm=timm, norms=norms, training=training).__enter__()
    uninstall()
    _installed.append(wanted)


def uninstall() -> None:
    """Takes install() back; does nothing where there was none."""
    while _installed:
        _installed.pop().__exit__()


def run_sample(model: Any, sample: Any, keywords: dict[str, Any], norms: bool = True) -> None:
    """One pass without gradients where vitune is installed: see vitune.prepare()."""
    if isinstance(sample, dict):
        keywords, arguments = {**sample, **keywords}, ()
    else:
        arguments = () if sample is None else sample if isinstance(sample, tuple) else (sample,)
    with enabled(norms=norms), torch.no_grad():
        model(*arguments, **keywords)


def coverage(model: Any, sample: Any = None, **keywords: Any) -> list[Site]:
    """Every place where one forward pass attends: which kernel serves it, or why none does.

    Arguments as of vitune.prepare(). PyTorch answers the calls; nothing is counted. A compiled model runs uncompiled. Inside of
    enabled(timm=True) timm's models are asked with its fused attention.
    """
    model = getattr(model, "_orig_mod", model)
    with enabled(norms=False):
        return coverage_module.watch(model, lambda: run_sample(model, sample, keywords, norms=False))


flash.offer()
