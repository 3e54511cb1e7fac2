# benchmarks/report/tests/test_readers.py -- What files say, and the sentence for those that say it wrongly.
# SPDX-License-Identifier: Apache-2.0
"""Nothing here draws."""

import json
import os
import pathlib
import tempfile
import unittest

from report import documents, times, works
from report.problem import attention

ROOT = pathlib.Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks/results/h200"
VIT = "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed"


def winner(us, origin="measured"):
    """An entry of `vitune tune --json`."""
    return {"name": "ViT", "problem": VIT, "winner": {"origin": origin, "tuned_at": "2026-01-02T03:04:05Z",
                                                      "floor_us": 9.0, "cold": {"median_us": us}}}


class Problems(unittest.TestCase):
    """Against what vitune itself said of its problems."""

    def test_operations_and_bytes_are_those_of_the_command(self):
        results = json.loads((RESULTS / "tune.json").read_text())["results"]
        self.assertGreater(len(results), 30)
        for result in results:
            found, own = attention(result["problem"]), result["winner"]
            flops = own["tflops"] * own["cold"]["median_us"] * 1e6
            floor = max(found.flops / 790e12, found.bytes / 4.3e12) * 1e6
            self.assertAlmostEqual(found.flops / flops, 1, 6, result["problem"])
            self.assertAlmostEqual(floor / own["floor_us"], 1, 6, result["problem"])

    def test_other_operators_and_nonsense_are_none(self):
        for text in ("norm bf16 m=197 d=768 weight", "", "attention bf16 b=x h=1 n=4 d=8", "attention b=1 h=1 n=0 d=8",
                     f"{VIT} bias=bf16:1x{'9' * 90}x{'9' * 90}", f"{VIT} mask=bool:0x4"):
            self.assertIsNone(attention(text), text)


