# python/vitune/_export/export.py -- vitune.export() and vitune.exportable(): a model's pass, recorded for some batches, checked and written.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import json
import math
import pathlib
import tempfile
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from .._compile.patterns.match import value_of
from .._compile.patterns.mutations import written_by
from .._compile.patterns.whole import put_all
from .._runtime.errors import InvalidArgument, Unsupported
from . import file as model_file
from .forward_graph import ForwardGraph
from .fuse import fused
from .graph import FORMAT, View, at_batch, grown
from .interpret import Interpreter
from .lower import TYPES, Constants, Lowering, Refusal, is_factory

BATCHES = (2, 3)  #: that are recorded: numbers are a + b B of both
PROOF = 5  #: one more, whose numbers must be these
TOLERANCE = 1e-5  #: of the interpreter beside the model, of the largest result
FAINT = 1e-2  #: the largest magnitude of a parameter (a fresh LayerScale, a bias of zeros) behind which a wrong branch would not show
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_VECTORS = frozenset(("bias", "scale", "weight"))  # operands that stay fp32 where the model has them so


class Written(NamedTuple):
    """What export() made."""

    path: str
    nodes: int
    bytes: int
    error: float  #: the interpreter beside the model, both fp32, of the largest result
    rounding: float  #: the same with the weights as the file has them


class _Recorded(NamedTuple):
    """A pass for one batch."""

    batch: int
    graph: fx.Graph
    given: dict[fx.Node, Tensor]
    inputs: dict[fx.Node, str]
    outputs: dict[str, fx.Node]


class _Pass(NamedTuple):
    """All that is known of a model's pass before it is a file's nodes."""

    shapes: dict[str, Tensor]
    recorded: list[_Recorded]  #: of BATCHES, then of PROOF
    names: dict[int, str]  #: by the id of a parameter or buffer


def exportable(model: torch.nn.Module, sample: Any = None, outputs: Optional[Sequence[str]] = None) -> list[Refusal]:
    """See vitune.exportable()."""
    shapes = _shapes(model, sample)
    try:
        with torch.random.fork_rng(devices=[]):
            return _lowered(_pass_of(model, shapes, outputs, torch.bfloat16))[2]
    except Unsupported as reason:
        return [Refusal("", "the pass as a whole", str(reason))]


def export(model: torch.nn.Module, path: Any, sample: Any, outputs: Optional[Sequence[str]], dtype: str, check: bool,
           metadata: dict[str, Any]) -> Written:
    """See vitune.export()."""
    if dtype not in _TYPES:
        raise InvalidArgument(f"dtype '{dtype}': a file holds 'bf16' or 'fp16'")
    metadata = {**metadata, "vitune.labels": _labels(metadata.get("vitune.labels"))}
    shapes = _shapes(model, sample)
    if any(each.is_meta for each in (*model.parameters(), *model.buffers())):
        raise InvalidArgument("the model has no weights (it is on the meta device): exportable() looks at such models")
    with torch.random.fork_rng(devices=[]):
        recorded = _pass_of(model, shapes, outputs, _TYPES[dtype])
        document, constants, refusals = _lowered(recorded)
        if refusals:
            raise Unsupported(f"{len(refusals)} calls that a model file cannot hold:\n" + "\n".join(map(str, refusals)))
        _require_labels(document, metadata.get("vitune.labels"))
        tensors = _stored(document, constants, _TYPES[dtype], model)
        words = {"vitune.format": str(FORMAT), "vitune.graph": json.dumps(document, separators=(",", ":")), **_described(model, metadata)}
        error = rounding = float("nan")
        if check:
            with tempfile.TemporaryDirectory(prefix=".vitune_", dir=pathlib.Path(path).parent) as folder:
                draft = pathlib.Path(folder) / "draft.safetensors"
                model_file.write(draft, tensors, words)
                error, rounding = _checked(model, draft, recorded, constants.tensors, tensors)
            words["vitune.error"] = json.dumps({"graph": error, "rounding": rounding})
        model_file.write(path, tensors, words)
    return Written(str(path), len(document["nodes"]), sum(t.numel() * t.element_size() for t in tensors.values()), error, rounding)


# --- what a model is given

