# benchmarks/peers/linear/cudnn_peer.py -- Linear layers as a graph of cuDNN's: matmul, bias, exact GELU, scale, residual.
# SPDX-License-Identifier: Apache-2.0
"""Through cuDNN's own Python frontend (the package nvidia-cudnn-frontend), on the cuDNN of PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.peer import Absent, Call, Refused, sentence
from .cublaslt import fastest, milliseconds
from .operands import Operands
from .problem import Problem

PLANS = 4  # of the heuristic, built and raced: each is compiled
WORKSPACE = 32 << 20

#: The frontend's names of one operation each.
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_approx_tanh",
    "silu": "swish",
}


class Graph:
    """A problem as a graph, and the tensors of it that a call binds."""

    def __init__(self, cudnn: Any, handle: Any, problem: Problem, t: Operands) -> None:
        """Raises Refused for what no pointwise operation of cuDNN's does."""
        if problem.is_of_training:
            raise Refused("is called with W as [n, k] and a result of x's type here")
        if problem.has_norm or problem.period != problem.number("m"):
            raise Refused("has no fused norm before a product, and no residual that repeats")
        if problem.activation and problem.activation not in _ACTIVATIONS:
            raise Refused(f"has no {problem.activation}")
        kinds = cudnn.data_type
        kind = kinds.BFLOAT16 if t.x.dtype is torch.bfloat16 else kinds.HALF
        self.graph = graph = cudnn.pygraph(
            io_data_type=kind,
            intermediate_data_type=kinds.FLOAT,
            compute_data_type=kinds.FLOAT,
            handle=handle,
        )
        self.bound: dict[Any, torch.Tensor] = {}
        (m, k), n = t.x.shape, t.weight.shape[0]

        def given(name: str, tensor: torch.Tensor, dim: list[int], stride: list[int]) -> Any:
            made = graph.tensor(name=name, dim=dim, stride=stride, data_type=kind)
            self.bound[made] = tensor
            return made

        rows, columns = t.x.stride(0), t.weight.stride(0)
        x = given("x", t.x, [1, m, k], [m * rows, rows, 1])
        # [n, k] in memory, read as [k, n].
        weight = given("weight", t.weight, [1, k, n], [n * columns, 1, columns])
        y = graph.matmul(A=x, B=weight, name="product")
        if t.bias is not None:
            y = graph.add(a=y, b=given("bias", t.bias, [1, 1, n], [n, n, 1]))
        if problem.activation:
            y = getattr(graph, _ACTIVATIONS[problem.activation])(input=y)
        if t.scale is not None:
            y = graph.mul(a=y, b=given("scale", t.scale, [1, 1, n], [n, n, 1]))
        if t.residual is not None:
            y = graph.add(a=y, b=given("residual", t.residual, [1, m, n], [m * n, n, 1]))
        y.set_output(True).set_data_type(kind)
        self.out, self.shape = y, (m, n)


class Cudnn:
    """The fastest of the plans that cuDNN's heuristic puts first."""

    name = "cudnn"

    def __init__(self) -> None:
        self._handle: Any = None
        self._workspace: Any = None

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Builds and races plans. Raises Absent, Refused."""
        try:
            import cudnn
        except Exception as error:  # a broken package is an absent one
            raise Absent(f"nvidia-cudnn-frontend cannot be imported: {sentence(error)}") from None
        device = operands.x.device
        if self._handle is None:
            self._handle = cudnn.create_handle()
            self._workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
        made = Graph(cudnn, self._handle, problem, operands)
        graph, handle, workspace = made.graph, self._handle, self._workspace
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        except cudnn.cudnnGraphNotSupportedError as error:
            raise Refused(f"has no plan for this graph: {sentence(error)}") from None

        def run(index: int) -> torch.Tensor:
            out = torch.empty(made.shape, dtype=operands.x.dtype, device=device)
            cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
            graph.execute_plan_at_index({**made.bound, made.out: out}, workspace, index, handle)
            return out

        def built(index: int) -> Any:
            graph.build_plan_at_index(index)
            if graph.get_workspace_size_plan_at_index(index) > WORKSPACE:
                raise RuntimeError(f"plan {index} needs more than {WORKSPACE} bytes of workspace")
            return lambda: run(index)

        count = min(PLANS, graph.get_execution_plan_count())
        index = fastest(range(count), built, milliseconds)
        return Call(lambda: run(index), graph.get_plan_name_at_index(index), provider="cuDNN")
