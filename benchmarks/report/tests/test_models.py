# benchmarks/report/tests/test_models.py -- Rows whose baseline says little are named and in no mean.
# SPDX-License-Identifier: Apache-2.0
import importlib.util
import unittest


def row(model, mode, times, mark=None):
    """Of batch 32."""
    found = {"model": model, "batch": 32, "mode": mode, "ms": {"torch": {"ms": times}, "vitune": {"ms": 1.0}},
             "gain": {"over": "torch", "times": times, "low": times - 0.1, "high": times + 0.1}, "failed": {}}
    return found | ({"baseline": mark} if mark else {})


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
class Baselines(unittest.TestCase):
    def setUp(self):
        self.document = {"schema": 1, "command": "models", "device": {"name": "G"}, "rows": [
            row("a", "eager", 2.0), row("a", "graph", 2.0), row("b", "eager", 8.0, "host"), row("b", "graph", 9.0, "broken")]}

    def test_they_are_in_no_tile(self):
        from report import models

        self.assertEqual(models.tiles(self.document), [("2.00×", "models, forward pass, eager: geometric mean over 1"),
                                                       ("2.00×", "models, as CUDA graphs: geometric mean over 1")])

    def test_the_table_marks_them_and_a_note_names_them(self):
        from report import models

        made = models.section(self.document, "")
        cells = next(line for line in made.tables[0].rows if line[0] == "b b32")
        self.assertIn("8.00 [7.90, 8.10] host", cells)
        self.assertIn("9.00 [8.90, 9.10] broken", cells)
        self.assertTrue(any("graphs of b, where" in note for note in made.notes))
        self.assertTrue(any("1 eager rows" in note for note in made.notes))
        by_name = {name: modes for name, modes in models._by_model(self.document).items()}
        self.assertIsNone(models._bar(self.document, "b b32", by_name["b b32"]).ring)


if __name__ == "__main__":
    unittest.main()
