#!/usr/bin/env python3
# benchmarks/report/works.py -- Writes docs/works.md: the works that vitune starts from, ours beside theirs.
# SPDX-License-Identifier: Apache-2.0
"""works.py RESULTS_FOLDER > docs/works.md. Needs the standard library only."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":  # this folder itself must not be on the path: a package lies in it
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path.insert(0, str(HERE.parent))

from report import documents  # noqa: E402
from report.problem import attention  # noqa: E402

_INTRO = """# The works that vitune starts from

Figures as their authors give them, measured on their machines, and ours beside them, on the same problems: cold calls on {device}, {date}.
The two were not measured side by side: the table says how far the machine and the kernel together have come. Written by `benchmarks/report/works.py`;
do not edit.
"""


_WHOLE = """
## A whole ViT-B/16 without Python

The first two works set kernels of ViT-B against eager PyTorch: in latency, TFLOP/s and bandwidth, on the roofline, at 224, 384 and 512 pixels. This is that comparison for a whole ViT-B/16, with
the energy of an image: a [session](sessions.md) of a model file beside PyTorch, eager and as a CUDA graph; bf16, random weights, every answer held against the same weights in fp32.

- *Time* is that of passes in a row between two CUDA events, all ways once in each round, in random order: the median. *Images/s* is the batch over it.
- *TFLOP/s* and *TB/s* are the operations and bytes of PyTorch's own operators over the time, the same numbers for all ways: operands and results of each operator count once. A way that fuses
  operators moves less, so that its bandwidth is an effective one.
- *Of roofline*: each operator takes at least the longer of its products and its bytes at the rates that were measured on the GPU ([measuring.md](measuring.md)); the sum of these over the time. With fused operators it may be above 100 %.
- *J/image* is NVML's energy counter over windows of 5 s, the ways in turn, the median of three windows.

`benchmarks/models/end_to_end.py` measures all of it and writes `end_to_end.json`; `vitune bench --model FILE --batch 1,32` times the session by itself, without PyTorch.
"""
_WAYS = {"torch": "eager PyTorch", "torch_graph": "its CUDA graph", "runner": "session", "runner_graph": "session, captured"}


def _whole(measured: dict[str, Any]) -> Iterator[str]:
    """The table of whole passes, one line for each size, batch and way."""
    yield f"\n{documents.device_name(measured)}, {documents.day(measured)}; {documents.versions(measured)}.\n"
    yield "| pixels | batch | way | ms | images/s | TFLOP/s | TB/s | of roofline | J/image |"
    yield "|--:|--:|--|--:|--:|--:|--:|--:|--:|"
    for row in documents.rows(measured, "rows"):
        for way, name in _WAYS.items():
            if way not in row["ms"]:
                continue
            ms = row["ms"][way]["ms"]
            floor, energy = row.get("floor_us"), row.get("joules", {}).get(way)
            yield (f"| {row['size']} | {row['batch']} | {name} | {ms:.3f} | {1e3 * row['batch'] / ms:.0f} | {row['flops'] / ms / 1e9:.1f} "
                   f"| {row['bytes'] / ms / 1e9:.2f} | {f'{floor / ms / 10:.0f} %' if floor else '–'} | {f'{energy:.4f}' if energy else '–'} |")


_STEPS = """
### Its training here

A step of CCT-14/7x2 at 384 px as its authors train it (their block, attention dropout 0.1, drop path 0.1, AMP, AdamW, cross entropy), milliseconds and GiB at most, as `benchmarks/train_models/` measures
it by each of PyTorch's ways and by vitune. In vitune's, attention with dropout is vitune's where it wins the race with PyTorch's.
"""
_NO_STEPS = "Not measured yet: `make train-models`. Nor are the work's four variants (attention written out or fused, MLP fused or not) one by one."
_ACCURACY = """
### Accuracy here

