# benchmarks/models/tests/test_document.py -- What is done is not done again; foreign files are refused.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from .support import result, row

from models import cli, document
from models.roster import TASKS, Task, tasks_of


class DocumentTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "models.json"

    def test_what_is_written_is_read(self):
        made = result(row("a", 1, "eager", 1.0, 1.0, 1.0))
        document.write(made, self.path)
        self.assertEqual(document.read(self.path), made)

    def test_foreign_files_are_refused(self):
        foreign = [[], {"schema": 1, "command": "peers"}, {"schema": 2, "command": "models"}]
        foreign += [{key: value for key, value in result().items() if key != gone} for gone in ("plain", "device", "versions", "date")]
        for found in foreign:
            self.path.write_text(json.dumps(found))
            with self.assertRaises(document.BadDocument):
                document.read(self.path)
        self.path.write_text("{")
        with self.assertRaises(document.BadDocument):
            document.read(self.path)

    def test_a_task_is_done_once_it_has_a_row_of_its_model_and_batch(self):
        made = result()
        task = Task("rows", "a", 1)
        self.assertFalse(document.done(made, task))
        document.add(made, task, [{"mode": "eager"}])
        self.assertTrue(document.done(made, task))
        self.assertFalse(document.done(made, Task("rows", "a", 2)))
        self.assertFalse(document.done(made, Task("plain", "a", 1)))
        self.assertFalse(document.done(made, Task("calls")))

    def test_a_compiled_model_is_a_task_of_its_own(self):
        made, compiled = result(row("a", 1, "eager", 1.0)), Task("compiled", "a", 1)
        self.assertFalse(document.done(made, compiled))
        document.add(made, compiled, [document.failed(compiled, "it hung")])
        self.assertTrue(document.done(made, compiled))
        self.assertEqual((made["rows"][1]["mode"], made["rows"][1]["failed"]), ("compiled", {"": "it hung"}))
        self.assertFalse(document.done(result(made["rows"][1]), Task("rows", "a", 1)))

    def test_runs_on_alike_machines_become_one_with_the_last_of_each_row(self):
        first = result(row("a", 1, "eager", 1.0), row("a", 1, "graph", 1.0), row("b", 8, "eager", 1.0))
        second = result(row("a", 1, "eager", 2.0), row("b", 8, "compiled", 2.0)) | {"date": "2027", "at_work": "c b1"}
        second["calls"] = [{"grad": "no_grad"}]
        made = document.merged([first, second])
        found = {(each["model"], each["mode"]): each["ms"]["torch"]["ms"] for each in made["rows"]}
        self.assertEqual(found, {("b", "eager"): 1.0, ("a", "eager"): 2.0, ("b", "compiled"): 2.0})  # no graph of another run
        self.assertEqual((made["date"], made["calls"], made["at_work"], len(first["rows"])), ("2027", second["calls"], None, 3))
        for other in (second | {"versions": {}}, second | {"ceilings": {"tflops": 1.0}}, second | {"device": {"name": "another"}}):
            with self.assertRaises(document.BadDocument):
                document.merged([first, other])

    def test_files_are_merged_from_the_command_line(self):
        paths = [self.path.with_name(f"{i}.json") for i in range(2)]
        for path, batch in zip(paths, (1, 32)):
            document.write(result(row("vit_base_patch16_224", batch, "eager", 1.0)), path)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(cli.main(["--json", str(self.path), "--merge", *map(str, paths)]), 0)
        self.assertIn(f"2 rows in {self.path}, {len(TASKS) - 2} tasks unfinished", said.getvalue())
        self.assertEqual(len(document.read(self.path)["rows"]), 2)
        paths[1].write_text("[]")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(cli.main(["--json", str(self.path), "--merge", *map(str, paths)]), 1)
        self.assertIn("1.json is no result", said.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(cli.main(["--json", "/dev/null/models.json", "--merge", str(paths[0])]), 1)
        self.assertIn("/dev/null", said.getvalue())

    def test_older_documents_are_read(self):
        made = result()
        del made["tries"]
        document.write(made, self.path)
        self.assertEqual(document.read(self.path)["tries"], {})

    def test_marks_of_baselines_follow_the_rows(self):
        made = result(row("a", 1, "eager", 1.0))
        document.add(made, Task("rows", "a", 1), [{key: value for key, value in row("a", 1, "graph", 2.0).items() if key not in ("model", "batch")}])
        self.assertEqual(made["rows"][1]["baseline"], "broken")
        again = result(row("a", 1, "eager", 9.0), row("a", 1, "graph", 2.0))
        self.assertEqual([each.get("baseline") for each in document.merged([made, again])["rows"]], ["host", None])
        del made["rows"][1]["baseline"]  # older ones
        document.write(made, self.path)
        self.assertEqual(document.read(self.path)["rows"][1]["baseline"], "broken")

    def test_a_failure_of_vitune_alone_is_one(self):
        ours = row("a", 1, "graph", 1.0, failed={"vitune": "x"})
        nobody = row("b", 1, "graph", failed={"torch": "x", "vitune": "x"})
        self.assertEqual(document.ours_failed(result(ours, nobody)), ["a b1 graph"])

    def test_tasks_by_name(self):
        wanted = [Task("rows", "torchvision/vit_b_16", 2), Task("compiled", "transformers/vit_base", 8),
                  Task("plain", "resnet50", 1), Task("calls")]  # fmt: skip
        text = "torchvision/vit_b_16:2,compiled/transformers/vit_base:8,plain/resnet50:1,calls"
        self.assertEqual(tasks_of(text), wanted)
        for bad in ("", "a", "a:", "a:0", "a:x"):
            with self.assertRaises(ValueError):
                tasks_of(bad)

    def test_no_task_is_listed_twice(self):
        self.assertEqual(len(set(map(str, TASKS))), len(TASKS))

    def test_the_roster_has_the_batches_and_the_eight_compiled_rows(self):
        names = set(map(str, TASKS))
        for model in ("swin_tiny_patch4_window7_224", "coatnet_0_rw_224", "torchvision/vit_b_16", "transformers/siglip_base"):
            self.assertLessEqual({f"{model} b{batch}" for batch in (1, 8, 32, 128)}, names)
        self.assertEqual(sum(task.kind == "compiled" for task in TASKS), 8)
