# benchmarks/peers/tests/test_table.py -- Tables of invented results: losses, what is missing.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from .support import ROOT, result, row

from peers import table
from peers.engine import document
from peers.rosters import ROSTERS

WINS = row(
    "wins",
    vitune=(10.0, 8.0),
    vitune_default=(20.0, 16.0),
    cudnn=(15.0, 10.0),
    flash=(14.0, 12.0),
    eager=(13.5, 9.6),
)
LOSES = row(
    "loses cold",
    group="long",
    vitune=(100.0, 80.0),
    vitune_default=(100.0, 80.0),
    cudnn=(80.0, 96.0),
)


class TableTest(unittest.TestCase):
    def test_the_best_peer_is_the_fastest_fused_one_of_each_kind(self):
        for kind, peer, us, ratio in (("cold", "flash", 14.0, 1.4), ("warm", "cudnn", 10.0, 1.25)):
            found = table.best(WINS, kind)
            self.assertEqual((found.peer, found.us), (peer, us))
            self.assertAlmostEqual(found.ratio, ratio)

    def test_neither_eager_nor_vitunes_default_is_a_peer(self):
        self.assertIsNone(
            table.best(row(vitune=(5.0, 5.0), vitune_default=(4.0, 4.0), eager=(1.0, 1.0)), "cold")
        )

    def test_a_line_has_times_ratios_and_the_share_of_the_floor(self):
        line = table.summary_table(result(WINS))[2]
        self.assertEqual(
            line, "| vit | wins | 10.0 | flash | 14.0 | 1.40 | 8.0 | cudnn | 10.0 | 1.25 | 20 % |"
        )

    def test_losses_are_listed_the_worst_first_and_bold_in_the_table(self):
        worse = row("loses both", vitune=(10.0, 10.0), flash=(5.0, 9.0))
        found = result(WINS, LOSES, worse)
        self.assertEqual(
            table.losses(found),
            [
                "- loses both, cold: 10.0 µs, flash 5.0 µs (0.500)",
                "- loses cold, cold: 100.0 µs, cudnn 80.0 µs (0.800)",
                "- loses both, warm: 10.0 µs, flash 9.0 µs (0.900)",
            ],
        )
        for text in (table.markdown(found), table.page(found), table.console(found)):
            self.assertIn("Where vitune loses to a fused peer:", text)
            self.assertIn("loses cold, cold: 100.0 µs, cudnn 80.0 µs (0.800)", text)
        self.assertIn("**0.80**", table.markdown(found))
        self.assertIn("vitune is slower in 3 of these times.", table.readme(found))

    def test_no_loss_is_said_too(self):
        self.assertIn("nowhere", table.page(result(WINS)))
        self.assertNotIn("slower", table.readme(result(WINS)))

    def test_what_vitune_has_no_time_for_is_not_hidden(self):
        failed = row("broken", cudnn=(5.0, 5.0))
        failed["failed"]["vitune"] = "wrong: the output is 0.5 from fp64"
        found = result(WINS, failed)
        found["unfinished"] = ["late"]
        text = table.page(found)
        self.assertIn("broken: vitune has no result: wrong: the output is 0.5 from fp64", text)
        self.assertIn("late: not measured", text)

    def test_means_are_geometric_and_by_group(self):
        other = row("other", vitune=(10.0, 10.0), cudnn=(40.0, 10.0))
        first, second = table.means(
            result(row("a", vitune=(10.0, 10.0), cudnn=(10.0, 10.0)), other, LOSES)
        )
        self.assertIn(
            "`vit`, geometric mean over the best peer: cold 2.00 (least 1.00, most 4.00, ahead in",
            first,
        )
        self.assertIn("`long`, geometric mean over the best peer: cold 0.80", second)

    def test_a_peer_that_unfused_kernels_beat_is_no_baseline_and_in_no_mean(self):
        slow = row("slow", vitune=(10.0, 10.0), cudnn=(40.0, 40.0), eager=(20.0, 39.0))
        found = result(row("a", vitune=(10.0, 10.0), cudnn=(15.0, 15.0)), slow)
        text = table.page(found)
        self.assertIn("| vit | slow | 10.0 | cudnn | 40.0 | 4.00 *broken* | 10.0 | cudnn | 40.0 | 4.00 |", text)
        self.assertIn("cold 1.50 (least 1.50, most 1.50, ahead in 1 of 1), warm 2.45 (least 1.50, most 4.00, ahead in 2 of 2); in no mean, PyTorch's own "
                      "kernels being faster than the best peer: slow", text)
        self.assertIn("| cold | 1 | 1.50 | 1.50 | 1.50 | 1 of 1 |", table.readme(found))

    def test_what_tuning_gains_is_the_mean_over_the_default(self):
        self.assertIn("tuning over the default kernel 2.00", table.means(result(WINS))[0])

    def test_refusals_are_gathered_by_reason(self):
        rows = [row(f"p{i}", vitune=(1.0, 1.0), cudnn=(2.0, 2.0)) for i in range(6)]
        for one in rows:
            one["refused"]["flash"] = "no bias"
        self.assertIn("- flash: no bias (6: p0, p1, p2, p3, …)", table.markdown(result(*rows)))

    def test_errors_memory_and_remarks_are_shown(self):
        one = row("a", vitune=(1.0, 1.0), cudnn=(2.0, 2.0))
        one["err"]["vitune"] = {"max": 0.004, "rms": 0.0005}
        one["memory"]["vitune"] = 3 << 20
        one["flags"] = ["vitune: not tuned"]
        text = table.markdown(result(one))
        for wanted in (
            "| a | 4.0e-03 / 5.0e-04 |",
            "| a | 3.0 |",
            "- a: vitune: not tuned",
            "A GPU, driver 1.2; torch 2.11",
        ):
            self.assertIn(wanted, text)

    def test_repeated_calls_are_counted_by_problem(self):
        rows = [row(vitune=(2, 1)), row(vitune=(2, 1)), row(cudnn=(2, 1))]
        rows[0]["repeats"]["vitune"] = {"calls": 100, "different": 0}
        rows[1]["repeats"]["vitune"] = {"calls": 100, "different": 3}
        self.assertIn(
            "vitune: 100 calls with the same inputs gave the same bits for 1 of 2 problems",
            table.markdown(result(*rows)),
        )

    def test_the_short_table_has_the_spread_of_each_group(self):
        slow = row("slow", vitune=(10.0, 10.0), cudnn=(9.0, 30.0))
        other = row("other", vitune=(10.0, 10.0), cudnn=(20.0, 10.0))
        lines = table.short_table(result(WINS, slow, other, LOSES))[2:]
        self.assertEqual(
            lines,
            [
                f"| {ROSTERS[0].groups['vit']} | cold | 3 | 1.40 | 2.00 | 0.90 | 2 of 3 |",
                f"| {ROSTERS[0].groups['vit']} | warm | 3 | 1.25 | 3.00 | 1.00 | 3 of 3 |",
                f"| {ROSTERS[0].groups['long']} | cold | 1 | 0.80 | 0.80 | 0.80 | 0 of 1 |",
                f"| {ROSTERS[0].groups['long']} | warm | 1 | 1.20 | 1.20 | 1.20 | 1 of 1 |",
            ],
        )

    def test_peers_that_were_there_and_that_were_not_are_named(self):
        found = result(WINS)
        found["peers"].append("fa3")
        found["absent"]["fa3"] = "cannot be imported"
        self.assertIn(
            "Peers: cuDNN and FlashAttention-2. Not measured: FlashAttention-3.",
            table.readme(found),
        )

    def test_larger_errors_than_the_best_peers_are_counted(self):
        rows = [row(str(i), vitune=(1.0, 1.0), cudnn=(2.0, 2.0)) for i in range(3)]
        for one, largest in zip(rows, (4.0, 1.0, 1.2)):
            one["err"] = {
                "vitune": {"max": largest, "rms": 1.1},
                "cudnn": {"max": 2.0, "rms": 1.0},
                "flash": {"max": 1.0, "rms": 2.0},
                "eager": {"max": 0.1, "rms": 0.1},
            }
        text = table.errors_sentence(result(*rows))
        self.assertIn("is 4.0 to 4.0 times the best peer's on 1 of 3 problems", text)
        self.assertIn("at most 1.10 times", text)
        self.assertIn(
            "Largest error at most 1.20 times", table.errors_sentence(result(*rows[1:]))
        )

    def test_shares_of_the_floor_are_geometric_means(self):
        other = row("other", vitune=(40.0, 8.0), cudnn=(56.0, 10.0))
        self.assertEqual(
            table.shares_table(result(WINS, other))[2:],
            ["| `vit` | cold | 10 % | 7 % |", "| `vit` | warm | 25 % | 20 % |"],
        )

    def test_only_the_marked_region_is_replaced(self):
        text = "before\n<!-- one:begin -->\nold\n<!-- one:end -->\nafter\n"
        self.assertEqual(
            table.replaced(text, "new", "one", "a.md"), text.replace("old", "new")
        )
        for bad in ("no marks", text + "<!-- one:begin -->"):
            with self.assertRaisesRegex(ValueError, "a.md"):
                table.replaced(bad, "new", "one", "a.md")

    def test_norms_are_also_compared_with_the_unfused_peer(self):
        times = {"vitune": (10.0, 10.0), "liger": (20.0, 12.0), "eager": (15.0, 40.0)}
        found = result(row("a", "norm", operator="norm", **times))
        self.assertIn("over the best peer: cold 2.00", table.means(found)[0])
        counted, alone = table.unfused_means(found)
        self.assertIn("over the best peer, `eager` counted: cold 1.50 (least 1.50", counted)
        self.assertIn("warm 1.20", counted)
        self.assertIn("over `eager` alone: cold 1.50 (least 1.50", alone)
        self.assertIn("warm 4.00", alone)
        for text in (table.markdown(found), table.page(found), table.console(found)):
            self.assertIn(counted, text)
            self.assertIn(alone, text)
        self.assertEqual(table.unfused_means(result(WINS)), [])

    def test_norms_and_group_norms_of_one_file_are_groups_with_the_names_of_their_peers(self):
        found = result(
            row("a", "norm", operator="norm", vitune=(2.0, 2.0), liger=(3.0, 3.0)),
            row("b", "group_norm", operator="group_norm", vitune=(2.0, 2.0), compiled=(4.0, 4.0)),
        )
        found["peers"] = list(ROSTERS[1].names)
        found["absent"]["quack"] = "cannot be imported"
        text = table.page(found)
        self.assertIn("Peers: Liger and `torch.compile`. Not measured: quack.", text)
        self.assertIn("group `norm`, geometric mean over the best peer: cold 1.50", text)
        self.assertIn("group `group_norm`, geometric mean over the best peer: cold 2.00", text)
        self.assertIn("`group_norm`: GroupNorm with SiLU or Mish | cold | 1 | 2.00", table.readme(found))

    def linear(self, name="a", group="fused", **us):
        return row(name, group, operator="linear", **us)

    def test_linear_layers_compare_own_kernels_and_what_is_served_with_every_peer_of_the_function(self):
        one = self.linear(
            floor_us=6.0,
            vitune_own=(12.0, 10.0),
            vitune=(10.0, 8.0),
            cublaslt=(4.0, 4.0),
            eager=(15.0, 12.0),
            triton=(11.0, 16.0),
        )
        one["same_function"] = {"cublaslt": False, "eager": True}
        one["provider"] = {"vitune": "vitune's cublaslt"}
        found = result(one)
        found["peers"] = [name for name in ROSTERS[2].names if name in one["us"]]
        self.assertEqual(
            table.summary_table(found)[2],
            "| fused | a | 10.0 | 8.0 | vitune's cublaslt | eager | 12.0 | 1.20 | 1.50 | 12.0 | triton | 11.0 "
            "| **0.92** | 60 % |",
        )
        own, served = table.means(found)
        self.assertIn("group `fused`, `vitune_own`, geometric mean over the best peer: cold 0.92", own)
        self.assertIn("warm 1.20", own)
        self.assertIn("group `fused`, `vitune`, geometric mean over the best peer: cold 1.10", served)
        self.assertIn("warm 1.50", served)
        self.assertEqual(
            table.losses(found), ["- a, cold: `vitune_own` 12.0 µs, triton 11.0 µs (0.917)"]
        )
        self.assertEqual(
            table.shares_table(found),
            [
                "| group | L2 | vitune_own | vitune | best peer |",
                "| --- | --- | --: | --: | --: |",
                "| `fused` | cold | 50 % | 60 % | 55 % |",
                "| `fused` | warm | 60 % | 75 % | 50 % |",
            ],
        )
        for text in (table.page(found), table.markdown(found), table.console(found)):
            self.assertIn("Where vitune loses to a peer of the same function:", text)
            self.assertIn(own, text)
        self.assertIn(
            "Peers: a persistent kernel in Triton, tuned per problem and PyTorch's own kernels. Of another "
            "function, and not counted: cuBLASLt, tuned in 1 of 1 problems.",
            table.page(found),
        )

    def test_a_linear_layer_without_an_own_kernel_is_not_hidden(self):
        one = self.linear(vitune=(10.0, 8.0), eager=(15.0, 12.0))
        one["refused"]["vitune_own"] = "chain serves this problem"
        other = self.linear("b", vitune_own=(6.0, 5.0), vitune=(6.0, 5.0), eager=(5.0, 10.0))
        found = result(one, other)
        self.assertIn("- a: vitune_own has no result: chain serves this problem", table.page(found))
        self.assertIn("| fused | a | – | 8.0 | – | eager | 12.0 | – | 1.50 | – | – | – | – | – |", table.page(found))
        self.assertIn("warm 2.00 (least 2.00, most 2.00, ahead in 1 of 1)", table.means(found)[0])
        self.assertIn("ahead in 2 of 2", table.means(found)[1])

    def test_every_region_of_the_page_has_its_file(self):
        page = (ROOT / table.PAGE).read_text()
        for stem in re.findall(r"<!-- (\w+):begin -->", page):
            self.assertTrue((ROOT / f"benchmarks/results/h200/{stem}.json").is_file(), stem)

    def test_readme_and_page_show_the_committed_results(self):
        folder = ROOT / "benchmarks/results/h200"
        readme, page = (ROOT / name for name in (table.README, table.PAGE))
        self.assertIn(
            table.readme(document.read(folder / "peers.json")), readme.read_text(), table.README
        )
        for path in sorted(folder.glob("peers*.json")):
            self.assertIn(table.page(document.read(path)), page.read_text(), path.name)

    def test_the_program_reads_a_file_without_any_package_on_the_path(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "peers.json"
            document.write(result(WINS, LOSES), path)
            done = subprocess.run(
                [sys.executable, "-I", ROOT / "benchmarks/peers/table.py", path],
                capture_output=True,
                text=True,
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout, table.markdown(result(WINS, LOSES)))
            path.write_text(json.dumps({"schema": 1}))
            with contextlib.redirect_stderr(io.StringIO()):
                done = subprocess.run(
                    [sys.executable, ROOT / "benchmarks/peers/table.py", path],
                    capture_output=True,
                    text=True,
                )
            self.assertEqual(done.returncode, 2)
            self.assertIn("peers.json", done.stderr)
