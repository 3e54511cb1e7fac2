# benchmarks/models/tests/test_page.py -- The page says the document's figures, failures included.
# SPDX-License-Identifier: Apache-2.0
import pathlib
import unittest

from .support import result, row

from models import document
from models.page import page
from peers.engine.samples import geometric_mean

ROOT = pathlib.Path(__file__).resolve().parents[3]
# The README's names of the models whose gains it tells.
TOLD = {
    "ViT-B/16": ("vit_base_patch16_224", 32),
    "BEiT-B": ("beit_base_patch16_224", 32),
    "Swin-T": ("swin_tiny_patch4_window7_224", 32),
    "Swin-L": ("swin_large_patch4_window7_224", 32),
    "SAM-B": ("samvit_base_patch16", 4),
}


#: What README says of compiled models.
TOLD_COMPILED = {
    ("vit_base_patch16_224", 1): "{} times as long for ViT-B/16 at batch 1",
    ("vit_base_patch16_224", 8): "{} at batch 8",
    ("vit_base_patch16_224", 32): "{} at 32",
    ("vit_base_patch16_224", 128): "{} at 128",
    ("swin_tiny_patch4_window7_224", 32): "{} for Swin-T",
    ("beit_base_patch16_224", 32): "{} for BEiT-B",
    ("vit_large_patch14_reg4_dinov2", 8): "{} for DINOv2-L at 518 pixels",
    ("vit_so400m_patch14_siglip_384", 32): "{} for SigLIP So400m",
}


class PageTest(unittest.TestCase):
    def test_a_row_per_model_and_batch_with_both_gains(self):
        text = page(result(row("a", 1, "eager", 2.0, 2.4, 1.0), row("a", 1, "graph", 3.0, 1.5, 1.0)))
        wanted = "| `a` | 1 | 2 / 2.4 / 1 | 2.00 [1.99, 2.01] | 3 / 1.5 / 1 | 1.50 [1.49, 1.51] |"
        self.assertIn(wanted, text)

    def test_means_with_and_without_sam_and_who_is_slower(self):
        rows = [
            row("samvit_base_patch16", 1, "eager", 4.0, 4.0, 1.0),
            row("a", 1, "eager", 1.0, 1.0, 1.0),
            row("b", 1, "eager", 0.5, 0.5, 1.0),
        ]
        text = page(result(*rows))
        self.assertIn("- eager: 1.260 (geometric mean of 3 rows), 0.707 without SAM", text)
        self.assertIn("whole interval: `b` b1.", text)

    def test_failures_are_told_with_their_reason_and_give_no_gain(self):
        failed = row("a", 1, "graph", 1.0, 1.0, failed={"vitune": "wrong answer: 0.5"})
        text = page(result(failed, unfinished=["b b1"]))
        self.assertIn("failed (vitune)", text)
        self.assertIn("- `a` b1 graph, vitune: wrong answer: 0.5", text)
        self.assertIn("Not measured, the time was over: b b1.", text)

    def test_models_without_attention_and_calls_have_their_tables(self):
        calls = [{"grad": "no_grad", "us": {"torch": {"us": 13.0}, "vitune": {"us": 7.0}}, "failed": {}}]
        plain = [row("resnet50", 1, "eager", 2.0, 2.0, 2.0)]
        text = page(result(plain=plain, calls=calls))
        self.assertIn("| `resnet50` | 1 | 2 | 2 | 1.00 [0.99, 1.01] |", text)
        self.assertIn("| no_grad | 13.0 | 7.0 |", text)


    def test_compiled_models_have_their_own_table_and_mean(self):
        times = {way: {"ms": ms} for way, ms in (("compile_default", 3.0), ("compile_reduce", 2.0), ("vitune_compile", 1.0))}
        compiled = row("a", 8, "compiled") | {
            "ms": times, "vitune_mode": "reduce-overhead", "replaced": {"replaced": 12, "known": 37, "untuned": []},
            "gain": {"over": "compile_reduce", "times": 2.0, "low": 1.9, "high": 2.1},
            "failed": {"compile_max": "RuntimeError: no"},
        }  # fmt: skip
        text = page(result(row("a", 8, "eager", 2.0, 2.0, 1.0), compiled))
        self.assertIn("| `a` | 8 | 3 | 2 | - | 1 | 2.00 [1.90, 2.10] | reduce-overhead | 12 of 37 |", text)
        self.assertIn("- compiled: 2.000 (geometric mean of 1 rows); slower with vitune, by the whole interval: none.", text)
        self.assertIn("| `a` | 8 | 2 / 2 / 1 |", text)  # and not among models as they are
        self.assertIn("- `a` b8 compiled, compile_max: RuntimeError: no", text)
        other = result(compiled | {"model": "b"}) | {"device": {"name": "Another GPU"}}
        text = page(result(row("a", 8, "eager", 2.0, 2.0, 1.0)), [other])
        self.assertEqual(text.count("## Compiled models"), 0)
        self.assertIn("\n### On an Another GPU, ", text)
        self.assertIn("| `b` | 8 | 3 | 2 | - | 1 | 2.00 [1.90, 2.10] | reduce-overhead | 12 of 37 |", text)

    def test_where_the_time_goes_beside_its_floor_and_what_to_do_next(self):
        graph = row("a", 1, "graph", 2.0, 3.0, 1.0) | {
            "kinds_us": {"torch": {"gemm": 100.0, "norm": 80.0}, "cudnn": {"gemm": 1.0}, "vitune": {"gemm": 90.0, "norm": 9.0, "other": 1.0}},
            "floor_us": {"gemm": 60.0, "norm": 4.5}, "memory_mb": {"torch": 10.0, "cudnn": 1.0, "vitune": 5.0},
        }  # fmt: skip
        text = page(result(graph))
        self.assertIn("| `a` | 1 | torch | 100 (x1.7) | - | 80 (x17.8) | - | - | - | - | 180 (x2.8) | norm: 76 |", text)
        self.assertIn("| `a` | 1 | vitune | 90 (x1.5) | - | 9.0 (x2.0) | - | - | - | 1.0 | 100 (x1.6) | gemm: 30 |", text)
        self.assertNotIn("| `a` | 1 | cudnn |", text)
        self.assertIn("- vitune, 1 rows, mean of their shares: gemm 90 % (x1.5), norm 9 % (x2.0), other 1 %.", text)
        self.assertIn("0.50 (geometric mean of 1 rows)", text)
        self.assertIn("figures/model-time.svg", text)

    def test_older_documents_say_nothing_of_it(self):
        text = page(result(row("a", 1, "graph", 2.0, 3.0, 1.0)))
        for words in ("Where the time goes", "Compiled models", "model-time.svg", "Memory of a pass"):
            self.assertNotIn(words, text)


