# python/tests/test_torch_train_beside.py -- What training code does around a model, compiled by vitune beside eager mode: one table.
# SPDX-License-Identifier: Apache-2.0
"""Each case is a program of its own that is given what compiles a model, and gives tensors. Its layers are served, left alone, or it
raises as with torch.compile; the tensors are eager mode's in any case. The operators are asked for by name, so that a CPU has them."""
import functools
import unittest

import vitune

from .support import OPERATORS, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("linear layers are not the operators' library's: once is enough")

import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from .test_torch_compile_train import Mlp, TrainCase, autocast

SERVED, ALONE, RAISES = "served", "left alone", "raises"


def x_of(*shape, dtype=torch.float32, wants=True):
    return torch.randn(*(shape or (2, 5, 24)), generator=torch.Generator().manual_seed(5)).to(dtype).requires_grad_(wants)


def gradients(*owners):
    found = [value for owner in owners for value in (owner.parameters() if isinstance(owner, nn.Module) else (owner,))]
    return [torch.zeros(()) if value.grad is None else value.grad for value in found]


def plain(compiles, model=None, x=None, amp=None, dy=None):
    """One step; the gradients of everything."""
    model, x = model or Mlp(), x_of() if x is None else x
    with autocast(amp is not None, amp):
        out = compiles(model)(x)
    (out.float().square().mean() if dy is None else dy(out)).backward()
    return [out.detach(), *gradients(model, x)]


def scaled(compiles):
    model, x = Mlp(), x_of()
    run, optimizer, scaler = compiles(model), torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=8.0)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        with autocast(True, torch.float16):
            loss = run(x).float().square().mean()
        scaler.scale(loss * factor).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return [*model.parameters(), torch.tensor(scaler.get_scale())]


def accumulated(compiles, to_none):
    model = Mlp()
    run, x = compiles(model), x_of()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    held = [parameter.grad for parameter in model.parameters()]
    for _ in range(2):
        run(x).square().mean().backward()
    found = [grad.clone() for grad in gradients(model)]
    same = torch.tensor([parameter.grad is grad for parameter, grad in zip(model.parameters(), held)])
    model.zero_grad(set_to_none=to_none)
    run(x).sum().backward()
    return [*found, same, *gradients(model)]


class Block(nn.Module):
    def __init__(self, **keywords):
        super().__init__()
        self.mlp, self.last, self.keywords = Mlp(), nn.Linear(24, 24), keywords

    def forward(self, x):
        return self.last(checkpoint(self.mlp, x, **self.keywords))


def deterministic(compiles):
    torch.use_deterministic_algorithms(True)
    try:
        return plain(compiles, amp=torch.bfloat16)
    finally:
        torch.use_deterministic_algorithms(False)


def hooked(compiles):
    model, seen = Mlp(), []
    model.fc1.weight.register_hook(lambda grad: grad * 3)
    model.fc2.bias.register_hook(lambda grad: seen.append(grad.clone()))
    model.fc2.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.clone()))
    x = x_of()
    x.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    found = plain(compiles, model, x)
    return [*found, torch.tensor(len(seen)), *sorted(seen, key=lambda each: (each.dim(), each.norm().item()))]


def hooked_modules(compiles):
    model, seen = Mlp(), []
    model.fc1.register_forward_hook(lambda module, given, result: result * 2)
    model.register_full_backward_hook(lambda module, grads, given: seen.append(given[0].clone()))
    return [*plain(compiles, model), *seen]


def frozen(compiles, *names, x=False):
    model = Mlp()
    for name in names:
        model.get_parameter(name).requires_grad_(False)
    return plain(compiles, model, x_of(wants=not x), torch.bfloat16)


class Tied(nn.Module):
    """One weight for two layers, as it is and the other way round, which are the same shape."""

    def __init__(self, n=24):
        super().__init__()
        torch.manual_seed(2)
        self.weight, self.bias = nn.Parameter(torch.randn(n, n) / 5), nn.Parameter(torch.randn(n))

    def forward(self, x):
        y = F.linear(F.gelu(F.linear(x, self.weight, self.bias)), self.weight.t(), self.bias)
        return F.linear(F.relu(F.linear(y, self.weight.t())), self.weight, self.bias)


class Parts(nn.Module):
    """Weights that are parts of one, one of them beside the other."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.weight = nn.Parameter(torch.randn(40, 48) / 5)

    def forward(self, x):
        return F.linear(F.silu(F.linear(x, self.weight[:, :24])), self.weight[8:32, :40])


class Regions(Mlp):
    """Autocast that ends in the middle, and a part that is no one's gradient."""

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.fc1(x)
            with torch.autocast("cpu", enabled=False):
                y = self.fc2(F.gelu(y.float()))
        with torch.no_grad():
            y = y + self.fc2(F.gelu(self.fc1(x)))
        return self.fc1(y.detach()).sum(-1, keepdim=True) + y


