# benchmarks/train_models/step.py -- A step of training: forward, cross entropy, backward, AdamW.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[], Tensor]
Forward = Callable[[Tensor], Tensor]


class Training:
    """A model with its batch and its optimizer, which all ways to take a step share."""

    def __init__(self, model: nn.Module, images: Tensor, labels: Tensor, params: str, rate: float = 0.0) -> None:
        """params: "amp", a step runs under autocast to bf16; "fp32" or "bf16", in the weights' type. rate: of learning."""
        self.model, self.images, self.labels = model, images, labels
        self._device, self._rate = images.device.type, rate
        self._amp = params == "amp"
        self.optimizer = self._fresh_optimizer()

    def _fresh_optimizer(self) -> torch.optim.Optimizer:
        # A graph replays what the optimizer counts only where the counts are on the device.
        on_device = self._device == "cuda"
        return torch.optim.AdamW(self.model.parameters(), lr=self._rate, weight_decay=0.05, fused=True, capturable=on_device)

    def restart(self, weights: dict[str, Tensor]) -> None:
        """From these weights, of the model's state_dict(), as if no step had been taken. All in the same memory, for graphs of steps."""
        self.forget_gradients()
        self.model.load_state_dict(weights)
        for state in self.optimizer.state.values():
            for each in state.values():
                each.zero_()  # as AdamW makes them at its first step

    def loss(self, forward: Forward, images: Tensor, labels: Tensor) -> Tensor:
        """Of a batch, with its graph."""
        # Without autocast's cache of weights: each is cast once in a step anyway, and a capture must not meet one from outside.
        with torch.autocast(self._device, torch.bfloat16, enabled=self._amp, cache_enabled=False):
            logits = forward(images)
        return F.cross_entropy(logits.float(), labels)

    def step(self, forward: Forward) -> Step:
        """One by this way of computing the model; gives the loss, without its graph."""

        def run() -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()  # what the step before gave is not wanted any more
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss(forward, self.images, self.labels)
            loss.backward()
            self.optimizer.step()
            # With its graph it would keep the accumulators of gradients, which belong to the stream that they were made on.
            return loss.detach()

        return run

    def count(self) -> float:
        """Of steps that the optimizer took."""
        state = next(iter(self.optimizer.state.values()), {"step": torch.zeros(())})
        return float(state["step"])

    def gradient_norm(self) -> float:
        """Over all parameters. Raises RuntimeError where one has no gradient."""
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        missing = sum(each.grad is None for each in parameters)
        if missing:
            raise RuntimeError(f"{missing} of {len(parameters)} parameters have no gradient after a step")
        norms = torch._foreach_norm([each.grad for each in parameters], 2, dtype=torch.float32)
        return float(torch.linalg.vector_norm(torch.stack(norms)))

    def forget_gradients(self) -> None:
        """Their memory is free again, but for what a graph keeps."""
        self.optimizer.zero_grad(set_to_none=True)

    def standing_bytes(self) -> int:
        """Of what is there between steps: weights, optimizer, batch. After the first step."""
        state = (each for entry in self.optimizer.state.values() for each in entry.values())
        found: list[Any] = [*self.model.parameters(), *self.model.buffers(), *state, self.images, self.labels]
        return sum(each.numel() * each.element_size() for each in found if isinstance(each, Tensor))
