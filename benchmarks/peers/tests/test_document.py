# benchmarks/peers/tests/test_document.py -- The JSON: whole at any time, else refused.
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from .support import result, row

from peers.engine import document


class DocumentTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "deep" / "peers.json"

    def test_what_is_written_is_read(self):
        made = result(row("a", vitune=(5.0, 4.0), cudnn=(6.0, 5.0)))
        document.write(made, self.path)
        self.assertEqual(document.read(self.path), made)
        self.assertEqual(os.listdir(self.path.parent), ["peers.json"])

    def test_a_stop_while_writing_leaves_the_rows_before_it(self):
        document.write(result(row("a")), self.path)
        with (
            mock.patch("os.replace", side_effect=KeyboardInterrupt),
            self.assertRaises(KeyboardInterrupt),
        ):
            document.write(result(row("a"), row("b")), self.path)
        self.assertEqual([r["name"] for r in document.read(self.path)["rows"]], ["a"])

    def test_a_row_and_a_member_of_an_object_is_a_line(self):
        for made in (result(row("a"), row("b\n\u00e9")), {}, {"a": [], "b": {}, "c": [1, 2], "d": [[1], [2]], "e": {"x": {"y": [1]}}, "f": None}):
            self.assertEqual(json.loads(document.text(made)), made)
        text = document.text({"n": 1, "versions": {"a": "1", "b": "2"}, "rows": [{"x": 1, "y": [1, 2]}, {"x": 2}]})
        lines = ['{', ' "n": 1,', ' "versions": {', '  "a": "1",', '  "b": "2"', ' },', ' "rows": [', '  {"x": 1, "y": [1, 2]},',
                 '  {"x": 2}', ' ]', '}', '']  # fmt: skip
        self.assertEqual(text.split("\n"), lines)

    def test_the_committed_results_are_a_row_a_line(self):
        folder = pathlib.Path(__file__).resolve().parents[2] / "results"
        lines = {path: path.read_text().count("\n") for path in folder.glob("*/*.json")}
        self.assertGreater(len(lines), 20)
        self.assertLess(max(lines.values()), 500, max(lines, key=lines.get))

    def test_results_of_other_programs_become_a_row_a_line(self):
        self.path.parent.mkdir()
        self.path.write_text(json.dumps({"context": {"a": 1}, "benchmarks": [{"x": 1}, {"x": 2}]}, indent=4))
        other = self.path.with_name("other.json")
        other.write_text("[1")
        program = pathlib.Path(__file__).resolve().parents[2] / "one_row_a_line.py"
        done = subprocess.run([sys.executable, str(program), str(self.path), str(other), str(self.path.with_name("absent.json"))],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, other.read_text()), (1, "[1"))
        self.assertIn("other.json: ", done.stderr)
        self.assertEqual(self.path.read_text().count("\n"), 9)

    def test_nan_and_infinity_are_no_json(self):
        with self.assertRaises(ValueError):
            document.write(result(row("a", vitune=(float("inf"), 1.0))), self.path)

    def test_foreign_documents_are_refused_with_the_reason(self):
        good = result(row("a", vitune=(5.0, 4.0)))
        cases = {
            "schema 2": {**good, "schema": 2},
            "of 'tune'": {**good, "command": "tune"},
            "'rows' is missing": {key: value for key, value in good.items() if key != "rows"},
            "row 0: 'us'": {**good, "rows": [{**good["rows"][0], "us": None}]},
            "no cold time above 0": {**good, "rows": [row("a", vitune=(0.0, 4.0))]},
            "is no object": [1],
        }
        for reason, made in cases.items():
            with self.subTest(reason), self.assertRaisesRegex(document.BadDocument, reason):
                document.check(made)

    def test_a_file_that_is_no_json_is_named(self):
        self.path.parent.mkdir()
        self.path.write_text(json.dumps(result())[:-9])
        with self.assertRaisesRegex(document.BadDocument, "peers.json"):
            document.read(self.path)