class Times(unittest.TestCase):
    """Pairs by problem."""

    def test_the_best_peer_is_the_fastest_fused_one(self):
        us = {"vitune": {"cold": 2.0}, "vitune_default": {"cold": 1.0}, "eager": {"cold": 1.5}, "cudnn": {"cold": 6.0},
              "flash": {"cold": 5.0}}
        row = times.Row("x", VIT, us)
        self.assertEqual(row.best("cold"), ("flash", 5.0))
        self.assertEqual(row.ratio("cold"), 2.5)
        self.assertIsNone(row.ratio("warm"))

    def test_a_tune_takes_stored_peers_and_says_replayed(self):
        stored = times.stored_rows({"problems": [{"name": "ViT", "problem": VIT,
                                                  "peers_us": {"cudnn": {"cold": 28.0, "warm": 25.0}}}]})
        document = {"device": {"name": "G"}, "results": [winner(14.0, "replayed")]}
        found = times.of_winners(document, "results", stored)
        self.assertEqual((found.device, found.date, found.stored_peers), ("G", "2026-01-02", True))
        self.assertEqual(found.rows[0].ratio("cold"), 2.0)
        self.assertEqual(found.rows[0].marked, "ViT (replayed)")

    def test_benchmarks_of_operators_are_read_by_problem_beside_stored_peers(self):
        stored = times.stored_rows({"problems": [{"name": "ViT", "problem": VIT, "peers_us": {"cudnn": {"cold": 28.0}}}]})
        norm = "norm bf16 m=197 d=768 weight"
        entries = [
            {"run_name": f"{text.replace(' ', '/', 1)}/{kind}/iterations:1/repeats:9/manual_time", "aggregate_name": aggregate,
             "label": label, "real_time": us, "time_unit": "us", "floor_us": 1.5}
            for text, label, kind, us in ((VIT, "ViT-B/16 b32", "cold", 14.0), (VIT, "ViT-B/16 b32", "warm", 12.0), (norm, "norm", "cold", 3.0))
            for aggregate in ("mean", "median", "stddev")
        ]
        context = {"vitune_device": "G", "date": "2026-01-02T03:04:05"}
        found = times.of_benchmarks({"context": context, "benchmarks": [*entries, {"run_name": "x", "error_occurred": True}]}, stored)
        self.assertEqual((found.device, found.date, found.stored_peers), ("G", "2026-01-02", True))
        self.assertEqual([(row.name, row.text, row.us["vitune"]) for row in found.rows],
                         [("ViT-B/16 b32", VIT, {"cold": 14.0, "warm": 12.0}), ("norm", norm, {"cold": 3.0})])
        self.assertEqual((found.rows[0].ratio("cold"), found.rows[0].floor_us), (2.0, 1.5))
        entries[1]["time_unit"] = "ns"
        with self.assertRaisesRegex(documents.BadInput, "time_unit is not us"):
            times.of_benchmarks({"benchmarks": entries}, {})

    def test_the_committed_benchmarks_have_cudnn_of_the_same_run(self):
        found = times.of_benchmarks(documents.read(RESULTS / "bench_attention.json"), {})
        self.assertEqual((found.device, len(found.rows)), ("NVIDIA H200", 4))
        for row in found.rows:
            self.assertEqual({peer: sorted(us) for peer, us in row.us.items()}, {p: ["cold", "warm"] for p in ("vitune", "cudnn")})
            self.assertEqual(row.ratio("cold"), row.us["cudnn"]["cold"] / row.us["vitune"]["cold"])

    def test_of_a_database_the_device_with_the_most_winners_is_shown(self):
        entries = [{**winner(1.0), "device": {"name": name}} for name in ("A", "B", "B")]
        found = times.of_winners({"winners": entries}, "winners", {})
        self.assertEqual((found.device, len(found.rows)), ("B", 2))

    def test_of_a_database_the_device_of_the_users_own_winners_comes_first(self):
        shipped = [{**winner(1.0), "device": {"name": "B"}, "layer": "shipped"}] * 3
        own = {**winner(2.0, "replayed"), "device": {"name": "A"}, "layer": "user"}
        found = times.of_winners({"winners": [*shipped, own]}, "winners", {})
        self.assertEqual((found.device, [row.marked for row in found.rows]), ("A", ["ViT (replayed)"]))
        found = times.of_winners({"winners": [*shipped, {**own, "device": {"name": "B"}}]}, "winners", {})
        self.assertEqual([row.marked for row in found.rows], ["ViT (replayed)"] + ["ViT (shipped)"] * 3)
        self.assertEqual([(whose, len(rows)) for whose, rows in found.by_layer()], [("yours", 1), ("shipped", 3)])


class Works(unittest.TestCase):
    """docs/works.md is of the committed results."""

    def test_the_document_is_up_to_date(self):
        written = works.page(RESULTS, ROOT / "data/reference_works.json")
        self.assertEqual(written, (ROOT / "docs/works.md").read_text(), "run benchmarks/report/works.py")
        self.assertIn("| ours only: tuned | - | 18.4 µs |", written)

    def test_trainings_of_the_convolutional_transformer_have_a_line_for_each_way(self):
        common = {"schema": 1, "device": {"name": "a GPU"}, "date": "2026-11-28T00:00:00", "versions": {"torch": "2.11"}}
        steps = {**common, "command": "train_models", "rows": [
            {"model": "cct_14_7x2_384", "batch": 8, "mode": "called", "ms": {"eager": {"ms": 40.0}}, "peak_gb": {"eager": 1.26}},
            {"model": "another", "batch": 8, "mode": "called", "ms": {"eager": {"ms": 1.0}}}]}  # fmt: skip
        row = {"says": "PyTorch, AMP", "accuracy": [0.5, 0.75, 1.0], "mean": 0.75, "in_band": True, "distance": 1e-4, "follows": False}
        accuracy = {**common, "command": "train_cct", "data": "digits", "recipe": {"model": "cct_7_3x1", "epochs": 6}, "rows": [row]}
        with tempfile.TemporaryDirectory() as folder:
            for name, document in (("train_models", steps), ("train_cct", accuracy)):
                (pathlib.Path(folder) / f"{name}.json").write_text(json.dumps(document))
            found = [*works._steps(pathlib.Path(folder)), *works._accuracy(pathlib.Path(folder))]
        self.assertEqual([line for line in found if "eager" in line], ["| 8 | called | eager | 40.00 | 1.26 |"])
        self.assertEqual(found[-1], "| PyTorch, AMP | 75.00 | 50.00, 75.00, 100.00 | yes | 1.0e-04 | no |")

    def test_whole_passes_have_a_line_for_each_way_that_was_measured(self):
        row = {"size": 224, "batch": 32, "flops": 2e12, "bytes": 4e9, "floor_us": 1500.0, "ms": {"torch": {"ms": 4.0}, "runner": {"ms": 2.0}},
               "joules": {"runner": 0.0312}}  # fmt: skip
        measured = {"device": {"name": "a GPU"}, "date": "2026-11-28T00:00:00", "versions": {"torch": "2.11"}, "rows": [row]}
        lines = list(works._whole(measured))
        self.assertEqual(lines[-2:], ["| 224 | 32 | eager PyTorch | 4.000 | 8000 | 500.0 | 1.00 | 38 % | – |",
                                      "| 224 | 32 | session | 2.000 | 16000 | 1000.0 | 2.00 | 75 % | 0.0312 |"])  # fmt: skip


