# python/vitune/_compile/patterns/subgraph.py -- A few nodes of a graph beside what would replace them, both as Inductor compiles them.
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operators one by one are no fair rival of a fused kernel: Inductor makes one kernel of what stands around a matrix
product. So both sides go through it, on tensors made up, with the model's own options."""
from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch._functorch import config as functorch_config
from torch._guards import tracing
from torch._inductor.compile_fx import compile_fx

from . import benchmark
from .benchmark import Run, Times
from .match import as_compiled, hint, is_parameter, value_of, wants_gradient

#: The race captures CUDA graphs itself; these would be captured inside of them.
_WITHOUT_GRAPHS = {"triton.cudagraphs": False, "triton.cudagraph_trees": False}


@contextlib.contextmanager
def compiled_with(options: Mapping[str, Any]) -> Iterator[None]:
    """Those of Inductor that regions are compiled with meanwhile."""
    token = benchmark.options.set(options)
    try:
        yield
    finally:
        benchmark.options.reset(token)


def options_key() -> str:
    """The same for options that compile alike."""
    return repr(sorted((name, str(value)) for name, value in benchmark.options.get().items()))


class Subgraph(NamedTuple):
    """Nodes of a graph, in its order, of which calls of ours would be."""

    nodes: Sequence[fx.Node]
    results: Sequence[fx.Node]  #: those of them that are seen elsewhere
    #: Nodes that Inductor may compute together with it: its inputs, and uses of its results. In the race on both sides.
    before: Sequence[fx.Node]
    after: Sequence[fx.Node]
    autocast: Optional[torch.dtype]  #: the type that it casts to, where it is on
    narrowed: Optional[torch.dtype] = None  #: the type that all take the first result in
    also: Sequence[fx.Node] = ()  #: inputs that have a gradient from elsewhere, which is added to theirs

    def surroundings(self) -> str:
        """The same for regions among alike neighbours."""
        shapes = lambda node: [tuple(getattr(value_of(taken), "shape", ())) for taken in node.all_input_nodes]  # noqa: E731
        return "; ".join(f"{node.target} of {shapes(node)}" for node in (*self.before, *self.after))

    def outside(self) -> list[fx.Node]:
        """What the nodes take from elsewhere."""
        every = (*self.before, *self.nodes, *self.after)
        return list(dict.fromkeys(taken for node in every for taken in node.all_input_nodes if taken not in every))


Build = Callable[[fx.Graph, Callable[[fx.Node], fx.Node], Sequence[fx.Node]], Sequence[fx.Node]]


def program(region: Subgraph, inputs: Sequence[fx.Node], results_of: Callable[..., Sequence[fx.Node]],
            given: int = 0, trains: bool = False) -> fx.GraphModule:
    """A program of `inputs`, and of so many tensors more, that gives the results of the region and of what stands around it. Where it
    trains the results are the region's alone, which have gradients, and of inputs that have one from elsewhere something else."""
    graph = fx.Graph()
    made = {node: graph.placeholder(node.name) for node in inputs}
    more = [graph.placeholder(f"given_{i}") for i in range(given)]
    _copy(region.before, region, graph, made)
    made.update(zip(region.results, results_of(graph, made, *more)))
    _copy(region.after, region, graph, made)
    around = [graph.call_function(torch.neg, (made[node],)) for node in region.also] if trains else \
        [made[node] for node in (*region.before, *region.after)]
    results = [_as_it_lies(graph, made[node], node) if trains else made[node] for node in region.results]
    graph.output((*results, *around))
    return fx.GraphModule({}, graph)


def _as_it_lies(graph: fx.Graph, result: fx.Node, of: fx.Node) -> fx.Node:
    """A result with its dimensions in the order of memory: AOTAutograd makes gradients of a graph's results contiguous, while in a model they
    lie as the results do, and kernels take other times."""
    strides = as_compiled(value_of(of)).stride()
    order = sorted(range(len(strides)), key=lambda dim: -strides[dim])
    return result if order == sorted(order) else graph.call_method("permute", (result, *order))


