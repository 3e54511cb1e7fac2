#!/usr/bin/env python3
# benchmarks/train_models/page.py -- Writes docs/training.md from train_models.json: what a step of training takes.
# SPDX-License-Identifier: Apache-2.0
"""page.py [train_models.json [THE-SAME-OF-ANOTHER-GPU.json ...]] > docs/training.md. Needs the standard library only. Without a file
the page says that nothing is measured yet."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":  # this folder itself must not be on the path: a package lies in it
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path.insert(0, str(HERE.parent))

from models.time_table import cell, excess  # noqa: E402
from peers.engine.samples import geometric_mean  # noqa: E402
from train_models import document, roster  # noqa: E402
from train_models.kinds import KINDS  # noqa: E402

_INTRO = """# Training: what a step takes

A step is forward, cross entropy, backward and AdamW. This page has its time by each of PyTorch's ways and by vitune, in milliseconds.
Written by `benchmarks/train_models/page.py`; do not edit. To train with vitune, go to [switching it on](#switching-it-on).
"""
_READ = """
## How to read the tables

| word | meaning |
|--|--|
| `eager` | the model as it is |
| `compile_default`, `compile_reduce`, `compile_max` | `torch.compile` in its modes default, reduce-overhead and max-autotune |
| `compile_step_graph` | a whole step with `torch.compile`, captured by hand in one CUDA graph: a new batch is copied in, the graph is replayed |
| `vitune_eager` | the eager step with the [drop-in](python.md#training-in-eager-mode): `install(timm=True, training=True)` |
| `vitune_train_step` | [`vitune.train_step`](python.md#training-steps): the same by one call of vitune, with vitune's kernels |
| `vitune_compile` | `vitune.compile(model)` in a loop of one's own. In the table of graphs it stands with `training=True`. Called, it trains with vitune's operators where steps wait for the GPU, and leaves the others [to Inductor](python.md#training-in-compiled-models); in rows older than `vitune_compile_training` it left all of them |
| `vitune_compile_training` | `vitune.compile(model, training=True)` in a loop of one's own |
| called | as Python calls it, the host's time included. Steps in a row fill 40 ms, at least four of them (until 2026-11-29 sometimes a single one, which begins on an idle GPU) |
| graph | the replay of one CUDA graph of the whole step |
| amp, bf16 | fp32 weights under autocast to bf16; weights in bf16 |
| over eager | the eager step over `vitune_eager`, with its interval |
| gain | the time of the best of PyTorch's ways over the best of vitune's, in brackets the 95 % interval of the median |
| calls replaced | how many of the calls that vitune knows it serves; the others were faster by Inductor, or [have a reason](python.md#training-in-compiled-models) |

In older measurements more was left to PyTorch: attention until 2026-11-28, attention in windows (Swin, MaxViT, Twins) until 2026-11-29.
"""
_SWITCHES = """
## Switching it on

If the training loop is yours, use [`vitune.train_step`](python.md#training-steps): it makes the whole step one call and one CUDA graph. In a program that brings its own loop, add one line that compiles the model:

    model.compile(backend="vitune", options={"training": True})

| program | where the line stands |
|--|--|
| a loop of your own | instead of the line: `step = vitune.train_step(model, loss, optimizer)`, then `step(images, labels)` (`examples/train_cct/`) |
| timm's pieces (AMP, EMA, mixup, drop path, `channels_last`, accumulation) | before `ModelEmaV3(model)` or after it: the average is a copy, which is not compiled |
| timm's `train.py` | no line: `--torchcompile vitune`, and `--torchcompile-mode` as usual; vitune must be installed |
| transformers' `Trainer` | before `Trainer(model, ...)`. Do not use its option `torch_compile_backend="vitune"`: accelerate accepts only the names on its own list |
| Lightning's `Trainer` | before `trainer.fit(...)`, on the model that the module holds |
| FSDP2 | on each block, after `checkpoint_wrapper(block)` and before `fully_shard(block)`; after it, or on the whole model at the end, works too. |
| peft | after `get_peft_model(...)`. Merging, unmerging and loading an adapter between steps need nothing more |

Without `"training": True`, and without a mode that captures CUDA graphs, vitune leaves to Inductor what needs a gradient where a step waits for the host and not for the GPU ([python.md](python.md#training-in-compiled-models)).

`benchmarks/programs/run.py PROGRAM` runs timm's pieces, both `Trainer`s, FSDP2 on timm's DINOv3 and peft, with random weights and generated images, by eager mode, `torch.compile` and vitune. It fails if losses differ. This is tested on a CPU (`python/tests/test_programs.py`; FSDP2 with two processes). What these programs gain on a GPU is not measured yet.

What stays PyTorch's: attention with dropout if it has a bias or a mask or lies in windows, LayerScale and drop path except in the places that [python.md](python.md#training-in-compiled-models) lists, and the optimizer.
What `train_step` refuses, and what to do instead, is in the table of [training steps](python.md#training-steps).
"""
_NONE = "\nNothing is measured yet: `make train-models` measures it on a GPU.\n"
_FIGURE = "![The best of PyTorch's ways over vitune, for each model's training step](figures/training.svg)"
_MODES = {
    "called": "## As Python calls it",
    "graph": "## As one CUDA graph",
}
_TIME = """
## Where the time goes

Microseconds of a step in kernels of each kind, for the fastest of PyTorch's ways and of vitune's. In brackets: how many times the *floor* of that kind, which is the time if each operator of an
eager step read its operands and wrote its results once, or multiplied at the GPU's measured rate. Fused operators may go below it. *sums* are reductions over tokens that nothing else is fused into.
"""
_SEARCHES = """
## Beside a search

The strongest ways once more, in a run of their own beside `max-autotune`: as a graph by `max-autotune-no-cudagraphs`.
"""
_IDLE = """
## From an idle GPU

Milliseconds of one step as Python calls it on an idle GPU, which first waits for the host.
"""
_MEMORY = """
## Memory

GiB that a step takes at most, weights, optimizer and batch included.
"""
_LOSSES = """
## How losses fall

Mean distance of each step's loss to that of the same steps in fp32, over seeds: mean, and in brackets the least and the most.
"""
_HOW = """
## How it was measured

`make train-models` (`benchmarks/train_models/run.py`) on {device}, {date}: {versions}.

{method}
"""
_ORDER = ("eager", "compile_default", "compile_reduce", "compile_max", "compile_step_graph")
_PLACES = {(task.model, task.batch, task.params): place for place, task in enumerate(roster.TASKS) if not task.later}


def _in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the roster has them; others behind."""
    return sorted(rows, key=lambda row: _PLACES.get((row["model"], row["batch"], row["params"]), len(_PLACES)))


def _ways(rows: Sequence[dict[str, Any]], figure: str) -> list[str]:
    """Those that any row has this figure of, PyTorch's first."""
    found = {way for row in rows for way in row[figure]} | {way for row in rows for way in row["failed"] if way}
    return [way for way in _ORDER if way in found] + sorted(found - set(_ORDER))


def _name(row: dict[str, Any]) -> list[str]:
    return [f"`{row['model']}`", str(row["batch"]), row["params"]]


def _head(words: Sequence[str], left: int = 1) -> list[str]:
    """Of a table whose first columns are words."""
    return ["| " + " | ".join(words) + " |", "|" + "--|" * left + "--:|" * (len(words) - left)]


def _ms(row: dict[str, Any], way: str) -> str:
    if way in row["ms"]:
        return f"{row['ms'][way]['ms']:.4g}"
    return "failed" if way in row["failed"] else "-"


def _gain(row: dict[str, Any], figure: str = "gain") -> str:
    found = row.get(figure)
    return f"{found['times']:.2f} [{found['low']:.2f}, {found['high']:.2f}]" if found else "-"


def _replaced(row: dict[str, Any]) -> str:
    found = row.get("replaced", {}).get("vitune_in_graph") or row.get("replaced", {}).get("vitune")
    return f"{found['replaced']} of {found['known']}" if found else "-"


def _means(rows: Sequence[dict[str, Any]]) -> list[str]:
    gains = [row["gain"] for row in rows if row.get("gain")]
    if not gains:
        return []
    slower = [" ".join(_name(row)) for row in rows if row.get("gain") and row["gain"]["high"] < 1]
    return ["", f"Geometric mean of {len(gains)} gains: {geometric_mean(each['times'] for each in gains):.3f}; slower with vitune, by "
                f"the whole interval: {', '.join(slower) or 'none'}."]  # fmt: skip


def _span(gains: Sequence[dict[str, Any]]) -> str:
    times = sorted(each["times"] for each in gains)
    return f"{times[0]:.2f}" + (f" to {times[-1]:.2f}" if len(times) > 1 else "")


def _short(result: dict[str, Any]) -> list[str]:
    """The whole page in a few sentences."""
    lines = []
    for mode, words in (("called", "as Python calls them"), ("graph", "as one CUDA graph")):
        rows = [row for row in _in_order(result["rows"]) if row["mode"] == mode and row.get("gain")]
        faster = [row["gain"] for row in rows if row["gain"]["low"] > 1]
        slower = [row for row in rows if row["gain"]["high"] < 1]
        if rows:
            text = f"- {words}: vitune is faster in {len(faster)} of {len(rows)} steps" + (f", {_span(faster)} times as fast as PyTorch's best way" if faster else "")
            text += "".join(f"; slower: `{row['model']}` with {row['batch']} images, {row['gain']['times']:.2f}" for row in slower)
            lines.append(text + ".")
    if lines and "winners" in result["method"]:
        lines.append(f"- winners: {result['method']['winners']}.")
    return [f"On an {result['device']['name']}, {result['date'][:10]}:", "", *lines] if lines else []


def _times(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for mode, title in _MODES.items():
        of_mode = [row for row in rows if row["mode"] == mode]
        if not of_mode:
            continue
        ways, eager = _ways(of_mode, "ms"), any("eager_gain" in row for row in of_mode)
        gains = [*([("over eager", "eager_gain")] if eager else []), ("gain", "gain")]
        lines += ["", title, "", *_head(["model", "batch", "params", *ways, *(title for title, _ in gains), "calls replaced"])]
        figures = lambda row: [*(_ms(row, way) for way in ways), *(_gain(row, figure) for _, figure in gains), _replaced(row)]  # noqa: E731
        lines += ["| " + " | ".join([*_name(row), *figures(row)]) + " |" for row in of_mode]
        lines += _means(of_mode)
    return lines


def _searches(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Both modes in one table."""
    if not rows:
        return []
    rows = _in_order(rows)
    ways = _ways(rows, "ms")
    lines = [_SEARCHES, *_head(["model", "batch", "params", "mode", *ways, "gain"])]
    lines += ["| " + " | ".join([*_name(row), row["mode"], *(_ms(row, way) for way in ways), _gain(row)]) + " |" for row in rows]
    return lines + _means(rows)


def _told(row: dict[str, Any]) -> list[str]:
    """The fastest of PyTorch's ways whose kernels are known, and vitune's."""
    known = [way for way in row["ms"] if way in row["kinds_us"]]
    ours = [way for way in known if way.startswith("vitune")]
    theirs = [way for way in known if way not in ours]
    fastest = lambda ways: min(ways, key=lambda way: row["ms"][way]["ms"])  # noqa: E731
    return [fastest(ways) for ways in (theirs, ours) if ways]


def _kinds(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Of graphs; of what is called where there is no graph."""
    graphs = {(row["model"], row["batch"], row["params"]) for row in rows if row["mode"] == "graph" and row["kinds_us"]}
    lines = []
    for row in rows:
        if row["mode"] != "graph" and (row["model"], row["batch"], row["params"]) in graphs:
            continue
        for way in _told(row):
            us, floor = row["kinds_us"][way], row.get("floor_us", {})
            kind, over = next(iter(excess(us, floor).items()))
            cells = [*_name(row), way, *(cell(us.get(each), floor.get(each)) for each in KINDS)]
            cells += [cell(sum(us.values()), sum(floor.values())), f"{kind}: {over:.0f}" if floor else "-"]
            lines.append("| " + " | ".join(cells) + " |")
    return [_TIME, *_head(["model", "batch", "params", "way", *KINDS, "all", "most over its floor"], 4), *lines] if lines else []


def _of_called(rows: Sequence[dict[str, Any]], figure: str, head: str) -> list[str]:
    """A number of each way, of steps as they are called."""
    found = [row for row in rows if row.get(figure) and row["mode"] == "called"]
    if not found:
        return []
    ways = [way for way in _ways(found, figure) if any(way in row[figure] for row in found)]
    lines = [head, *_head(["model", "batch", "params", *ways])]
    for row in found:
        cells = [f"{row[figure][way]:.2f}" if way in row[figure] else "-" for way in ways]
        lines.append("| " + " | ".join([*_name(row), *cells]) + " |")
    return lines


def _losses(found: Sequence[dict[str, Any]]) -> list[str]:
    rows = [row for row in found if row.get("distance")]
    if not rows:
        return []
    ways = list(dict.fromkeys(way for row in rows for way in row["distance"]))
    lines = [_LOSSES, *_head(["model", "batch", "steps", "seeds", *ways])]
    for row in rows:
        spread = [row["distance"].get(way) for way in ways]
        cells = [f"{each['mean']:.4f} [{each['least']:.4f}, {each['most']:.4f}]" if each else "-" for each in spread]
        lines.append("| " + " | ".join([f"`{row['model']}`", str(row["batch"]), str(row["steps"]), str(row["seeds"]), *cells]) + " |")
    return lines


def _failed(result: dict[str, Any]) -> list[str]:
    lines = [
        f"- `{row['model']}` b{row['batch']} {row.get('params', 'losses')} {row.get('mode', '')}, {way or 'all'}: {reason}"
        for row in [*_in_order(result["rows"]), *_in_order(result["searches"]), *result["losses"]]
        for way, reason in row["failed"].items()
    ]
    return ["", "## What failed", "", *lines] if lines else []


def _of_one(result: dict[str, Any]) -> list[str]:
    rows = _in_order(result["rows"])
    lines = _times(rows) + _searches(result["searches"]) + _kinds(rows) + _of_called(rows, "idle_ms", _IDLE)
    lines += _of_called(rows, "peak_gb", _MEMORY) + _losses(result["losses"]) + _failed(result)
    if result["unfinished"]:
        lines += ["", f"Not measured, the time was over: {', '.join(result['unfinished'])}."]
    return lines


def page(results: Sequence[dict[str, Any]], pictured: bool = False) -> str:
    """The whole page; of further GPUs the times alone. pictured: whether docs/figures has the picture."""
    if not results:
        return _INTRO + _NONE + _SWITCHES
    first, *others = results
    lines = [_INTRO, *_short(first), _READ, *([_FIGURE] if pictured else []), *_of_one(first)]
    for each in others:
        name = each["device"]["name"].removeprefix("NVIDIA ")
        times = [line.replace("## ", "### ") if line.startswith("## ") else line for line in _times(_in_order(each["rows"]))]
        lines += ["", f"## On an {name}, {each['date'][:10]}", *times]
    versions = ", ".join(f"{name} {value}" for name, value in first["versions"].items() if value)
    method = "\n".join(f"- *{name}*: {text}." for name, text in first["method"].items())
    how = _HOW.format(device=first["device"]["name"], date=first["date"][:10], versions=versions, method=method)
    return "\n".join(lines) + "\n" + _SWITCHES + how


def main() -> int:
    """0, 1 for a file that is no result."""
    try:
        results = [document.read(pathlib.Path(name)) for name in sys.argv[1:]]
    except document.BadDocument as reason:
        print(f"page.py: {reason}", file=sys.stderr)
        return 1
    sys.stdout.write(page(results, (HERE.parents[1] / "docs/figures/training.svg").exists()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
