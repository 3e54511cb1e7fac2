#!/usr/bin/env python3
# benchmarks/models/prepared.py -- What prepared weights are worth in a compiled model, and what comparing them in each pass costs.
# SPDX-License-Identifier: Apache-2.0
"""Each model is compiled with prepared weights and without; passes are CUDA graphs, replayed in turn. `without_check` is the first one's
graph, captured without the kernel that compares prepared weights with the parameters. Prints JSON, one row a line.

    prepared.py [--library LIB] [ROW ...]     rows: NAME@BATCH or NAME@BATCH@autocast
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import sys
from unittest import mock

import timm
import torch

import vitune

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from peers.engine import capture  # noqa: E402

ROWS = ("vit_base_patch16_224@1", "vit_base_patch16_224@8", "vit_base_patch16_224@32", "vit_base_patch16_224@128",
        "swin_tiny_patch4_window7_224@1", "swin_tiny_patch4_window7_224@32", "beit_base_patch16_224@32", "vit_large_patch14_dinov2@8",
        "vit_so400m_patch14_siglip_384@8")
_ROUNDS, _ROUND_MS = 31, 60.0


def captured(compiled, images):
    graph, _ = capture.capture(lambda: compiled(images))
    graph.replay()
    return graph


def milliseconds(graph, replays):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / replays


def measured(graphs):
    """Medians in ms, and each one's ratio to the first in the same round: median, and the interval of its median at 95 %."""
    replays = {name: max(1, int(_ROUND_MS / milliseconds(graph, 5))) for name, graph in graphs.items()}
    rounds = [{name: milliseconds(graph, replays[name]) for name, graph in graphs.items()} for _ in range(_ROUNDS)][5:]
    first = next(iter(graphs))
    ratios = {name: sorted(each[name] / each[first] for each in rounds) for name in graphs}
    low, high = int(len(rounds) / 2 - 0.98 * len(rounds) ** 0.5), int(len(rounds) / 2 + 0.98 * len(rounds) ** 0.5)
    return {name: {"ms": round(statistics.median(each[name] for each in rounds), 5), "ratio": round(statistics.median(ratios[name]), 5),
                   "low": round(ratios[name][low], 5), "high": round(ratios[name][high], 5)} for name in graphs}


def row(text):
    name, batch, *autocast = text.split("@")
    torch._dynamo.reset()
    size = timm.get_pretrained_cfg(name).input_size[-1]
    model = timm.create_model(name, pretrained=False).cuda().eval()
    images = torch.randn(int(batch), 3, size, size, device="cuda")
    if not autocast:
        model, images = model.bfloat16(), images.bfloat16()
    graphs, report = {}, None
    with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16, enabled=bool(autocast)):
        for way, keywords in {"prepared": {}, "not_prepared": {"prepared_weights": False}}.items():
            torch._dynamo.reset()
            compiled = vitune.compile(model, **keywords)
            for _ in range(3):
                compiled(images)
            graphs[way] = captured(compiled, images)
            if way == "prepared":
                report = vitune.report(compiled)
                from vitune._compile.patterns import renewal as renewal_module
                with mock.patch.object(renewal_module.Renewal, "beside", lambda self: contextlib.nullcontext()):
                    graphs["without_check"] = captured(compiled, images)
        times = measured({name: graphs[name] for name in ("without_check", "prepared", "not_prepared")})
    return {"model": name, "batch": int(batch), "params": "autocast" if autocast else "bf16", "times": times,
            "replaced": sum(call.replaced for call in report.calls)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--library")
    arguments.add_argument("rows", nargs="*", default=list(ROWS))
    given = arguments.parse_args()
    if given.library:
        vitune.use_library(given.library)
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}))
    for text in given.rows:
        try:
            print(json.dumps(row(text)), flush=True)
        except Exception as error:  # the next row all the same
            print(json.dumps({"row": text, "failed": f"{type(error).__name__}: {error}"[:300]}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
