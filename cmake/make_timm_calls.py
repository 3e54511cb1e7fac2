#!/usr/bin/env python3
# cmake/make_timm_calls.py -- Traces what vitune is asked for by the catalogued timm models into data/timm_calls.json.
#
# Usage: make_timm_calls.py --date YYYY-MM-DD --library libvitune.so.0 [--jobs N] [--keep FOLDER] > timm_calls.json
#        make_timm_calls.py ... --model NAME ... --others timm_calls.json: the other models as they are in a file
#
# Needs timm, PyTorch and libvitune, no GPU and no weights: models are built on the meta device, in bf16. A pass is recorded as a graph
# (vitune/_export/forward_graph.py), and vitune.compile()'s own backend looks at it, in the states of a database that differ in what is asked, and as
# if all layers had few rows and as if all had many. The pass is over a prime number of images that no size of a model has as a factor,
# so that what it divides is what grows with them. Of models that are trained often a step is recorded too, with fake tensors of a GPU.
# What comes out is described in docs/problems.md. The same versions and names give
# the same output, byte for byte.
# SPDX-License-Identifier: Apache-2.0
import argparse
import collections
import contextlib
import dataclasses
import functools
import json
import multiprocessing
import pathlib
import re
import sys
import warnings
from unittest import mock

import timm
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
import vitune  # noqa: E402
from vitune._compile import backend, folded_parameters  # noqa: E402
from vitune._compile.patterns import linear as linear_pattern, match as match_module, tree  # noqa: E402
from vitune._compile.patterns.benchmark import Times  # noqa: E402
from vitune._dropin import layer_norm as dropin_layer_norm  # noqa: E402
from vitune._export.forward_graph import ForwardGraph  # noqa: E402
from vitune._ops import attention as attention_ops, linear as linear_ops, norm as norm_ops  # noqa: E402

F = torch.nn.functional
SCHEMA = 2  # of the file
IMAGES = 1009  # of a pass
DROP_PATH = 0.1  # where a step has it
#: Models that are trained often. A step's calls are a quarter of a KB of the wheel.
TRAINED = (
    "vit_tiny_patch16_224", "vit_base_patch16_224", "vit_base_patch16_384", "vit_large_patch16_224", "deit_tiny_patch16_224",
    "deit_small_patch16_224", "deit_base_patch16_224", "deit3_small_patch16_224", "deit3_base_patch16_224", "beit_base_patch16_224",
    "beit_large_patch16_224", "swin_tiny_patch4_window7_224", "swin_small_patch4_window7_224", "swin_base_patch4_window7_224",
    "vit_small_patch14_dinov2", "vit_base_patch14_dinov2", "vit_large_patch14_dinov2", "vit_large_patch14_reg4_dinov2",
    "vit_base_patch16_dinov3", "vit_base_patch16_siglip_224", "vit_base_patch16_clip_224")
MANY = 1 << 40  # rows, more than few
NOTE = (
    "Calls of models of timm: each text is what is asked (docs/problems.md), dtype the type of the model, N*images a number that grows"
    " with the images. compile: what serves a model that vitune.compile() made, once"
    " all of it is tuned; second: what it asks beside that, where the first is not tuned, not faster or has no kernel on a GPU. drop_in:"
    " LayerNorms behind install(), whose attention is in timm_models.json. train, train_second: both passes of a step of a compiled model"
    " with fp32 parameters under autocast, where they are known. Each is a list of pairs: how often one forward pass asks it,"
    " and the place of the text in \"texts\", from 0. A third number says when: 1: each image makes these calls; 2: only where the text"
    " has at most few_rows rows (m=); 3: only where it has more. left: calls that stay PyTorch's,"
    " because vitune has no such operator; outside: those that its kernels do not take, [calls, operator, why]."
)


class Recorder:
    """A context of a GPU that has every kernel: problems for which `tuned` holds have winners."""

    def __init__(self, tuned, takes=lambda text: True):
        self._tuned, self._takes = tuned, takes

    def query(self, problem):
        text = problem.text if isinstance(problem.text, str) else problem.text()
        if not self._takes(text):
            raise vitune.Unsupported("no kernel of this GPU")
        blank = {field.name: "" for field in dataclasses.fields(vitune.Selection)}
        return vitune.Selection(**{**blank, "problem": text, "outcome": "exact" if self._tuned(text) else "default"})