def _shapes(model: torch.nn.Module, sample: Any) -> dict[str, Tensor]:
    """One image's worth of each input, by its name."""
    if model.training:
        raise InvalidArgument("the model is in training mode: call model.eval() first")
    if sample is None:
        size = (getattr(model, "pretrained_cfg", None) or {}).get("input_size")
        if size is None:
            raise InvalidArgument("a sample is needed: the model does not say the size of its images")
        sample = torch.zeros(1, *size)
    given = dict(sample) if hasattr(sample, "keys") else {"pixels": sample}
    if not given or not all(isinstance(each, Tensor) and each.dim() for each in given.values()):
        raise InvalidArgument("a sample is a tensor whose first dimension is the batch, or a dict of such tensors by their names")
    for name, each in given.items():
        if not each.is_floating_point() and each.dtype not in TYPES:
            raise InvalidArgument(f"the input '{name}' is of type {str(each.dtype).removeprefix('torch.')}: a file takes floating point,"
                                  " uint8 and bool")
    return given


def _arguments(shapes: dict[str, Tensor], given: dict[str, Tensor]) -> tuple[tuple, dict[str, Tensor]]:
    return ((given["pixels"],), {}) if list(shapes) == ["pixels"] else ((), given)


def _pass_of(model: torch.nn.Module, shapes: dict[str, Tensor], wanted: Optional[Sequence[str]], dtype: torch.dtype) -> _Pass:
    """Recorded with copies of the modules, each with the parameters themselves: caches and counters that a pass leaves in a module are
    neither the model's nor the next recording's."""
    parameters = list(model.parameters())
    held = _copied(model, parameters)
    names = {id(tensor): name for each in (model, held) for name, tensor in (*each.named_buffers(remove_duplicate=False),
                                                                             *each.named_parameters(remove_duplicate=False))}
    shared = [*parameters, *held.buffers()]
    recorded = [_recorded(_copied(held, shared), model, shapes, wanted, dtype, batch) for batch in (*BATCHES, PROOF)]
    return _Pass(shapes, recorded, names)


def _copied(model: torch.nn.Module, shared: Sequence[Tensor] = ()) -> torch.nn.Module:
    """A copy around the same `shared` tensors."""
    try:
        return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
    except Exception as failure:  # whatever modules have among their attributes
        raise Unsupported(f"the model cannot be copied, and what its pass would leave in it is not to stay there:"
                          f" {type(failure).__name__}: {failure}") from failure


def _recorded(model: torch.nn.Module, original: torch.nn.Module, shapes: dict[str, Tensor], wanted: Optional[Sequence[str]],
              dtype: torch.dtype, batch: int) -> _Recorded:
    """original: what `model` is a copy of, which functions among its attributes may still call."""
    def stand_in(tensor: Tensor) -> Tensor:
        if tensor.is_meta and not isinstance(tensor, torch.nn.Parameter) and id(tensor) not in buffers:
            return tensor  # an input
        kind = dtype if tensor.is_floating_point() and (isinstance(tensor, torch.nn.Parameter) or id(tensor) in buffers) else tensor.dtype
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device="meta")
        return torch.nn.Parameter(made, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else made
    buffers = {id(buffer) for each in (model, original) for buffer in each.buffers()}
    given = {name: torch.empty(batch, *each.shape[1:], device="meta", dtype=dtype if each.is_floating_point() else each.dtype)
             for name, each in shapes.items()}
    recording = ForwardGraph(stand_in)
    try:
        with recording.inside_of(original, model), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args, kwargs = _arguments(shapes, given)
            out = model(*args, **kwargs)
    except Exception as failure:  # whatever a model raises of tensors without values
        raise Unsupported(f"{recording.place or 'the model'} cannot be recorded without values, on which its course may depend:"
                          f" {type(failure).__name__}: {failure}") from failure
    results = _results(out, wanted)
    graph = recording.finished(tuple(results.values()))
    inputs = {node: name for node in graph.find_nodes(op="placeholder") for name, each in given.items() if value_of(node) is each}
    last = graph.find_nodes(op="output")[0]
    module = fx.GraphModule({}, graph)
    _put_on_meta(module.graph)
    module.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or bool(written_by(node)))
    put_all(module, _unreached(module.graph, {node.name for node in inputs}))
    again = {node.name: node for node in module.graph.nodes}
    last = module.graph.find_nodes(op="output")[0]
    return _Recorded(batch, module.graph, {again[node.name]: tensor for node, tensor in recording.given.items() if node.name in again},
                     {again[node.name]: name for node, name in inputs.items()}, dict(zip(results, last.args[0])))


