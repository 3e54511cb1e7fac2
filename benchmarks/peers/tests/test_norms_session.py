# benchmarks/peers/tests/test_norms_session.py -- Norms in a session and in the program's processes, on the CPU.
# SPDX-License-Identifier: Apache-2.0
import io
import json
import sys
import time
import unittest
from unittest import mock

from .session_support import NORMS as TEXTS
from .session_support import SessionCase, Timer
from .support import needs_library, needs_torch, torch

from peers import cli, table
from peers.engine import document, precompile
from peers.engine.peer import Call, Settings
from peers.rosters import ROSTERS

NORMS = ROSTERS[1]

if torch is not None:
    from peers.norms.torch_peers import Compiled, Eager, Liger


class Rounded:
    """The fp64 outputs in the problem's type, the norm and the sum times a factor each."""

    def __init__(self, name, factors=(1.0, 1.0), outcome=""):
        self.name, self.factors, self.outcome = name, factors, outcome

    def prepare(self, problem, t):
        values = NORMS.reference(problem, t).values.values()
        outputs = tuple(
            (x * factor).to(t.x.dtype) for x, factor in zip(values, self.factors)
        )
        return Call(lambda: outputs if len(outputs) > 1 else outputs[0], "c", self.outcome)


@needs_library
@needs_torch
class SessionTest(SessionCase):
    def setUp(self):
        super().setUp()
        self.use(NORMS, TEXTS)

    def test_pytorchs_peers_are_timed_and_judged_on_every_form(self):
        compile = torch.compile
        self.patch("torch.compile", side_effect=lambda f, **_: compile(f, backend="aot_eager"))
        vitune = Rounded("vitune", outcome="exact")
        with mock.patch.dict(sys.modules, {"liger_kernel": None}):
            found = self.run_session([vitune, Liger(), Compiled(), Eager()])
        self.assertEqual(found["peers"], ["vitune", "liger", "compiled", "eager"])
        self.assertEqual(found["objective"], "cold")
        self.assertIn("cannot be imported", found["absent"]["liger"])
        self.assertEqual((len(found["rows"]), found["unfinished"]), (len(TEXTS), []))
        for row in found["rows"]:
            with self.subTest(row["problem"]):
                self.assertEqual((row["failed"], row["refused"]), ({}, {}))
                self.assertEqual(list(row["us"]), ["vitune", "compiled", "eager"])
                for us in row["us"].values():
                    self.assertGreater(us["cold"], us["warm"])
                    self.assertEqual(us["python_done"], 12.0)
                self.assertEqual(row["memory"]["eager"], 4000)
                self.assertEqual(row["repeats"]["vitune"], {"calls": 100, "different": 0})
                for errors in row["err"].values():
                    self.assertEqual("sum" in errors, " sum" in row["problem"])
                    self.assertLess(errors["relative"], 0.01)
        self.assertLess(found["rows"][1]["err"]["eager"]["sum"]["relative"], 1e-3)

    def test_a_wrong_sum_has_no_time_though_the_norm_is_right(self):
        self.problems = self.problems[1:2]
        found = self.run_session([Rounded("vitune"), Rounded("quack", (1.0, 1.1)), Eager()])
        row = found["rows"][0]
        self.assertIn("'sum' is 0.1 from fp64", row["failed"]["quack"])
        self.assertNotIn("'out'", row["failed"]["quack"])
        self.assertEqual(list(row["us"]), ["vitune", "eager"])

    def test_a_sum_that_changes_from_call_to_call_is_counted(self):
        class Wavering(Rounded):
            def prepare(self, problem, t):
                out, total = super().prepare(problem, t).run()
                count = 0

                def run():
                    nonlocal count
                    count += 1
                    return out, total * (1.0 if count % 2 else 1.001)

                return Call(run, "", "exact")

        self.problems = self.problems[1:2]
        row = self.run_session([Wavering("vitune"), Eager()])["rows"][0]
        self.assertEqual(row["repeats"]["vitune"], {"calls": 100, "different": 50})

    def test_the_memory_of_both_outputs_is_poisoned_before_each_judged_call(self):
        self.problems = self.problems[1:2]
        self.run_session([Eager()])
        self.assertEqual(
            [call.args for call in self.poisoned.call_args_list], [((5 * 1152 * 2,), 255)] * 2
        )

    def test_poison_is_nan_in_every_type(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            poison = torch.full((8,), 255, dtype=torch.uint8).view(dtype)
            self.assertTrue(poison.isnan().all(), dtype)


@needs_library
@needs_torch
class ProgramTest(SessionCase):
    """The measuring and the compiling process, as the program starts them, on the CPU."""

    def setUp(self):
        super().setUp()
        self.use(NORMS, TEXTS)
        compile = torch.compile
        self.patch("peers.cli._sees_gpu", return_value=True)
        self.patch("torch.compile", side_effect=lambda f, **_: compile(f, backend="aot_eager"))
        self.patch("peers.engine.session.DeviceTimer", Timer)

    def worker(self, *words):
        texts = [word for text in TEXTS for word in ("--problem", text)]
        (self.folder / "excluded").write_text(
            json.dumps({TEXTS[0]: {"compiled": "failed: it died"}})
        )
        hidden = ["--worker", "--until", str(time.time() + 1000)]
        hidden += ["--excluded", str(self.folder / "excluded")]
        with mock.patch("sys.stdout"):
            status = cli.main([*texts, "--json", str(self.path), *words, *hidden])
        return status, document.read(self.path)

    def test_the_measuring_process_writes_a_row_per_problem(self):
        status, found = self.worker("--peers", "compiled,eager", "--seed", "7")
        self.assertEqual((status, found["unfinished"], found["objective"]), (0, [], "warm"))
        self.assertEqual([row["problem"] for row in found["rows"]], list(TEXTS))
        self.assertEqual(found["rows"][0]["failed"], {"compiled": "it died"})
        for row in found["rows"][1:]:
            self.assertEqual((list(row["us"]), row["failed"]), (["compiled", "eager"], {}))
        text = table.markdown(found)
        self.assertIn("compiled: it died", text)
        self.assertIn("vitune has no result: not asked for", text)

    def test_another_objective_is_written_down_and_an_unknown_one_refused(self):
        _, found = self.worker("--peers", "eager", "--objective", "cold")
        self.assertEqual(found["objective"], "cold")
        with mock.patch("sys.stderr", io.StringIO()) as said:
            self.assertEqual(cli.main(["--problem", TEXTS[0], "--objective", "hot"]), 2)
            self.assertEqual(cli.main(["--objective", "warm"]), 2)  # of attention
        self.assertIn("--objective hot: of norms", said.getvalue())
        self.assertIn("--objective warm: of attention", said.getvalue())

    def test_the_compiling_process_answers_for_each_task(self):
        def answer(peer, text):
            task = {"peer": peer, "problem": NORMS.problem({"problem": text}).as_json()}
            return precompile._first_call(task, NORMS, Settings())

        self.assertEqual(answer("compiled", TEXTS[3]), {})
        with mock.patch.dict(sys.modules, {"liger_kernel": None}):
            self.assertEqual(answer("liger", TEXTS[0]), {})  # absent: no verdict
        with mock.patch("torch.compile", side_effect=RuntimeError("no compiler")):
            self.assertEqual(answer("compiled", TEXTS[0]), {"failed": "RuntimeError: no compiler"})


if __name__ == "__main__":
    unittest.main()
