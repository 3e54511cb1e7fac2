# python/tests/test_torch_report.py -- What a report and a tuning look like where they are shown, in a notebook too.
# SPDX-License-Identifier: Apache-2.0
import html.parser
import unittest

from .support import needs_torch


class Cells(html.parser.HTMLParser):
    """The texts of the cells, row by row, and whether each tag that begins ends."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def selection(problem):
    from vitune import Selection

    return Selection("exact", True, False, False, 5.0, 4.0, 0.0, 0.1, 0.1, problem, problem, "kBlockN=104", "0", "shipped", "it won")


@needs_torch
class ReportTest(unittest.TestCase):
    def report(self):
        from vitune._compile.patterns.benchmark import Times
        from vitune._compile.report import Call, Graph, Report

        served = [Call(f"blocks.{i}.attn", "attention", "scaled_dot_product_attention", True, "", selection("attention bf16"), Times(5.0, 7.5))
                  for i in range(3)]
        left = Call("<script>alert(1)</script>", "norm", "layer_norm of <b>", False, "its result & more is kept", None)
        return Report((Graph("[1, 3, 224, 224] <i>", (*served, left), "x < y"),))

    def test_a_notebook_shows_a_table_whose_texts_are_escaped(self):
        text = self.report()._repr_html_()
        parsed = Cells(text)
        self.assertEqual(parsed.open, [])
        self.assertEqual(parsed.rows[1], ["3", "scaled_dot_product_attention", "replaced", "exact", "5.0", "7.5", "attention bf16"])
        self.assertEqual(parsed.rows[2], ["1", "layer_norm of <b>", "left: its result & more is kept", "", "", "", ""])
        for tag in ("<script", "<b>", "<i>"):
            self.assertNotIn(tag, text)
        self.assertIn("3 of 4 known calls replaced", text)
        self.assertIn("left to Inductor together: x &lt; y", text)

    def test_it_is_shown_as_it_is_printed(self):
        report = self.report()
        self.assertEqual(repr(report), str(report))
        self.assertEqual(repr(report.graphs), f"({report.graphs[0]},)")

    def test_before_the_first_call_there_is_a_sentence(self):
        from vitune._compile.report import Report

        self.assertEqual(Report(())._repr_html_(), "<p>nothing was compiled yet: call the model once</p>")