def _results(out: Any, wanted: Optional[Sequence[str]]) -> dict[str, Tensor]:
    """The tensors that a model answers with, by their names."""
    if isinstance(out, Tensor):
        named = {"out": out}
    elif hasattr(out, "items"):
        named = {str(name): each for name, each in out.items() if isinstance(each, Tensor)}
    else:
        named = {f"out{place}": each for place, each in enumerate(out) if isinstance(each, Tensor)}
    missing = [name for name in wanted or () if name not in named]
    if missing or not named:
        raise InvalidArgument(f"the model has no result {', '.join(missing)}; it has {', '.join(named) or 'no tensor'}")
    return {name: named[name] for name in wanted} if wanted else named


def _put_on_meta(graph: fx.Graph) -> None:
    """What was made of no weight has values: they are computed again."""
    for node in graph.nodes:
        value = value_of(node)
        if isinstance(value, Tensor) and not value.is_meta:
            node.meta["example_value"] = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


# --- from recordings to a document

def _lowered(found: _Pass, instead: Optional[dict[str, Tensor]] = None) -> tuple[dict[str, Any], Constants, list[Refusal]]:
    """The document of a pass with the tensors that it holds, or why there is none. instead: tensors in the place of parameters."""
    if len({len(each.graph.nodes) for each in found.recorded}) != 1:
        raise Unsupported("the calls of a pass depend on the batch")
    folded = _folded(found.recorded)
    documents, constants, computed = [], Constants(found.names, instead), {}
    for each in found.recorded:
        lowering = Lowering(each.graph, each.given, each.inputs, constants, folded, computed)
        lowering.run()
        if lowering.refusals:
            return {}, constants, lowering.refusals
        documents.append(_document(lowering, each))
    document = grown(documents[0], documents[1], BATCHES)
    if _at(document, PROOF) != documents[2]:
        raise Unsupported("numbers of the pass are no a + b B of the batch B")
    return document, constants, []


def _folded(recorded: Sequence[_Recorded]) -> frozenset[str]:
    """Names of the nodes that no input reaches and that are alike for all batches: in their results' shapes, and in what they are called
    with beside tensors."""
    def said(node: fx.Node) -> list[Any]:
        given = [leaf for leaf in tree_leaves((node.args, node.kwargs)) if isinstance(leaf, (int, float, bool, str))]
        return [given, *(tuple(leaf.shape) for leaf in tree_leaves(value_of(node)) if isinstance(leaf, Tensor))]
    first, *others = (each.graph for each in recorded)
    grows = {node.name for node, *same in zip(first.nodes, *(other.nodes for other in others)) if node.op != "output"
             and any(said(node) != said(each) for each in same)}
    return _unreached(first, {node.name for node in recorded[0].inputs}, grows)


def _unreached(graph: fx.Graph, inputs: Container[str], grows: Container[str] = ()) -> frozenset[str]:
    """Names of the nodes that none of `inputs` reaches, nor any of those that grow with the batch."""
    constant: set[str] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            reached = node.name in inputs
        else:
            reached = node.op == "output" or node.name in grows or not is_factory(node) and any(
                taken.name not in constant for taken in node.all_input_nodes)
        if not reached:
            constant.add(node.name)
    return frozenset(constant)


def _document(lowering: Lowering, recorded: _Recorded) -> dict[str, Any]:
    """The file's graph, for one batch."""
    inputs = [{"name": name, "type": TYPES[value_of(node).dtype], "shape": list(value_of(node).shape)}
              for node, name in recorded.inputs.items()]
    outputs = {name: lowering.view(node) for name, node in recorded.outputs.items()}
    nodes = fused(lowering.nodes, lowering.values, {each["name"]: each["type"] for each in inputs}, outputs)
    return written(inputs, lowering.values, lowering.constants.tensors, nodes, outputs)


def written(inputs: list[dict[str, Any]], values: dict[str, tuple[str, tuple[int, ...]]], tensors: dict[str, Tensor],
            nodes: list[dict[str, Any]], outputs: dict[str, View]) -> dict[str, Any]:
    """Views as the file says them, and values named in the order of their nodes."""
    names: dict[str, str] = {}
    for node in nodes:
        for view in _all_views(node):
            if view.of in values and view.of not in names:
                names[view.of] = f"t{len(names)}"
    shapes = {each["name"]: each["shape"] for each in inputs}
    shapes.update((name, list(tensor.shape)) for name, tensor in tensors.items())
    shapes.update((names[name], list(values[name][1])) for name in names)

    def said(part: Any) -> Any:
        if isinstance(part, View):
            name = names.get(part.of, part.of)
            return part._replace(of=name).document(shapes[name])
        if isinstance(part, dict):
            return {key: said(value) for key, value in part.items()}
        return part
    listed = [{"name": mine, "type": values[name][0], "shape": list(values[name][1])} for name, mine in names.items()]
    return {"inputs": inputs, "outputs": [{"name": name, "of": said(view)} for name, view in outputs.items()], "values": listed,
            "nodes": [said({**node, "at": _module_of(node)}) for node in nodes]}


