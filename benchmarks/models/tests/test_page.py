# benchmarks/models/tests/test_page.py -- The page says the document's figures, failures included.
# SPDX-License-Identifier: Apache-2.0
import pathlib
import unittest

from .support import result, row

from models import baseline, document, readme
from models.page import page
from peers.table import replaced

ROOT = pathlib.Path(__file__).resolve().parents[3]


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

    def test_a_graph_that_is_slower_than_its_eager_pass_is_named_and_in_no_mean(self):
        rows = [
            row("a", 1, "eager", 3.0, 3.0, 3.0), row("a", 1, "graph", 2.8, 2.8, 2.8),
            row("m", 1, "eager", 1.5, 1.5, 1.5), row("m", 1, "graph", 1.2, 1.2, 1.2),
            row("m", 32, "eager", 4.0, 4.0, 4.0), row("m", 32, "graph", 9.0, 9.0, 3.0),
        ]
        text = self.page_of_marked(rows)
        self.assertIn("| 4 / 4 / 4 | 1.00 [0.99, 1.01] | 9 / 9 / 3 | 3.00 [2.99, 3.01] *broken* |", text)
        self.assertIn("| 1.2 / 1.2 / 1.2 | 1.00 [0.99, 1.01] *broken* |", text)  # the model's capture, whatever the batch
        self.assertIn("- graph: 1.000 (geometric mean of 1 rows); in no mean, PyTorch's graph being slower than its eager pass: `m`;", text)
        self.assertIn("*broken*: a graph only replays", text)

    def test_rows_that_the_host_bounds_have_a_mean_of_their_own(self):
        rows = [
            row("a", 1, "eager", 6.0, 6.0, 5.0), row("a", 1, "graph", 1.0, 1.0, 1.0),
            row("b", 1, "eager", 2.0, 2.0, 1.0), row("b", 1, "graph", 1.9, 1.9, 1.0),
            row("c", 1, "eager", 1.4, 1.4, 1.4), row("c", 1, "graph", 1.0, 1.0, 0.8),  # vitune's alone
        ]
        text = self.page_of_marked(rows)
        self.assertIn("| 6 / 6 / 5 | 1.20 [1.19, 1.21] *host* |", text)
        self.assertIn("| 1.4 / 1.4 / 1.4 | 1.00 [0.99, 1.01] *host* |", text)
        self.assertIn("- eager: 2.000 (geometric mean of 1 rows); those that the host bounds: 1.095 (geometric mean of 2 rows);", text)
        self.assertNotIn("*broken*", text)

    @staticmethod
    def page_of_marked(rows):
        baseline.mark(rows)
        return page(result(*rows))

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
        self.results = readme.read(ROOT / "benchmarks/results/h200")
        self.other = document.read(ROOT / "benchmarks/results/h100/models.json")

    def test_the_page_is_that_of_the_committed_results(self):
        self.assertEqual((ROOT / "docs/models.md").read_text(), page(self.results[0], [self.other]))

    def test_tables_elsewhere_are_those_of_the_committed_results(self):
        for name, (mark, write) in readme.REGIONS.items():
            with self.subTest(name):
                text = (ROOT / name).read_text()
                self.assertEqual(text, replaced(text, write(*self.results), mark, name))


class ReadmeTest(unittest.TestCase):
    NOTHING = {"rows": [], "date": "–", "method": {}}

    @staticmethod
    def compiled(**more):
        times = {way: {"ms": ms} for way, ms in (("compile_reduce", 2.0), ("vitune_compile", 1.0))}
        gain = {"over": "compile_reduce", "times": 2.0, "low": 1.9, "high": 2.1}
        return row("vit_base_patch16_224", 1, "compiled") | {"ms": times, "gain": gain} | more

    @staticmethod
    def step(model, batch, mode, times):
        return {"model": model, "batch": batch, "params": "amp", "mode": mode, "gain": {"times": times, "low": times - 0.01, "high": times + 0.01}}

    def test_a_model_has_the_gains_of_all_ways_or_dashes(self):
        found = result(row("vit_base_patch16_224", 1, "eager", 3.0, 3.0, 2.0), self.compiled())
        text = readme.region(found, self.NOTHING)
        self.assertIn("| ViT-B/16 | 1 | 1.50× | – | 2 → 1 ms, **2.00×** | – | – |", text)
        self.assertIn("| Swin-T | 32 | – | – | – | – | – |", text)
        self.assertNotIn("raining step", text.partition("\n\n")[2])

    def test_rows_that_the_host_bounds_are_marked_and_broken_ones_are_no_figures(self):
        eager = row("vit_base_patch16_224", 1, "eager", 3.0, 3.0, 2.0) | {"baseline": baseline.HOST}
        graph = row("vit_base_patch16_224", 1, "graph", 3.0, 3.0, 2.0) | {"baseline": baseline.BROKEN}
        self.assertIn("| ViT-B/16 | 1 | 1.50× *host* | – | – | – | – |", readme.region(result(eager, graph), self.NOTHING))

    def test_joules_are_told_once_they_are_measured(self):
        found = result(self.compiled(mj={"compile_default": 50.0, "compile_reduce": 60.0, "vitune_compile": 40.0}))
        self.assertIn("**2.00×** | – | 1.25× |", readme.region(found, self.NOTHING))
        text = page(found)
        self.assertIn("| `vit_base_patch16_224` | 1 | 50 | default | 40 | 1.25 |", text)
        self.assertIn("Geometric mean: 1.25 times fewer.", text)
        self.assertNotIn("illijoules", page(result(self.compiled())))

    def test_steps_of_training_are_those_that_python_calls_and_the_slower_ones_are_named(self):
        base, small = "vit_base_patch16_224", "vit_small_patch16_224"
        steps = [self.step(base, 64, "called", 1.31), self.step(base, 64, "graph", 1.39), self.step(small, 8, "called", 0.88),
                 self.step(base, 32, "called", 1.5)]  # fmt: skip
        text = readme.region(result(), {"rows": steps, "date": "2026-11-29T00:00:00+00:00", "method": {"winners": "x"}})
        self.assertIn("| ViT-B/16 | 32 | – | – | – | 1.31×, 64 | – |", text)
        self.assertIn("Training steps that are slower with vitune: `vit_small_patch16_224` with 8 images, 0.88×.", text)
        self.assertIn("; training 2026-11-29, after tuning.", text)

    def test_a_model_whose_graph_is_slower_than_its_eager_pass_has_no_baseline(self):
        rows = [row("a", 1, "eager", 2.0, 2.0, 1.0), row("a", 1, "graph", 3.0, 3.0, 1.0), row("a", 8, "graph", 1.5, 1.5, 1.0)]
        baseline.mark(rows)
        rows = [*rows, row("b", 8, "eager", 2.0, 2.0, 1.0), row("b", 8, "graph", 1.5, 1.5, 1.0)]  # fmt: skip
        text = readme.graphs(result(*rows))
        self.assertNotIn("`a`", text)
        self.assertIn("| `b` | – | 1.50× | – | – |", text)
