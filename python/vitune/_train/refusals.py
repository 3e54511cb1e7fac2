# python/vitune/_train/refusals.py -- What no step is made of, and what no graph is captured of: each by its name, with the way out.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch import Tensor, nn

from .._runtime.errors import InvalidArgument, Unsupported
from .standing import HOOKS
from .work import Work

#: Optimizers of PyTorch by what lets a graph read their rate on the GPU.
_CAPTURABLE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD")
_CAPTURABLE_IN_LISTS = ("Adadelta", "RMSprop")
_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DataParallel", "SyncBatchNorm")
PLAIN = "train_step(..., capture=False) takes plain steps"


def refuse_arguments(model: Any, loss: Any, optimizer: Any, scaler: Any, clip: Any, accumulate: Any) -> None:
    """Raises InvalidArgument or Unsupported for what train_step() cannot make a step of on any device."""
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"the model is of class {type(model).__name__}: a torch.nn.Module is wanted")
    if isinstance(loss, nn.modules.loss._Loss) or getattr(loss, "__module__", "") == "torch.nn.functional":
        raise InvalidArgument("loss is called with the model and with what the step is called with: give"
                              " lambda model, images, labels: torch.nn.functional.cross_entropy(model(images), labels)")
    if not callable(loss):
        raise InvalidArgument(f"loss is of class {type(loss).__name__}: a function of the model and of what the step is called with is wanted")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(f"the optimizer is of class {type(optimizer).__name__}: a torch.optim.Optimizer is wanted")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Unsupported("LBFGS evaluates the loss several times in a step, through a closure: train with a loop of your own")
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise InvalidArgument(f"the scaler is of class {type(scaler).__name__}: a torch.amp.GradScaler is wanted")
    if clip is not None and not callable(clip) and not (isinstance(clip, (int, float)) and clip > 0):
        raise InvalidArgument(f"clip is {clip!r}: the largest norm of all gradients, above 0, or a function of the parameters")
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise InvalidArgument(f"accumulate is {accumulate!r}: the number of calls that make a step, 1 or more")


def refuse_capture(work: Work, hooks: bool) -> None:
    """Raises Unsupported with all that keeps this work from being captured. hooks: they may be captured."""
    reasons = [*_of_model(work), *([] if hooks else _of_hooks(work)), *_of_optimizer(work)]
    if reasons:
        raise Unsupported(f"the step cannot be one CUDA graph: {'; '.join(reasons)}; or {PLAIN}")


def is_distributed(model: nn.Module) -> bool:
    """Whether other processes or devices take part."""
    return any(True for _ in _distributed(model))


def _distributed(model: nn.Module) -> Iterator[str]:
    for _, module in model.named_modules():
        yield from (each.__name__ for each in type(module).__mro__ if each.__name__ in _DISTRIBUTED)
    if any(type(parameter).__name__ == "DTensor" or type(parameter.data).__name__ == "DTensor" for parameter in model.parameters()):
        yield "DTensor"


def _of_model(work: Work) -> Iterator[str]:
    found = next(_distributed(work.model), None)
    if found is not None:
        yield f"the model has {found}: what several GPUs say to each other is not captured"
    devices = {str(parameter.device) for parameter in work.parameters()}
    if len(devices) > 1:
        yield f"parameters are on {' and '.join(sorted(devices))}: put all on one GPU"
    for name, module in work.model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
            yield f"'{name}' has sparse gradients, whose size the host must know: make it with sparse=False"
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.momentum is None and module.track_running_stats:
            yield f"'{name}' averages by a count that the host reads: give its momentum a number"
    if _settings(work.called).get("triton.cudagraphs"):
        yield ("the model was compiled in a mode with CUDA graphs of its own, which cannot be in another: compile it without a mode, or with"
               " mode='max-autotune-no-cudagraphs'")


def _settings(called: Any) -> dict[str, Any]:
    """Of Inductor, that a model was compiled with."""
    from .._compile import backend

    if backend.is_compiled(called):
        return backend.inductor_settings(called)
    found = getattr(getattr(called, "dynamo_ctx", None), "compiler_config", None)
    return found if isinstance(found, dict) else {}


def _of_hooks(work: Work) -> Iterator[str]:
    """A replay calls no Python."""
    what = "a replay does not call it: remove it, or say hooks=True if it only computes on the GPU"
    for name, module in (each for root in work.roots().values() for each in root.named_modules()):
        for kind in HOOKS:
            if vars(module).get(kind):
                yield f"'{name or type(module).__name__}' has a hook ({kind.strip('_')}), and {what}"
    names = {id(parameter): f"'{name}'" for root in work.roots().values() for name, parameter in root.named_parameters()}
    for parameter in work.parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            yield f"the parameter {names.get(id(parameter), f'of shape {list(parameter.shape)}')} has a hook, and {what}"
    if work.optimizer._optimizer_step_pre_hooks or work.optimizer._optimizer_step_post_hooks:
        yield f"the optimizer has a hook of its step, and {what}"


def _of_optimizer(work: Work) -> Iterator[str]:
    name, groups = type(work.optimizer).__name__, work.optimizer.param_groups
    supported = _way_out(work.optimizer)
    if supported is not None:
        yield supported
    if any(group.get("differentiable") for group in groups):
        yield f"{name} was made with differentiable=True: the graph would hold all steps"
    if work.scaler is not None and not getattr(work.optimizer, "_step_supports_amp_scaling", False):
        yield f"with a GradScaler the host asks whether {name} may step: make Adam, AdamW or SGD with fused=True, which asks on the GPU"


def _way_out(optimizer: torch.optim.Optimizer) -> Optional[str]:
    """What to do so that a graph can be captured of its step; None: nothing."""
    name, groups = type(optimizer).__name__, optimizer.param_groups
    of_torch = type(optimizer).__module__.startswith("torch.optim")
    capturable = all(group.get("capturable") for group in groups)
    if of_torch and name == "SGD":
        fused = all(group.get("fused") for group in groups)
        return None if fused else "SGD reads its rate on the host: make it with fused=True"
    if of_torch and name in _CAPTURABLE_IN_LISTS and any(group.get("foreach") is False for group in groups):
        return f"{name} with foreach=False reads its rate on the host: make it with capturable=True alone"
    if of_torch and name not in (*_CAPTURABLE, *_CAPTURABLE_IN_LISTS):
        return f"{name} counts or reads its rate on the host: take one of SGD (fused=True), {', '.join(_CAPTURABLE + _CAPTURABLE_IN_LISTS)}" \
               " (capturable=True)"
    if not capturable:
        return f"{name} was not made with capturable=True, so that it counts its steps on the host, where a graph cannot" \
               + ("" if of_torch else "; if it has no such setting, take an optimizer that has")
    return None


def refuse_state(work: Work) -> None:
    """Raises Unsupported where the optimizer, after a step, keeps on the host what changes."""
    for state in work.optimizer.state.values():
        for name, value in state.items():
            on_host = isinstance(value, Tensor) and value.device.type != work.device.type
            if on_host or isinstance(value, (int, float)) and not isinstance(value, bool):
                raise Unsupported(f"the step cannot be one CUDA graph: {type(work.optimizer).__name__} keeps '{name}' on the host, where a graph"
                                  f" cannot count; {PLAIN}")