def _module_of(node: dict[str, Any]) -> str:
    """The module whose weight a node has; else the one that made the last of its calls."""
    held = node.get("w") if node["op"] == "linear" else node.get("weight") if node["op"] == "norm" else None
    return node["at"] if held is None or held.of.startswith("vitune.c") else held.of.rpartition(".")[0]


def _all_views(part: Any) -> list[View]:
    if isinstance(part, View):
        return [part]
    return [view for value in part.values() for view in _all_views(value)] if isinstance(part, dict) else []


def _at(part: Any, batch: int, key: str = "") -> Any:
    """A document for one batch."""
    if isinstance(part, dict):
        return {name: _at(value, batch, name) for name, value in part.items()}
    if key in ("shape", "extents", "strides"):
        return [at_batch(number, batch) for number in part]
    if key == "offset":
        return at_batch(part, batch)
    return [_at(value, batch) for value in part] if isinstance(part, list) else part


# --- weights

def _stored(document: dict[str, Any], constants: Constants, dtype: torch.dtype, model: torch.nn.Module) -> dict[str, Tensor]:
    """As the file holds them: of the file's type, vectors that are added and multiplied as the model has them."""
    own = {name: tensor for name, tensor in (*model.named_buffers(remove_duplicate=False), *model.named_parameters(remove_duplicate=False))}
    tensors, uses = constants.tensors, {}
    for node in document["nodes"]:
        for key, operand in (*node.items(), *node.get("norm", {}).items()):
            if isinstance(operand, dict) and "of" in operand or isinstance(operand, str) and operand in tensors:
                uses.setdefault(operand if isinstance(operand, str) else operand["of"], set()).add(
                    key if node["op"] in ("linear", "norm", "group_norm") else "other")
    out = {}
    for name, tensor in tensors.items():
        if name in uses:
            is_vector = name in constants.unrounded or uses[name] <= _VECTORS and (name not in own or own[name].dtype == torch.float32)
            out[name] = (tensor if is_vector or not tensor.is_floating_point() else tensor.to(dtype)).contiguous()
    for output in document["outputs"]:
        name = output["of"] if isinstance(output["of"], str) else output["of"]["of"]
        if name in tensors:
            raise Unsupported(f"the result '{output['name']}' does not depend on the input")
    return out


def _described(model: torch.nn.Module, metadata: dict[str, Any]) -> dict[str, str]:
    """Where the model is from, what images it wants: as the caller says, or as the model does."""
    words = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items() if value is not None}
    config = getattr(model, "pretrained_cfg", None) or {}
    if "license" not in words and config.get("license"):
        words["license"] = str(config["license"])
    if "vitune.preprocess" not in words and config.get("mean"):
        words["vitune.preprocess"] = json.dumps({"size": list(config["input_size"][1:]), "crop": config.get("crop_pct"),
                                                 "filter": config.get("interpolation"), "mean": list(config["mean"]),
                                                 "std": list(config["std"])})
    if "source" not in words:
        name = ".".join(filter(None, (config.get("architecture"), config.get("tag")))) or type(model).__qualname__
        words["source"] = f"{name}, torch {torch.__version__.partition('+')[0]}"
    return words


def _labels(given: Any) -> Optional[list[Any]]:
    """In their order. Raises InvalidArgument for what has none."""
    if given is None:
        return None
    if isinstance(given, (str, bytes, Mapping, Set)) or not isinstance(given, Iterable):
        raise InvalidArgument(f"labels: a list of texts is needed, one for each number of the result, not {type(given).__name__}")
    return list(given)


def _require_labels(document: dict[str, Any], labels: Any) -> None:
    """Names of classes are texts, as many as the one result has numbers for an image. Raises InvalidArgument."""
    if labels is None:
        return
    if not all(isinstance(label, str) for label in labels):
        raise InvalidArgument("labels: a list of texts is needed, one for each number of the result")
    shapes = {each["name"]: each["shape"] for each in (*document["inputs"], *document["values"])}
    results = [each["of"] for each in document["outputs"]]
    sizes = {math.prod(at_batch(number, 1) for number in (shapes[of] if isinstance(of, str) else of["extents"])) for of in results}
    if len(results) != 1 or sizes != {len(labels)}:
        raise InvalidArgument(f"{len(labels)} labels are given: the model has {len(results)} results, of "
                              f"{', '.join(map(str, sorted(sizes)))} numbers for an image")


