#!/usr/bin/env python3
# cmake/make_timm_calls.py -- Traces what the catalogued timm models call beside attention into data/timm_calls.json.
#
# Usage: make_timm_calls.py --date YYYY-MM-DD [--model NAME ...] > timm_calls.json
#
# Needs timm and PyTorch, no GPU and no weights: models are built on the meta device, in bf16. Each runs for two and for
# three images; a number that grows in proportion is written as so many times the images, and any other difference is
# an error. Attention in windows is what vitune.compile() would put in place, found by its own pattern. What comes out is described in
# docs/problems.md. The same versions and names give the same output, byte for
# byte.
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import math
import pathlib
import re
import sys
import warnings

import timm
import torch
from forward_graph import ForwardGraph
from torch.overrides import TorchFunctionMode

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
from vitune import _compile_windows, _torch_op  # noqa: E402  (the pattern; no library is loaded)

F = torch.nn.functional
FEWER, MORE = 2, 3  # images of the two passes
NOTE = (
    "Calls beside attention of models of timm: each text is what is asked (docs/problems.md), dtype the type of the model and"
    " N*images the number that grows with the images. A model's calls are pairs: how often one forward pass asks it, and the"
    " place of the text in \"texts\", from 0. A norm behind an addition is asked with it (residual), with the sum where that"
    " is used again. Attention in windows in place stands behind the others: it is another form of calls of timm_models.json."
)
ADDITIONS = (torch.add, torch.Tensor.add, torch.Tensor.add_, torch.Tensor.__add__, torch.Tensor.__radd__,
             torch.Tensor.__iadd__)
RESHAPES = (torch.reshape, torch.flatten, torch.Tensor.reshape, torch.Tensor.view, torch.Tensor.flatten)


class Bound(dict):
    """The arguments of a call by name."""

    def __init__(self, names, positional, named):
        super().__init__(zip(names.split(), positional), **named)

    def __missing__(self, name):
        return None


def type_word(tensor):
    return {torch.bfloat16: "dtype", torch.float32: "fp32"}[tensor.dtype]


def given(**parts):
    """The names of the parts that are there."""
    return [name for name, part in parts.items() if part is not None and part is not False]


def eps_words(eps, default):
    return [] if eps == default else [f"eps={eps:g}"]


def row_words(x, d):
    """m, d and, where rows do not lie side by side, their distance."""
    rows = x.reshape(-1, d)
    apart = rows.stride(0) if rows.stride(1) == 1 or d == 1 else d
    return [f"m={rows.shape[0]}", f"d={d}"], [] if apart == d else [f"x=@{apart}"]


def norm_words(x, weight, bias, d, eps, rms, sum_of):
    if eps is None:
        raise ValueError("a norm whose eps depends on the type")
    sizes, apart = row_words(x, d)
    words = ["norm", type_word(x), *sizes, *given(rms=rms, weight=weight, bias=bias)]
    # A sum that the norm writes has its rows side by side, however PyTorch would have laid it out.
    words += apart if sum_of is None else ["residual", *given(sum=sum_of.other_uses > 0)]
    return words + eps_words(eps, 1e-6 if rms else 1e-5)


def layer_norm(arguments, sum_of):
    a = Bound("input shape weight bias eps", *arguments)
    eps = 1e-5 if a["eps"] is None else a["eps"]
    return norm_words(a["input"], a["weight"], a["bias"], math.prod(a["shape"]), eps, False, sum_of)


def rms_norm(arguments, sum_of):
    a = Bound("input shape weight eps", *arguments)
    return norm_words(a["input"], a["weight"], None, math.prod(a["shape"]), a["eps"], True, sum_of)


def group_norm(arguments, _):
    a = Bound("input groups weight bias eps", *arguments)
    n, c, *extents = a["input"].shape
    words = ["group_norm", type_word(a["input"]), f"n={n}", f"c={c}", f"l={math.prod(extents)}",
             f"g={a['groups'] or a['num_groups']}", *given(weight=a["weight"], bias=a["bias"])]
    return words + eps_words(1e-5 if a["eps"] is None else a["eps"], 1e-5)


