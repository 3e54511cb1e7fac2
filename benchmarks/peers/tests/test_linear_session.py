# benchmarks/peers/tests/test_linear_session.py -- Linear layers in a session and in the program's processes, on the CPU.
# SPDX-License-Identifier: Apache-2.0
import io
import json
import time
import unittest
from unittest import mock

from .session_support import LINEARS as TEXTS
from .session_support import SessionCase, Timer
from .support import needs_library, needs_torch, torch

from peers import cli, table
from peers.engine import document
from peers.engine.peer import Call
from peers.rosters import ROSTERS

LINEARS = ROSTERS[2]

if torch is not None:
    import torch._inductor.config  # its first import asks for the encoding of stdout, which is a mock in a session

    from peers.engine import session
    from peers.linear.operands import formula
    from peers.linear.torch_peers import Eager, compilers

LARGE = "linear bf16 m=512 n=1024 k=16 bias act=gelu"


class Formula:
    """What a model writes of these words, under any name."""

    def __init__(self, name, provider="a library", words=None, instead="", outcome=""):
        self.name, self.provider, self.words = name, provider, words
        self.instead, self.outcome = instead, outcome

    def prepare(self, problem, t):
        if self.words is not None:
            problem = LINEARS.problem({"problem": problem.text.replace("act=gelu", self.words)})
        function = formula(problem)
        call = Call(lambda: function(*t.given), "c", self.outcome, self.provider)
        call.instead = self.instead
        return call


@needs_library
@needs_torch
class SessionTest(SessionCase):
    def test_each_form_is_timed_and_judged_and_its_provider_is_named(self):
        self.use(LINEARS, TEXTS)
        compile = torch.compile
        self.patch("torch.compile", side_effect=lambda f, **_: compile(f, backend="aot_eager"))
        ours = [Formula("vitune", "vitune's chain", outcome="exact"), Formula("vitune_own", "vitune")]
        ours[1].outcome = "nearest"
        found = self.run_session([*ours, *compilers(), Eager()])
        self.assertEqual((len(found["rows"]), found["unfinished"]), (len(TEXTS), []))
        for row in found["rows"]:
            with self.subTest(row["problem"]):
                self.assertEqual((row["failed"], row["refused"]), ({}, {}))
                self.assertEqual(
                    list(row["us"]), ["vitune", "vitune_own", "compiled", "compile_default", "eager"]
                )
                self.assertEqual(
                    row["provider"],
                    {
                        **{"vitune": "vitune's chain", "vitune_own": "vitune", "eager": "PyTorch"},
                        **{"compiled": "Inductor", "compile_default": "Inductor"},
                    },
                )
                self.assertEqual(set(row["same_function"].values()), {True})
                self.assertEqual(set(row["repeats"]), {"vitune", "vitune_own"})
                for errors in row["err"].values():
                    self.assertLess(errors["relative"], 0.01)
                given = ["vitune and Triton are given the rows' statistics, the others compute them"]
                self.assertEqual(
                    row["flags"],
                    [
                        *given * ("norm=layer" in row["problem"]),
                        "vitune_own: not tuned for this problem, served as 'nearest'",
                    ],
                )

    def test_a_peer_of_another_function_has_a_time_and_does_not_count(self):
        self.use(LINEARS, [LARGE])
        says = Formula("cublaslt", words="act=gelu_tanh", instead="GELU's tanh form")
        hides = Formula("quack", words="act=gelu_tanh")
        found = self.run_session([Formula("vitune", "vitune", outcome="exact"), says, hides, Eager()])
        (row,) = found["rows"]
        self.assertEqual(
            row["same_function"], {"vitune": True, "cublaslt": False, "quack": False, "eager": True}
        )
        for name in ("cublaslt", "quack"):
            self.assertIn("warm", row["us"][name])
            self.assertIn(f"{name}: computes GELU's tanh form, and does not count", row["flags"])
        row["us"]["cublaslt"]["warm"] = 0.5
        self.assertEqual(table.best(row, "warm").peer, "eager")
        text = table.page(found)
        self.assertIn("Of another function, and not counted: cuBLASLt, tuned in 1, quack in 1 of 1", text)

    def test_vitune_itself_is_found_out_too(self):
        self.use(LINEARS, [LARGE])
        (row,) = self.run_session([Formula("vitune", "vitune", "act=gelu_tanh", outcome="exact")])["rows"]
        self.assertIn("vitune: computes GELU's tanh form", row["flags"])
        self.assertFalse(row["same_function"]["vitune"])

    def test_the_memory_of_the_output_is_poisoned(self):
        self.use(LINEARS, TEXTS[:1])
        self.run_session([Eager()])
        self.assertEqual([call.args for call in self.poisoned.call_args_list], [((37 * 24 * 2,), 255)])

    def test_no_rows_share_of_the_time_is_below_the_least_that_was_asked_for(self):
        self.use(LINEARS, TEXTS[:2])
        made = session.Session(
            LINEARS, [Eager()], self.path, session.Journal(self.folder / "now"), {}, 5, Timer()
        )
        made.begin(False)
        shares = []

        def measure(problem, seconds):
            shares.append(seconds)
            return document.new_row(problem.name, problem.group, problem.text, None)

        with mock.patch.object(made, "_measure", measure), mock.patch("sys.stdout"):
            made.run(self.problems, time.time() + 10, 8.0)
        self.assertEqual(shares[0], 8.0)
        self.assertAlmostEqual(shares[1], 10, delta=1)