# --- the check

def _checked(model: torch.nn.Module, path: Any, found: _Pass, exact: dict[str, Tensor], stored: dict[str, Tensor]) -> tuple[float, float]:
    """The interpreter on the file as it was read back, beside the model in fp32. Raises Unsupported where they differ."""
    held = model_file.read(path)
    for name, tensor in stored.items():
        if not torch.equal(held.tensors[name], tensor):
            raise Unsupported(f"tensor '{name}' reads back otherwise than it was written")
    generator = torch.Generator().manual_seed(0)
    drawn = _drawn(model, found.names, generator)
    used = {name: exact[name] for name in held.tensors}
    beside = _Beside(_plain(model), found.shapes, generator)
    error, rounding = beside.differences(held.graph, (used, held.tensors), 1 if drawn else 2)
    if drawn:  # two images there, where each layer counts
        beside = _Beside(_plain(model, drawn), found.shapes, generator)
        document, constants, _ = _lowered(found, drawn)
        error = max(error, *beside.differences(document, (constants.tensors,), 2))
    else:
        error = max(error, *beside.differences(held.graph, (used,), 1))
    if beside.alike:
        warnings.warn("the model answers alike to different inputs: its check says little", stacklevel=4)
    if not error <= TOLERANCE:
        raise Unsupported(f"the file's answer differs from the model's by {error:.2e} of the largest result; {TOLERANCE:.0e} is allowed")
    if not math.isfinite(rounding):
        raise Unsupported("the answer with the weights as the file has them is not finite: weights are beyond the range of its type;"
                          " dtype='bf16' has that of fp32")
    return error, rounding


class _Beside:
    """A model, whose answers are compared with an interpreter's."""

    def __init__(self, model: torch.nn.Module, shapes: dict[str, Tensor], generator: torch.Generator) -> None:
        self._model, self._shapes, self._generator = model, shapes, generator
        self.alike = False  #: whether the last answers to different inputs were the same

    def differences(self, graph: dict[str, Any], held: Sequence[dict[str, Tensor]], batch: int) -> list[float]:
        """Of the interpreter with each set of tensors, of the largest result; infinity where a number is not finite."""
        given = {name: _random_like(each, batch, self._generator) for name, each in self._shapes.items()}
        with torch.no_grad():
            args, kwargs = _arguments(self._shapes, given)
            wanted = _results(self._model(*args, **kwargs), [output["name"] for output in graph["outputs"]])
        for name, result in wanted.items():
            if not bool(torch.isfinite(result).all()):
                raise Unsupported(f"the model's own answer '{name}' to random inputs is not finite: there is nothing to compare with")
        self.alike = batch == 1 and self.alike or batch > 1 and all(torch.equal(result[:1], result[1:2]) for result in wanted.values())
        answers = (Interpreter(graph, tensors, batch).run(given) for tensors in held)
        return [max(_difference(found[name], result) for name, result in wanted.items()) for found in answers]


def _plain(model: torch.nn.Module, instead: Optional[dict[str, Tensor]] = None) -> torch.nn.Module:
    """A copy in fp32 on the CPU, with other values for some parameters."""
    made = _copied(model).cpu().float()
    with torch.no_grad():
        for name, parameter in made.named_parameters(remove_duplicate=False):
            if instead and name in instead:
                parameter.copy_(instead[name])
    return made


def _drawn(model: torch.nn.Module, names: dict[int, str], generator: torch.Generator) -> dict[str, Tensor]:
    """Random values for the parameters that are nearly zero everywhere: what is wrong behind them would be lost in the result."""
    faint = (each for each in model.parameters() if each.is_floating_point() and each.numel() and bool(each.detach().abs().max() < FAINT))
    return {names[id(each)]: torch.randn(each.shape, generator=generator) * 0.1 for each in faint}


def _random_like(sample: Tensor, batch: int, generator: torch.Generator) -> Tensor:
    """Any numbers of its type."""
    shape = (batch, *sample.shape[1:])
    if sample.is_floating_point():
        return torch.randn(shape, generator=generator)
    return torch.randint(0, 2 if sample.dtype == torch.bool else 256, shape, generator=generator).to(sample.dtype)


def _difference(found: Tensor, wanted: Tensor) -> float:
    """Of the largest result; infinity for another shape and for what is not finite, with which nothing can be compared."""
    if found.shape != wanted.shape:
        return float("inf")
    difference = float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30))
    return difference if math.isfinite(difference) else float("inf")