class Backend(backend.Backend):
    """vitune.compile()'s, for which every winner is faster, or none is."""

    def __init__(self, trains=False, loses=False):
        super().__init__(None, None, None, None, True, trains or None)
        self._told = Times(2.0, 1.0) if loses else Times(1.0, 2.0)

    def _times(self, place, selections):
        return self._told

    def seen(self, graph, inputs):
        """Its report on a graph, and the graph that it made."""
        module = fx.GraphModule({}, match_module.copied(graph))
        report = self._rewritten(module, folded_parameters.FoldedParameters(self.store, module.graph, inputs))
        if report.error:
            raise ValueError(report.error)
        return report, module.graph


def is_in_windows(text):
    return text.startswith("window_attention ")


#: States of a database that make a model ask different problems: all; nothing; windows in place alone, whose layers are then those
#: of images; all, on a GPU without kernels of moments.
STATES = {"all": Recorder(lambda text: True), "nothing": Recorder(lambda text: False), "windows": Recorder(is_in_windows),
          "no moments": Recorder(lambda text: True, lambda text: "moments" not in text)}


class Asked(dict):
    """Text -> how often a pass asks it, in the order of the first call."""

    def add(self, text, count=1):
        self[text] = self.get(text, 0) + count


def asked_of(report, served_alone):
    """What the calls of a report ask; served_alone: those that are replaced, by the largest place alone."""
    found = Asked()
    for call in report.calls:
        places = [] if served_alone and not call.replaced else [call] if served_alone else [call, *call.tried]
        for text in dict.fromkeys(selection.problem for place in places for selection in place.selections):
            found.add(text)
    return found


def compiled(graph, inputs):
    """What vitune.compile() serves of a graph and what it asks beside, the calls that it leaves, and those that kernels do not take."""
    served, second = None, Asked()
    for state, recorder in STATES.items():
        if served is not None and state in _NEEDS and not any(_NEEDS[state] in text for text in served):
            continue
        with mock.patch.object(attention_ops, "context_of", lambda device: recorder):
            report, after = Backend().seen(graph, inputs)
        found = asked_of(report, state in ("all", "no moments"))
        if served is None:
            served, left, outside = found, left_in(after), outside_of(report)
        for text, count in found.items():
            if text not in served:
                second[text] = max(second.get(text, 0), count)
    return served, second, left, outside


#: A part of a text without which a state is as another.
_NEEDS = {"windows": "window_attention ", "no moments": "moments"}
_LEFT = {F.conv1d: "convolution", F.conv2d: "convolution", F.conv3d: "convolution", torch.conv1d: "convolution",
         torch.conv2d: "convolution", torch.conv3d: "convolution", F.softmax: "softmax", torch.softmax: "softmax",
         "softmax": "softmax", torch.matmul: "matmul", torch.bmm: "matmul", "matmul": "matmul", "bmm": "matmul"}


def left_in(graph):
    """Operator -> calls that are still those of PyTorch and are of no operator of vitune."""
    names = [_LEFT.get(node.target) or ("matmul" if getattr(node.target, "__name__", "") == "matmul" else None) for node in graph.nodes
             if node.op in ("call_function", "call_method")]
    return dict(sorted(collections.Counter(filter(None, names)).items()))


def outside_of(report):
    """(operator, why) -> calls that no kernel takes. Windows that cannot be in place are attended as others are."""
    reasons = [(call.operator, call.reason) for call in report.calls if not call.replaced and call.operator in ("attention", "linear")]
    return dict(sorted(collections.Counter(reasons).items()))


def drop_in(graph):
    """The LayerNorms of a graph that install() serves, as texts."""
    found = Asked()
    for node in graph.nodes:
        if node.op != "call_function" or node.target is not dropin_layer_norm.original:
            continue
        x, shape, weight, bias, eps, _ = map(match_module.value_of, tree.arguments_of(node).values())
        if tuple(shape) == tuple(x.shape[-1:]):
            found.add(norm_ops.text_of(x, None, weight, bias, eps, False))
    return found


def folded(fold_norm=linear_ops.fold_norm, known={}):
    """fold_norm() of tensors that hold nothing: once for each kind."""
    def fold(*tensors):
        key = tuple(each if each is None or isinstance(each, torch.dtype) else (each.shape, each.dtype) for each in tensors)
        if key not in known:
            known[key] = fold_norm(*tensors)
        return tuple(map(torch.empty_like, known[key]))
    return fold


