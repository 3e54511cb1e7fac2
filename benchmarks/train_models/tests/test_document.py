# benchmarks/train_models/tests/test_document.py -- The form of a result; what is done is not done again; files are merged.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from .support import document_of, row

from train_models import cli, document
from train_models.roster import TASKS, Task

A, LOSS = Task("steps", "a", 8), Task("losses", "a", 8)


class DocumentTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "train_models.json"

    def test_what_is_written_is_read(self):
        made = document_of(row("a", 8, eager=1.0))
        document.write(made, self.path)
        self.assertEqual(document.read(self.path), made)

    def test_foreign_files_and_rows_that_lack_a_field_are_refused(self):
        for found in ([], {"schema": 1, "command": "models"}, document_of() | {"losses": None}, document_of({"model": "a"}),
                      document_of(row("a", 8) | {"peak_gb": 1.0}), document_of("a")):
            self.path.write_text(json.dumps(found))
            with self.assertRaises(document.BadDocument, msg=found):
                document.read(self.path)

    def test_a_task_is_done_once_it_has_a_row_of_its_model_batch_and_parameters(self):
        made = document_of()
        self.assertFalse(document.done(made, A))
        document.add(made, A, [document.new_row("called"), document.new_row("graph")])
        self.assertTrue(document.done(made, A))
        for other in (Task("steps", "a", 8, "bf16"), Task("steps", "a", 64), LOSS):
            self.assertFalse(document.done(made, other))
        self.assertEqual([(each["model"], each["batch"], each["params"], each["mode"]) for each in made["rows"]],
                         [("a", 8, "amp", "called"), ("a", 8, "amp", "graph")])  # fmt: skip

    def test_what_failed_is_done(self):
        made = document_of()
        for task in (A, LOSS):
            document.add(made, task, [document.failed(task, "it hung")])
            self.assertTrue(document.done(made, task))
        self.assertEqual([made[name][0]["failed"] for name in ("rows", "losses")], [{"": "it hung"}] * 2)
        document.write(made, self.path)
        self.assertEqual(document.read(self.path), made)

    def test_the_eager_step_alone_goes_into_the_row_that_is_there(self):
        task, alone = Task("eager", "a", 8), row("a", 8, eager=3.0, vitune_eager=2.0) | {"eager_gain": {"times": 1.5}}
        made = document_of(row("a", 8, "called", eager=9.0), row("a", 8, eager=2.5, compile_default=1.0))
        other = json.loads(json.dumps(made))
        self.assertFalse(document.done(made, task))
        document.add(made, task, [{name: alone[name] for name in alone if name not in ("model", "batch", "params")}])
        for each in (made, document.merged([other, document_of(alone)])):
            self.assertTrue(document.done(each, task))
            self.assertEqual([found["mode"] for found in each["rows"]], ["called", "graph"])
            found = each["rows"][1]
            self.assertEqual({way: time["ms"] for way, time in found["ms"].items()}, {"eager": 2.5, "compile_default": 1.0, "vitune_eager": 2.0})
            self.assertEqual(found["eager_gain"], {"times": 1.5})
        fresh = document_of()
        document.add(fresh, task, [alone])
        self.assertEqual((document.done(fresh, task), document.done(fresh, A)), (True, False))
        document.add(fresh, A, [document.new_row("called"), document.new_row("graph")])
        self.assertEqual(([found["ms"] for found in fresh["rows"]], document.done(fresh, A)), ([{}, {}], True))

    def test_searches_have_rows_of_their_own(self):
        task = Task("searched", "a", 8)
        made = document_of(row("a", 8, "called", eager=1.0), row("a", 8, eager=2.0))
        self.assertEqual((document.done(made, task), document.done(made, A)), (False, True))
        found = {name: value for name, value in row("a", 8, compile_max=1.5).items() if name not in ("model", "batch", "params")}
        document.add(made, task, [found])
        self.assertEqual(([each["ms"] for each in made["searches"]], len(made["rows"])), ([found["ms"]], 2))
        self.assertTrue(document.done(made, task))
        merged = document.merged([made, document_of(row("a", 8, eager=9.0))])
        self.assertEqual([each["ms"] for each in merged["searches"]], [found["ms"]])
        self.assertEqual([each["ms"]["eager"]["ms"] for each in merged["rows"]], [9.0])
        hung = document_of()
        document.add(hung, task, [document.failed(task, "it hung")])
        self.assertEqual((document.done(hung, task), hung["searches"][0]["failed"]), (True, {"": "it hung"}))
        made["searches"].append({"model": "a"})
        document.write(made, self.path)
        with self.assertRaisesRegex(document.BadDocument, "row 3: batch"):
            document.read(self.path)

    def test_runs_on_alike_machines_become_one_with_the_last_of_each_row(self):
        first = document_of(row("a", 8, eager=1.0), row("b", 8, eager=1.0), losses=[{"model": "c", "batch": 1, "steps": 1}])
        second = document_of(row("a", 8, "called", eager=2.0), row("a", 8, "graph", "bf16", eager=3.0),
                             losses=[{"model": "c", "batch": 1, "steps": 2}])  # fmt: skip
        made = document.merged([first, second])
        found = {(each["model"], each["mode"], each["params"]): each["ms"]["eager"]["ms"] for each in made["rows"]}
        self.assertEqual(found, {("b", "graph", "amp"): 1.0, ("a", "called", "amp"): 2.0, ("a", "graph", "bf16"): 3.0})
        self.assertEqual([each["steps"] for each in made["losses"]], [2])
        self.assertEqual(document.merged([first, second | {"tries": {"c b1 amp": 2}}])["tries"], {"c b1 amp": 2})
        self.assertEqual(len(first["rows"]), 2)
        with self.assertRaises(document.BadDocument):
            document.merged([first, second | {"versions": {}}])

    def test_files_of_several_processes_are_merged_from_the_command_line(self):
        paths = [self.path.with_name(f"{number}.json") for number in range(2)]
        for path, task in zip(paths, TASKS):
            document.write(document_of(row(task.model, task.batch, params=task.params, eager=1.0)), path)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(cli.main(["--json", str(self.path), "--merge", *map(str, paths)]), 0)
        self.assertIn(f"2 rows in {self.path}, {len(TASKS) - 2} tasks unfinished", said.getvalue())
        self.assertEqual(len(document.read(self.path)["unfinished"]), len(TASKS) - 2)
        paths[0].write_text("{}")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(cli.main(["--json", str(self.path), "--merge", *map(str, paths)]), 1)
        self.assertIn("0.json is no result of benchmarks/train_models", said.getvalue())

    def test_a_failure_of_vitune_alone_is_one(self):
        ours = row("a", 8, failed={"vitune_compile": "x"}, compile_default=1.0)
        nobody = row("b", 8, failed={"vitune_compile": "x", "compile_default": "x"}, eager=1.0)
        self.assertEqual(document.ours_failed(document_of(ours, nobody)), ["a b8 amp graph"])
