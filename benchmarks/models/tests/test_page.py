# benchmarks/models/tests/test_page.py -- The page says the document's figures, failures included.
# SPDX-License-Identifier: Apache-2.0
import unittest

from .support import result, row

from models.page import page


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
