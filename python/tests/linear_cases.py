# python/tests/linear_cases.py -- What tests of vitune.compile() on linear layers share: the emulated device below them, small models.
# SPDX-License-Identifier: Apache-2.0
"""As test_torch_compile.py: launches go to the emulated device, and aot_eager stands in for Inductor. Nothing can be timed there, so
that the operator is asked for by name, and its kernels count as another problem's winners."""
import copy
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, torch
from .test_torch_compile import CompileCase, served_by_nearest, without_inductor

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import nn

from vitune._compile import backend
from vitune._compile.patterns import benchmark, linear as linear_pattern, subgraph
from vitune._ops import linear as linear_ops, linear_moments as moments_ops

from .test_torch_linear import launch_staged


@unittest.skipIf(OPERATORS, "linear layers are not the operators' library's: once is enough")
class LinearCase(CompileCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for op in (linear_ops.linear_op, linear_ops.linear_or_torch_op,
                   moments_ops.linear_with_moments_or_torch_op, moments_ops.linear_by_moments_or_torch_op):
            op.register_kernel("cpu")(op._init_fn)

    def setUp(self):
        super().setUp()
        self.launched = []

        def launch(problem, tensors):
            self.launched.append(problem.text)
            launch_staged(problem, tensors)
        nearest = lambda problem, device: served_by_nearest(vitune.Problem(problem), device)  # noqa: E731
        for module, name, value in ((linear_ops, "launch", launch), (linear_pattern, "selected", nearest)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def fused(self, model, *arguments, bound=0.03, **keywords):
        """The linear layers' calls of a report, after the answers were compared with those of the model in fp64."""
        torch._dynamo.reset()
        with torch.no_grad():
            got, report = self.compiled(model, *arguments, **{"replace": ["linear"], **keywords})
            wide = copy.deepcopy(model).double() if isinstance(model, nn.Module) else model
            want = wide(*(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments))
        self.expect_close(got.double(), want, bound)
        self.assertFalse(any(graph.error for graph in report.graphs), report)
        return [call for call in report.calls if call.operator == "linear"]

    def calls(self, *arguments, **keywords):
        return [(call.call, call.replaced) for call in self.fused(*arguments, **keywords)]


class RaceCase(LinearCase):
    """A race that would be on a GPU, with times of the test's own."""

    def setUp(self):
        super().setUp()
        self.raced, self.lost = [], set()
        for module, name, value in ((benchmark, "can_race", lambda device: True), (benchmark, "race", self.race),
                                    (backend, "_times", {})):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def race(self, ours, theirs, device):
        self.raced.append(tuple(result if isinstance(result, torch.Tensor) else result[0] for result in (ours(), theirs())))
        return benchmark.Times(20.0 if len(self.raced) in self.lost else 5.0, 10.0)

    def report_of_race(self, model, *arguments, lost=(), compile_fx=None):
        torch._dynamo.reset()
        self.raced.clear()
        backend._times.clear()
        self.lost = set(lost)
        with torch.no_grad(), mock.patch.object(subgraph, "compile_fx", compile_fx or without_inductor):
            return self.compiled(model, *arguments)[1]

    def race_of(self, *arguments, **keywords):
        """The first call of a linear layer."""
        return next(call for call in self.report_of_race(*arguments, **keywords).calls if call.operator == "linear")


def bf16(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).bfloat16()


class Tail(nn.Module):
    """A layer and what `after` makes of its result, x and a parameter for each column."""

    def __init__(self, after, k=24, n=40, bias=True):
        super().__init__()
        self.layer, self.gamma, self.after = nn.Linear(k, n, bias=bias), nn.Parameter(torch.randn(n)), after
        self.bfloat16().eval()

    def forward(self, x, r):
        return self.after(self.layer(x), r, self.gamma)


class Mlp(nn.Module):
    """A norm, a layer and an activation: all of it one call."""

    def __init__(self, k=32, n=48, norm=None, bias=True):
        super().__init__()
        self.norm, self.layer = norm or nn.LayerNorm(k), nn.Linear(k, n, bias=bias)
        for parameter in self.norm.parameters():
            nn.init.normal_(parameter, 1.0, 0.3)
        self.bfloat16().eval()

    def forward(self, x):
        return F.gelu(self.layer(self.norm(x)))
