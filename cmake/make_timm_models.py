#!/usr/bin/env python3
# cmake/make_timm_models.py -- Turns traced attention calls of timm models into data/timm_models.json.
#
# Usage: make_timm_models.py TRACE.jsonl ... --date YYYY-MM-DD [--timm VERSION] > timm_models.json
#
# A line of the trace is one call of scaled_dot_product_attention as a model of timm made it for two images:
# {"model", "calls", "q", "k" (shapes), "q_strides", "k_strides", "v_strides", "mask" (null or shape, strides,
# dtype), "causal", "scale"}; "calls" is 0, and nothing else is there, for a model that makes none. trace_timm_attention.py makes
# such lines, timm_attention_added.jsonl has those of models that joined later. What comes out is described in docs/problems.md. The same input gives the same
# output, byte for byte; only the standard library is used.
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import math
import sys

IMAGES = 2  # of every traced call
NOTE = (
    "Attention calls of models of timm, as traced with two images. problem: what is asked (docs/problems.md), for"
    " two images; b, and the bias where it has an entry for each of b, grow with the number of images. calls: how"
    " often one forward pass asks it. each_image: views that fit one image only; then problem is that of one image"
    " and each image makes these calls. unsupported: why the kernels do not take it. The traced models were fp32;"
    " q, k, v and the bias have the type of the model, written here as bf16."
)


class View:
    """A [batch, heads, rows, d] view by its shape and strides."""

    def __init__(self, shape, strides):
        self.shape, self.strides = shape, strides

    def has_strides(self, wanted):
        """Whether the strides are `wanted`, where an extent makes them matter."""
        return all(extent == 1 or mine == other
                   for extent, mine, other in zip(self.shape, self.strides, wanted))

    def layout(self, may_be_packed):
        _, heads, rows, d = self.shape
        named = {
            "packed": (3 * rows * heads * d, d, 3 * heads * d),
            "bnhd": (rows * heads * d, d, heads * d),
            "bhnd": (heads * rows * d, rows * d, d),
        }
        if not may_be_packed:
            del named["packed"]
        return next((name for name, strides in named.items() if self.has_strides(strides)), None)


def folds(views, outer, inner):
    """Whether two dimensions of all views are one, as reshape() would make them without a copy."""
    return all(v.shape[outer] == 1 or v.shape[inner] == 1
               or v.strides[outer] == v.shape[inner] * v.strides[inner] for v in views)


def folded(view, outer, inner):
    """`view` of rank 5 with dimension `outer` = 0 and `inner` made into its batch."""
    other = 3 - inner
    keep = inner if view.shape[inner] > 1 else outer
    shape = [view.shape[outer] * view.shape[inner], view.shape[other], *view.shape[3:]]
    return View(shape, [view.strides[keep], view.strides[other], *view.strides[3:]])


def rank_4(views):
    """The views as [batch, heads, rows, d], and whether they are those of one image only."""
    rank = len(views[0].shape)
    if rank == 4:
        return views, False
    if rank == 3:  # every entry is batch
        return [View([v.shape[0], 1, *v.shape[1:]], [v.strides[0], 0, *v.strides[1:]]) for v in views], False
    if rank != 5:
        raise ValueError(f"a view of rank {rank}: ranks 3 to 5 are understood")
    for inner in (2, 1):
        if folds(views, 0, inner):
            return [folded(v, 0, inner) for v in views], False
    # Images and windows have strides of their own: one problem per image, whose windows are the batch.
    return [View([v.shape[2], v.shape[1], *v.shape[3:]],
                 [v.strides[2], v.strides[1], *v.strides[3:]]) for v in views], True


def layout_words(q, k, v):
    """ "layout=bhnd v=packed", without what the problem text takes by itself."""
    same_rows = q.shape[2] == k.shape[2]
    default = "packed" if same_rows else "bnhd"
    layouts = [view.layout(same_rows) for view in (q, k, v)]
    if layouts == [default] * 3:
        return []
    named = [layout for layout in layouts if layout]
    order = ["packed", "bnhd", "bhnd"]
    common = max(named, key=lambda layout: (named.count(layout), -order.index(layout)), default=None)
    words = [f"layout={common}"] if common else []
    for name, view, layout in zip("qkv", (q, k, v), layouts):
        if layout is None:
            words.append(f"{name}=@" + ",".join(str(stride) for stride in view.strides[:3]))
        elif layout != common:
            words.append(f"{name}={layout}")
    return words


