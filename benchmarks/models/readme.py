#!/usr/bin/env python3
# benchmarks/models/readme.py -- Writes the tables of models of README.md and docs/is_it_for_me.md from models.json.
# SPDX-License-Identifier: Apache-2.0
"""readme.py FOLDER: one with models.json and, if training was measured there, train_models.json. Replaces their marked regions. Needs
the standard library only."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":  # this folder itself must not be on the path: a package lies in it
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path.insert(0, str(HERE.parent))

from models import document, energy  # noqa: E402
from models.baseline import BROKEN, HOST  # noqa: E402
from peers.table import replaced  # noqa: E402
from train_models import document as training_document  # noqa: E402

ROOT = HERE.parents[1]
BATCHES = (1, 8, 32, 128)
NONE = "–"


@dataclasses.dataclass(frozen=True)
class Model:
    """A line of README's table."""

    title: str  #: for people
    name: str  #: timm's
    batch: int
    trained: int = 0  #: images of the training step; 0: another line of the model has it


MODELS = (
    Model("ViT-B/16", "vit_base_patch16_224", 1),
    Model("ViT-B/16", "vit_base_patch16_224", 32, 64),
    Model("DeiT III-S", "deit3_small_patch16_224", 32, 128),
    Model("Swin-T", "swin_tiny_patch4_window7_224", 32, 128),
    Model("BEiT-B", "beit_base_patch16_224", 32, 64),
    Model("DINOv2-L, 518 pixels", "vit_large_patch14_reg4_dinov2", 8, 8),
    Model("SigLIP So400m, 384 pixels", "vit_so400m_patch14_siglip_384", 32),
    Model("Hiera-B", "hiera_base_224", 32),
    Model("SAM-B, 1024 pixels", "samvit_base_patch16", 4),
)


def _times(row: dict[str, Any] | None) -> str:
    """A gain, marked where the host bounds it; a dash where there is none to tell."""
    gain = (row or {}).get("gain")
    if not gain or row.get("baseline") == BROKEN:
        return NONE
    return f"{gain['times']:.2f}×" + (" *host*" if row.get("baseline") == HOST else "")


def _compiled(row: dict[str, Any] | None) -> str:
    """Both times of a compiled row, and its gain."""
    if not row or not row.get("gain"):
        return NONE
    before, after = (row["ms"][way]["ms"] for way in (row["gain"]["over"], "vitune_compile"))
    return f"{before:.3g} → {after:.3g} ms, **{_times(row)}**"


def _joules(row: dict[str, Any] | None) -> str:
    """Fewer joules of an image by vitune.compile than by the mode of torch.compile that takes the fewest."""
    fewer = energy.fewer(row) if row else None
    return f"{fewer:.2f}×" if fewer else NONE


def _steps(training: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Rows of steps as they are called, of fp32 weights under autocast."""
    rows = [row for row in training["rows"] if (row["params"], row["mode"]) == ("amp", "called") and row.get("gain")]
    return {(row["model"], row["batch"]): row for row in rows}


def _slower(steps: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    return [f"`{model}` with {batch} images, {row['gain']['times']:.2f}×" for (model, batch), row in steps.items() if row["gain"]["high"] < 1]


def region(result: dict[str, Any], training: dict[str, Any]) -> str:
    """Eight models; above 1 vitune is faster."""
    rows = {(row["model"], row["batch"], row["mode"]): row for row in result["rows"]}
    steps = _steps(training)
    lines = ["| model | batch | drop-in, eager | drop-in, CUDA graph | `torch.compile` → `vitune.compile` | training step, images | joules |",
             "| --- | --: | --: | --: | --: | --: | --: |"]
    for model in MODELS:
        eager, graph, compiled = (rows.get((model.name, model.batch, mode)) for mode in ("eager", "graph", "compiled"))
        step = _times(steps.get((model.name, model.trained)))
        cells = (_times(eager), _times(graph), _compiled(compiled), step if step == NONE else f"{step}, {model.trained}", _joules(compiled))
        lines.append("| " + " | ".join((model.title, str(model.batch), *cells)) + " |")
    slower = _slower(steps)
    versions = result["versions"]
    return "\n".join([
        *lines, "", "How many times as fast vitune is as PyTorch's best way. *host*: the pass waits for Python, not for the GPU. –: no figure yet."
        + (f" Training steps that are slower with vitune: {'; '.join(slower)}." if slower else ""),
        f"bf16, {result['device']['name']}, torch {versions['torch'].split('+')[0]}, {result['date'][:10]}" + (f"; training {training['date'][:10]}{', after tuning' if 'winners' in training['method'] else ''}." if steps else ".")])


def graphs(result: dict[str, Any]) -> str:
    """The gain of every model's CUDA graph, by batch, largest first; without models whose graphs are no baseline."""
    rows = {(row["model"], row["batch"], row["mode"]): row for row in result["rows"]}
    lines = [f"| model | {' | '.join(f'batch {batch}' for batch in BATCHES)} |", "| --- |" + " --: |" * len(BATCHES)]
    told = []
    broken = {row["model"] for row in result["rows"] if row.get("baseline") == BROKEN}
    for model in dict.fromkeys(row["model"] for row in result["rows"] if row["model"] not in broken):
        cells = [_times(rows.get((model, batch, "graph"))) for batch in BATCHES]
        if any(cell != "–" for cell in cells):
            told.append((max(cells), f"| `{model}` | {' | '.join(cells)} |"))
    return "\n".join([*lines, *(line for _, line in sorted(told, reverse=True))])


#: File -> the mark of its region and what writes it.
REGIONS = {"README.md": ("models", region), "docs/is_it_for_me.md": ("graphs", lambda result, _: graphs(result))}


def read(folder: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both documents of a folder; the second one is empty where training was not measured. Raises BadDocument."""
    result, steps = document.read(folder / "models.json"), folder / "train_models.json"
    return result, training_document.read(steps) if steps.exists() else {"rows": [], "date": NONE, "method": {}}


def main() -> int:
    """0, 1 for a file that is no result, 2 without a folder."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        results = read(pathlib.Path(sys.argv[1]))
        for name, (mark, write) in REGIONS.items():
            (ROOT / name).write_text(replaced((ROOT / name).read_text(), write(*results), mark, name))
    except (document.BadDocument, ValueError) as reason:
        print(f"readme.py: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