def recorded(model, size):
    """A forward pass as a graph, and what it is given."""
    x = torch.empty(IMAGES, *size, device="meta", dtype=torch.bfloat16)
    with torch.no_grad(), ForwardGraph() as forward:
        out = model(x)
    graph = forward.finished(out)
    return graph, [match_module.value_of(node) for node in graph.find_nodes(op="placeholder")]


@contextlib.contextmanager
def autocast():
    """To bf16 on a GPU, whether there is one or not."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"), torch.is_autocast_cache_enabled()
    torch.set_autocast_enabled("cuda", True), torch.set_autocast_dtype("cuda", torch.bfloat16), torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0]), torch.set_autocast_dtype("cuda", before[1])
        torch.set_autocast_cache_enabled(before[2])


def on_fake_gpu(model):
    """A model of the meta device with fake tensors of a GPU in the place of its own, which autocast treats as a GPU's."""
    def fake(tensor):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
    for module in model.modules():
        for values, made in ((module._parameters, lambda each: torch.nn.Parameter(fake(each), each.requires_grad)), (module._buffers, fake)):
            values.update({name: made(each) for name, each in values.items() if each is not None})
    return model


def recorded_in_training(name, drop_path):
    """The forward pass of a step, of fp32 parameters under autocast, as a graph, and what it is given."""
    with torch.device("meta"):
        model = timm.create_model(name, **({"drop_path_rate": drop_path} if drop_path else {})).train()
    with FakeTensorMode(), autocast(), torch.enable_grad():
        x = torch.empty(IMAGES, *model.pretrained_cfg.get("input_size", (3, 224, 224)), device="cuda")
        on_fake_gpu(model)
        with ForwardGraph() as forward:
            out = model(x)
    graph = forward.finished(out)
    return graph, [match_module.value_of(node) for node in graph.find_nodes(op="placeholder")]


def asked_in_training(graph, inputs):
    """What both passes of a step ask: of what serves them once all is tuned and faster, and where nothing is faster."""
    found = []
    for loses in (False, True):
        with mock.patch.object(attention_ops, "context_of", lambda device: STATES["all"]), autocast(), torch.enable_grad():
            report, _ = Backend(True, loses).seen(graph, inputs)
        found.append(asked_of(report, not loses))
    return found


def trained(name):
    """What serves a step without drop path, and what it asks beside, with drop path too."""
    (served, *beside), with_drop_path = (asked_in_training(*recorded_in_training(name, rate)) for rate in (0.0, DROP_PATH))
    second = Asked()
    for text, count in (pair for calls in (*beside, *with_drop_path) for pair in calls.items() if pair[0] not in served):
        second[text] = max(second.get(text, 0), count)
    return served, second


def general(text):
    """The text for any number of images and either type."""
    def grown(match):
        number = int(match[0])
        return match[0] if number % IMAGES or not number else f"{number // IMAGES}*images"
    return re.sub(r"\bbf16\b", "dtype", re.sub(r"(?<![\d.])\d+", grown, text))


ALWAYS, EACH_IMAGE, OF_FEW_ROWS, OF_MANY_ROWS = range(4)  # when calls are made, the last two by the rows of the text


def written(few, many=None):
    """[(count, text, when the calls are made)] of what is asked if all layers have few rows, and if all have many."""
    few, many = ({general(text): count for text, count in calls.items()} for calls in (few, few if many is None else many))
    rows = []
    for text in {**few, **many}:
        if few.get(text) == many.get(text):
            rows.append((few[text], text, EACH_IMAGE if text.startswith("attention ") and "*images" not in text else ALWAYS))
            continue
        if " m=" not in text:
            raise ValueError(f"it depends on the rows of layers how often '{text}' is asked")
        rows += [(calls[text], text, when) for calls, when in ((few, OF_FEW_ROWS), (many, OF_MANY_ROWS)) if text in calls]
    return rows


