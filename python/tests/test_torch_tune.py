# python/tests/test_torch_tune.py -- vitune.tune(model, sample): what is tuned, how far it tells, Ctrl-C and the end of the time.
# SPDX-License-Identifier: Apache-2.0
"""On the emulated device, or beside a command that stands in for vitune's."""
import io
import json
import sys
import time
import unittest
from unittest import mock

import vitune

from .support import FOLDER, needs_device, needs_torch, torch
from .test_command import fake_command
from .test_torch_compile import without_inductor
from .test_torch_host import TorchTest

if torch is not None:
    import torch.nn.functional as F
    from torch import nn

    from vitune._compile import backend, tune_model, tune_progress
    from vitune._ops import attention as attention_ops
    from vitune._runtime import command as _command

PROBLEM = "attention bf16 b=2 h=3 nq=7 nk=7 d=64 layout=bhnd"


def attention(problem_heads=3):
    class Attention(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x) + F.scaled_dot_product_attention(x, x, x * 2)
    return Attention(), torch.randn(2, problem_heads, 7, 64).bfloat16()


def tuned_line(problem, us=2.0):
    """What the command prints of a problem that has a winner."""
    winner = {"objective": "cold", "cold": {"median_us": us}, "default_us": 3.0}
    return json.dumps({"result": {"problem": problem, "winner": winner, "share": 0.75, "message": ""}})


class UntunedModelCase(TorchTest):
    """Models compiled without Inductor, on the emulated device and with a database of their own, which is empty."""

    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.context = vitune.Context(0, database=FOLDER / f"{self.id()}.db", shipped_database="")
        self.addCleanup(self.context.close)
        for module, name, value in ((attention_ops, "context_of", lambda device: self.context), (attention_ops, "contexts", lambda: [self.context]),
                                    (backend, "compile_fx", without_inductor)):
            self.replace(module, name, value)

    def replace(self, module, name, value):
        patch = mock.patch.object(module, name, value)
        patch.start()
        self.addCleanup(patch.stop)


@needs_device
@needs_torch
class TuneModelTest(UntunedModelCase):
    def tune(self, *arguments, **keywords):
        return vitune.tune(*arguments, problem_budget=1, jobs=1, database=FOLDER / f"{self.id()}.db", quiet=True, **keywords)

    def test_what_was_never_tuned_is_tuned_and_serves_and_is_then_left(self):
        model, x = attention()
        compiled = vitune.compile(model)
        result = self.tune(compiled, (x,))
        self.assertIs(result.model, compiled)
        self.assertEqual([each.problem for each in result.tuned], [PROBLEM])
        self.assertAlmostEqual(result.tuned[0].share, 1.0)
        self.assertEqual((result.untuned, dict(result.failed), result.interrupted), ((), {}, False))
        self.assertTrue(all(call.replaced for call in vitune.report(compiled).calls))
        with torch.inference_mode():
            torch.testing.assert_close(compiled(x), model(x), atol=0.03, rtol=0.03)
        self.assertIn("1 problem tuned", str(result))
        self.assertIn(PROBLEM, str(result))
        again = self.tune(model, x)  # compiled by tune() itself
        self.assertEqual((again.tuned, again.untuned, again.gain), ((), (), 1.0))
        self.assertTrue(all(call.replaced for call in vitune.report(again.model).calls))

    def test_the_command_is_told_how_often_each_problem_is_asked(self):
        model, x = attention()
        told = FOLDER / f"{self.id()}.json"
        body = f"""
            import pathlib, sys
            pathlib.Path({str(told)!r}).write_text(pathlib.Path(sys.argv[sys.argv.index("--from") + 1]).read_text())
            print({tuned_line(PROBLEM)!r})
            """
        with fake_command(body):
            result = self.tune(model, {"x": x})
        self.assertEqual(json.loads(told.read_text())["problems"], [{"problem": PROBLEM, "calls": 2}])
        self.assertEqual(result.tuned, (tune_model.TunedProblem(PROBLEM, 0.75, 2.0, 3.0),))
        self.assertEqual(result.untuned, (PROBLEM,))  # whatever it said: no winner is there

    def test_a_problem_without_a_winner_is_said_with_the_reason(self):
        model, x = attention()
        line = json.dumps({"result": {"problem": PROBLEM, "winner": None, "message": "no kernel was right"}})
        with fake_command(f"import sys; print({line!r}); sys.exit(1)"):
            result = self.tune(model, x)
        self.assertEqual(dict(result.failed), {PROBLEM: "no kernel was right"})
        self.assertIn("not tuned: attention bf16", str(result))
        self.assertIn("(no kernel was right)", str(result))

    def test_a_command_that_fails_is_an_error_with_what_it_said(self):
        model, x = attention()
        with fake_command("import sys; sys.exit('no GPU here')"), self.assertRaisesRegex(vitune.CommandError, "no GPU here"):
            self.tune(model, x)

    def test_an_interrupt_keeps_what_is_there(self):
        model, x = attention()
        stopped = FOLDER / f"{self.id()}.stopped"
        body = f"""
            import os, pathlib, signal
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            print({tuned_line(PROBLEM)!r}, flush=True)
            os.kill(os.getppid(), signal.SIGINT)
            signal.sigwait([signal.SIGINT])
            pathlib.Path({str(stopped)!r}).write_text("saved")
            """
        with fake_command(body):
            result = self.tune(model, x)
        self.assertTrue(result.interrupted)
        self.assertEqual(stopped.read_text(), "saved")
        self.assertIn("interrupted", str(result))

    def test_no_problem_is_begun_after_the_time(self):
        model, x = attention()
        with fake_command("raise SystemExit('it was asked to tune')"):
            result = self.tune(model, x, budget=1e-6)
        self.assertEqual((result.tuned, result.untuned), ((), (PROBLEM,)))


    def test_each_problem_has_an_equal_part_of_the_time_unless_it_is_told_otherwise(self):
        model, x = attention()
        told = FOLDER / f"{self.id()}.words"
        body = f"import pathlib, sys; pathlib.Path({str(told)!r}).write_text(' '.join(sys.argv)); print({tuned_line(PROBLEM)!r})"
        for keywords, words in (({}, "--budget 1"), ({"problem_budget": None}, "--budget 59"), ({"problem_budget": None, "effort": "quick"}, "--effort quick")):
            with self.subTest(**keywords), fake_command(body):
                vitune.tune(model, x, quiet=True, budget="1m", **{"problem_budget": 1, **keywords})
                self.assertIn(words[:10], told.read_text())
                self.assertEqual(told.read_text().count("--budget") + told.read_text().count("--effort"), 1)
        self.assertEqual(tune_model.Tuning(None, None, time.monotonic() + 40.5, [], None, None)._limit(10), ["--budget", "4s"])
        self.assertEqual(tune_model.Tuning(None, None, time.monotonic() + 1.0, [], None, None)._limit(10), ["--budget", "3s"])