def _copy(nodes: Sequence[fx.Node], region: Subgraph, graph: fx.Graph, made: dict[fx.Node, fx.Node]) -> None:
    with autocast(graph, region) if nodes else contextlib.nullcontext():
        for node in nodes:
            made[node] = graph.node_copy(node, made.__getitem__)


@contextlib.contextmanager
def autocast(graph: fx.Graph, region: Subgraph) -> Iterator[None]:
    """Nodes that are made meanwhile stand in autocast where the region does."""
    if region.autocast is None:
        yield
        return
    kind = value_of(region.results[0]).device.type
    entered = graph.call_function(torch.amp.autocast_mode._enter_autocast, (kind, region.autocast, True, True))
    yield
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (entered,))


def _theirs(region: Subgraph, graph: fx.Graph, made: dict[fx.Node, fx.Node]) -> Sequence[fx.Node]:
    _copy(region.nodes, region, graph, made)
    first, *others = (made[node] for node in region.results)
    return [first if region.narrowed is None else graph.call_method("to", (first, region.narrowed)), *others]


def made_up(node: fx.Node, device: torch.device, rows: Optional[int] = None) -> Any:
    """A tensor of random numbers as a node's, or its number; rows: of what it is an index of."""
    value = value_of(node)
    if rows is not None:
        return (torch.arange(value.numel(), device=device, dtype=value.dtype) % rows).view(value.shape)  # each as often
    return benchmark.sample(as_compiled(value), device) if isinstance(value, Tensor) else hint(value)


def _run(module: fx.GraphModule, inputs: Sequence[Sequence[Any]]) -> Run:
    """Each call takes the next of `inputs`, in turn."""
    if sum(node.op.startswith("call_") for node in module.graph.nodes) > 1:  # nothing becomes of a single call
        with tracing(None):  # not the graph that is being compiled
            module = compile_fx(module, list(inputs[0]), config_patches={**benchmark.options.get(), **_WITHOUT_GRAPHS})
    turn = itertools.cycle(inputs)
    return lambda: module(*next(turn))


