# benchmarks/models/tests/test_exportable.py -- The list of models that a file can hold: its rows, and going on with it.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import tempfile
import unittest
from unittest import mock

from models import exportable


class ExportableTest(unittest.TestCase):
    def test_the_models_are_those_of_the_catalogue(self):
        names = exportable.names_of()
        self.assertIn("vit_base_patch16_224", names)
        self.assertEqual(len(names), len(set(names)))

    def test_a_model_that_cannot_be_made_is_a_row_with_its_reason(self):
        row = exportable.row_of("no_model_of_this_name", check=False)
        self.assertEqual(row["model"], "no_model_of_this_name")
        self.assertRegex(row["refused"][0], "Error: ")

    def test_a_file_is_gone_on_with(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(exportable, "row_of") as row_of, \
                contextlib.redirect_stderr(io.StringIO()) as said:
            out = pathlib.Path(folder) / "rows.jsonl"
            row_of.side_effect = lambda name, check: {"model": name, "refused": ["a reason"] * (name == "b")}
            exportable.main(["a", "--out", str(out)])
            exportable.main(["a", "b", "--out", str(out)])
            self.assertEqual([call.args for call in row_of.call_args_list], [("a", False), ("b", False)])
            self.assertEqual([json.loads(line)["model"] for line in out.read_text().splitlines()], ["a", "b"])
        self.assertTrue(said.getvalue().endswith("1 of 2 models are held whole\n"))


if __name__ == "__main__":
    unittest.main()
