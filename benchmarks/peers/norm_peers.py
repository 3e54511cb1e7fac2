# benchmarks/peers/norm_peers.py -- Who computes norms: PyTorch, its compiler, Liger, quack, vitune.
# SPDX-License-Identifier: Apache-2.0
"""Each makes a call of one problem over operands of its own, or says why not (Refused, Absent).

A problem is what docs/problems.md calls `norm` or `group_norm`, in bf16, rows side by side.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import vitune

from .peer import Absent, Call, Refused, sentence

EPS = 1e-5


@dataclasses.dataclass(frozen=True)
class NormProblem:
    """One problem by its text, with its name in tables."""

    name: str
    group: str
    text: str
    floor_us: float | None

    @property
    def is_group(self) -> bool:
        """Whether it is a GroupNorm."""
        return self.text.startswith("group_norm ")

    def number(self, key: str) -> int:
        """The value of a word key=."""
        return int(re.search(rf"\b{key}=(\d+)", self.text).group(1))

    def has(self, word: str) -> bool:
        """Whether the word stands there."""
        return word in self.text.split()


@dataclasses.dataclass
class NormOperands:
    """x [m, d], or [n, c, l] (with nhwc in [n, l, c] memory); residual like x, or None."""

    x: torch.Tensor
    residual: torch.Tensor | None
    weight: torch.Tensor
    bias: torch.Tensor


def make_operands(problem: NormProblem) -> NormOperands:
    """Fresh normal data on the current GPU; seed PyTorch before."""
    made: dict[str, Any] = {"dtype": torch.bfloat16, "device": "cuda"}
    if problem.is_group:
        n, c, l = (problem.number(key) for key in "ncl")
        x = torch.randn(n, l, c, **made).transpose(1, 2) if problem.has("nhwc") else torch.randn(n, c, l, **made)
        return NormOperands(x, None, torch.randn(c, **made), torch.randn(c, **made))
    m, d = problem.number("m"), problem.number("d")
    residual = torch.randn(m, d, **made) if problem.has("residual") else None
    return NormOperands(torch.randn(m, d, **made), residual, torch.randn(d, **made), torch.randn(d, **made))


def _activation(problem: NormProblem) -> Callable[[torch.Tensor], torch.Tensor]:
    return F.silu if problem.has("silu") else F.mish if problem.has("mish") else lambda y: y


def formula(problem: NormProblem) -> Callable[..., Any]:
    """What a model writes: (x, weight, bias[, residual]) -> out, or (sum, out)."""
    if problem.is_group:
        groups, act = problem.number("g"), _activation(problem)
        return lambda x, w, b: act(F.group_norm(x, groups, w, b, EPS))
    if problem.has("residual"):

        def add_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> Any:
            total = x + r
            return total, F.layer_norm(total, x.shape[-1:], w, b, EPS)

        return add_norm
    return lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, EPS)


def _arguments(t: NormOperands) -> tuple[torch.Tensor, ...]:
    return (t.x, t.weight, t.bias) if t.residual is None else (t.x, t.weight, t.bias, t.residual)


def result(output: Any) -> torch.Tensor:
    """The normalised tensor of a call's output."""
    return output[1] if isinstance(output, tuple) else output


def reference(problem: NormProblem, t: NormOperands) -> torch.Tensor:
    """In fp64, of the same inputs."""
    return result(formula(problem)(*(x.double() for x in _arguments(t))))


class Eager:
    """PyTorch's own kernels."""

    name = "eager"

    def prepare(self, problem: NormProblem, t: NormOperands) -> Call:
        """Never refuses."""
        function, arguments = formula(problem), _arguments(t)
        function(*arguments)
        return Call(lambda: function(*arguments))


class Compiled:
    """torch.compile(mode="max-autotune-no-cudagraphs") of the same formula."""

    name = "compiled"

    def prepare(self, problem: NormProblem, t: NormOperands) -> Call:
        """Compiles."""
        torch._dynamo.reset()
        arguments = _arguments(t)
        function = torch.compile(formula(problem), fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs")
        function(*arguments)
        return Call(lambda: function(*arguments))


class Liger:
    """Liger-Kernel's Triton kernels: forward only, as under no_grad."""

    name = "liger"

    def prepare(self, problem: NormProblem, t: NormOperands) -> Call:
        """Raises Absent, Refused."""
        try:
            from liger_kernel.ops.layer_norm import layer_norm_forward
        except ImportError as error:
            raise Absent(f"Liger-Kernel cannot be imported: {error}") from None
        if problem.is_group or t.residual is not None:
            raise Refused("has no forward of this form: its fused add is for RMSNorm, its GroupNorm has no activation")
        call = lambda: layer_norm_forward(t.x, t.weight, t.bias, EPS)[0]  # noqa: E731
        call()
        return Call(call)


class Quack:
    """quack's CuTe DSL kernels."""

    name = "quack"

    def prepare(self, problem: NormProblem, t: NormOperands) -> Call:
        """Raises Absent, Refused."""
        try:
            from quack.rmsnorm import _rmsnorm_fwd as forward
        except Exception as error:  # a broken package is an absent one
            raise Absent(f"quack cannot be imported: {sentence(error)}") from None
        if problem.is_group:
            raise Refused("has no GroupNorm")

        # The operator below layernorm_fwd(), which takes a residual too.
        def call() -> Any:
            out = torch.empty_like(t.x)
            total = None if t.residual is None else torch.empty_like(t.x)
            forward(t.x, t.weight, out, t.bias, None, None, t.residual, total, EPS, True)
            return out if total is None else (total, out)

        call()
        return Call(call)


class Vitune:
    """vitune: the winner of the database, else what the library serves in its place."""

    name = "vitune"

    def __init__(self, name: str = "vitune", **options: Any) -> None:
        self.name, self._options, self._context = name, options, None

    def prepare(self, problem: NormProblem, t: NormOperands) -> Call:
        """Raises Refused where the library has no kernel."""
        if self._context is None:
            self._context = vitune.Context(0, **self._options)
        context = self._context
        try:
            asked = vitune.Problem(problem.text)
            selection = context.query(asked)
        except vitune.VituneError as error:
            raise Refused(str(error)) from None
        inputs = {"x": t.x, "weight": t.weight, "bias": t.bias, "residual": t.residual}
        order = [tensor for tensor in asked.tensors]
        size = context.workspace_bytes(asked)
        scratch = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")

        def call() -> Any:
            outputs = {tensor.name: torch.empty_like(t.x) for tensor in order if tensor.given and tensor.output}
            addresses = [(inputs.get(x.name) if not x.output else outputs[x.name]).data_ptr() if x.given else 0 for x in order]
            context.run(asked, addresses, workspace=scratch.data_ptr() if size else 0, workspace_bytes=size,
                        stream=torch.cuda.current_stream().cuda_stream)
            return (outputs["sum"], outputs["out"]) if "sum" in outputs else outputs["out"]

        call()
        return Call(call, selection.config, selection.outcome)


def make_peers(database: str | None, empty: str, objective: str) -> list[Any]:
    """All, in the order of tables. empty: where a database without winners may be."""
    options: dict[str, Any] = {"objective": objective}
    if database is not None:
        options["database"] = database
    default = Vitune("vitune_default", database=empty, shipped_database="", on_miss="default")
    return [Vitune(**options), default, Quack(), Liger(), Compiled(), Eager()]