def bias_words(mask, q, rank):
    if mask is None:
        return []
    if mask["dtype"] != "float32":
        raise ValueError(f"a mask of type {mask['dtype']}: additive float32 ones are understood")
    shape, strides = list(mask["shape"]), list(mask["strides"])
    if rank == 3 and len(shape) == 3:  # an entry for each of the batch, not for each head
        shape.insert(1, 1)
        strides.insert(1, 0)
    shape, strides = [1] * (4 - len(shape)) + shape, [0] * (4 - len(strides)) + strides
    contiguous = [math.prod(shape[i + 1:]) for i in range(4)]
    word = "bias=bf16:" + "x".join(str(extent) for extent in shape)
    if not View(shape, strides).has_strides(contiguous):
        word += "@" + ",".join(str(stride) for stride in strides)
    return [word]


def unsupported(line):
    d = line["q"][-1]
    if any(line[name][-1] != 1 for name in ("q_strides", "k_strides", "v_strides")):
        return f"head size {d}, and its elements are not neighbours"
    if d > 128:
        return f"head size {d} is above 128"
    return f"head size {d} is no multiple of 8" if d % 8 else None


def entry_of(line):
    """The call as an entry without its count."""
    views = [View(line[shape], line[strides])
             for shape, strides in (("q", "q_strides"), ("k", "k_strides"), ("k", "v_strides"))]
    (q, k, v), each_image = rank_4(views)
    reason = unsupported(line)
    batch, heads, nq, d = q.shape
    nk = k.shape[2]
    words = ["bf16", f"b={batch}", f"h={heads}"]
    words += [f"hkv={k.shape[1]}"] if k.shape[1] != heads else []
    words += [f"n={nq}"] if nq == nk else [f"nq={nq}", f"nk={nk}"]
    words.append(f"d={d}")
    if not reason:
        words += layout_words(q, k, v)
    words += ["causal"] if line["causal"] else []
    if line["scale"] is not None and line["scale"] != 1 / math.sqrt(d):
        words.append(f"scale={line['scale']:g}")
    words += bias_words(line["mask"], q, len(line["q"]))
    entry = {"problem": " ".join(words)}
    entry |= {"each_image": True} if each_image else {}
    return entry | ({"unsupported": reason} if reason else {})


def models_of(lines):
    """Model -> {entry as JSON: calls}, in the order of the trace; equal calls are counted together."""
    models = {}
    for line in lines:
        calls = models.setdefault(line["model"], {})
        if line["calls"] == 0:
            continue
        entry = json.dumps(entry_of(line), separators=(",", ":"))
        calls[entry] = calls.get(entry, 0) + line["calls"]
    return dict(sorted(models.items()))


def print_document(models, arguments):
    source = f"timm {arguments.timm}" if arguments.timm else "timm, version not recorded"
    head = {"schema": 1, "source": source, "date": arguments.date, "images": IMAGES, "note": NOTE}
    print("{" + ",\n ".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in head.items()) + ",")
    print(' "models":[')
    rows = []
    for name, calls in models.items():
        entries = ",\n".join(f'   {{"calls":{count},{entry[1:]}' for entry, count in calls.items())
        rows.append(f'  {{"name":{json.dumps(name)},"attention":[' + (f"\n{entries}" if calls else "") + "]}")
    print(",\n".join(rows) + "\n ]}")


def read(path):
    """The calls of a trace."""
    lines = []
    with open(path, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            try:
                lines.append(json.loads(text))
                if lines[-1]["calls"]:
                    entry_of(lines[-1])
            except (ValueError, KeyError, TypeError) as error:
                sys.exit(f"make_timm_models.py: {path}:{number}: {error}")
    return lines


def main():
    parser = argparse.ArgumentParser(description="Makes data/timm_models.json of traces; prints it.")
    parser.add_argument("trace", nargs="+", help="one JSON object per traced call and line")
    parser.add_argument("--date", required=True, help="when this is made, YYYY-MM-DD")
    parser.add_argument("--timm", help="version of timm that was traced, if it is known")
    arguments = parser.parse_args()
    print_document(models_of([line for path in arguments.trace for line in read(path)]), arguments)


if __name__ == "__main__":
    main()