@needs_torch
class WordsTest(unittest.TestCase):
    def test_a_budget_is_a_time(self):
        for budget, seconds in (("60s", 60.0), ("2m", 120.0), ("0.5h", 1800.0), ("90", 90.0), (90, 90.0), (None, None)):
            self.assertEqual(tune_model.seconds_of(budget), seconds)
        for budget in ("", "s", "fast", "-1s", 0, "inf", "nan"):
            with self.subTest(budget), self.assertRaisesRegex(vitune.InvalidArgument, "'60s' or '5m'"):
                tune_model.seconds_of(budget)

    def test_what_belongs_to_problems_is_refused_for_a_model_and_the_other_way_round(self):
        model, x = attention()
        for arguments, keywords, said in (((model, x), {"model": "vit_base_patch16_224"}, "not model"), ((model, x, x), {}, "as a tuple"),
                                          ((model, x), {"sample": x}, "as a tuple"), (("bf16 b=1",), {"sample": x}, "belong to a model"),
                                          ((), {"problem_budget": "5s"}, "belong to a model")):
            with self.subTest(said), self.assertRaisesRegex(vitune.InvalidArgument, said):
                vitune.tune(*arguments, **keywords)


@needs_torch
class LinesTest(unittest.TestCase):
    def test_at_the_deadline_the_command_is_asked_once_to_stop(self):
        body = """
            import signal
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            print('{"n": 1}', flush=True)
            signal.sigwait([signal.SIGINT])
            print('{"n": 2}', flush=True)
            raise SystemExit(130)
            """
        with fake_command(body):
            lines = _command.Lines([], time.monotonic())
            read = list(lines.read())
        self.assertIn(read, ([], [{"n": 1}, {"n": 2}]))  # before it was up, or after
        self.assertFalse(lines.interrupted)


class Screen(io.StringIO):
    def isatty(self):
        return True


@needs_torch
class ProgressTest(unittest.TestCase):
    def said(self, stream, quiet=False):
        with mock.patch.object(sys, "stderr", stream):
            progress = tune_progress.Progress(quiet, None)
            progress.begin(2)
            progress.done(0.75, "linear bf16 m=1")
            progress.end()
        return stream.getvalue()

    def test_a_log_has_a_line_for_each_step(self):
        self.assertEqual(self.said(io.StringIO()), "vitune: tuning 2 problems, kernels with the largest share of a pass first\n"
                         "vitune: 1 of 2 problems, 75 % of their time: linear bf16 m=1\n")

    def test_a_terminal_and_a_notebook_have_one_line_that_changes(self):
        class Cell(io.StringIO):
            pass
        Cell.__module__ = "ipykernel.iostream"
        for stream in (Screen(), Cell()):
            text = self.said(stream)
            self.assertNotIn("\n", text)
            self.assertIn("\rvitune: 1 of 2 problems", text)
            self.assertTrue(text.endswith(" \r"))

    def test_quiet_is_quiet(self):
        self.assertEqual(self.said(io.StringIO(), quiet=True), "")


if __name__ == "__main__":
    unittest.main()
