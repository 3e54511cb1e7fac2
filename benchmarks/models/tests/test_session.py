# benchmarks/models/tests/test_session.py -- A run: rows on disk, failures, the limit, going on.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import tempfile
import time
import unittest
from unittest import mock

from .support import needs, result, row as a_row

from models import document
from models.roster import Task

try:
    import torch
    from models import cli, row, session, ways, zoo
    from models.clock import CpuClock
except ImportError:
    torch = None

ROWS = [Task("rows", "one", 1), Task("rows", "two", 2)]


@needs("torch")
class SessionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "models.json"
        self.built = []
        plain = {"torch": contextlib.nullcontext, "cudnn": contextlib.nullcontext, "vitune": contextlib.nullcontext}
        for patch in (
            mock.patch.object(zoo, "build", self.build),
            mock.patch.object(ways, "WAYS", plain),
            mock.patch.object(ways, "served_by_vitune", lambda run: {"served": 1}),
            mock.patch.object(session, "MOST_SECONDS", 0.0),
            mock.patch.object(row, "BLOCK_MS", 0.0),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def build(self, name, device):
        self.built.append(name)
        if name == "broken":
            raise RuntimeError("no such model")
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 8)).bfloat16(), 4

    def run_tasks(self, tasks, made=None, seconds=60.0):
        made = made or result()
        runner = session.Session(made, self.path, "cpu", CpuClock())
        with contextlib.redirect_stdout(io.StringIO()):
            runner.run(tasks, time.monotonic() + seconds)
        return made

    def test_every_task_gives_its_row_on_disk(self):
        self.run_tasks([*ROWS, Task("plain", "three", 1)])
        found = json.loads(self.path.read_text())
        self.assertEqual([(r["model"], r["batch"], r["mode"]) for r in found["rows"]],
                         [("one", 1, "eager"), ("two", 2, "eager")])  # fmt: skip
        self.assertEqual([sorted(r["ms"]) for r in found["plain"]], [["torch", "vitune"]])
        self.assertEqual(found["rows"][0]["served"], {"served": 1})
        self.assertEqual((found["unfinished"], found["at_work"]), ([], None))

    def test_a_model_is_built_once_for_its_batches(self):
        self.run_tasks([Task("rows", "one", 1), Task("rows", "one", 2), Task("rows", "two", 1)])
        self.assertEqual(self.built, ["one", "two"])

    def test_a_model_that_fails_says_why_and_the_others_go_on(self):
        made = self.run_tasks([Task("rows", "broken", 1), *ROWS])
        self.assertEqual(made["rows"][0]["failed"], {"": "RuntimeError: no such model"})
        self.assertEqual(len(made["rows"]), 3)

    def test_what_the_limit_leaves_is_named_and_done_by_the_next_run(self):
        made = self.run_tasks(ROWS, seconds=-1.0)
        self.assertEqual((made["rows"], made["unfinished"]), ([], ["one b1", "two b2"]))
        self.run_tasks(ROWS[:1], made)
        made = self.run_tasks(ROWS, document.read(self.path))
        self.assertEqual(self.built, ["one", "two"])
        self.assertEqual((len(made["rows"]), made["unfinished"]), (2, []))

    def test_what_ended_the_process_is_not_tried_again(self):
        made = self.run_tasks(ROWS, result(at_work="one b1"))
        self.assertEqual(self.built, ["two"])
        self.assertIn("the process ended", made["rows"][0]["failed"][""])

    def test_a_lost_device_is_noted_before_another_process_goes_on(self):
        with (
            mock.patch.object(row, "measure", side_effect=row.Poisoned("illegal access")),
            self.assertRaises(row.Poisoned),
        ):
            self.run_tasks(ROWS)
        found = document.read(self.path)
        self.assertIn("illegal access", found["rows"][0]["failed"][""])
        self.assertTrue(document.done(found, ROWS[0]))
        self.assertIsNone(found["at_work"])

    def main(self, *words):
        words = ["--device=cpu", f"--json={self.path}", "--models=one:1", *words]
        self.out = io.StringIO()
        with contextlib.redirect_stdout(self.out), contextlib.redirect_stderr(self.out):
            return cli.main(words)

    def test_the_program_goes_on_in_a_new_process(self):
        with (
            mock.patch.object(row, "measure", side_effect=row.Poisoned("illegal access")),
            mock.patch("os.execv", side_effect=SystemExit) as started,
            self.assertRaises(SystemExit),
        ):
            self.main("--limit=100")
        words = started.call_args.args[1]
        self.assertEqual(words[-2], "--resume")
        self.assertLessEqual(float(words[-1].removeprefix("--limit=")), 100)

    def test_the_program_ends_with_what_happened(self):
        self.assertEqual(self.main(), 0)
        self.assertEqual(self.main("--models=one"), 2)
        found = document.read(self.path)
        document.write(found | {"rows": [a_row("a", 1, "eager", 1.0, failed={"vitune": "x"})]}, self.path)
        self.assertEqual(self.main("--resume"), cli.WRONG)
        document.write(found | {"versions": {"torch": "another"}}, self.path)
        self.assertEqual(self.main("--resume"), 1)
        self.assertIn("of another device or other versions", self.out.getvalue())