class BadFiles(unittest.TestCase):
    """Each is one sentence that names the file."""

    def refused(self, content, words, command="peers"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "peers.json"
            path.write_bytes(content)
            with self.assertRaises(documents.BadInput) as caught:
                times.of_peers(documents.read(path, command, "'make peers'"))
            self.assertIn(str(path), str(caught.exception))
            self.assertIn(words, str(caught.exception))

    def test_they_are_told(self):
        head = b'{"schema": 1, "command": "peers", '
        self.refused(b"\xff\xfe", "not UTF-8")
        self.refused(b"[" * 100000, "no JSON")
        self.refused(b"[]", "not a JSON object")
        self.refused(b'{"schema": 2}', "has schema 2")
        self.refused(b'{"schema": 1, "command": "tune"}', "'make peers'")
        self.refused(head + b'"rows": 3}', "list of objects")
        self.refused(head + b'"rows": []}', "no time of vitune")
        self.refused(head + b'"rows": [{"us": {"vitune": {"cold": -1}}}]}', "above 0")
        self.refused(head + b'"rows": [{"us": {"vitune": {"cold": NaN}}}]}', "no number")
        self.refused(head + b'"rows": [{"us": {"vitune": {"cold": "<b>"}}}]}', "above 0")
        self.refused(head + b'"rows": [{"us": {"vitune": {"cold": 1' + b"0" * 400 + b"}}}]}", "above 0")
        self.refused(head + b'"rows": [{"us": {"vitune": {"cold": 1e-300}}}]}', "above 0")
        self.refused(head + b'"rows": [' + b"{}," * 2_500_000 + b"{}]}", "more than 4000000 values")

    def test_what_is_no_file_is_neither_waited_for_nor_read(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            for path in (pipe, pathlib.Path("/dev/zero"), pathlib.Path("/dev/null"), pathlib.Path(folder)):
                with self.assertRaises(documents.BadInput) as caught:
                    documents.read(path)
                self.assertEqual(str(caught.exception), f"{path}: is not a regular file")


class Texts(unittest.TestCase):
    """Names of anybody go into pages and pictures."""

    def test_characters_that_xml_has_not_are_replaced_in_names_and_values(self):
        found = documents.parse('{"a\\u0000": [{"b": "x\\u001b\\ud800\\uffff\\u009by"}], "c": "1\\n2 é 😀"}', "x")
        self.assertEqual(found, {"a\ufffd": [{"b": "x\ufffd\ufffd\ufffd\ufffdy"}], "c": "1 2 é 😀"})

    def test_as_deep_as_the_parser_goes(self):
        depth = 400
        found = documents.parse('{"a":' + "[" * depth + '"\\u0007"' + "]" * depth + "}", "x")["a"]
        for _ in range(depth - 1):
            found = found[0]
        self.assertEqual(found, ["\ufffd"])


if __name__ == "__main__":
    unittest.main()
