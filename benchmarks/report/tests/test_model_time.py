# benchmarks/report/tests/test_model_time.py -- Where models' time goes: drawn where it was measured, absent where not.
# SPDX-License-Identifier: Apache-2.0
"""Pictures are skipped where matplotlib is missing."""

import json
import unittest

from models.kinds import KINDS
from report.tests.test_program import HAS_MATPLOTLIB, Parsed, Program, said
from report.tests.test_readers import RESULTS


def row(model, batch, mode, kinds_us, floor_us, over, ways):
    ms = {way: {"ms": value, "low": value, "high": value} for way, value in ways.items()}
    gain = {"over": over, "times": 1.5, "low": 1.4, "high": 1.6}
    more = {"kinds_us": kinds_us, "floor_us": floor_us} if kinds_us else {}
    return {"model": model, "batch": batch, "mode": mode, "ms": ms, "failed": {}, "gain": gain, **more}


@unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not installed")
class ModelTime(Program):
    def models(self, *rows):
        path = self.folder / "models.json"
        path.write_text(json.dumps({"schema": 1, "command": "models", "date": "2026-11-24", "device": {"name": "G"}, "rows": rows}))
        return path

    def test_kinds_are_those_of_the_program_that_measures(self):
        from report import model_time

        self.assertEqual(model_time.KINDS, KINDS)

    def test_bars_of_each_way_and_of_the_floor_and_a_table_of_all(self):
        floor = {"gemm": 1000.0, "norm": 100.0}
        rows = [row("vit", 32, "graph", {"torch": {"gemm": 1600.0, "norm": 380.5}, "cudnn": {"gemm": 7.0},
                                         "vitune": {"gemm": 1600.0, "norm": 120.0}}, floor, "torch", {"torch": 2.0, "vitune": 1.7}),
                row("vit", 1, "graph", {"vitune": {"gemm": 10.0}}, {}, "torch", {"torch": 2.0, "vitune": 1.7}),
                row("swin", 32, "compiled", {"compile_max": {"copies": 900.0}, "vitune_compile": {"copies": 90.0}}, {},
                    "compile_max", {"compile_max": 1.0, "vitune_compile": 0.1})]  # fmt: skip
        figures = self.folder / "figures"
        text = self.made("--models", self.models(*rows), "--figures", figures)
        self.assertEqual(Parsed(text).faults + Parsed(text).open, [])
        for words in ("<th>vit b32</th><td>PyTorch</td>", "<td>vitune</td>", "<td>floor</td>", "380.5</td>", "models, compiled",
                      "<th>swin b32, compiled</th><td>max-autotune</td>"):
            self.assertIn(words, text)
        words = said((figures / "model-time.svg").read_text())
        for word in (*KINDS, "vit b32", "swin b32, compiled", "vitune.compile", "floor", "1.98 ms"):
            self.assertIn(word, words)
        self.assertIn("vit b32, PyTorch\nnorm: 380.5 us of 1980", words)
        for word in ("PyTorch, 1.98 ms", "vitune, 1.72 ms", "vitune.compile, 0.09 ms", "floor, 1.1 ms"):
            self.assertIn(word, said(text))  # above the bars of the picture for small screens
        self.assertNotIn("vit b1", words)

    def test_documents_without_it_have_neither(self):
        figures = self.folder / "figures"
        text = self.made("--models", self.models(row("vit", 32, "graph", {}, {}, "torch", {"torch": 2.0, "vitune": 1.7})),
                         "--figures", figures)
        self.assertNotIn("Kernels by kind", text)
        self.assertTrue((figures / "models.svg").exists())
        self.assertFalse((figures / "model-time.svg").exists())

    def test_one_batch_of_a_model_is_drawn_and_all_are_in_the_table(self):
        rows = [row(model, batch, "eager", {}, {}, "torch", {"torch": 2.0, "vitune": 1.7})
                for model, batches in (("vit", (1, 32, 128)), ("sam", (1, 4))) for batch in batches]
        text = self.made("--models", self.models(*rows), "--figures", self.folder / "figures")
        words = said((self.folder / "figures" / "models.svg").read_text())
        for name, drawn in (("vit b1", False), ("vit b32", True), ("vit b128", False), ("sam b1", False), ("sam b4", True)):
            self.assertEqual(name in words, drawn, name)
            self.assertIn(f"<th>{name}</th>", text)

    def test_a_figure_that_cannot_be_is_told(self):
        wrong = row("vit", 32, "graph", {"vitune": {"gemm": -1.0}}, {}, "torch", {"vitune": 1.0})
        done = self.run_report("--models", self.models(wrong))
        self.assertEqual(done.returncode, 2)
        self.assertIn("gemm is -1.0; a figure above 0 is needed", done.stderr)


if __name__ == "__main__":
    unittest.main()
