# python/vitune/_ops/training.py -- Linear layers that train: operators of the forward pass, those of the backward pass, their formulas.
# SPDX-License-Identifier: Apache-2.0
"""A layer takes its weight twice: as the parameter, whose gradient autograd wants, and as the copy in x's type that is multiplied by.
So an fp32 parameter has an fp32 gradient under autocast too, which is rounded nowhere.

Of an activation between two layers it is the argument that has a gradient: the second layer takes both, and the product of its backward
pass multiplies by the derivative in its epilogue. libvitune is asked by text; what it refuses PyTorch computes, by the formulas here,
which are eager mode's own on a CPU, to the bit, but for a LayerScale.

A LayerScale s behind a layer is a factor in its epilogue, and its gradients need no pass over rows: of dz, the gradient of s (x W' + b),
comes P = dz' x, the size of the weight; then dW = s P by rows, ds the sums of W P by rows, and dx = dz (s W).
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .._runtime.context import Problem
from .._runtime.counters import counters
from .._runtime.errors import Unsupported, VituneError, reason_of
from . import attention as attention_ops, flops, linear as linear_ops, problem_text
from .remembered import define, remembered
from .scratch import launch

aten = torch.ops.aten
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "quick_gelu", "silu")

_plans = problem_text.Plans()


# --- the formulas

def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def activated(pre: Tensor, activation: str) -> Tensor:
    return linear_ops.ACTIVATE[activation](pre)


def activation_grad(grad: Tensor, pre: Tensor, activation: str) -> Tensor:
    """The gradient of what an activation was given."""
    if activation == "relu":
        return aten.threshold_backward(grad, pre, 0)
    if activation == "silu":
        return aten.silu_backward(grad, pre)
    if activation != "quick_gelu":
        return aten.gelu_backward(grad, pre, approximate="tanh" if activation == "gelu_tanh" else "none")
    wide = pre.to(_wide(pre.dtype))
    gate = torch.sigmoid(1.702 * wide)
    return (grad * (gate + 1.702 * wide * gate * (1 - gate))).to(pre.dtype)


def linear_by_torch(x: Tensor, w16: Tensor, bias: Optional[Tensor], scale: Optional[Tensor] = None) -> Tensor:
    y = F.linear(x, w16, None if bias is None else bias.to(x.dtype)).contiguous()
    return y if scale is None else (y * scale).to(x.dtype)


def input_grad_by_torch(dy: Tensor, w16: Tensor) -> Tensor:
    return torch.matmul(dy, w16).contiguous()


def weight_grad_by_torch(dy: Tensor, x: Tensor, dtype: torch.dtype, bias: bool) -> tuple[Tensor, Tensor]:
    rows, columns = _matrix(dy), _matrix(x)
    db = rows.sum(0, dtype=_wide(dy.dtype)).to(dtype) if bias else rows.new_empty(0, dtype=dtype)
    if dtype == rows.dtype:
        return (rows.t() @ columns).contiguous(), db
    if rows.is_cuda and dtype == torch.float32 and hasattr(aten.mm, "dtype"):  # no copy in fp32 of either
        return torch.mm(rows.t(), columns, out_dtype=dtype), db
    return (rows.to(_wide(dtype)).t() @ columns.to(_wide(dtype))).to(dtype).contiguous(), db


def scale_weight_grad_by_torch(dz: Tensor, x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    wide = _wide(weight.dtype)
    product, sums = weight_grad_by_torch(dz, x, wide, bias is not None)
    dscale = (weight.to(wide) * product).sum(1)
    if bias is not None:
        dscale = dscale + bias.to(wide) * sums
    by = scale.to(wide)
    dw, db = by.unsqueeze(1) * product, by * sums if bias is not None else sums
    return dw.to(weight.dtype), db.to(weight.dtype), dscale.to(weight.dtype)


def _matrix(tensor: Tensor) -> Tensor:
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])


# --- libvitune's side: what is asked, and launches

def input_grad_text(dy: Tensor, w16: Tensor) -> str:
    """The problem that such a call asks, of tensors on any device, meta included, as all below. Raises Unsupported."""
    return linear_ops.text_of(dy, w16.t())


def act_input_grad_text(dy: Tensor, w16: Tensor, pre: Tensor, activation: str, alignment: int = 16) -> str:
    linear_ops._check(dy, w16.t(), None, None, None, activation, None)
    matrix, transposed = linear_ops._weight(w16.t())
    return problem_text.linear_act_input_grad(linear_ops._rows(dy), matrix, transposed, linear_ops._rows(pre), activation, alignment)


def weight_grad_text(dy: Tensor, x: Tensor, dtype: torch.dtype, bias: bool, scale: bool = False, alignment: int = 16) -> str:
    """scale: with a LayerScale and its gradient, all parameters of type `dtype`."""
    if dy.dtype not in (torch.bfloat16, torch.float16):
        raise Unsupported(f"dy of dtype {str(dy.dtype).removeprefix('torch.')}: linear layers take bfloat16 and float16")
    return problem_text.linear_weight_grad(linear_ops._rows(dy), linear_ops._rows(x), dtype, bias, scale, alignment)


def _problem(kind: str, tensors: tuple[Tensor, ...], words: tuple[Any, ...], text: Callable[[int], str]) -> Problem:
    alignment = problem_text.alignment_of(tensors)
    key = (kind, *((t.shape, t.stride(), t.dtype) for t in tensors), words, alignment)
    return _plans.of(key, lambda: Problem(text(alignment)))


def _act_input_grad(dy: Tensor, w16: Tensor, pre: Tensor, activation: str) -> Tensor:
    matrix, transposed = linear_ops._weight(w16.t())
    dy, pre = linear_ops._rows(dy), linear_ops._rows(pre)
    problem = _problem("act_input_grad", (dy, matrix, pre), (activation, transposed),
                       lambda alignment: act_input_grad_text(dy, w16, pre, activation, alignment))
    out = torch.empty((dy.shape[0], w16.shape[1]), dtype=dy.dtype, device=dy.device)
    launch(problem, (dy, matrix, None, None, None, out, None, None, None, None, None, None, pre, None, None))
    return out


def _weight_grad(dy: Tensor, x: Tensor, dtype: torch.dtype, bias: bool) -> tuple[Tensor, Tensor]:
    dy, x = linear_ops._rows(dy), linear_ops._rows(x)
    problem = _problem("weight_grad", (dy, x), (dtype, bias), lambda alignment: weight_grad_text(dy, x, dtype, bias, alignment=alignment))
    dw = torch.empty((dy.shape[1], x.shape[1]), dtype=dtype, device=dy.device)
    db = torch.empty(dy.shape[1] if bias else 0, dtype=dtype, device=dy.device)
    launch(problem, (dy, x, None, None, None, None, None, None, dw, db if bias else None, None))
    return dw, db


def _scale_weight_grad(dz: Tensor, x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dz, x = linear_ops._rows(dz), linear_ops._rows(x)
    parameters = [None if each is None else each.contiguous() for each in (scale, weight, bias)]
    given = (dz, x, *(each for each in parameters if each is not None))
    problem = _problem("scale_weight_grad", given, (bias is not None,),
                       lambda alignment: weight_grad_text(dz, x, weight.dtype, bias is not None, True, alignment))
    dw, db, dscale = (torch.empty(shape, dtype=weight.dtype, device=dz.device)
                      for shape in (weight.shape, len(scale) if bias is not None else 0, scale.shape))
    launch(problem, (dz, x, *parameters, None, None, None, dw, db if bias is not None else None, dscale))
    return dw, db, dscale


def _answer(x: Tensor, ours: Callable[[], Any], torchs: Callable[[], Any]) -> Any:
    """libvitune's, or PyTorch's where that refuses or cannot reach the tensors."""
    if attention_ops.is_on_gpu(x) and x.numel():
        try:
            return ours()
        except VituneError as error:
            counters.fall_back(reason_of(error))
    with torch.autocast(x.device.type, enabled=False):  # all has the type that it is to have
        return torchs()


# --- the operators of the backward pass

_NO_SECOND = ("vitune's linear layers that train have no second derivative, and one is asked for (create_graph=True): use PyTorch's "
              "layers there, or torch.compile")


def _refuse(ctx: Any, *grads: Any) -> Any:
    raise Unsupported(_NO_SECOND)


@torch.library.custom_op("vitune::linear_input_grad", mutates_args=())
@remembered("linear_input_grad")
def linear_input_grad(dy: Tensor, w16: Tensor) -> Tensor:
    """dy W: of a layer's input."""
    return _answer(dy, lambda: linear_ops.run(dy, w16.t(), None, None, None, None, False, None)[0], lambda: input_grad_by_torch(dy, w16))