def evaluated_between(compiles):
    model, x = Mlp(), x_of()
    run, optimizer, found = compiles(model), torch.optim.AdamW(model.parameters(), 0.01), []
    for _ in range(3):
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            found.append(run(x))
        with torch.inference_mode():
            found.append(run(x.detach()).clone())
        model.train()
    return [*found, *model.parameters()]


def changed_after(compiles, name, amp=None):
    """Between forward and backward."""
    model, x = Mlp().to(torch.bfloat16 if amp is None else torch.float32), x_of(dtype=torch.bfloat16 if amp is None else torch.float32)
    with autocast(amp is not None, amp):
        loss = compiles(model)(x).float().square().mean()
    with torch.no_grad():
        (x if name == "x" else model.get_parameter(name)).mul_(2)
    loss.backward()
    return gradients(model, x)


class ChangedWithin(Mlp):
    """Between two layers; what it was is what the first one's gradient takes."""

    def forward(self, x):
        y = self.fc1(x)
        with torch.no_grad():
            self.fc2.bias.mul_(2)
        return self.fc2(F.gelu(y))


def functional(compiles):
    model, x = Mlp(), x_of()
    run = compiles(model)
    others = {name: (parameter.detach() * 2).requires_grad_() for name, parameter in model.named_parameters()}
    prefix = "_orig_mod." if hasattr(run, "_orig_mod") else ""
    torch.func.functional_call(run, {prefix + name: value for name, value in others.items()}, (x,)).square().mean().backward()
    return [*gradients(*others.values(), x), *gradients(model)]


def transformed(compiles, transform):
    """Within what is compiled."""
    model, x = Mlp(), x_of(5, 24)
    found = compiles(lambda x: transform(model)(x))(x)
    found = [found] if isinstance(found, torch.Tensor) else [*found]
    if found[0].requires_grad:
        found[0].square().sum().backward()
    return [*(each.detach() for each in found), *gradients(model, x)]


def transformed_around(compiles, transform):
    model = Mlp()
    return [each.detach() for each in [transform(compiles(model))(x_of(5, 24))]]


def second_derivative(compiles):
    x = x_of()
    grad, = torch.autograd.grad(compiles(Mlp())(x).square().sum(), x, create_graph=True)
    grad.square().sum().backward()
    return [x.grad]


