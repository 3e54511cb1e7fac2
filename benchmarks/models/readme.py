#!/usr/bin/env python3
# benchmarks/models/readme.py -- Writes the tables of models of README.md and docs/is_it_for_me.md from models.json.
# SPDX-License-Identifier: Apache-2.0
"""readme.py models.json. Replaces their marked regions. Needs the standard library only."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":  # this folder itself must not be on the path: a package lies in it
    sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    sys.path.insert(0, str(HERE.parent))

from models import document  # noqa: E402
from models.baseline import BROKEN  # noqa: E402
from peers.table import replaced  # noqa: E402

ROOT = HERE.parents[1]
BATCHES = (1, 8, 32, 128)
#: The models of the table: a name for people, timm's, the batch.
MODELS = (
    ("ViT-B/16", "vit_base_patch16_224", 1),
    ("ViT-B/16", "vit_base_patch16_224", 32),
    ("Swin-T", "swin_tiny_patch4_window7_224", 32),
    ("BEiT-B", "beit_base_patch16_224", 32),
    ("DINOv2-L, 518 pixels", "vit_large_patch14_reg4_dinov2", 8),
    ("SigLIP So400m, 384 pixels", "vit_so400m_patch14_siglip_384", 32),
    ("Hiera-B", "hiera_base_224", 32),
    ("SAM-B, 1024 pixels", "samvit_base_patch16", 4),
)


def _times(row: dict[str, Any] | None) -> str:
    """A gain; a dash where there is none."""
    gain = (row or {}).get("gain")
    return f"{gain['times']:.2f}×" if gain else "–"


def _compiled(row: dict[str, Any] | None) -> tuple[str, str]:
    """Both times of a compiled row, and its gain."""
    if not row or not row.get("gain"):
        return "–", "–"
    before, after = (row["ms"][way]["ms"] for way in (row["gain"]["over"], "vitune_compile"))
    return f"{before:.3g} → {after:.3g} ms", f"**{_times(row)}**"


def region(result: dict[str, Any]) -> str:
    """Eight models; above 1 vitune is faster."""
    rows = {(row["model"], row["batch"], row["mode"]): row for row in result["rows"]}
    lines = ["| model | batch | `vitune.compile`: best of `torch.compile` → ours | gain | drop-in, CUDA graph | drop-in, eager |",
             "| --- | --: | --: | --: | --: | --: |"]
    for name, model, batch in MODELS:
        compiled, graph, eager = (rows.get((model, batch, mode)) for mode in ("compiled", "graph", "eager"))
        lines.append("| " + " | ".join((name, str(batch), *_compiled(compiled), _times(graph), _times(eager))) + " |")
    versions = result["versions"]
    return "\n".join([*lines, "", f"Time of a forward pass in bf16, PyTorch's best way over vitune's; {result['device']['name']}, "
                      f"torch {versions['torch'].split('+')[0]}, {result['date'][:10]}."])


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
REGIONS = {"README.md": ("models", region), "docs/is_it_for_me.md": ("graphs", graphs)}


def main() -> int:
    """0, 1 for a file that is no result, 2 without one."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        result = document.read(pathlib.Path(sys.argv[1]))
        for name, (mark, write) in REGIONS.items():
            (ROOT / name).write_text(replaced((ROOT / name).read_text(), write(result), mark, name))
    except (document.BadDocument, ValueError) as reason:
        print(f"readme.py: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
