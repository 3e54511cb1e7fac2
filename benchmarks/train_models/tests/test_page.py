# benchmarks/train_models/tests/test_page.py -- The page says the document's figures, failures included.
# SPDX-License-Identifier: Apache-2.0
import unittest

from .support import ROOT, document_of, row

from train_models import document
from train_models.page import page


class PageTest(unittest.TestCase):
    def test_without_a_result_it_says_so(self):
        self.assertIn("Nothing is measured yet: `make train-models`", page([]))

    def test_a_table_for_each_mode_in_the_order_of_the_roster(self):
        gain = {"of": "vitune_compile", "over": "compile_default", "times": 1.5, "low": 1.4, "high": 1.6, "samples": 7}
        rows = [
            row("vit_small_patch16_224", 8, "called", eager=4.0, compile_step_graph=1.0),
            row("vit_base_patch16_224", 64, "called", eager=28.84, compile_default=21.6),
            row("vit_base_patch16_224", 64, "graph", eager=25.77, compile_default=20.25, vitune_compile=13.5)
            | {"gain": gain, "replaced": {"vitune": {"replaced": 49, "known": 61}}},
        ]
        text = page([document_of(*rows)])
        self.assertIn("| model | batch | params | eager | compile_default | compile_step_graph | gain | calls replaced |", text)
        self.assertIn("| `vit_base_patch16_224` | 64 | amp | 28.84 | 21.6 | - | - | - |\n"
                      "| `vit_small_patch16_224` | 8 | amp | 4 | - | 1 | - | - |", text)  # fmt: skip
        self.assertIn("| `vit_base_patch16_224` | 64 | amp | 25.77 | 20.25 | 13.5 | 1.50 [1.40, 1.60] | 49 of 61 |", text)
        self.assertIn("Geometric mean of 1 gains: 1.500; slower with vitune, by the whole interval: none.", text)

    def test_it_begins_with_how_many_are_faster_and_who_is_not(self):
        gains = [{"of": "vitune_compile", "over": "eager", "times": times, "low": times - 0.05, "high": times + 0.05, "samples": 7}
                 for times in (1.5, 1.2, 1.01, 0.9)]  # fmt: skip
        rows = [row(name, 8, "called", eager=1.0) | {"gain": gain} for name, gain in zip("abcd", gains, strict=True)]
        text = page([document_of(*rows) | {"method": {"winners": "tuned on the day"}}])
        self.assertIn("- as Python calls them: vitune is faster in 2 of 4 steps, 1.20 to 1.50 times as fast as PyTorch's best way; "
                      "slower: `d` with 8 images, 0.90.\n- winners: tuned on the day.\n", text)
        self.assertNotIn("as one CUDA graph:", text)
        self.assertNotIn("- as Python", page([document_of(row("a", 1, eager=1.0))]))

    def test_failures_are_told_with_their_reason(self):
        failed = row("a", 1, failed={"compile_max": "OutOfMemoryError: no"}, eager=1.0)
        text = page([document_of(failed, unfinished=["b b1 amp"])])
        self.assertIn("| `a` | 1 | amp | 1 | failed | - | - |", text)
        self.assertIn("- `a` b1 amp graph, compile_max: OutOfMemoryError: no", text)
        self.assertIn("Not measured, the time was over: b b1 amp.", text)

    def test_where_the_time_goes_of_the_fastest_ways_as_graphs(self):
        kinds = {"kinds_us": {"eager": {"gemm": 999.0}, "compile_default": {"gemm": 100.0, "sums": 50.0}, "vitune_compile": {"gemm": 90.0}}}
        times = {"eager": 3.0, "compile_default": 2.0, "vitune_compile": 1.0}
        graph = row("a", 1, **times) | kinds | {"floor_us": {"gemm": 60.0}}
        called = row("a", 1, "called", **times) | kinds
        text = page([document_of(called, graph)])
        self.assertIn("| `a` | 1 | amp | compile_default | 100 (x1.7) | - | - | - | - | - | 50 | - | - | 150 (x2.5) | sums: 50 |", text)
        self.assertIn("| `a` | 1 | amp | vitune_compile | 90 (x1.5) |", text)
        self.assertNotIn("999", text)
        self.assertEqual(text.count("| compile_default | 1"), 1)

    def test_a_search_has_a_table_of_both_modes(self):
        gain = {"of": "vitune_compile", "over": "compile_max", "times": 1.3, "low": 1.2, "high": 1.4, "samples": 7}
        rows = [row("a", 1, "called", compile_max=2.0, vitune_train_step=1.5), row("a", 1, compile_max=1.95, vitune_compile=1.5) | {"gain": gain}]
        self.assertNotIn("Beside a search", page([document_of()]))
        text = page([document_of() | {"searches": rows}])
        self.assertIn("| model | batch | params | mode | compile_max | vitune_compile | vitune_train_step | gain |", text)
        self.assertIn("| `a` | 1 | amp | called | 2 | - | 1.5 | - |\n| `a` | 1 | amp | graph | 1.95 | 1.5 | - | 1.30 [1.20, 1.40] |", text)

    def test_memory_and_losses(self):
        called = row("a", 1, "called", eager=1.0) | {"peak_gb": {"eager": 5.432}}
        losses = [{"model": "c", "batch": 2, "steps": 300, "seeds": 3, "failed": {"vitune_compile": "x"},
                   "distance": {"eager": {"mean": 0.01, "least": 0.005, "most": 0.02}}}]  # fmt: skip
        text = page([document_of(called, losses=losses)])
        self.assertIn("| `a` | 1 | amp | 5.43 |", text)
        self.assertIn("| `c` | 2 | 300 | 3 | 0.0100 [0.0050, 0.0200] |", text)
        self.assertIn("- `c` b2 losses , vitune_compile: x", text)

    def test_steps_from_an_idle_gpu_have_a_table_where_they_were_measured(self):
        called = row("a", 1, "called", eager=1.0)
        self.assertNotIn("From an idle GPU", page([document_of(called)]))
        text = page([document_of(called | {"idle_ms": {"eager": 2.345}})])
        self.assertIn("## From an idle GPU", text)
        self.assertIn("| `a` | 1 | amp | 2.35 |", text)

    def test_another_gpu_has_its_times(self):
        other = document_of(row("b", 1, eager=7.0)) | {"device": {"name": "NVIDIA H100"}}
        text = page([document_of(row("a", 1, eager=1.0)), other])
        self.assertIn("## On an H100, 2026-11-28\n\n### As one CUDA graph\n", text)
        self.assertIn("| `b` | 1 | amp | 7 |", text)

    def test_a_picture_is_shown_where_there_is_one(self):
        for pictured in (False, True):
            self.assertEqual("figures/training.svg" in page([document_of(row("a", 1, eager=1.0))], pictured), pictured)


class CommittedTest(unittest.TestCase):
    def test_the_page_is_that_of_the_committed_results(self):
        paths = [ROOT / f"benchmarks/results/{gpu}/train_models.json" for gpu in ("h200", "h100")]
        found = [document.read(path) for path in paths if path.exists()]
        pictured = (ROOT / "docs/figures/training.svg").exists()
        self.assertEqual((ROOT / "docs/training.md").read_text(), page(found, pictured))
