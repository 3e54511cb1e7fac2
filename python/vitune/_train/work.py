# python/vitune/_train/work.py -- What one step computes, as a loop in PyTorch writes it: forward, backward, clipping, the optimizer.
# SPDX-License-Identifier: Apache-2.0
"""The same functions run eagerly and are captured, so that a graph holds nothing that a plain step would not do."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from .._runtime.errors import InvalidArgument
from .batches import CONSTANTS

#: The largest norm of all gradients, or a function of the parameters that changes their gradients.
Clip = Union[float, Callable[[list[Tensor]], Any], None]


@dataclasses.dataclass
class Work:
    """A model with what trains it."""

    model: nn.Module  #: as it was given
    called: Callable[..., Any]  #: the same, or as it was compiled: what the loss function is handed
    loss: Callable[..., Any]
    optimizer: torch.optim.Optimizer
    scaler: Any  #: torch.amp.GradScaler, or None
    clip: Clip
    accumulate: int
    device: torch.device

    def parameters(self) -> list[Tensor]:
        """Those of the model and of the optimizer, each once."""
        held = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        return list({id(each): each for each in (*self.model.parameters(), *held)}.values())

    def roots(self) -> dict[str, nn.Module]:
        """The modules that a step calls, by their names in sentences: the model, and the loss where it is one or a method of one."""
        loss = getattr(self.loss, "__self__", self.loss)
        return {"model": self.model, **({"loss": loss} if isinstance(loss, nn.Module) and loss is not self.model else {})}

    def forget(self, parameters: Iterable[Tensor]) -> None:
        """Their gradients, as zero_grad(set_to_none=True) does."""
        for parameter in parameters:
            parameter.grad = None

    def batch(self, args: Sequence[Any], keywords: dict[str, Any], into: Optional[Sequence[Tensor]]) -> Any:
        """Forward and backward of one batch; gradients are added to those of `into`, or of all leaves if None. Returns what the loss
        function did, without its graph."""
        result = self.loss(self.called, *args, **keywords)
        loss = _loss_of(result)
        _refuse_objects(result)
        with torch.autocast(self.device.type, enabled=False):
            scaled = loss / self.accumulate if self.accumulate > 1 else loss
            scaled = scaled if self.scaler is None else self.scaler.scale(scaled)
            # Each thread has workspaces of cuBLAS of its own: 32 MiB on a Hopper GPU that a thread of autograd's would take besides.
            with torch.autograd.set_multithreading_enabled(False):
                torch.autograd.backward(scaled, inputs=into)
        return tree_map_only(Tensor, Tensor.detach, result)

    def update(self) -> None:
        """Of the parameters, by the gradients that are there."""
        with torch.autocast(self.device.type, enabled=False):
            if self.clip is not None:
                if self.scaler is not None:
                    self.scaler.unscale_(self.optimizer)
                self._clip(list(self.model.parameters()))
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()

    def _clip(self, parameters: list[Tensor]) -> None:
        if callable(self.clip):
            self.clip(parameters)
        else:
            nn.utils.clip_grad_norm_(parameters, self.clip)


def _loss_of(result: Any) -> Tensor:
    loss = result[0] if isinstance(result, (tuple, list)) and result else result
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else f"an object of class {type(loss).__name__}"
        raise InvalidArgument(f"the loss function gave {found}: it gives the loss, a tensor of one element, or a tuple that begins with it")
    if not loss.requires_grad:
        raise InvalidArgument("no parameter has a gradient of the loss: it does not depend on the model, or was made under no_grad() or detached")
    return loss


def _refuse_objects(result: Any) -> None:
    """Tensors that pytree does not find would be written over by the next step, and would keep this one's graph."""
    for leaf in tree_leaves(result):
        if not isinstance(leaf, (Tensor, *CONSTANTS)):
            raise InvalidArgument(f"the loss function gave an object of class {type(leaf).__name__} beside the loss: it gives tensors, numbers,"
                                  " strings and None, in tuples, lists and dicts")