@needs_library
@needs_torch
class ProgramTest(SessionCase):
    """The program's processes on the CPU; a run that goes on where an earlier one ended."""

    def setUp(self):
        super().setUp()
        self.use(LINEARS, TEXTS)
        self.patch("peers.cli._sees_gpu", return_value=True)
        self.patch("peers.engine.session.DeviceTimer", Timer)
        (self.folder / "excluded").write_text("{}")

    def worker(self, *words, texts=TEXTS):
        texts = [word for text in texts for word in ("--problem", text)]
        hidden = ["--worker", "--until", str(time.time() + 1000)]
        hidden += ["--excluded", str(self.folder / "excluded"), "--json", str(self.path)]
        with mock.patch("sys.stdout"), mock.patch("sys.stderr", io.StringIO()) as said:
            return cli.main([*texts, "--peers", "eager", *words, *hidden]), said.getvalue()

    def test_a_resumed_run_keeps_the_rows_and_measures_the_others(self):
        self.worker(texts=TEXTS[:2])
        first = document.read(self.path)
        self.assertEqual([row["problem"] for row in first["rows"]], list(TEXTS[:2]))
        self.assertEqual(first["objective"], "warm")
        self.assertEqual(self.worker("--resume"), (0, ""))
        found = document.read(self.path)
        self.assertEqual([row["problem"] for row in found["rows"]], list(TEXTS))
        self.assertEqual(found["rows"][:2], first["rows"])
        self.assertEqual((found["date"], found["unfinished"]), (first["date"], []))
        self.worker(texts=TEXTS[:1])  # not resumed: measured anew
        self.assertEqual(len(document.read(self.path)["rows"]), 1)

    def test_rows_of_another_gpu_are_not_gone_on_with(self):
        self.worker(texts=TEXTS[:1])
        before = self.path.read_text()
        self.patch("peers.engine.device.describe", return_value=({"name": "another"}, {}))
        status, said = self.worker("--resume")
        self.assertEqual(status, 2)
        self.assertIn("is of none, and this is another: name another --json", said)
        self.assertEqual(self.path.read_text(), before)

    def test_only_what_has_no_row_is_compiled_ahead(self):
        self.worker(texts=TEXTS[:2])
        asked = []

        def run_pool(work, *_):
            asked.extend(task["problem"]["problem"] for group in work for task in group)
            return {}

        self.patch("peers.cli.missing", return_value=None)
        self.patch("peers.engine.precompile.run_pool", side_effect=run_pool)
        watch = self.patch("peers.engine.supervise.watch", return_value=0)
        texts = [word for text in TEXTS for word in ("--problem", text)]
        words = [*texts, "--json", str(self.path), "--jobs", "2", "--peers", "compiled"]
        with mock.patch("sys.stdout"):
            cli.main([*words, "--resume"])
            self.assertEqual(sorted(asked), sorted(TEXTS[2:]))
            self.assertIn("--resume", watch.call_args.args[0](False))
            asked.clear()
            cli.main(words)
        self.assertEqual(sorted(asked), sorted(TEXTS))
        self.assertNotIn("--resume", watch.call_args.args[0](False))
        self.assertIn("--resume", watch.call_args.args[0](True))

    def test_what_cannot_be_gone_on_with_or_is_not_there_is_a_usage_error(self):
        self.path.write_text(json.dumps({"schema": 1}))
        status, said = self.worker("--resume")
        self.assertEqual(status, 2)
        self.assertIn("'command' is missing", said)
        status, said = self.worker("--own-db", str(self.folder / "own.db"))
        self.assertEqual(status, 2)
        self.assertIn("--own-db", said)
        self.assertIn("no such file", said)

    def test_the_own_database_reaches_the_peers_and_the_children(self):
        own = self.folder / "own.db"
        own.touch()
        options = cli._parser().parse_args(["--own-db", str(own), "--problem", TEXTS[0]])
        self.assertEqual(cli._settings(options, LINEARS).own_database, own)
        words = cli._again(options, own, 0)
        self.assertEqual(words[words.index("--own-db") + 1], str(own))
        self.assertEqual(words[words.index("--row-seconds") + 1], "0.0")


if __name__ == "__main__":
    unittest.main()
