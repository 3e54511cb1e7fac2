# python/vitune/_train/standing.py -- What a graph has addresses and constants of, so that a change of it is seen before a replay.
# SPDX-License-Identifier: Apache-2.0
"""At every call, while the GPU computes the step before: some tenths of a millisecond for a ViT-B. Identities are compared of what is held
here, so that nothing new can have them."""
from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from .work import Work

#: Of nn.Module, without an accessor of PyTorch's.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PARTS = ("_modules", "_parameters", "_buffers")
_NUMBERS = (bool, int, float)
_SCALER = ("_scale", "_growth_tracker", "_growth_factor", "_backoff_factor", "_growth_interval")


class Standing:
    """Of a model, its optimizer and its scaler at one moment."""

    def __init__(self, work: Work) -> None:
        self._work = work
        modules = list(work.model.named_modules())
        self._dicts = [vars(module).get(name, {}) for _, module in modules for name in (*_PARTS, *HOOKS)]
        self._parts = [each for each in (vars(module).get(name) for _, module in modules for name in _PARTS) if each]
        self._modules = [module for _, module in modules]
        self._numbers = [(vars(module), name, f"{path}.{name}".lstrip(".")) for path, module in modules for name, value in vars(module).items()
                         if type(value) in _NUMBERS and name != "training"]
        self._tensors = [*work.parameters(), *work.model.buffers()]
        self._then = self._now()

    def modes(self) -> tuple[bool, ...]:
        """train() or eval() of each module: other graphs, not another model."""
        return tuple([module.training for module in self._modules])

    def change(self) -> Optional[str]:
        """What is not as it was, "the optimizer's state was replaced"; None, if all is."""
        now = self._now()
        if now == self._then:
            return None
        changed = next(name for name in now if now[name] != self._then[name])
        if changed != "numbers":
            return _SENTENCES[changed]
        at = next(place for place, (new, old) in enumerate(zip(now[changed], self._then[changed])) if new != old)
        return f"the model's '{self._numbers[at][2]}' changed from {self._then[changed][at]} to {now[changed][at]}"

    def _now(self) -> dict[str, Any]:
        optimizer, scaler = self._work.optimizer, self._work.scaler
        groups = optimizer.param_groups
        return {
            "modules": (list(map(len, self._dicts)), [id(part) for each in self._parts for part in each.values()]),
            "numbers": [values.get(name) for values, name, _ in self._numbers],
            "gradients": [tensor.requires_grad for tensor in self._tensors],
            "memory": [tensor.data_ptr() for tensor in self._tensors],
            "groups": [list(map(id, group["params"])) for group in groups],
            "settings": [[_of(group.get(name)) for name in optimizer.defaults if name != "lr"] for group in groups],
            "state": [value.data_ptr() for each in optimizer.state.values() for value in each.values() if isinstance(value, Tensor)],
            "scaler": scaler and [_of(getattr(scaler, name)) for name in _SCALER],
        }


_SENTENCES = {
    "modules": "modules, parameters, buffers or hooks of the model were replaced, added or removed",
    "gradients": "requires_grad of parameters changed",
    "memory": "parameters or buffers have other memory",
    "groups": "the optimizer has other parameters",
    "settings": "settings of the optimizer other than lr changed",
    "state": "the optimizer's state was replaced",
    "scaler": "the scaler's state was replaced, or its settings changed",
}


def _of(value: Any) -> Any:
    return value.data_ptr() if isinstance(value, Tensor) else value
