# benchmarks/models/tests/test_watch.py -- A process that hangs, dies or runs into the limit costs its row; caches stay small.
# SPDX-License-Identifier: Apache-2.0
"""The processes here are a few lines that write documents as the measuring one does."""
import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from .support import ROOT, result

from models import caches, cli, document, program
from models.roster import Task
from models.watch import POISONED, Watch

ONE, TWO = Task("rows", "one", 1), Task("rows", "two", 1)
#: argv: the document, whether to resume, then TASK=WHAT IT DOES.
WORKER = """
import os, pathlib, sys, time
sys.path.insert(0, {root!r})
from models import document
from models.roster import Task
path = pathlib.Path(sys.argv[1])
made = document.read(path) if sys.argv[2] == "resume" else document.new({{"name": "x"}}, {{}}, "2026", {{}})
for word in sys.argv[3:]:
    name, does = word.split("=")
    task = Task("rows", name, 1)
    if document.done(made, task):
        continue
    made["at_work"] = str(task)
    made["tries"][str(task)] = 1
    document.write(made, path)
    if does == "hang":
        time.sleep(600)
    if does == "die":
        os._exit(9)
    document.add(made, task, [document.failed(task, does)])
    made["at_work"] = None
    made["tries"].pop(str(task))
    document.write(made, path)
    if does == "lose":
        sys.exit({poisoned})
sys.exit(int(os.environ.get("ENDS_WITH", 0)))
"""


class WatchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "models.json"
        self.started, self.seconds = 0, 10000.0

    def run_watched(self, *words, flies=None):
        """flies: while this task is at work, the time does."""
        program = WORKER.format(root=str(ROOT / "benchmarks"), poisoned=POISONED)
        now = 0.0

        def start(resume):
            self.started += 1
            return [sys.executable, "-c", program, str(self.path), "resume" if resume else "new", *words]

        def clock():
            nonlocal now
            now += 50 if self.path.exists() and document.read(self.path)["at_work"] == str(flies) else 0
            return now

        with contextlib.redirect_stderr(io.StringIO()) as self.err:
            status = Watch(self.path, [ONE, TWO], self.seconds, 0.02, clock).run(start)
        found = document.read(self.path) if self.path.exists() else None
        return status, {row["model"]: row["failed"][""] for row in found["rows"]} if found else None

    def test_one_that_hangs_costs_its_row(self):
        status, reasons = self.run_watched("one=hang", "two=end", flies=ONE)
        self.assertEqual((status, reasons), (0, {"one": "it hung: no end after 180 s", "two": "end"}))
        self.assertIn("going on without it", self.err.getvalue())

    def test_one_that_dies_costs_its_row(self):
        status, reasons = self.run_watched("one=die", "two=end")
        self.assertEqual((status, reasons), (0, {"one": "the process ended at this: exit status 9", "two": "end"}))
        self.assertEqual(document.read(self.path)["tries"], {})

    def test_one_that_lost_the_device_is_followed_by_another(self):
        status, reasons = self.run_watched("one=lose", "two=end")
        self.assertEqual((status, reasons, self.started), (0, {"one": "lose", "two": "end"}, 2))

    @staticmethod
    def end(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def test_what_it_started_ends_with_it(self):
        """As `timeout` ends a call that takes too long."""
        watching = f"""
import sys, time
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import pathlib
from models.watch import Watch
program = "import os, pathlib, time; pathlib.Path({str(self.path)!r}).write_text(str(os.getpid())); time.sleep(600)"
Watch(pathlib.Path("none.json"), [], time.monotonic() + 600, 0.01).run(lambda resume: [sys.executable, "-c", program])
"""
        process = subprocess.Popen([sys.executable, "-c", watching], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        until = time.monotonic() + 30
        while not (self.path.exists() and self.path.read_text()):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        measuring = int(self.path.read_text())
        self.addCleanup(self.end, measuring)
        process.terminate()
        self.assertEqual(process.wait(30), 128 + signal.SIGTERM)
        with self.assertRaises(ProcessLookupError):
            os.kill(measuring, 0)

    def test_the_limit_leaves_what_is_at_work_for_the_next_call(self):
        self.seconds = 100.0
        status, reasons = self.run_watched("one=end", "two=hang", flies=TWO)
        self.assertEqual((status, reasons), (0, {"one": "end"}))
        found = document.read(self.path)
        self.assertEqual((found["at_work"], found["tries"]), ("two b1", {"two b1": 1}))

    def test_what_an_earlier_call_left_at_work_is_not_blamed(self):
        document.write(result(at_work="one b1"), self.path)
        program = "import sys; sys.exit(1)"  # of another device, say
        status = Watch(self.path, [ONE], time.monotonic() + 60, poll=0.05).run(lambda resume: [sys.executable, "-c", program])
        self.assertEqual((status, document.read(self.path)["rows"]), (1, []))

    def test_its_own_end_is_handed_on(self):
        with mock.patch.dict(os.environ, {"ENDS_WITH": str(cli.WRONG)}):
            self.assertEqual(self.run_watched("one=end"), (cli.WRONG, {"one": "end"}))
        self.assertEqual(self.started, 1)


class ProgramTest(unittest.TestCase):
    def main(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            status = cli.main(list(words))
        return status, out.getvalue()

    def test_rows_are_chosen_by_their_names(self):
        status, out = self.main("--list", "--rows=^compiled vit_base.* b8$|^calls")
        self.assertEqual((status, out), (0, "calls\ncompiled vit_base_patch16_224 b8\n"))
        for wrong in ("--rows=(", "--rows=nobody"):
            self.assertEqual(self.main("--list", wrong)[0], 2)

    def test_the_measuring_process_gets_the_same_words_and_the_time_that_is_left(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(program, "Watch") as watch:
            path = pathlib.Path(folder) / "models.json"
            document.write(result(), path)
            watch.return_value.run.return_value = 0
            cache = pathlib.Path(folder) / "triton/x/kernel"  # what a process that was stopped left
            cache.parent.mkdir(parents=True)
            cache.write_bytes(bytes(3 << 20))
            given = (f"--json={path}", "--models=a:1", "--limit=100", f"--cache={folder}", "--cache-mb=1")
            self.assertEqual((self.main(*given)[0], cache.exists()), (0, False))
            start = watch.return_value.run.call_args.args[0]
            for resume in (False, True):
                words = start(resume)
                self.assertEqual(words[2:7], list(given))
                self.assertEqual(("--worker" in words, "--resume" in words), (True, resume))
                self.assertLessEqual(float(next(w for w in words[7:] if w.startswith("--limit=")).split("=")[1]), 100)


class ShardTest(unittest.TestCase):
    def test_processes_share_the_rows_by_what_they_are_expected_to_take(self):
        tasks = [mock.Mock(expected_seconds=seconds, later=False) for seconds in (5, 1, 1, 1, 1, 9)]
        shares = [program.share_of(tasks, f"{number}/2") for number in range(2)]
        self.assertEqual([[task.expected_seconds for task in share] for share in shares], [[9], [5, 1, 1, 1, 1]])
        tasks.append(mock.Mock(expected_seconds=90, later=True))  # does not take the others' place
        self.assertIn(tasks[-1], program.share_of(tasks, "0/2"))
        self.assertIn(tasks[-2], program.share_of(tasks, "0/2"))
        self.assertEqual(program.share_of([ONE, TWO], "1/2"), [TWO])  # tasks that expect nothing count alike
        self.assertEqual(program.share_of([ONE, TWO], "2/3"), [])

    def test_a_share_that_cannot_be_is_refused(self):
        for wrong in ("", "1", "2/2", "a/b", "-1/2", "0/0"):
            with self.assertRaisesRegex(ValueError, "is no I/N"):
                program.share_of([ONE], wrong)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(cli.main(["--list", "--shard=4/4"]), 2)


class CachesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def put(self, name, size, age):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
        for each in (path, path.parent):
            os.utime(each, (time.time() - age,) * 2)

    def test_both_caches_lie_in_the_folder(self):
        with mock.patch.dict(os.environ):
            caches.use(self.folder / "new")
            self.assertEqual(os.environ["TORCHINDUCTOR_CACHE_DIR"], str(self.folder.resolve() / "new/inductor"))
            self.assertTrue(pathlib.Path(os.environ["TRITON_CACHE_DIR"]).is_dir())

    def test_what_was_made_first_goes_first_and_tritons_before_inductors(self):
        self.put("inductor/fxgraph/aa/graph", 100, 500)
        self.put("inductor/bb/code.py", 100, 10)
        self.put("triton/OLD/kernel.cubin", 100, 50)
        self.put("triton/NEW/kernel.cubin", 100, 5)
        left = lambda: sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())  # noqa: E731
        self.assertEqual(caches.trim(self.folder, 400), 400)
        self.assertEqual(len(left()), 4)
        self.assertEqual(caches.trim(self.folder, 399), 300)
        self.assertEqual(left(), ["inductor/bb/code.py", "inductor/fxgraph/aa/graph", "triton/NEW/kernel.cubin"])
        self.assertEqual(caches.trim(self.folder, 150), 100)
        self.assertEqual(left(), ["inductor/bb/code.py"])
        self.assertEqual(caches.trim(self.folder / "nothing", 0), 0)
