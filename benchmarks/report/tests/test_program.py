# benchmarks/report/tests/test_program.py -- The program end to end: pages, figures, refusals.
# SPDX-License-Identifier: Apache-2.0
"""Skipped where matplotlib is missing, but for the sentence that says so."""

import html
import html.parser
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from report.tests.test_readers import RESULTS, ROOT, winner

RUN = ROOT / "benchmarks/report/run.py"
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
VOID = {"meta", "link", "br"}


def said(svg):
    """Words and values of a picture, whatever version of matplotlib placed them."""
    return re.findall(r"(?:<text[^>]*>|<title>)([^<]+)", svg)


def norm_rows():
    """Of the committed results: one file, or one more of group norms."""
    paths = [RESULTS / f"{name}.json" for name in ("peers_norm", "peers_group_norm")]
    return [row for path in paths if path.exists() for row in json.loads(path.read_text())["rows"]]


def over_the_best(operator, kind):
    """What the page says of an operator's rows."""
    ratios = []
    for row in norm_rows():
        others = [us[kind] for peer, us in row["us"].items() if peer in ("quack", "liger", "compiled") and kind in us]
        if row["problem"].split()[0] == operator and others and kind in row["us"].get("vitune", {}):
            ratios.append(min(others) / row["us"]["vitune"][kind])
    return f"{kind} {statistics.geometric_mean(ratios):.2f}×, ahead in {sum(r >= 1 for r in ratios)} of {len(ratios)}"


class Parsed(html.parser.HTMLParser):
    """What is wrong with a page, and the ids of its sections."""

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.sections, self.ids = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        self.sections += [values["id"]] if tag == "section" else []
        foreign = [v for n, v in attrs if n in ("href", "xlink:href") and not v.startswith(("#", "data:,"))]
        self.faults += foreign + [n for n in values if n.startswith("on") or n == "src"]
        self.faults += [tag] if tag in ("script", "iframe", "object") else []

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")