def calls_of(name):
    """A model's entry, with texts in the place of their numbers."""
    with torch.device("meta"):
        model = timm.create_model(name).eval().to(torch.bfloat16)
    graph, inputs = recorded(model, model.pretrained_cfg.get("input_size", (3, 224, 224)))
    found = []
    for most_folded in (MANY, 0):
        with torch.no_grad(), mock.patch.object(linear_pattern, "_MOST_FOLDED", most_folded):
            found.append(compiled(graph, inputs))
    served, second, lefts, outsides = zip(*found)
    left, outside = lefts[0], outsides[0]
    if lefts[1] != left or outsides[1] != outside:
        raise ValueError("which calls are left depends on the rows of layers")
    return {"name": name, "compile": written(*served), "second": written(*second), "drop_in": written(drop_in(graph)), "left": left,
            "outside": [[count, *why] for why, count in outside.items()], **training_lists(name)}


def training_lists(name):
    return {key: written(calls) for key, calls in zip(TRAINING_LISTS, trained(name))} if name in TRAINED else {}


def known(name, folder):
    """A model's entry, of the folder if it is there, and from now on."""
    path = None if folder is None else folder / f"{name}.json"
    if path is None or not path.exists():
        entry = json.dumps(calls_of(name))
        if path is None:
            return json.loads(entry)
        path.write_text(entry, encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def entry_or_fault(name, folder):
    try:
        return name, known(name, folder), ""
    except Exception as error:  # of timm, of PyTorch or of this script: each model's is said
        return name, None, f"{name}: {type(error).__name__}: {error}"


TRAINING_LISTS = ("train", "train_second")
LISTS = ("compile", "second", "drop_in", *TRAINING_LISTS)


def entries_of(path, names):
    """The entries of these models in a file that this script made."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["schema"] != SCHEMA:
        sys.exit(f"make_timm_calls.py: {path} has schema {document['schema']}: all models must be traced anew")
    texts = document["texts"]
    return [{**model, **{key: [(count, texts[place], when[0] if when else ALWAYS) for count, place, *when in model[key]]
                         for key in LISTS if key in model}}
            for model in document["models"] if model["name"] in names]


def print_document(entries, date):
    texts = sorted({text for entry in entries for key in LISTS for _, text, _ in entry.get(key, ())})
    place = {text: index for index, text in enumerate(texts)}
    source = f"timm {timm.__version__}, PyTorch {torch.__version__.split('+')[0]}"
    head = {"schema": SCHEMA, "source": source, "date": date, "few_rows": linear_pattern._MOST_FOLDED, "note": NOTE}
    print("{" + ",\n ".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in head.items()) + ",")
    print(' "texts":[\n  ' + ",\n  ".join(map(json.dumps, texts)) + "\n ],")
    rows = []
    for entry in entries:
        calls = {key: [[count, place[text], *([when] if when else [])] for count, text, when in entry[key]]
                 for key in LISTS if key in entry}
        rows.append("  " + json.dumps({**entry, **calls}, separators=(",", ":")))
    print(' "models":[\n' + ",\n".join(rows) + "\n ]}")


def main():
    parser = argparse.ArgumentParser(description="Makes data/timm_calls.json with timm; prints it.")
    parser.add_argument("--date", required=True, help="when this is made, YYYY-MM-DD")
    parser.add_argument("--library", required=True, help="path of libvitune.so.0")
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    parser.add_argument("--others", type=pathlib.Path, help="with --model: a file that has the other models")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder of what was traced: a run that was interrupted goes on")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    timm.layers.set_fused_attn(True, experimental=True)
    attention_ops.is_on_gpu = lambda tensor: True  # as those on the meta device would be
    linear_ops.fold_norm = folded()
    vitune.use_library(arguments.library)
    data = ROOT / "data" / "timm_models.json"
    catalogue = {model["name"] for model in json.loads(data.read_text(encoding="utf-8"))["models"]}
    unknown = sorted(set(arguments.model or []) - catalogue)
    if unknown:
        parser.error(f"{data} has no model {', '.join(unknown)}")
    with multiprocessing.get_context("fork").Pool(arguments.jobs, maxtasksperchild=8) as pool:
        found = list(pool.imap(functools.partial(entry_or_fault, folder=arguments.keep), sorted(arguments.model or catalogue)))
    faults = [fault for _, _, fault in found if fault]
    if faults:
        sys.exit("make_timm_calls.py: " + "\nmake_timm_calls.py: ".join(faults))
    entries = [entry for _, entry, _ in found]
    if arguments.others is not None:
        entries += entries_of(arguments.others, catalogue - {name for name, _, _ in found})
    print_document(sorted(entries, key=lambda entry: entry["name"]), arguments.date)


if __name__ == "__main__":
    main()