@linear_input_grad.register_fake
def _(dy, w16):
    return dy.new_empty((*dy.shape[:-1], w16.shape[1]))


@torch.library.custom_op("vitune::linear_act_input_grad", mutates_args=())
@remembered("linear_act_input_grad")
def linear_act_input_grad(dy: Tensor, w16: Tensor, pre: Tensor, activation: str) -> Tensor:
    """dy W * act'(pre): of what the activation before a layer was given."""
    return _answer(dy, lambda: _act_input_grad(dy, w16, pre, activation).view(pre.shape),
                   lambda: activation_grad(input_grad_by_torch(dy, w16), pre, activation).contiguous())


@linear_act_input_grad.register_fake
def _(dy, w16, pre, activation):
    return dy.new_empty(pre.shape)


@torch.library.custom_op("vitune::linear_weight_grad", mutates_args=())
@remembered("linear_weight_grad")
def linear_weight_grad(dy: Tensor, x: Tensor, dtype: torch.dtype, bias: bool) -> tuple[Tensor, Tensor]:
    """dy' x and the sum of dy's rows, which has no element without a bias; sums are fp32 at least, rounded once."""
    return _answer(dy, lambda: _weight_grad(dy, x, dtype, bias), lambda: weight_grad_by_torch(dy, x, dtype, bias))


