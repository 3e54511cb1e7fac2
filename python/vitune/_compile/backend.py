# python/vitune/_compile/backend.py -- vitune.compile(): a backend that puts vitune's operators into Dynamo's graph; the rest is Inductor's.
# SPDX-License-Identifier: Apache-2.0
"""The graph is still the model's own here: after AOT a norm is a variance and a root, and attention may be matrix products."""
from __future__ import annotations

import dataclasses
import hashlib
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import torch
from torch import fx
from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from .._runtime.context import Selection
from .._runtime.errors import InvalidArgument, VituneError, reason_of
from .._runtime.structs import NOT_TUNED_HERE, VERSION
from . import by_name, checkpoints, device_bound, inputs as graph_inputs
from .folded_parameters import FoldedParameters, FoldCache
from .patterns import benchmark, dead_rows, distinct, every, stems, subgraph, tokens, unfrozen
from .patterns.benchmark import Times
from .patterns.layouts import leave_misfits
from .patterns.match import (FusionPattern, Match, NoMatch, Rewrite, copied, gradients_at, is_transformed, module_of, value_of,
                             wants_gradient)
from .patterns.tree import beginning_at
from .report import Call, Graph, Report

by_name.register()
_times: dict[Any, Optional[Times]] = {}  # of this process, for all models
_backends: weakref.WeakKeyDictionary[Any, "Backend"] = weakref.WeakKeyDictionary()


class WinnersInCacheKey(CustomGraphPass):
    """Makes the winners that a graph was made for a part of the key that Inductor caches it by, and which operators it calls for ours."""

    def __init__(self, selections: Iterable[Selection], before: Any) -> None:
        texts = sorted({f"{found.problem}\n{found.config}\n{found.kernel_key}" for found in selections})
        self._digest = hashlib.sha256("\n".join([str(VERSION), *every.called_for_ours(), *texts]).encode()).hexdigest()
        self._before = before  # another pass that was here

    def __call__(self, graph: fx.Graph) -> None:
        if self._before is not None:
            self._before(graph)

    def uuid(self) -> Any:
        if self._before is None:
            return self._digest
        # A pass without a name of its own keeps a graph out of the cache, as without us.
        name = self._before.uuid() if isinstance(self._before, CustomGraphPass) else None
        return None if name is None else f"{self._digest} {name}"


#: Why a layer that trains is Inductor's.
_WITHOUT_GRAPH = ("a gradient is wanted of it, and without a CUDA graph a step of such short calls waits for the host: take"
                  " vitune.train_step(), a mode with CUDA graphs, or training=True")


