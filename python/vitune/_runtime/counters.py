# python/vitune/_runtime/counters.py -- Calls that were served and that fell back, for vitune.torch.stats().
# SPDX-License-Identifier: Apache-2.0
"""Needs no PyTorch."""
from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Callable


_A_PROBLEM = re.compile(r"'(?:attention|attention_backward|norm|norm_backward|group_norm|linear|linear_weight_grad|window_attention|window_attention_backward|packed_attention) [^']*'")


class FallbackWarning(UserWarning):
    """A call that vitune was to serve went to PyTorch, given once per reason; or a model made none."""


class Counters:
    """Calls that were served and that fell back, by reason. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served = 0
        self.others: list[Callable[[], int]] = []  # who counts what it served itself
        self._others_before = 0
        self.norms = 0  # calls of norms that Python served, since the process began
        self.fallbacks: dict[str, int] = {}
        self.warned: set[str] = set()

    def renew_lock(self) -> None:
        """After a fork: another thread of the parent may have held it."""
        self._lock = threading.Lock()

    @property
    def served(self) -> int:
        return self._served + sum(other() for other in self.others) - self._others_before

    def serve(self) -> None:
        with self._lock:
            self._served += 1

    def serve_norm(self) -> None:
        with self._lock:
            self.norms += 1

    def fall_back(self, reason: str) -> None:
        """Counts, and warns the first time that this reason is met, whichever the problem: a server may have thousands."""
        of_any = _A_PROBLEM.sub("'...'", reason)
        with self._lock:
            self.fallbacks[of_any] = self.fallbacks.get(of_any, 0) + 1
            first = of_any not in self.warned
            self.warned.add(of_any)
        if first:
            warnings.warn(f"vitune does not serve a call, PyTorch does: {reason}", FallbackWarning, stacklevel=4)

    def warn_once(self, sentence: str) -> None:
        """Warns of what no call will show, the first time in this process; nothing for ""."""
        with self._lock:
            first = bool(sentence) and sentence not in self.warned
            self.warned.add(sentence)
        if first:
            warnings.warn(sentence, FallbackWarning, stacklevel=4)

    def reset(self) -> None:
        with self._lock:
            self._served = 0
            self._others_before = sum(other() for other in self.others)
            self.fallbacks.clear()


counters = Counters()
os.register_at_fork(after_in_child=counters.renew_lock)
