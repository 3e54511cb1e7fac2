# benchmarks/peers/map/torch_peers.py -- Maps by PyTorch's own kernels and by its compiler.
# SPDX-License-Identifier: Apache-2.0
"""Each makes a call of one problem, which writes a new result with the strides of the text."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..engine.peer import Call
from .operands import Operands, formula, make_out
from .problem import Problem


def _call(problem: Problem, t: Operands, write: Callable[..., None]) -> Call:
    """Of a function (out, *operands)."""
    given, device = t.given, t.given[0].device

    def run() -> torch.Tensor:
        out = make_out(problem, device)
        write(out, *given)
        return out

    return Call(run)


class Eager:
    """PyTorch's own kernels, one for each operation, in the types of the operands."""

    name = "eager"

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Never refuses."""
        call = _call(problem, operands, formula(problem, None))
        call.run()
        return call


class Compiled:
    """The expression in fp32 under torch.compile, with all of its tuning; the strided result is part of what is compiled."""

    name = "compiled"
    mode = "max-autotune-no-cudagraphs"  # coordinate descent is part of it

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Compiles. The call's config says how many kernels Inductor made of it."""
        from torch._inductor import metrics

        torch._dynamo.reset()  # else the tenth problem is one recompilation too many
        metrics.reset()
        write = torch.compile(
            formula(problem, torch.float32), fullgraph=True, dynamic=False, mode=self.mode
        )
        call = _call(problem, operands, write)
        call.run()
        kernels = metrics.generated_kernel_count
        call.config = f"{kernels} kernel{'' if kernels == 1 else 's'}"
        if kernels > 1:
            call.remark = f"{kernels} kernels a call, and not one"
        return call

    def compile_ahead(self, problem: Problem, operands: Operands) -> None:
        """Compiles all that is tried, and keeps no choice: other processes are at work on the GPU."""
        from torch._inductor import config

        with config.patch(autotune_local_cache=False):
            self.prepare(problem, operands)


class CompiledDefault(Compiled):
    """The same with default options."""

    name = "compiled_default"
    mode = "default"