@linear_weight_grad.register_fake
def _(dy, x, dtype, bias):
    return dy.new_empty((dy.shape[-1], x.shape[-1]), dtype=dtype), dy.new_empty(dy.shape[-1] if bias else 0, dtype=dtype)


@torch.library.custom_op("vitune::linear_scale_weight_grad", mutates_args=())
@remembered("linear_scale_weight_grad")
def linear_scale_weight_grad(dz: Tensor, x: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of weight, bias and scale, where dz is that of scale * (x weight' + bias); the second has no element without a bias."""
    return _answer(dz, lambda: _scale_weight_grad(dz, x, weight, bias, scale), lambda: scale_weight_grad_by_torch(dz, x, weight, bias, scale))


@linear_scale_weight_grad.register_fake
def _(dz, x, weight, bias, scale):
    return weight.new_empty(weight.shape), weight.new_empty(0 if bias is None else bias.shape), weight.new_empty(scale.shape)


for _op in (linear_input_grad, linear_act_input_grad, linear_weight_grad, linear_scale_weight_grad):
    _op.register_autograd(_refuse)


# --- those of the forward pass

@torch.library.custom_op("vitune::linear_train", mutates_args=())
@remembered("linear_train")
def linear_train(x: Tensor, weight: Tensor, w16: Tensor, bias: Optional[Tensor], scale: Optional[Tensor] = None) -> Tensor:
    """scale * (x W' + bias). weight: the parameter; w16: the same in x's type, of which no gradient is wanted; scale: LayerScale's."""
    return _answer(x, lambda: linear_ops.run(x, w16, bias, scale, None, None, False, None)[0], lambda: linear_by_torch(x, w16, bias, scale))


@linear_train.register_fake
def _(x, weight, w16, bias, scale=None):
    return x.new_empty((*x.shape[:-1], w16.shape[0]))


@torch.library.custom_op("vitune::linear_act_train", mutates_args=())
@remembered("linear_act_train")
def linear_act_train(x: Tensor, weight: Tensor, w16: Tensor, bias: Optional[Tensor], activation: str) -> tuple[Tensor, Tensor]:
    """What linear_train gives, and the activation of it."""
    def ours() -> tuple[Tensor, Tensor]:
        out, pre = linear_ops.run(x, w16, bias, None, None, activation, True, None)
        return pre, out

    def torchs() -> tuple[Tensor, Tensor]:
        pre = linear_by_torch(x, w16, bias)
        return pre, activated(pre, activation)
    return _answer(x, ours, torchs)


@linear_act_train.register_fake
def _(x, weight, w16, bias, activation):
    shape = (*x.shape[:-1], w16.shape[0])
    return x.new_empty(shape), x.new_empty(shape)


@torch.library.custom_op("vitune::act_linear_train", mutates_args=())
@remembered("act_linear_train")
def act_linear_train(pre: Tensor, x: Tensor, weight: Tensor, w16: Tensor, bias: Optional[Tensor], activation: str,
                     scale: Optional[Tensor] = None) -> Tensor:
    """As linear_train. x: the activation of pre, which has the gradient of both."""
    return _answer(x, lambda: linear_ops.run(x, w16, bias, scale, None, None, False, None)[0], lambda: linear_by_torch(x, w16, bias, scale))


@act_linear_train.register_fake
def _(pre, x, weight, w16, bias, activation, scale=None):
    return x.new_empty((*x.shape[:-1], w16.shape[0]))


# --- their gradients

class Kept(NamedTuple):
    """What a layer keeps for its backward pass."""

    x: Optional[Tensor]
    w16: Optional[Tensor]
    weight: Optional[Tensor] = None  # with a scale, as all below, and without w16
    bias: Optional[Tensor] = None
    scale: Optional[Tensor] = None

    def matrix(self, dy: Tensor) -> Tensor:
        """By which dy is multiplied for the gradient of x."""
        return self.w16 if self.scale is None else (self.weight * self.scale.unsqueeze(1)).to(dy.dtype)


def _kept(ctx: Any, weight_at: int, x: Tensor, weight: Tensor, w16: Tensor, bias: Optional[Tensor], scale: Optional[Tensor] = None) -> Kept:
    """weight_at: the place of the layer's weight among the operator's arguments."""
    ctx.set_materialize_grads(False)
    ctx.weight_at, ctx.weight_dtype, ctx.bias_dtype = weight_at, weight.dtype, None if bias is None else bias.dtype
    if scale is not None:
        return Kept(x, None, weight, bias, scale)
    return Kept(x if ctx.needs_input_grad[weight_at] else None, w16 if ctx.needs_input_grad[0] else None)


def _parameter_grads(ctx: Any, dy: Tensor, kept: Kept) -> tuple[Optional[Tensor], None, Optional[Tensor]]:
    """Of weight, w16 and bias."""
    weight, bias = ctx.needs_input_grad[ctx.weight_at], ctx.bias_dtype is not None and ctx.needs_input_grad[ctx.weight_at + 2]
    if not weight:
        return None, None, _matrix(dy).sum(0, dtype=_wide(dy.dtype)).to(ctx.bias_dtype) if bias else None
    dtype = torch.promote_types(ctx.weight_dtype, ctx.bias_dtype) if bias else ctx.weight_dtype
    dw, db = linear_weight_grad(dy, kept.x, dtype, bias)
    return dw.to(ctx.weight_dtype), None, db.to(ctx.bias_dtype) if bias else None


def _grads(ctx: Any, dy: Tensor, kept: Kept) -> tuple[tuple[Optional[Tensor], ...], Optional[Tensor]]:
    """Of weight, w16 and bias, and of the scale."""
    if kept.scale is None:
        return _parameter_grads(ctx, dy, kept), None
    dw, db, dscale = linear_scale_weight_grad(dy, kept.x, kept.weight, kept.bias, kept.scale)
    return (dw, None, None if kept.bias is None else db), dscale


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*_kept(ctx, 1, *inputs))


def _linear_grads(ctx: Any, dy: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
    if dy is None:
        return (None,) * 5
    kept = Kept(*ctx.saved_tensors)
    of_layer, dscale = _grads(ctx, dy, kept)
    return linear_input_grad(dy, kept.matrix(dy)) if ctx.needs_input_grad[0] else None, *of_layer, dscale


def _keep_act(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *layer, ctx.activation = inputs
    ctx.save_for_backward(*_kept(ctx, 1, *layer), output[0])


def _linear_act_grads(ctx: Any, dpre: Optional[Tensor], dout: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
    *kept, pre = ctx.saved_tensors
    if dout is not None:
        of_out = activation_grad(dout, pre, ctx.activation)
        dpre = of_out if dpre is None else dpre + of_out
    if dpre is None:
        return (None,) * 5
    kept = Kept(*kept)
    return linear_input_grad(dpre, kept.w16) if ctx.needs_input_grad[0] else None, *_parameter_grads(ctx, dpre, kept), None


def _keep_of_act(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    pre, *layer, ctx.activation, scale = inputs
    ctx.save_for_backward(*_kept(ctx, 2, *layer, scale), pre if ctx.needs_input_grad[0] else None)


def _act_linear_grads(ctx: Any, dy: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
    if dy is None:
        return (None,) * 7
    *kept, pre = ctx.saved_tensors
    kept = Kept(*kept)
    dpre = linear_act_input_grad(dy, kept.matrix(dy), pre, ctx.activation) if ctx.needs_input_grad[0] else None
    of_layer, dscale = _grads(ctx, dy, kept)
    return dpre, None, *of_layer, None, dscale


linear_train.register_autograd(_linear_grads, setup_context=_keep)
linear_act_train.register_autograd(_linear_act_grads, setup_context=_keep_act)
act_linear_train.register_autograd(_act_linear_grads, setup_context=_keep_of_act)

flops.know("linear_train", "linear_act_train", "act_linear_train", "linear_input_grad", "linear_act_input_grad", "linear_weight_grad",
           "linear_scale_weight_grad")
define("linear_train", "linear_act_train", "act_linear_train", "linear_input_grad",
       "linear_act_input_grad", "linear_weight_grad", "linear_scale_weight_grad")