def turns(inputs: Sequence[Any], weights: Sequence[bool], l2_bytes: int) -> list[list[Any]]:
    """Inputs with as many copies of the weights as L2 does not hold: those of a layer are read once in a pass, and those of the
    others have been there since. What the layer before gave is there still."""
    size = sum(value.numel() * value.element_size() for value, is_weight in zip(inputs, weights) if is_weight)
    copies = min(benchmark.MOST_CALLS, 1 + 2 * l2_bytes // size) if size and l2_bytes else 1
    return [list(inputs), *([value.clone() if is_weight else value for value, is_weight in zip(inputs, weights)]
                            for _ in range(copies - 1))]


#: Compiles the backward pass with the forward pass. Else its first run does, which PyTorch refuses in the midst of compiling a model.
_BACKWARD_AT_ONCE = "force_non_lazy_backward_lowering"


def _run_in_training(module: fx.GraphModule, inputs: Sequence[Sequence[Any]]) -> Run:
    """As _run(), with gradients of all inputs that want one."""
    with tracing(None), torch.enable_grad(), functorch_config.patch(_BACKWARD_AT_ONCE, True):
        module = compile_fx(module, list(inputs[0]), config_patches={**benchmark.options.get(), **_WITHOUT_GRAPHS})
    turn, grads = itertools.cycle(inputs), []

    def run() -> Sequence[Tensor]:
        given = next(turn)
        with torch.enable_grad():
            results = [result for result in module(*given) if result.requires_grad]
            if not grads:
                grads.extend(_gradient(result, i) for i, result in enumerate(results))
            return *results, *torch.autograd.grad(results, [value for value in given if getattr(value, "requires_grad", False)], grads)
    return run


def _gradient(result: Tensor, place: int) -> Tensor:
    """Laid out as the result; the same numbers for each layout."""
    dense = benchmark.sample(torch.empty(result.shape, dtype=result.dtype, device="meta"), result.device, benchmark.GRADIENT_SEED + place)
    return torch.empty_like(result.detach()).copy_(dense)


def raced_in_training(region: Subgraph, operands: Sequence[fx.Node], build: Build, *, keeps_plans: bool = False,
                      rows: Mapping[fx.Node, int] = {}, judged: Optional[Callable[[], str]] = None) -> Optional[Times]:
    """As raced(), of a region with nothing behind it: forward and backward together, whose results must be alike too, unless chance decides
    them: then `judged` says what is wrong with ours. None, too, where PyTorch cannot compile both at once. keeps_plans: PyTorch's side keeps
    plans of its kernels (see _spread()). rows: of those operands that are indices, of what they are that."""
    if not hasattr(functorch_config, _BACKWARD_AT_ONCE):
        return None
    device = value_of(region.results[0]).device

    def calls() -> tuple[Run, Run]:
        tensors = {node: made_up(node, device, rows.get(node)) for node in operands}
        weights, l2_bytes = [*map(is_parameter, operands)], benchmark.l2_bytes(device)

        def built(by: Callable[[fx.Graph, dict[fx.Node, fx.Node]], Sequence[fx.Node]], lies: Callable[[Any], Any] = lambda value: value) -> Run:
            inputs = turns([lies(tensors[node]) for node in operands], weights, l2_bytes)
            leaves = [[value.detach().requires_grad_(wants_gradient(value_of(node))) if isinstance(value, Tensor) else value
                       for value, node in zip(values, operands)] for values in inputs]
            return _run_in_training(program(region, operands, by, trains=True), leaves)
        theirs = functools.partial(_theirs, region)
        return built(lambda graph, made: build(graph, made.__getitem__, ())), built(theirs, _spread) if keeps_plans else built(theirs)
    times = benchmark.measured(calls, device, True, judged)
    return None if times is None else times._replace(rival="Inductor's")


def _spread(value: Any) -> Any:
    """The same numbers with a gap between the entries of the outermost dimension, as no model has them. PyTorch 2.11 keeps its plans of
    cuDNN's attention by the strides of q, k and v, but not by those of the result's gradient, which a plan holds too: one made here would give
    wrong gradients to a model whose gradients lie in another order, and one of a model's wrong ones here."""
    if not isinstance(value, Tensor) or value.dim() < 2:
        return value
    steps = list(value.stride())
    steps[max(range(len(steps)), key=steps.__getitem__)] += _GAP
    size = 1 + sum((extent - 1) * step for extent, step in zip(value.shape, steps))
    return value.new_empty(size).as_strided(value.shape, steps).copy_(value)


_GAP = 64  # elements: rows stay as aligned as they are


def raced(region: Subgraph, operands: Sequence[fx.Node], given: Sequence[Tensor], build: Build,
          rival: Optional[Build] = None) -> Optional[Times]:
    """Times of what `build` makes beside those of a region, or of what `rival` makes of it; None where they cannot be had.

    build, rival: of a graph, what stands in it for one of `operands`, and the nodes of `given`, which are fake.
    """
    device = value_of(region.results[0]).device

    def calls() -> tuple[Run, Run]:
        outside = region.outside()
        tensors = {node: made_up(node, device) for node in dict.fromkeys([*outside, *operands])}
        others = [taken for node in (*region.before, *region.after) for taken in node.all_input_nodes]
        needed = [node for node in dict.fromkeys([*operands, *others]) if node not in (*region.results, *region.before)]
        prepared = [benchmark.sample(as_compiled(fake), device) for fake in given]

        l2_bytes = benchmark.l2_bytes(device)

        def built(by: Build) -> Run:
            def results_of(graph: fx.Graph, made: dict[fx.Node, fx.Node], *more: fx.Node) -> Sequence[fx.Node]:
                return by(graph, made.__getitem__, more)
            weights = [*map(is_parameter, needed), *(True for _ in prepared)]
            return _run(program(region, needed, results_of, len(prepared)),
                        turns([*(tensors[node] for node in needed), *prepared], weights, l2_bytes))
        if rival is not None:
            return built(build), built(rival)
        theirs = program(region, outside, functools.partial(_theirs, region))
        return built(build), _run(theirs, turns([tensors[node] for node in outside], [*map(is_parameter, outside)], l2_bytes))
    times = benchmark.measured(calls, device)
    return None if times is None else times._replace(rival="Inductor's")