The work lost 20 points. `python -m train_cct.compare` (`examples/train_cct/`) asks of each way whether it does: three seeds each, accuracy of test images, *in the band* if the mean is within the range of fp32's seeds, half a point added at
both ends. *Distance*: of the losses of an epoch in which nothing is dropped from those of fp32 at the same steps; a way *follows* fp32 if it is at most twice as far away as PyTorch's AMP. The last way has a fault on purpose.
"""
_NO_ACCURACY = "Not measured on a GPU yet; the example's page has a small run of a CPU."


def _steps(results: pathlib.Path) -> Iterator[str]:
    """A line for each batch and mode that was measured."""
    yield _STEPS
    path, found = results / "train_models.json", []
    measured = documents.read(path, "train_models", "benchmarks/train_models") if path.exists() else {}
    for row in documents.rows(measured, "rows") if measured else []:
        if row.get("model") == "cct_14_7x2_384":
            for way, times in row["ms"].items():
                peak = row.get("peak_gb", {}).get(way)
                found.append(f"| {row['batch']} | {row['mode']} | {way} | {times['ms']:.2f} | {f'{peak:.2f}' if peak else '–'} |")
    if not found:
        yield _NO_STEPS
        return
    yield f"{documents.device_name(measured)}, {documents.day(measured)}; {documents.versions(measured)}.\n"
    yield "| batch | mode | way | ms | GiB |\n|--:|--|--|--:|--:|"
    yield from found


def _accuracy(results: pathlib.Path) -> Iterator[str]:
    """A line for each way of each data set."""
    yield _ACCURACY
    paths = sorted(results.glob("train_cct*.json"))
    if not paths:
        yield _NO_ACCURACY
    for path in paths:
        measured = documents.read(path, "train_cct", "examples/train_cct/compare.py")
        recipe = measured["recipe"]
        yield (f"{recipe['model']} on {measured['data']}, {recipe['epochs']} epochs; {documents.device_name(measured)}, {documents.day(measured)};"
               f" {documents.versions(measured)}.\n")
        yield "| way | accuracy, % | seeds | in the band | distance | follows |\n|--|--:|--|--|--:|--|"
        for row in documents.rows(measured, "rows"):
            seeds = ", ".join(f"{100 * each:.2f}" for each in row["accuracy"])
            yield (f"| {row['says']} | {100 * row['mean']:.2f} | {seeds} | {'yes' if row['in_band'] else 'no'} | {row['distance']:.1e} "
                   f"| {'yes' if row['follows'] else 'no'} |")


def _key(text: str) -> tuple[Any, ...]:
    found = attention(text)
    return (found.batch, found.heads, found.nq, found.nk, found.d, found.plain) if found else (text,)


def _ours(results: pathlib.Path) -> dict[tuple[str, tuple[Any, ...]], dict[str, float]]:
    """(kernel, problem) -> "us" and "bytes"."""
    found = {}
    peers = documents.read(results / "reference_peers.json", "peers", "benchmarks/peers")
    for row in documents.rows(peers, "rows"):
        for peer, us in row["us"].items():
            found[peer, _key(row["problem"])] = {"us": us.get("cold"), "bytes": row["memory"].get(peer)}
    for row in documents.rows(documents.read(results / "reference.json"), "rows"):
        found[row["kernel"], _key(row["problem"])] = {"us": row["us"], "bytes": row.get("call_bytes")}
    return found


def _text(row: dict[str, Any], measured: dict[str, float] | None) -> str:
    figure = (measured or {}).get("bytes" if row.get("shows") == "memory" else "us")
    if not figure:
        return "–"
    if row.get("shows") == "memory":
        return f"{figure / 1e6:.1f} MB" if figure < 1e9 else f"{figure / 1e9:.2f} GB"
    return f"{figure:.1f} µs" if figure < 1e3 else f"{figure / 1e3:.2f} ms"


def _table(table: dict[str, Any], ours: dict) -> Iterator[str]:
    yield f"\n### {table['title']}\n\nTheir machine: {table['machine']}. {table.get('note', '')}".rstrip() + "\n"
    problems = table.get("problems", [])
    head = [cell for number, column in enumerate(table["columns"])
            for cell in ([column, "ours"] if number < len(problems) else [column])]
    yield "| " + " | ".join([table["first_column"], *head]) + " |"
    yield "|--|" + "--:|" * len(head)
    for row in table["rows"]:
        cells = []
        for number, cell in enumerate(row["cells"]):
            cells.append(cell)
            if number < len(problems):
                cells.append(_text(row, ours.get((row.get("kernel"), _key(problems[number])))))
        yield "| " + " | ".join([row["label"], *cells]) + " |"


def page(results: pathlib.Path, works: pathlib.Path) -> str:
    """The whole document."""
    ours = _ours(results)
    measured = documents.read(results / "reference.json")
    lines = [_INTRO.format(device=documents.device_name(measured), date=documents.day(measured))]
    for work in documents.rows(documents.read(works), "works"):
        lines.append(f"\n## {work['title']}\n\n{work['source']}.")
        lines += [f"\n{work['note']}"] if work.get("note") else []
        for table in work["tables"]:
            lines += _table(table, ours)
        if work.get("trains"):
            lines += [*_steps(results), *_accuracy(results)]
    lines.append(_WHOLE.rstrip())
    whole = results / "end_to_end.json"
    if whole.exists():
        lines += _whole(documents.read(whole, "end_to_end", "benchmarks/models/end_to_end.py"))
    else:
        lines.append("No result of it is here yet.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(pathlib.Path(sys.argv[1]), HERE.parents[1] / "data/reference_works.json"))