class Backend:
    """What torch.compile calls for each graph."""

    __name__ = "vitune"

    def __init__(self, mode: Optional[str], dynamic: Optional[bool], options: Optional[dict[str, Any]],
                 replace: Optional[Iterable[str]], prepared_weights: bool, training: Optional[bool] = None) -> None:
        self._asked = (mode, dynamic, options, replace if replace is None or isinstance(replace, str) else tuple(replace), prepared_weights,
                       training)
        self._inductor = torch._TorchCompileInductorWrapper(mode, options, dynamic)
        self._as_told = replace is not None
        in_graph = bool(self._inductor.config.get("triton.cudagraphs"))
        self._set_training(self._as_told or in_graph if training is None else training)
        self._by_graph = training is None and not self.training  # each graph's times tell whether it trains with vitune's operators
        self.graphs: list[Graph] = []
        self.store = FoldCache(prepared_weights)
        self._results = graph_inputs.Results()

    def _set_training(self, training: bool) -> None:
        self.training, self._wanted = training, _wanted(self._asked[3], training)

    def serve_training(self) -> None:
        """In a step that is captured, unless it was said otherwise. Graphs that were compiled before stay as they are."""
        if self._asked[5] is None:
            self._set_training(True)
            self._by_graph = False

    def __reduce__(self) -> Any:
        """A copy of a compiled model compiles for itself."""
        return Backend, self._asked

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        module.graph = copied(module.graph)  # Dynamo goes on with its own, whose inputs must stay what they are
        before = [*module.graph.nodes, *(node for body in checkpoints.bodies(module) for node in body.graph.nodes)]
        checkpoints.copy_bodies(module)
        unfrozen.guard(module.graph)
        prepared = FoldedParameters(self.store, module.graph, inputs)
        with subgraph.compiled_with(self._inductor.config):
            graph = self._rewritten(module, prepared)
        benchmark.free()
        patches = dict(self._inductor.config)
        served = [found for call in graph.calls if call.replaced for found in call.selections]
        if served or graph.stems:  # a pool that trains is of this release's formula
            name = "post_grad_custom_post_pass"
            patches[name] = WinnersInCacheKey(served, patches.get(name) or getattr(inductor_config, name))
        still = graph_inputs.Inputs(module.graph, inputs, self._results) if graph_inputs.are_graphs(patches) else None
        compiled = compile_fx(module, [*inputs, *prepared.fakes()], config_patches=patches)  # it may ask Dynamo to trace once more
        self.graphs.append(graph)
        served = prepared.served(compiled)
        # As Dynamo does with its own: fake tensors refer weakly to parameters, and torch.utils.swap_tensors refuses these then.
        after = (node for each in (module, *checkpoints.bodies(module)) for node in each.graph.nodes)
        for node in (*before, *after):
            node.meta.pop("example_value", None), node.meta.pop("grapharg", None)
        return served if still is None else still.served(served)

    @distinct.of_one_graph()
    def _rewritten(self, module: fx.GraphModule, prepared: FoldedParameters) -> Graph:
        """Places of several operators' calls first: their nodes are gone once such a call is replaced, and what they leave (the
        layers around windows) is looked at in the graph as it is then."""
        calls, errors = [], []
        left_out = dead_rows.leave_out(module)
        laid_out = [] if self._as_told else stems.lay_out(module)
        copies = tokens.lay_out(module)
        passes = tuple(each for each in every.PATTERNS if each.spans), tuple(each for each in every.PATTERNS if not each.spans)
        places = [(module, operators) for operators in passes]
        # Nothing is prepared for the bodies of checkpoints: one has no inputs but its node's.
        bodies = checkpoints.bodies(module)
        places += [(body, tuple(each for each in operators if each.trains)) for body in bodies for operators in passes]
        before = self._wanted
        if self._by_graph and self._waits_for_device([(each, passes) for each in (module, *bodies)], prepared):
            self._wanted = _wanted(None, True)
        try:
            for graph, operators in places:
                made, error = self._pass(operators, graph, prepared)
                calls += made
                errors += [error] if error else []
        finally:
            self._wanted = before
        if not any(call.replaced for call in calls):
            tokens.take_out(module, copies)
        given = (value_of(node) for node in prepared.inputs if not node.name.startswith("l_self_"))
        shapes = ", ".join(str(list(value.shape)) for value in given if isinstance(value, torch.Tensor))
        return Graph(shapes, tuple(calls), "; ".join(errors), str(left_out or ""), "; ".join(map(str, laid_out)))

    def _waits_for_device(self, graphs: Sequence[tuple[fx.GraphModule, Any]], prepared: FoldedParameters) -> bool:
        """True if the GPU has so much to do in the places that train that a step outside of CUDA graphs waits for it."""
        nodes = [node for module, _ in graphs for node in module.graph.nodes]
        devices = {value.device for value in map(value_of, nodes) if isinstance(value, torch.Tensor)}
        trains = any(wants_gradient(value_of(node)) for node in nodes if node.op not in ("placeholder", "get_attr"))
        if not trains or not every.called_for_ours() or not any(map(benchmark.can_race, devices)):
            return False  # nothing trains, calls are Python's, or nothing can be timed here
        before, self._wanted = self._wanted, _wanted(None, True)

        def predicted(operator: FusionPattern, place: Match, node: fx.Node) -> Optional[float]:
            reason, selections = self._decide(operator, place, node, prepared)
            return None if reason else sum(found.predicted_us or found.warm_us for found in selections) or None

        def timed(operator: FusionPattern, place: Match, node: fx.Node) -> Optional[float]:
            times = self._try(operator, place, node, prepared).times
            return None if times is None else times.theirs_us

        try:
            is_short = 0 < device_bound.mean_us(graphs, predicted) < device_bound.LEAST_PREDICTED_US
            return not is_short and device_bound.mean_us(graphs, timed) >= device_bound.LEAST_US
        except Exception:  # patterns meet every program there is: none may keep it from being compiled
            benchmark.expect_devices_alive()
            return False
        finally:
            self._wanted = before

    def _pass(self, operators: Sequence[FusionPattern], module: fx.GraphModule, prepared: FoldedParameters) -> tuple[list[Call], str]:
        """Puts in what these operators find, but for what leads to a place that cannot take it; or, with the error, nothing."""
        rewrite = Rewrite(module.graph, prepared.nodes)
        calls = [call for node in rewrite.left() for call in self._calls_at(node, operators, rewrite, prepared)]
        if not rewrite.ours:
            return calls, ""
        error = ""
        try:
            calls = self._fitting(calls, rewrite, module, prepared)
            rewrite.finish()
        except Exception as failure:  # whatever PyTorch raises: the graph is as it was
            benchmark.expect_devices_alive()
            rewrite.undo()
            prepared.forget_erased()
            error = f"with vitune's operators it cannot be traced: {type(failure).__name__}: {failure}"
            calls = [dataclasses.replace(call, replaced=False, reason="with what would be replaced the graph cannot be traced")
                     if call.replaced else call for call in calls]
        module.recompile()
        return calls, error

    def _fitting(self, calls: list[Call], rewrite: Rewrite, module: fx.GraphModule, prepared: FoldedParameters) -> list[Call]:
        """Leaves calls as they are whose results reach a place with other strides than it can take."""
        replaced = list(zip([call for call in calls if call.replaced], rewrite.put_places))
        reasons = leave_misfits(module, rewrite)
        prepared.forget_erased()
        left = {id(call): reasons[put] for call, put in replaced if put in reasons}
        return [dataclasses.replace(call, replaced=False, reason=left[id(call)]) if id(call) in left else call for call in calls]

    def _calls_at(self, node: fx.Node, operators: Sequence[FusionPattern], rewrite: Rewrite, prepared: FoldedParameters) -> Iterable[Call]:
        for operator in beginning_at(node, operators):
            try:
                call = self._call(operator, node, rewrite, prepared)
            except Exception as failure:  # patterns meet every program there is: none may keep it from being compiled
                benchmark.expect_devices_alive()
                call = Call(module_of(node), operator.name, str(node), False, f"{type(failure).__name__}: {failure}", None)
            if call is not None:
                yield call
                if call.replaced:
                    break  # else another operator may serve a part of it

    def _call(self, operator: FusionPattern, node: fx.Node, rewrite: Rewrite, prepared: FoldedParameters) -> Optional[Call]:
        """What is made of a node, if the operator knows it: of the largest place that can be replaced."""
        tried: list[Call] = []
        for place in operator.places(node):
            tried.append(self._try(operator, place, node, prepared))
            if tried[-1].replaced:
                rewrite.put(place)
                *tried, replaced = tried
                return dataclasses.replace(replaced, tried=tuple(tried))
        return dataclasses.replace(tried[0], tried=tuple(tried[1:])) if tried else None

    def _try(self, operator: FusionPattern, place: Match | NoMatch, node: fx.Node, prepared: FoldedParameters) -> Call:
        reason, selections = self._decide(operator, place, node, prepared)
        times = None if reason else self._times(place, selections)
        # A call that was not known to be faster replaces the operations only if it wins by more than the error of a race; a
        # call that was known to be faster does not have to win again.
        never_tuned = any(found.outcome in NOT_TUNED_HERE for found in selections)
        if times is not None and times.wrong:
            reason = f"its answers are not {times.rival}: {times.wrong}"
        elif times is not None and (times.lost or operator.only_if_timed and not times.won):
            reason = f"{times.rival} was {'faster' if times.ours_us > times.theirs_us else 'as fast'} when both were timed here"
            reason += ", with kernels that were never tuned here: `vitune tune` takes the problems below" if never_tuned else ""
        elif times is None and not reason and operator.only_if_timed and not self._as_told:
            reason = f"it could not be timed beside PyTorch's here; replace=[..., '{operator.name}'] puts it in all the same"
        selection, *further = selections or [None]
        return Call(module_of(node), operator.name, place.call, not reason, reason, selection, times, further=tuple(further),
                    trains=operator.trains)

    def _times(self, place: Match, selections: Sequence[Selection]) -> Optional[Times]:
        """Of a call that would be replaced, once for each problem; not of operators that were asked for by name."""
        if self._as_told:
            return None
        served = tuple((found.problem, found.config, found.kernel_key) for found in selections)
        key = (place.call, served, place.surroundings, subgraph.options_key(), benchmark.must_repeat())
        if key not in _times and (times := place.race()) is not None:  # what failed may not fail again
            _times[key] = times
        return _times.get(key)

    def _decide(self, operator: FusionPattern, place: Match | NoMatch, node: fx.Node,
                prepared: FoldedParameters) -> tuple[str, Sequence[Selection]]:
        """Why a call stays Inductor's, "" if it does not; and the kernels that serve it or would."""
        results = [node] if isinstance(place, NoMatch) else [node, *place.nodes]
        if operator.name not in self._wanted if operator.trains else any(wants_gradient(value_of(result)) for result in results):
            untold = operator.trains and not self.training and self._asked[5] is None
            return _WITHOUT_GRAPH if untold else "a gradient is wanted of it", ()
        if isinstance(place, NoMatch):
            return place.reason, ()
        if operator.trains and is_transformed(node):
            return "torch.func transforms it", ()
        if len(gradients_at(place.at.graph, frozenset((*results, *place.covered)))) > 1:
            return "gradients are turned on or off within it", ()
        why_not = prepared.why_not(place.recipes)
        if why_not:
            return why_not, ()
        if operator.name not in self._wanted:  # nobody has to tune what would not be put in
            return f"not known to be faster than Inductor's; replace=[..., '{operator.name}'] puts it in", ()
        if place.unserved:
            return "" if self._as_told else place.unserved, ()
        reason, selections = "", []
        try:
            selections = [ask() for ask in (place.ask, *place.ask_further) if ask is not None]
            if any(found.outcome == "default" for found in selections) and not operator.races_defaults:
                reason = "it was never tuned: `vitune tune` takes the problem below"
        except VituneError as error:
            reason = reason_of(error)
        return reason, selections

    def get_compiler_config(self) -> dict[str, Any]:
        """Asked by torch.compile."""
        return self._inductor.get_compiler_config()

    def reset(self) -> None:
        """Asked by torch._dynamo.reset()."""
        self._inductor.reset()
        self.graphs.clear()


