# benchmarks/report/tests/test_training.py -- Training steps: drawn where there is a gain, told where there is a time.
# SPDX-License-Identifier: Apache-2.0
"""Pictures are skipped where matplotlib is missing."""

import json
import unittest

from report.tests.test_program import HAS_MATPLOTLIB, Parsed, Program, said


def row(model, mode, gain, params="amp", **ms):
    times = {way: {"ms": value, "low": value, "high": value} for way, value in ms.items()}
    more = {"gain": {"of": "vitune_compile", "over": "compile_default", "times": gain, "low": gain - 0.1, "high": gain + 0.1}} if gain else {}
    return {"model": model, "batch": 64, "params": params, "mode": mode, "ms": times, "peak_gb": {}, "kinds_us": {}, "failed": {}, **more}


@unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not installed")
class Training(Program):
    def steps(self, *rows):
        path = self.folder / "train_models.json"
        path.write_text(json.dumps({"schema": 1, "command": "train_models", "date": "2026-11-28", "device": {"name": "G"}, "rows": rows}))
        return path

    def test_a_bar_and_a_ring_of_each_model_and_a_table_of_all_ways(self):
        figures = self.folder / "figures"
        rows = [row("vit", "called", 1.5, eager=28.84, compile_default=21.6, vitune_compile=14.4),
                row("vit", "graph", 1.25, compile_default=20.25, vitune_compile=16.2),
                row("vit", "graph", None, "bf16", compile_default=18.4)]  # fmt: skip
        text = self.made("--train-models", self.steps(*rows), "--figures", figures)
        self.assertEqual(Parsed(text).faults + Parsed(text).open, [])
        for words in ("<th>vit b64, called</th>", "28.84</td>", "1.25 [1.15, 1.35]</td>", "<th>vit b64, bf16, graph</th>", "1.50×"):
            self.assertIn(words, text)
        self.assertNotIn("compile_max", text)
        words = said((figures / "training.svg").read_text())
        for word in ("vit b64", "1.50× compile_default", "called", "graph"):
            self.assertIn(word, words)
        self.assertNotIn("vit b64, bf16", words)

    def test_without_a_gain_there_is_no_picture_and_without_a_time_no_section(self):
        figures = self.folder / "figures"
        text = self.made("--train-models", self.steps(row("vit", "called", None, eager=28.84)), "--figures", figures)
        self.assertIn("Training steps", text)
        self.assertFalse((figures / "training.svg").exists())
        self.assertNotIn("Training steps", self.made("--train-models", self.steps(row("vit", "called", None))))

    def test_another_programs_file_is_refused(self):
        path = self.folder / "other.json"
        path.write_text(json.dumps({"schema": 1, "command": "models", "rows": []}))
        done = self.run_report("--train-models", path)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is not what 'make train-models' wrote", done.stderr)


if __name__ == "__main__":
    unittest.main()
