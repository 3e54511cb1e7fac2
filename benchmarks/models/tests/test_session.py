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

from models import document, energy
from models.roster import Task

try:
    import torch
    from models import cli, floor, row, session, watch, ways, zoo
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
        self.built, self.ceilings, self.meter = [], None, None
        plain = {"torch": contextlib.nullcontext, "cudnn": contextlib.nullcontext, "vitune": contextlib.nullcontext}
        for patch in (
            mock.patch.object(zoo, "build", self.build),
            mock.patch.object(ways, "WAYS", plain),
            mock.patch.object(ways, "served_by_vitune", lambda way, run: {"served": 1}),
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

    def run_tasks(self, tasks, made=None, seconds=100.0):
        made = made or result()
        settings = session.Settings("cpu", CpuClock(), self.ceilings, lambda: self.built.append("trimmed"), meter=self.meter)
        runner = session.Session(made, self.path, settings)
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

    def test_what_was_cut_off_is_tried_again_some_times(self):
        made = self.run_tasks(ROWS, result(at_work="one b1", tries={"one b1": 2}))
        self.assertEqual((self.built, made["tries"], made["at_work"]), (["one", "two"], {}, None))
        self.built.clear()
        made = self.run_tasks(ROWS, result(at_work="one b1", tries={"one b1": 3}))
        self.assertEqual(self.built, ["two"])
        self.assertIn("did not end in 3 tries", made["rows"][0]["failed"][""])

    def test_what_needs_more_time_than_is_left_leaves_it_to_others(self):
        made = self.run_tasks([Task("compiled", "one", 1), *ROWS], seconds=40.0)
        self.assertEqual(([r["mode"] for r in made["rows"]], made["unfinished"]), (["eager", "eager"], ["compiled one b1"]))

    def test_floors_are_in_every_row_where_the_rates_are_known(self):
        self.assertNotIn("floor_us", self.run_tasks(ROWS[:1])["rows"][0])
        self.ceilings = floor.Ceilings(1e-6, 1e6)
        made = self.run_tasks(ROWS)
        self.assertEqual([r["floor_us"] for r in made["rows"]], [{"gemm": 2.0 * 48 * 8 * batch} for batch in (1, 2)])

    def test_a_model_is_compiled_in_all_modes_and_by_vitune_in_the_faster_one_with_a_graph(self):
        ms = {"default": 3.0, "reduce-overhead": 1.0, "max-autotune": 2.0}
        asked = []

        def by(who):
            def compile_(model, mode, dynamic):
                self.assertIs(dynamic, False)
                asked.append((who, mode))
                if (who, mode) == self.broken:
                    raise RuntimeError("no Triton")
                run = lambda images: model(images)  # noqa: E731
                run.ms = ms[mode] / (2 if who == "vitune" else 1)
                return run

            return compile_

        class Clock(CpuClock):
            def passes(self, run, count):
                return run.__closure__ and next(c.cell_contents.ms for c in run.__closure__ if hasattr(c.cell_contents, "ms"))

        report = mock.Mock(calls=[mock.Mock(replaced=True), mock.Mock(replaced=False)], untuned=("norm x",))
        with (
            mock.patch.object(torch, "compile", by("torch")),
            mock.patch.multiple("vitune", compile=by("vitune"), report=lambda compiled: report),
            mock.patch(f"{__name__}.CpuClock", Clock),
        ):
            self.broken = None
            found = self.run_tasks([Task("compiled", "one", 1)])["rows"][0]
            self.assertEqual(asked, [("torch", mode) for mode in ms] + [("vitune", "reduce-overhead")])
            self.assertEqual({n: t["ms"] for n, t in found["ms"].items()},
                             {"compile_default": 3, "compile_reduce": 1, "compile_max": 2, "vitune_compile": 0.5})  # fmt: skip
            self.assertEqual((found["mode"], found["gain"]["over"], found["gain"]["times"]), ("compiled", "compile_reduce", 2))
            self.assertEqual((found["vitune_mode"], sorted(found["compile_s"])), ("reduce-overhead", sorted(found["ms"])))
            self.assertEqual(found["replaced"], {"replaced": 1, "known": 2, "untuned": ["norm x"]})
            self.assertEqual(self.built, ["one", "trimmed"])
            self.assertNotIn("mj", found)
            self.broken, self.meter = ("torch", "reduce-overhead"), energy.Meter(mock.Mock(side_effect=range(1000)), 0.001)
            found = self.run_tasks([Task("compiled", "one", 1)])["rows"][0]
            self.assertEqual(found["failed"], {"compile_reduce": "RuntimeError: no Triton"})
            self.assertEqual((found["vitune_mode"], found["gain"]["over"]), ("max-autotune", "compile_max"))
            self.assertEqual(sorted(found["mj"]), ["compile_default", "compile_max", "vitune_compile"])
            self.assertTrue(all(0 < mj <= 1000 for mj in found["mj"].values()), found["mj"])
            self.broken = None
            ms["default"] = 0.25
            found = self.run_tasks([Task("compiled", "one", 1)])["rows"][0]
            self.assertEqual((found["vitune_mode"], found["gain"]["over"], found["gain"]["times"]),
                             ("reduce-overhead", "compile_default", 0.5))  # fmt: skip

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

    def test_a_lost_device_that_a_task_did_not_look_for_is_noted_with_its_reason(self):
        lost = mock.patch.object(CpuClock, "synchronize", side_effect=RuntimeError("illegal access"))
        broken = mock.patch.object(row, "measure", side_effect=RuntimeError("no answer"))
        with lost, broken, self.assertRaises(row.Poisoned):
            self.run_tasks(ROWS)
        found = document.read(self.path)
        self.assertEqual(found["rows"][0]["failed"][""],
                         "the device no longer answers: RuntimeError: no answer: RuntimeError: illegal access")  # fmt: skip
        self.assertIsNone(found["at_work"])

    def main(self, *words):
        words = ["--worker", "--device=cpu", f"--json={self.path}", "--models=one:1", *words]
        self.out = io.StringIO()
        with contextlib.redirect_stdout(self.out), contextlib.redirect_stderr(self.out):
            return cli.main(words)

    def test_a_process_that_lost_the_device_asks_for_another(self):
        with mock.patch.object(row, "measure", side_effect=row.Poisoned("illegal access")):
            self.assertEqual(self.main(), watch.POISONED)
        self.assertEqual(self.main("--resume"), 0)  # it is not tried again

    def test_the_program_ends_with_what_happened(self):
        self.assertEqual(self.main(), 0)
        self.assertEqual(self.main("--models=one"), 2)
        self.assertEqual(self.main("--ceilings=1"), 2)
        found = document.read(self.path)
        document.write(found | {"rows": [a_row("a", 1, "eager", 1.0, failed={"vitune": "x"})]}, self.path)
        self.assertEqual(self.main("--resume"), cli.WRONG)
        document.write(found | {"versions": {"torch": "another"}}, self.path)
        self.assertEqual(self.main("--resume"), 1)
        self.assertIn("of another device or other versions", self.out.getvalue())
