# benchmarks/peers/tests/test_session.py -- A session on the CPU; timer and peers invented.
# SPDX-License-Identifier: Apache-2.0
import json
from unittest import mock

from .session_support import SessionCase, Timer
from .support import needs_library, needs_torch, torch

from peers.engine.peer import Absent, Call, Refused
from peers.rosters import ROSTERS

if torch is not None:
    from peers.engine import session

ATTENTION = ROSTERS[0]
TEXTS = ("fp16 b=1 h=2 n=9 d=16", "fp16 b=1 h=2 n=17 d=16 bias=fp16:1x2x17x17")


class Exact:
    """Right to fp16's rounding, times a factor for some."""

    def __init__(self, name, factor=1.0, outcome=""):
        self.name, self.factor, self.outcome, self.prepared = name, factor, outcome, []

    def prepare(self, problem, t):
        self.prepared.append(problem.text)
        values = ATTENTION.reference(problem, t).values
        out = (values.reshape(t.q.shape) * self.factor).half()
        return Call(lambda: out, f"{self.name}'s config", self.outcome)


class Raises:
    def __init__(self, name, error):
        self.name, self.error = name, error

    def prepare(self, problem, t):
        raise self.error


@needs_library
@needs_torch
class SessionTest(SessionCase):
    def setUp(self):
        super().setUp()
        self.use(ATTENTION, TEXTS)

    def test_times_errors_memory_and_configs_come_into_the_row(self):
        found = self.run_session([Exact("vitune", outcome="exact"), Exact("cudnn")])
        self.assertEqual((found["peers"], found["unfinished"]), (["vitune", "cudnn"], []))
        self.assertEqual([row["name"] for row in found["rows"]], ["p0", "p1"])
        row = found["rows"][0]
        us = row["us"]["vitune"]
        self.assertTrue(10.0 <= us["cold_p10"] <= us["cold"] <= us["cold_p90"] <= 11.0)
        self.assertEqual((us["warm"], us["python_queued"], us["python_done"]), (5.0, 4.0, 12.0))
        self.assertGreaterEqual(us["cold_samples"], 7)
        self.assertLess(row["err"]["vitune"]["relative"], 1e-3)
        self.assertEqual(
            (row["memory"]["cudnn"], row["config"]["cudnn"], row["flags"]),
            (4000, "cudnn's config", []),
        )
        self.assertFalse((self.folder / "now").exists())

    def test_calls_that_do_not_repeat_bit_for_bit_are_counted_and_flagged(self):
        class Wavering(Exact):
            def prepare(self, problem, t):
                call = super().prepare(problem, t)
                first, outputs = call.run(), 0

                def run():
                    nonlocal outputs
                    outputs += 1
                    other = first.clone()
                    other.view(-1)[0] *= 1.002 if outputs % 4 == 0 else 1.0
                    return other

                return Call(run, "", "exact")

        found = self.run_session([Wavering("vitune"), Exact("vitune_default"), Exact("cudnn")])
        row = found["rows"][0]
        self.assertEqual(
            row["repeats"],
            {
                "vitune": {"calls": 100, "different": 25},
                "vitune_default": {"calls": 100, "different": 0},
            },
        )
        self.assertIn("vitune: 25 of 100 calls gave other bits", row["flags"])

    def test_refused_absent_and_failing_peers_are_recorded_and_the_others_go_on(self):
        found = self.run_session(
            [
                Exact("vitune", outcome="exact"),
                Raises("flash", Refused("takes no bias")),
                Raises("fa3", Absent("not installed")),
                Raises("effic", ValueError("a bug")),
                Raises("eager", MemoryError()),
            ]
        )
        for row in found["rows"]:
            self.assertEqual(row["refused"], {"flash": "takes no bias"})
            self.assertEqual(
                row["failed"], {"effic": "ValueError: a bug", "eager": "MemoryError: MemoryError"}
            )
            self.assertEqual(list(row["us"]), ["vitune"])
        self.assertEqual(found["absent"], {"fa3": "not installed"})

    def test_a_wrong_output_has_no_time(self):
        row = self.run_session([Exact("vitune", outcome="exact"), Exact("cudnn", 1.1)])["rows"][0]
        self.assertIn("wrong: the output is 0.1", row["failed"]["cudnn"])
        self.assertEqual((list(row["us"]), list(row["err"])), (["vitune"], ["vitune"]))

    def test_an_error_larger_than_the_best_peers_is_flagged(self):
        row = self.run_session([Exact("vitune", 1.01, "exact"), Exact("cudnn"), Exact("eager")])[
            "rows"
        ][0]
        self.assertEqual(
            len([flag for flag in row["flags"] if "error" in flag and "cudnn" in flag]), 2
        )

    def test_an_untuned_problem_is_flagged(self):
        row = self.run_session([Exact("vitune", outcome="nearest"), Exact("cudnn")])["rows"][0]
        self.assertEqual((row["outcome"], len(row["flags"])), ("nearest", 1))
        self.assertIn("nearest", row["flags"][0])

    def test_a_peer_that_cannot_be_captured_keeps_its_cold_time(self):
        row = self.run_session([Exact("vitune", outcome="exact"), Exact("flex")])["rows"][0]
        self.assertIn("cannot be captured", row["failed"]["flex"])
        self.assertIn("cold", row["us"]["flex"])
        self.assertNotIn("warm", row["us"]["flex"])

    def test_a_peer_that_compiles_too_long_for_its_share_is_left_out_and_says_so(self):
        now = [1000.0]
        self.patch("peers.engine.session.time.time", side_effect=lambda: now[0])
        flex = Exact("triton")
        prepare = flex.prepare

        def slowly(problem, t):
            now[0] += 8.0
            return prepare(problem, t)

        flex.prepare = slowly
        with mock.patch("time.time", side_effect=lambda: now[0]):
            found = self.run_session([Exact("vitune", outcome="exact"), flex], seconds=15.0)
        self.assertEqual(flex.prepared, [self.problems[0].text])
        self.assertIn("8.0 s each, and 7.0 s are left", found["rows"][1]["failed"]["triton"])
        self.assertIn("vitune", found["rows"][1]["us"])

    def test_what_is_excluded_is_never_called(self):
        cudnn, vitune = Exact("cudnn"), Exact("vitune", outcome="exact")
        found = self.run_session(
            [vitune, cudnn],
            {
                self.problems[0].text: {"cudnn": "failed: it died"},
                self.problems[1].text: {"": "failed: all died"},
            },
        )
        self.assertEqual(cudnn.prepared, [])
        self.assertEqual(found["rows"][0]["failed"], {"cudnn": "it died"})
        self.assertEqual(
            (found["rows"][1]["us"], found["rows"][1]["failed"]["vitune"]), ({}, "all died")
        )

    def test_a_session_goes_on_behind_the_rows_that_are_there(self):
        first = Exact("vitune", outcome="exact")
        begun = self.run_session([first], seconds=-1.0)
        self.assertEqual((begun["rows"], begun["unfinished"]), ([], ["p0", "p1"]))
        all_problems, self.problems = self.problems, self.problems[:1]
        self.run_session([first])
        self.problems = all_problems
        second = Exact("vitune", outcome="exact")
        found = self.run_session([second], resume=True)
        self.assertEqual(second.prepared, [all_problems[1].text])
        self.assertEqual(
            ([row["name"] for row in found["rows"]], found["unfinished"]), (["p0", "p1"], [])
        )

    def test_a_lost_gpu_ends_the_session_and_says_where(self):
        with self.assertRaises(session.Poisoned):
            self.run_session(
                [Exact("vitune", outcome="exact")], timer=Timer(lose="CUDA error: 700")
            )
        at_work = json.loads((self.folder / "now").read_text())
        self.assertEqual(
            at_work, {"problem": self.problems[0].text, "peer": "", "stage": "cold rounds"}
        )

    def test_a_gpu_that_no_longer_answers_after_a_peers_failure_is_lost(self):
        with (
            mock.patch("torch.cuda.synchronize", side_effect=RuntimeError("CUDA error: 700")),
            self.assertRaises(session.Poisoned),
        ):
            self.run_session([Exact("vitune", outcome="exact")])
        self.assertEqual(json.loads((self.folder / "now").read_text())["peer"], "vitune")