def _wanted(replace: Optional[Iterable[str]], training: bool) -> frozenset[str]:
    if replace is None:
        return frozenset(operator.name for operator in every.PATTERNS if operator.wins and (training or not operator.trains))
    names, known = frozenset([replace] if isinstance(replace, str) else replace), {operator.name for operator in every.PATTERNS}
    if not names <= known:
        raise InvalidArgument(f"replace has {', '.join(sorted(names - known))}: the operators are {', '.join(sorted(known))}")
    asked = names & {operator.name for operator in every.PATTERNS if operator.trains}
    if asked and not training:
        raise InvalidArgument(f"replace has {', '.join(sorted(asked))}, and training=False leaves these to Inductor: say one of both")
    return names


def compile(model: Any, mode: Optional[str], dynamic: Optional[bool], fullgraph: bool, options: Optional[dict[str, Any]],
            replace: Optional[Iterable[str]], prepared_weights: bool, training: Optional[bool] = None) -> Any:
    """See vitune.compile()."""
    inductors = dict(options or {})
    # Dynamo's own, which torch.compile takes out of Inductor's options.
    dynamos = {name: inductors.pop(name) for name in ("guard_filter_fn",) if name in inductors}
    backend = Backend(mode, dynamic, inductors or None, replace, prepared_weights, training)
    compiled = torch.compile(model, backend=backend, dynamic=dynamic, fullgraph=fullgraph, options=dynamos or None)
    _backends[compiled] = backend
    return compiled