def twice(compiles):
    model, x = Mlp(), x_of()
    loss = compiles(model)(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    return gradients(model, x)


def mixed(compiles, x, weight, bias, amp=None):
    model = Mlp()
    model.fc1.weight.data, model.fc1.bias.data = model.fc1.weight.data.to(weight), model.fc1.bias.data.to(bias)
    return plain(compiles, model, x_of(dtype=x), amp)


def of_shape(compiles, *shape, amp=torch.bfloat16):
    return plain(compiles, x=x_of(*shape), amp=amp, dy=lambda out: out.float().sum())


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
CASES = {
    "fp32": (SERVED, plain),
    "autocast to bf16": (SERVED, lambda c: plain(c, amp=BF16)),
    "autocast to fp16": (SERVED, lambda c: plain(c, amp=FP16)),
    "bf16": (SERVED, lambda c: plain(c, Mlp().bfloat16(), x_of(dtype=BF16))),
    "autocast that the model turns on and off": (SERVED, lambda c: plain(c, Regions())),
    "a scaler, with an overflow": (SERVED, scaled),
    "gradients added to those there are, then None": (SERVED, lambda c: accumulated(c, True)),
    "gradients added to those there are, then 0": (SERVED, lambda c: accumulated(c, False)),
    "checkpoint": (SERVED, lambda c: plain(c, Block(use_reentrant=False))),
    "checkpoint under autocast": (SERVED, lambda c: plain(c, Block(use_reentrant=False), amp=BF16)),
    "reentrant checkpoint": (SERVED, lambda c: plain(c, Block(use_reentrant=True))),
    "selective checkpoint": (SERVED, lambda c: plain(c, Block(use_reentrant=False, context_fn=functools.partial(
        create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])))),
    "deterministic algorithms": (SERVED, deterministic),
    "hooks of parameters": (SERVED, hooked),
    "hooks of modules": (SERVED, hooked_modules),
    "weight without a gradient": (SERVED, lambda c: frozen(c, "fc1.weight")),
    "bias without a gradient": (SERVED, lambda c: frozen(c, "fc1.bias", "fc2.bias")),
    "input without a gradient": (SERVED, lambda c: frozen(c, x=True)),
    "only a bias has a gradient": (SERVED, lambda c: frozen(c, "fc1.weight", "fc2.weight", "fc2.bias", x=True)),
    "nothing has a gradient but the last layer": (SERVED, lambda c: frozen(c, "fc1.weight", "fc1.bias", x=True)),
    "a layer used twice": (SERVED, lambda c: plain(c, nn.Sequential(*[nn.Linear(24, 24)] * 3))),
    "tied square weights": (SERVED, lambda c: plain(c, Tied())),
    "tied square weights under autocast": (SERVED, lambda c: plain(c, Tied(), amp=BF16)),
    "parts of a weight": (SERVED, lambda c: plain(c, Parts(), amp=BF16)),
    "a gradient expanded of one number": (SERVED, lambda c: plain(c, amp=BF16, dy=lambda out: out.sum())),
    "a gradient expanded of rows": (SERVED, lambda c: plain(c, amp=BF16, dy=lambda out: out.mean(1).square().sum())),
    "a gradient turned round": (SERVED, lambda c: plain(c, amp=BF16, dy=lambda out: (out.transpose(0, 2) * x_of(24, 5, 2, wants=False)).sum())),
    "an input turned round": (SERVED, lambda c: plain(c, x=x_of(24, 5, 2).detach().permute(2, 1, 0).requires_grad_(), amp=BF16)),
    "no rows": (SERVED, lambda c: of_shape(c, 0, 24)),
    "no images": (SERVED, lambda c: of_shape(c, 0, 5, 24)),
    "a vector": (SERVED, lambda c: of_shape(c, 24)),
    "a row": (SERVED, lambda c: of_shape(c, 1, 24)),
    "autocast of fp32 and a weight of bf16": (SERVED, lambda c: mixed(c, FP32, BF16, FP32, BF16)),
    "autocast of bf16 and a bias of fp16": (SERVED, lambda c: mixed(c, BF16, FP32, FP16, BF16)),
    "evaluated between steps": (SERVED, evaluated_between),
    "a weight changed before backward": (RAISES, lambda c: changed_after(c, "fc2.weight")),
    "an input changed before backward": (RAISES, lambda c: changed_after(c, "x")),
    "a bias changed before backward": (SERVED, lambda c: changed_after(c, "fc2.bias")),
    "a weight changed before backward, under autocast": (None, lambda c: changed_after(c, "fc2.weight", BF16)),
    "a bias changed between layers": (SERVED, lambda c: plain(c, ChangedWithin())),
    "parameters of others by functional_call": (SERVED, functional),
    "torch.func.grad within": (ALONE, lambda c: transformed(c, lambda model: torch.func.grad(lambda x: model(x).square().sum()))),
    "torch.func.vmap within": (ALONE, lambda c: transformed(c, torch.func.vmap)),
    "torch.func.jvp within": (ALONE, lambda c: transformed(c, lambda model: lambda x: torch.func.jvp(model, (x,), (x * 2,)))),
    # PyTorch's answer to these is vitune's too.
    "torch.func.vmap around": (None, lambda c: transformed_around(c, torch.func.vmap)),
    "torch.func.grad around": (None, lambda c: transformed_around(c, lambda run: torch.func.grad(lambda x: run(x).square().sum()))),
    "a second derivative": (RAISES, second_derivative),
    "backward twice": (None, twice),
}


def outcome(run, *given):
    """What it gives, or the error it raises."""
    try:
        return run(*given)
    except Exception as error:
        return error


@needs_torch
class BesideTest(TrainCase):
    def compiles(self, model):
        self.made.append(vitune.compile(model, replace=["linear_train"]))
        return self.made[-1]

    def state(self):
        replaced = [call.replaced for made in self.made for call in vitune.report(made).calls if call.trains]
        return SERVED if any(replaced) else ALONE

    def test_each_program_gives_what_eager_mode_gives(self):
        for name, (want, program) in CASES.items():
            with self.subTest(name):
                self.made = []
                torch._dynamo.reset()
                torch.manual_seed(0)
                got = outcome(program, self.compiles)
                state = RAISES if isinstance(got, Exception) else self.state()
                torch.manual_seed(0)
                right = outcome(program, lambda model: model)
                if isinstance(got, Exception) or isinstance(right, Exception):
                    torch._dynamo.reset()
                    torch.manual_seed(0)
                    theirs = outcome(program, lambda model: torch.compile(model, backend="aot_eager"))
                    self.assertIsInstance(theirs, type(got), f"ours: {got!r}")
                    right = theirs
                if isinstance(got, list):
                    self.expect_alike(got, right)
                if want is not None:
                    self.assertEqual(state, want, f"{got!r}\n{[str(vitune.report(made)) for made in self.made]}")

    def expect_alike(self, got, want):
        self.assertEqual(len(got), len(want))
        for place, (mine, right) in enumerate(zip(got, want)):
            self.assertEqual((mine.dtype, mine.shape), (right.dtype, right.shape), place)
            if mine.dtype == torch.bool:
                self.assertTrue(torch.equal(mine, right), place)
                continue
            self.assertLessEqual((mine.double() - right.double()).norm().item(), 0.02 * right.double().norm().item() + 1e-9, place)


if __name__ == "__main__":
    unittest.main()