def linear(arguments, _):
    a = Bound("input weight bias", *arguments)
    n, k = a["weight"].shape
    return ["linear", type_word(a["input"]), f"m={a['input'].numel() // k}", f"n={n}", f"k={k}", *given(bias=a["bias"])]


def convolution(arguments, _):
    a = Bound("input weight bias stride padding dilation groups", *arguments)
    x, weight = a["input"], a["weight"]
    rank = weight.dim() - 2
    words = ["convolution", type_word(x), f"n={x.shape[0]}", f"c={x.shape[1]}", f"k={weight.shape[0]}",
             "size=" + "x".join(map(str, x.shape[2:])), "filter=" + "x".join(map(str, weight.shape[2:]))]
    for name, usual in (("stride", 1), ("padding", 0), ("dilation", 1)):
        value = usual if a[name] is None else a[name]
        each = (value,) * rank if isinstance(value, (int, str)) else tuple(value) * (rank // len(value))
        words += [] if each == (usual,) * rank else [f"{name}=" + "x".join(map(str, each))]
    words += [] if a["groups"] in (None, 1) else [f"groups={a['groups']}"]
    return words + given(bias=a["bias"])


def softmax(arguments, _):
    x, *rest = arguments[0] or (arguments[1]["input"],)
    dim = rest[0] if rest else arguments[1]["dim"]
    return ["softmax", type_word(x), f"m={x.numel() // x.shape[dim]}", f"d={x.shape[dim]}"]


def matmul(arguments, _):
    a, b = (*arguments[0], *arguments[1].values())[:2]
    shape = torch.matmul(a, b).shape
    return ["matmul", type_word(a), f"b={math.prod(shape[:-2])}", f"m={shape[-2]}", f"n={shape[-1]}", f"k={a.shape[-1]}"]


CALLS = {
    F.layer_norm: layer_norm, F.rms_norm: rms_norm, F.group_norm: group_norm, F.linear: linear,
    F.conv1d: convolution, F.conv2d: convolution, F.conv3d: convolution,
    F.softmax: softmax, torch.softmax: softmax, torch.Tensor.softmax: softmax,
    torch.matmul: matmul, torch.bmm: matmul, torch.Tensor.matmul: matmul, torch.Tensor.__matmul__: matmul,
    torch.Tensor.bmm: matmul,
}


class Sum:
    """The result of an addition of two tensors of one shape."""

    def __init__(self, tensor):
        self.tensors = [tensor]  # and its reshaped forms; held, so that no other tensor gets their id
        self.uses = 0
        self.norms = 0

    @property
    def other_uses(self):
        return self.uses - self.norms


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


class Log(TorchFunctionMode):
    """The calls of a pass in their order, and the sums that norms are taken of."""

    def __init__(self):
        super().__init__()
        self.calls = []  # (function, positional, named, the sum that a norm is taken of)
        self.attention = 0
        self.sums = {}  # by the id of a tensor

    def __torch_function__(self, function, types, positional=(), named=None):
        named = named or {}
        used = {id(t): t for t in tensors_in((positional, list(named.values())))}
        sums = [self.sums[key] for key in used if key in self.sums]
        out = function(*positional, **named)
        if next(tensors_in(out), None) is None:
            return out
        self.attention += function is F.scaled_dot_product_attention
        if function in RESHAPES and sums and self.is_same_rows(positional[0], out):
            sums[0].tensors.append(out)
            self.sums[id(out)] = sums[0]
            return out
        call, norm = CALLS.get(function), function in (F.layer_norm, F.rms_norm)
        for each in sums:
            each.uses += 1
            each.norms += norm
        if call:
            self.calls.append((call, (positional, named), sums[0] if norm and sums else None))
        if function in ADDITIONS:
            self.note_sum(positional, out)
        return out

    @staticmethod
    def is_same_rows(x, out):
        return x.dim() > 0 and out.dim() > 0 and x.shape[-1] == out.shape[-1]

    def note_sum(self, positional, out):
        parts = [part for part in positional[:2] if isinstance(part, torch.Tensor)]
        if len(parts) == 2 and all(part.shape == out.shape and part.dtype == out.dtype for part in parts):
            self.sums[id(out)] = Sum(out)

    def texts(self):
        # A sum that two norms are taken of is added once.
        return [" ".join(call(arguments, total if total and total.norms == 1 else None))
                for call, arguments, total in self.calls]


def window_texts(graph):
    """What attends in windows of an image and can do so in place."""
    found = [_compile_windows.windows.find(node) for node in graph.nodes]
    texts = [each.problem() for each in found if isinstance(each, _compile_windows.WindowsCall)]
    return [text.replace(" bf16 ", " dtype ").replace("=bf16:", "=dtype:") for text in texts]


def scaled(fewer, more):
    """The text for any number of images, of those for FEWER and MORE."""
    number = re.compile(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
    parts = list(zip(number.split(fewer), number.split(more), strict=True))
    for place, (a, b) in enumerate(parts):
        grows = place % 2 == 1 and a != b and int(a) * MORE == int(b) * FEWER and int(a) % FEWER == 0
        if a != b and not grows:
            raise ValueError(f"'{fewer}' for {FEWER} images is '{more}' for {MORE}")
        parts[place] = f"{int(a) // FEWER}*images" if grows else a
    return "".join(parts)


def calls_of(name, attention):
    """Text -> how often a pass asks it, in the order of the first call. `attention`: calls that must be seen."""
    with torch.device("meta"):
        model = timm.create_model(name).eval().to(torch.bfloat16)
    size = model.pretrained_cfg.get("input_size", (3, 224, 224))
    passes = []
    for images in (FEWER, MORE):
        x = torch.empty(images, *size, device="meta", dtype=torch.bfloat16)
        with torch.no_grad(), Log() as log:
            model(x)
        with torch.no_grad(), ForwardGraph() as forward:
            model(x)
        if log.attention != attention:
            raise ValueError(f"{log.attention} attention calls, and timm_models.json has {attention}")
        passes.append(log.texts() + window_texts(forward.graph))
    counts = {}
    for fewer, more in zip(*passes, strict=True):
        text = scaled(fewer, more)
        counts[text] = counts.get(text, 0) + 1
    return counts


def print_document(models, date):
    texts = sorted({text for calls in models.values() for text in calls})
    place = {text: index for index, text in enumerate(texts)}
    source = f"timm {timm.__version__}, PyTorch {torch.__version__.split('+')[0]}"
    head = {"schema": 1, "source": source, "date": date, "note": NOTE}
    print("{" + ",\n ".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in head.items()) + ",")
    print(' "texts":[\n  ' + ",\n  ".join(map(json.dumps, texts)) + "\n ],")
    rows = []
    for name, calls in models.items():
        pairs = ",".join(f"[{count},{place[text]}]" for text, count in calls.items())
        rows.append(f'  {{"name":{json.dumps(name)},"calls":[{pairs}]}}')
    print(' "models":[\n' + ",\n".join(rows) + "\n ]}")


def main():
    parser = argparse.ArgumentParser(description="Makes data/timm_calls.json with timm; prints it.")
    parser.add_argument("--date", required=True, help="when this is made, YYYY-MM-DD")
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    timm.layers.set_fused_attn(True, experimental=True)
    _torch_op.is_on_gpu = lambda tensor: True  # as those on the meta device would be
    data = pathlib.Path(__file__).resolve().parent.parent / "data" / "timm_models.json"
    catalogue = {model["name"]: sum(call["calls"] for call in model["attention"])
                 for model in json.loads(data.read_text(encoding="utf-8"))["models"]}
    unknown = sorted(set(arguments.model or []) - set(catalogue))
    if unknown:
        parser.error(f"{data} has no model {', '.join(unknown)}")
    models, faults = {}, []
    for name in sorted(set(arguments.model or catalogue)):
        try:
            models[name] = calls_of(name, catalogue[name])
        except Exception as error:  # of timm, of PyTorch or of this script: each model's is said
            faults.append(f"{name}: {type(error).__name__}: {error}")
    if faults:
        sys.exit("make_timm_calls.py: " + "\nmake_timm_calls.py: ".join(faults))
    print_document(models, arguments.date)


if __name__ == "__main__":
    main()