def _backend_of(compiled: Any, asked: str) -> Backend:
    backend = _backends.get(compiled)
    if backend is None:  # a copy, or what was loaded again
        backend = getattr(getattr(compiled, "dynamo_ctx", None), "callback", None)
        while backend is not None and not isinstance(backend, Backend):
            backend = getattr(backend, "_torchdynamo_orig_backend", None) or getattr(backend, "compiler_fn", None)
    if backend is None:
        raise InvalidArgument(f"{asked}() takes what vitune.compile() returned")
    return backend


def is_compiled(model: Any) -> bool:
    """Whether it is what vitune.compile() returned."""
    try:
        return _backend_of(model, "tune") is not None
    except InvalidArgument:
        return False


def serve_training(compiled: Any) -> None:
    """Of a model that vitune.compile() returned: its calls are captured."""
    _backend_of(compiled, "train_step").serve_training()


def inductor_settings(compiled: Any) -> dict[str, Any]:
    """Of Inductor, that the model was compiled with. Raises InvalidArgument for what vitune.compile() did not return."""
    return dict(_backend_of(compiled, "inductor_settings")._inductor.config)


def report(compiled: Any) -> Report:
    """See vitune.report()."""
    return Report(tuple(_backend_of(compiled, "report").graphs))


def refresh(compiled: Any) -> None:
    """See vitune.refresh()."""
    _backend_of(compiled, "refresh").store.refresh()