class Program(unittest.TestCase):
    """A folder for each test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.page = self.folder / "report.html"

    def run_report(self, *arguments, options=(), **environment):
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": str(self.folder), **environment}
        return subprocess.run([sys.executable, *options, str(RUN), "-o", str(self.page), *map(str, arguments)],
                              capture_output=True, text=True, timeout=120, env=environment, check=False)

    def made(self, *arguments):
        done = self.run_report(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.page.read_text(encoding="utf-8")

    def tuned(self, *winners):
        path = self.folder / "t.json"
        path.write_text(json.dumps({"schema": 1, "command": "tune", "device": {"name": "G"}, "results": winners}))
        return path


class WithoutMatplotlib(Program):
    """Here alone it must not be there."""

    def test_a_sentence_says_what_to_install(self):
        if importlib.util.find_spec("matplotlib") and not (pathlib.Path(sys.prefix) / "lib").exists():
            self.skipTest("no way to hide matplotlib")
        done = self.run_report("--results", RESULTS, options=("-S", "-I"), PATH="")  # no site-packages, no other python3
        self.assertEqual(done.returncode, 1)
        self.assertIn("python3-matplotlib", done.stderr)
        self.assertFalse(self.page.exists())

    @unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not installed")
    def test_another_python3_on_the_path_that_has_it_draws(self):
        (self.folder / "python3").symlink_to(sys.executable)
        done = self.run_report("--results", RESULTS, options=("-S", "-I"), PATH=str(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("<svg", self.page.read_text(encoding="utf-8"))


@unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not installed")
class Pages(Program):
    """What a reader gets."""

    def test_the_committed_results_make_every_section_models_first(self):
        text = self.made("--results", RESULTS)
        parsed = Parsed(text)
        self.assertEqual(parsed.faults + parsed.open, [])
        self.assertEqual(parsed.sections, ["models", "training", "speed-up", "roofline", "norms", "lengths", "first-calls"])
        self.assertEqual(len(parsed.ids), len(set(parsed.ids)))
        measured = json.loads((RESULTS / "models.json").read_text(encoding="utf-8"))["date"][:len("2026-11-27")]
        for words in ("default-src 'none'", "prefers-color-scheme:dark", "torch 2.11.0", f"models {measured}",
                      "790 TFLOP/s", "2.96× Triton", "HBM 4.63 TB/s",
                      *(f"{operator}: {over_the_best(operator, 'cold')}; {over_the_best(operator, 'warm')}"
                        for operator in ("norm", "group_norm"))):
            self.assertIn(words, text)
        self.assertNotIn("#0101", text)

    def test_norms_and_group_norms_of_one_file_have_a_line_each(self):
        path = self.folder / "peers_norm.json"
        path.write_text(json.dumps({"schema": 1, "command": "peers", "device": {"name": "G"}, "rows": norm_rows()}))
        text = self.made("--peers-norm", path)
        self.assertEqual(Parsed(text).sections, ["norms"])
        for operator in ("norm", "group_norm"):
            self.assertIn(f"{operator}: {over_the_best(operator, 'cold')}", text)

    def test_the_same_files_make_the_same_page_and_the_readme_pictures(self):
        figures = self.folder / "figures"
        first = self.made("--results", RESULTS, "--figures", figures)
        self.assertEqual(first, self.made("--results", RESULTS))
        for name in ("speed-up", "roofline", "models"):
            text = (figures / f"{name}.svg").read_text()
            self.assertIn("--ours:#58b6f0", text)
            committed = (ROOT / "docs/figures" / f"{name}.svg").read_text()
            self.assertEqual(said(text), said(committed), f"docs/figures/{name}.svg is old")

    def test_one_replayed_problem_has_no_empty_section_and_says_replayed(self):
        text = self.made("--tune", self.tuned(winner(14.0, "replayed")), "--data-dir", ROOT / "data")
        self.assertEqual(Parsed(text).sections, ["speed-up", "roofline"])
        self.assertIn("<h1>vitune on G, replayed</h1>", text)
        self.assertIn("cold, replayed</dt>", text)
        self.assertIn("ViT (replayed)</th>", text)
        self.assertNotIn("replayed", self.made("--tune", self.tuned(winner(14.0)), "--data-dir", ROOT / "data"))

    def test_names_of_files_stay_texts(self):
        hostile = {**winner(14.0), "name": "<script>$x^2$</script>\x01&"}
        text = self.made("--tune", self.tuned(hostile), "--data-dir", ROOT / "data")
        self.assertEqual(Parsed(text).faults, [])
        self.assertIn("&lt;script&gt;", text)

    def test_texts_that_look_like_parts_of_a_picture_stay_as_they_are(self):
        names = ("#0101ff", "#010100", "url(#x)", 'id="x', "tip-0", "-->", "]]>", "\x0b\ud800\ufffe", "</svg>")
        rows = [{"name": name, "problem": "", "us": {"vitune": {"cold": 1.0}, name: {"cold": 2.0}}} for name in names]
        path, figures = self.folder / "peers.json", self.folder / "figures"
        path.write_text(json.dumps({"schema": 1, "command": "peers", "device": {"name": names[0]}, "rows": rows}))
        text = self.made("--peers", path, "--figures", figures)
        self.assertEqual(Parsed(text).faults, [])
        drawn = (figures / "speed-up.svg").read_text(encoding="utf-8")
        words = "".join(xml.etree.ElementTree.fromstring(drawn).itertext())
        for name in (*names[:7], "\ufffd\ufffd\ufffd", names[8]):
            self.assertIn(name, words)
            self.assertIn(html.escape(name), text)

    def test_rows_that_lack_figures_are_shown_without_them(self):
        rows = [{"model": "a", "mode": "eager", "batch": 10**400, "gain": {"low": 1, "high": 2}},
                {"model": "b", "mode": "compiled", "batch": {}, "gain": {"low": 1}},
                {"model": "c", "mode": "eager", "batch": True, "gain": {"times": 1.5}, "ms": {"torch": {}}}]
        models, calls = self.folder / "models.json", self.folder / "first_calls.json"
        models.write_text(json.dumps({"schema": 1, "command": "models", "rows": rows}))
        calls.write_text(json.dumps({"schema": 1, "command": "first_calls", "us": {"eager": {"import_torch": 5.0}}}))
        text = self.made("--models", models, "--first-calls", calls)
        self.assertEqual(Parsed(text).sections, ["models", "first-calls"])
        for name in ("a b?", "b b?", "c b?"):
            self.assertIn(f"<th>{name}</th>", text)

    def test_without_a_file_it_is_of_the_database(self):
        command = self.folder / "vitune"
        shown = self.tuned().with_name("shown.json")
        shown.write_text(json.dumps({"schema": 1, "winners": [{**winner(14.0), "device": {"name": "Mine"}}]}))
        command.write_text(f'#!/bin/sh\n[ "$1 $2" = "show --json" ] && cat {shown}\n')
        command.chmod(0o755)
        self.assertIn("vitune on Mine", self.made("--command", command))
        shown.write_text('{"schema": 1, "winners": []}')
        done = self.run_report("--command", command)
        self.assertEqual(done.returncode, 2)
        self.assertIn("run 'vitune tune'", done.stderr)

    def test_own_and_shipped_winners_have_tiles_of_their_own(self):
        command, shown = self.folder / "vitune", self.folder / "shown.json"
        vit = json.loads((ROOT / "data/bench_problems.json").read_text())["problems"]
        entries = [{**winner(5.0, origin), "problem": one["problem"], "name": one["name"], "layer": layer, "device": {"name": "G"}}
                   for one, origin, layer in zip(vit, ("replayed", "measured", "measured"), ("user", "user", "shipped"))]
        entries.append({**winner(5.0), "problem": "norm bf16 m=8 d=8 weight", "name": "a norm", "layer": "shipped", "device": {"name": "G"}})
        shown.write_text(json.dumps({"schema": 1, "winners": entries}))
        command.write_text(f"#!/bin/sh\ncat {shown}\n")
        command.chmod(0o755)
        text = self.made("--command", command, "--data-dir", ROOT / "data")
        self.assertIn("cold, geometric mean, yours, 1 of them replayed</dt>", text)
        self.assertIn("problems faster than the best peer, cold, shipped</dt>", text)
        self.assertIn("<h1>vitune on G</h1>", text)
        self.assertIn("Replayed: 1 of vitune&#x27;s 4 times were not measured", text)
        self.assertIn(f"{vit[2]['name']} (shipped)</th>", text)
        self.assertIn("1 of the problems have no time of a peer", text)
        self.assertIn("peers of attention: cuDNN, FlashAttention-2, memory-efficient, FlexAttention, Triton (NVIDIA H200, 2026-11-22)", text)

    def test_a_database_that_cannot_be_read_ends_as_the_command_did(self):
        command = self.folder / "vitune"
        words = "vitune: error: database /x: " + "it is no database; " * 30 + "end"
        command.write_text(f"#!/bin/sh\necho '{words}' >&2; exit 5\n")
        command.chmod(0o755)
        done = self.run_report("--command", command)
        self.assertEqual((done.returncode, done.stderr), (5, words + "\n"))

    def test_a_refused_file_leaves_the_older_page(self):
        self.page.write_text("older")
        for arguments in (("--peers", self.tuned(winner(1.0))), ("--results", self.folder / "none"),
                          ("--peers", "a", "--tune", "b")):
            done = self.run_report(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        self.assertEqual(self.page.read_text(), "older")


if __name__ == "__main__":
    unittest.main()
