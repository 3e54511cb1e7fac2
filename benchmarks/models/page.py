#!/usr/bin/env python3
# benchmarks/models/page.py -- Writes docs/models.md from models.json: what a user gains per model.
# SPDX-License-Identifier: Apache-2.0
"""page.py models.json [THE-SAME-OF-ANOTHER-GPU.json ...] > docs/models.md. Needs the standard library only."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":  # this folder itself must not be on the path: a package lies in it
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path.insert(0, str(HERE.parent))

from models import baseline, document, energy  # noqa: E402
from models.time_table import profiled, time_section  # noqa: E402
from peers.engine.samples import geometric_mean  # noqa: E402

_INTRO = """# Whole models: what a user gains

This page has the time of a whole forward pass, by PyTorch and with vitune. Written by `benchmarks/models/page.py`; do not edit.
"""
_READ = """
## How to read the tables

- *gain*: the time of the better of PyTorch's ways (its own choice of kernels, or cuDNN preferred) over that with vitune, in brackets the 95 % interval of the
  median. Above 1.00 vitune is faster.
- *eager*: the model as Python calls it, the host's time included. *graph*: the replay of a CUDA graph of it. In both vitune is the drop-in, which serves attention and
  norms; models of transformers have `attn_implementation="vitune"`.
- *compiled*: [`vitune.compile`](python.md#compiled-models), which also serves linear layers and windows, each call only where it is faster than Inductor's;
  `vitune.report` lists the calls with their kernels or reasons.
"""
_MARKS = {
    baseline.HOST: """
- *host*: the eager pass takes more than 1.5 times as long as its graph, by PyTorch or by vitune. The GPU waits for Python, so
  the row says more about the host than about kernels. Such rows have a mean of their own.
""",
    baseline.BROKEN: """
- *broken*: a graph only replays what was captured, so it should not take longer than the eager pass. If PyTorch's does, by more than
  5 % at some batch, the captured pass computes more than the model (transformers' models make a mask in it). Then
  no graph of the model is in a mean.
""",
}
_GAINS = "![The better of PyTorch's ways over vitune, for each model](figures/models.svg)"
_TIMES = "![Where the time of each model goes, by kind, beside the floor of each kind](figures/model-time.svg)"
_COMPILED = """
## Compiled models

`torch.compile` in three of its modes, and `vitune.compile` in the mode in which PyTorch was fastest, called from Python,
milliseconds. The gain is over the best of the three.
"""
_MODES = {"compile_default": "default", "compile_reduce": "reduce-overhead", "compile_max": "max-autotune"}
_HOW = """
## How it was measured

`make models` (`benchmarks/models/run.py`) on {device}, {date}: {versions}.

{method}
"""


def _key(row: dict[str, Any]) -> tuple[str, int]:
    return row["model"], row["batch"]


def _in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Models as they were first measured, each by batch."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    return sorted(rows, key=lambda row: (models.index(row["model"]), row["batch"]))


def _gain(row: dict[str, Any] | None) -> str:
    """A cell of the table: the gain and its interval, or why there is none."""
    if row is None:
        return "-"
    found = row.get("gain")
    if found and "vitune" not in row["failed"]:
        mark = f" *{row['baseline']}*" if "baseline" in row else ""
        return f"{found['times']:.2f} [{found['low']:.2f}, {found['high']:.2f}]{mark}"
    return f"failed ({', '.join(name or 'all' for name in row['failed'])})"


def _ms(row: dict[str, Any] | None, way: str) -> str:
    found = (row or {}).get("ms", {}).get(way)
    return f"{found['ms']:.4g}" if found else "-"


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    by_mode = {(_key(row), row["mode"]): row for row in rows}
    lines = [
        "| model | batch | eager: torch / cuDNN / vitune, ms | gain | graph: torch / cuDNN / vitune, ms | gain |",
        "|--|--:|--|--|--|--|",
    ]
    for key in dict.fromkeys(_key(row) for row in rows):
        cells = [f"`{key[0]}`", str(key[1])]
        for mode in ("eager", "graph"):
            row = by_mode.get((key, mode))
            cells += [" / ".join(_ms(row, way) for way in ("torch", "cudnn", "vitune")), _gain(row)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _gains(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    return {_key(row): row["gain"] for row in rows}


def _mean(rows: Sequence[dict[str, Any]]) -> str:
    """The geometric mean in words."""
    gains = {key: gain["times"] for key, gain in _gains(rows).items()}
    if not gains:
        return "no row"
    text = f"{geometric_mean(gains.values()):.3f} (geometric mean of {len(gains)} rows)"
    usual = [times for (model, _), times in gains.items() if not model.startswith("samvit")]
    return text + (f", {geometric_mean(usual):.3f} without SAM" if 0 < len(usual) < len(gains) else "")


def _means(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for mode in ("eager", "graph", "compiled"):
        found = [row for row in rows if row["mode"] == mode and row.get("gain")]
        if not found:
            continue
        slower = [f"`{model}` b{batch}" for (model, batch), gain in _gains(found).items() if gain["high"] < 1]
        text = f"- {mode}: {_mean([row for row in found if baseline.counts(row)])}"
        if hosts := [row for row in found if row.get("baseline") == baseline.HOST]:
            text += f"; those that the host bounds: {_mean(hosts)}"
        if broken := dict.fromkeys(row["model"] for row in found if row.get("baseline") == baseline.BROKEN):
            text += f"; in no mean, PyTorch's graph being slower than its eager pass: {', '.join(f'`{model}`' for model in broken)}"
        lines.append(text + f"; slower with vitune, by the whole interval: {', '.join(slower) or 'none'}.")
    return lines


def _compiled_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    ways = (*_MODES, "vitune_compile")
    lines = ["| model | batch | default | reduce-overhead | max-autotune | vitune.compile | gain | its mode | calls replaced |"]
    lines.append("|--|--:|--:|--:|--:|--:|--|--|--|")
    for row in rows:
        replaced = row.get("replaced")
        cells = [f"`{row['model']}`", str(row["batch"]), *(_ms(row, way) for way in ways), _gain(row)]
        cells += [row.get("vitune_mode", "-"), f"{replaced['replaced']} of {replaced['known']}" if replaced else "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *_means(rows), *_energy_table(rows), *_files_table(rows)]


def _energy_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Joules, where any were counted."""
    counted = [(row, energy.peer(row)) for row in rows if energy.peer(row)]
    if not counted:
        return []
    lines = ["", "Millijoules of an image, vitune.compile beside the mode of torch.compile that takes the fewest.", "",
             "| model | batch | torch.compile | its mode | vitune.compile | times fewer |", "|--|--:|--:|--|--:|--:|"]
    for row, over in counted:
        mj = row["mj"]
        cells = (f"`{row['model']}`", str(row["batch"]), f"{mj[over]:.4g}", _MODES[over], f"{mj[energy.OURS]:.4g}", f"{energy.fewer(row):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", f"Geometric mean: {geometric_mean(energy.fewer(row) for row, _ in counted):.2f} times fewer."]


def _gain_over(row: dict[str, Any], way: str, peers: Sequence[str]) -> str:
    found = [each for each in row.get("gains", []) if each["of"] == way and each["over"] in peers]
    return "{times:.2f} [{low:.2f}, {high:.2f}]".format_map(found[0]) if found else "-"


def _files_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Models as files, where any was measured so."""
    rows = [row for row in rows if "runner" in row["ms"]]
    if not rows:
        return []
    ways = ("runner", "runner_graph", "aoti", "aoti_graph", "onnxruntime")
    lines = ["", "The same models as files: vitune's session, AOTInductor's package and ONNX Runtime (fp16), called and in a CUDA graph.", "",
             "| model | batch | session | in a graph | AOTInductor | in a graph | ONNX Runtime | over torch.compile | over vitune.compile |"
             " over AOTInductor, both in graphs |", "|--|--:|--:|--:|--:|--:|--:|--|--|--|"]
    for row in rows:
        gains = (_gain_over(row, "runner", _MODES), _gain_over(row, "runner", ("vitune_compile",)),
                 _gain_over(row, "runner_graph", ("aoti_graph",)))
        cells = [f"`{row['model']}`", str(row["batch"]), *(_ms(row, way) for way in ways), *gains]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _of(rows: Sequence[dict[str, Any]], compiled: bool) -> list[dict[str, Any]]:
    return [row for row in rows if (row["mode"] == "compiled") == compiled]


def _compiled(result: dict[str, Any], others: Sequence[dict[str, Any]]) -> list[str]:
    """Of the result's GPU, then of the others'."""
    lines = []
    for each in (result, *others):
        if rows := _of(_in_order(each["rows"]), True):
            where = "" if each is result else f"\n### On an {each['device']['name'].removeprefix('NVIDIA ')}, {each['date'][:10]}\n"
            lines += [where or _COMPILED, *_compiled_table(rows)]
    return lines


def _memory(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How much more or less vitune's passes need than those of what they are compared with."""
    found = {}
    for row in rows:
        if row.get("baseline") == baseline.BROKEN:
            continue
        mb, gain = row.get("memory_mb", {}), row.get("gain")
        ours = next((mb[way] for way in ("vitune_compile", "vitune") if way in mb), None)
        theirs = mb.get(gain["over"]) if gain else None
        if ours and theirs:
            found[f"`{row['model']}` b{row['batch']} {row['mode']}"] = ours / theirs
    if not found:
        return []
    most, least = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
    return ["", f"Memory of a pass beside weights and images, over that of the way it is compared with: {geometric_mean(found.values()):.2f}"
            f" (geometric mean of {len(found)} rows), at most {found[most]:.2f} ({most}), at least {found[least]:.2f} ({least})."]


def _plain(rows: Sequence[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = ["", "## Models without attention", ""]
    lines += ["Eager, ms per pass: what the drop-in costs where it has nothing to do.", ""]
    lines += ["| model | batch | without | with vitune | without over with |", "|--|--:|--:|--:|--|"]
    for row in rows:
        cells = [f"`{row['model']}`", str(row["batch"]), _ms(row, "torch"), _ms(row, "vitune"), _gain(row)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _calls(rows: Sequence[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    names = list(dict.fromkeys(name for row in rows for name in row.get("us", {})))
    lines = ["", "## One attention call", "", "Microseconds of host time until a call returned.", ""]
    lines += ["| | " + " | ".join(names) + " |", "|--|" + "--:|" * len(names)]
    for row in rows:
        cells = [f"{row['us'][n]['us']:.1f}" if n in row.get("us", {}) else "-" for n in names]
        lines.append(f"| {row.get('grad', '')} | " + " | ".join(cells) + " |")
    return lines


def page(result: dict[str, Any], others: Sequence[dict[str, Any]] = ()) -> str:
    """The whole page; others: results on other GPUs, of which the compiled models are told."""
    failed = [
        f"- `{row['model']}` b{row['batch']} {row['mode']}, {name or 'all'}: {reason}"
        for row in result["rows"] + result["plain"]
        for name, reason in row["failed"].items()
    ]
    versions = ", ".join(f"{name} {value}" for name, value in result["versions"].items() if value)
    every = _in_order(result["rows"])
    rows = _of(every, False)
    marks = [text for name, text in _MARKS.items() if any(row.get("baseline") == name for row in rows)]
    short = _means(every)
    lines = [_INTRO, *([f"Means on an {result['device']['name']}:", "", *short] if short else []), _READ + "".join(text.lstrip("\n") for text in marks)]
    lines += ["## Models as they are", "", *([_GAINS, ""] if any(row.get("gain") for row in rows) else []), *_table(rows)]
    lines += _compiled(result, others) + time_section(every)
    lines += ["", _TIMES] if profiled(result["rows"]) else []
    lines += _memory(result["rows"])
    lines += _plain(result["plain"]) + _calls(result["calls"])
    lines += ["", "## What failed", "", *failed] if failed else []
    if result["unfinished"]:
        lines += ["", f"Not measured, the time was over: {', '.join(result['unfinished'])}."]
    method = "\n".join(f"- *{name}*: {text}." for name, text in result["method"].items())
    device = result["device"]["name"]
    how = _HOW.format(device=device, date=result["date"][:10], versions=versions, method=method)
    return "\n".join(lines) + "\n" + how


def main() -> int:
    """0, 1 for a file that is no result, 2 without one."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        result, *others = (document.read(pathlib.Path(name)) for name in sys.argv[1:])
        sys.stdout.write(page(result, others))
    except document.BadDocument as reason:
        print(f"page.py: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