class CommittedTest(unittest.TestCase):
    def setUp(self):
        self.found, other = (document.read(ROOT / f"benchmarks/results/{gpu}/models.json") for gpu in ("h200", "h100"))
        self.others = [other]

    def test_the_page_is_that_of_the_committed_results(self):
        self.assertEqual((ROOT / "docs/models.md").read_text(), page(self.found, self.others))

    def test_the_readme_tells_the_figures_of_the_committed_results(self):
        gains = {(r["model"], r["batch"], r["mode"]): r["gain"] for r in self.found["rows"] if r.get("gain")}
        readme = " ".join((ROOT / "README.md").read_text().split())
        for name, (model, batch) in TOLD.items():
            of_modes = [gains.get((model, batch, mode)) for mode in ("eager", "graph")]
            told = " / ".join(f"{gain['times']:.2f}" for gain in of_modes if gain)
            self.assertIn(f"{name} {told}", readme)
        eager = {key: gain["times"] for key, gain in gains.items() if key[2] == "eager"}
        graphs = [gain for key, gain in gains.items() if key[2] == "graph"]
        usual = geometric_mean([times for key, times in eager.items() if not key[0].startswith("samvit")])
        self.assertIn(
            f"In {len(eager)} rows the geometric mean is {geometric_mean(eager.values()):.2f} eager "
            f"({usual:.2f} without SAM)",
            readme,
        )
        slower = [gain["times"] for gain in graphs if gain["high"] < 1]
        told = "no row" if not slower else "one row" if len(slower) == 1 else f"{len(slower)} rows"
        told += f" of {len(graphs)} graphs {'are' if len(slower) > 1 else 'is'} slower"
        if slower:
            told += f", by less than {100 * (1 - min(slower)) // 1 + 1:.0f} %"
        self.assertIn(told, readme)
        slower = [gain["times"] for key, gain in gains.items() if key[2] == "eager" and gain["high"] < 1]
        told = f"{len(slower)} of the eager ones are, by {100 * (1 - min(slower)):.0f} % at most" if slower else "none of the eager ones"
        self.assertIn(told, readme)

    def test_the_readme_tells_the_gains_of_compiled_models(self):
        compiled = {(r["model"], r["batch"]): r["gain"]["times"] for r in self.found["rows"] if r["mode"] == "compiled"}
        readme = " ".join((ROOT / "README.md").read_text().split())
        self.assertEqual(len(compiled), len(TOLD_COMPILED))
        for key, words in TOLD_COMPILED.items():
            self.assertIn(words.format(f"{compiled[key]:.2f}"), readme)
