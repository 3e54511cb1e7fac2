# benchmarks/peers/tests/test_own_winners.py -- What takes the place of a library's winners in an export.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from .support import ROOT

from peers.linear.own_winners import family_of, is_own, own

PROGRAM = ROOT / "benchmarks/peers/linear/own_winners.py"


def times(us):
    return {"median_us": us, "low_us": us, "high_us": us, "samples": 9}


def trial(problem, config, warm, cold=50.0, status="ok", device=0):
    return {
        **{"device": device, "problem": problem, "config": config, "kernel_key": "ab" * 32},
        **{"status": status, "origin": "measured", "registers": 8, "spill_bytes": 0, "shared_bytes": 0},
        **{"compile_ms": 1.0, "cold": times(cold), "warm": times(warm), "low_confidence": False},
        **{"max_error": 0.25, "rms_error": 0.125, "max_bound": 1.0, "rms_bound": 1.0},
    }


def winner(problem, config, objective="warm"):
    return {
        **{"device": 0, "problem": problem, "objective": objective, "config": config},
        **{"kernel_key": "cd" * 32, "origin": "measured", "verified": True, "cold": times(9.0)},
        **{"warm": times(5.0), "low_confidence": True, "max_error": 0.5, "rms_error": 0.5},
        **{"max_bound": 2.0, "rms_bound": 2.0, "runner_up": {"kWarps": 4}, "lead_percent": 3.0},
        **{"lead_low_percent": 2.0, "lead_high_percent": 4.0, "default_us": 8.0, "trials": 40},
        **{"driver_version": 13000, "compiler_version": "x", "tuned_at": "2026-01-01T00:00:00Z"},
    }


# As `vitune db export` writes them: families by number, 0 for tunables of others.
LT = {"kFamily": 2, "kBlockM": 0, "kLibrary": 130100, "kAlgorithm0": 1361504632898}
CHAIN = {"kFamily": 3, "kBlockM": 0, "kLibrary": 130100, "kAlgorithm0": 4294967331}
SM80 = {"kBlockM": 64}


def export(winners, trials):
    operators = ("linear", "linear_weight_grad", "norm")
    texts = [{"operator": one, "text": f"{one} {i}"} for i, one in enumerate(operators)]
    return {
        **{"format": "vitune-export", "schema": 1, "devices": [{"name": "a"}, {"name": "b"}]},
        **{"problems": texts, "winners": winners, "trials": trials, "requests": []},
    }


class OwnTest(unittest.TestCase):
    def test_a_librarys_winner_gives_way_to_the_fastest_right_trial_of_another_family(self):
        slower, fastest = trial(0, {"kBlockM": 32}, 8.0, cold=10.0), trial(0, SM80, 7.0, cold=20.0)
        others = [
            *(trial(0, LT, 5.0), trial(0, CHAIN, 5.5), trial(0, {"kBlockM": 16}, 1.0, status="wrong")),
            *(trial(1, {"kBlockM": 8}, 2.0), trial(0, {"kBlockM": 8}, 3.0, device=1)),
        ]
        for config in (LT, CHAIN):
            made, missing = own(export([winner(0, config)], [slower, *others, fastest]), "warm")
            self.assertEqual(missing, [])
            (found,) = made["winners"]
            self.assertEqual((found["config"], found["warm"]["median_us"]), (SM80, 7.0))
            self.assertEqual((found["kernel_key"], found["max_error"]), ("ab" * 32, 0.25))
            # Nothing of the race that it did not run in, and not to be served before it is judged.
            self.assertEqual((found["verified"], found["runner_up"]), (False, None))
            self.assertEqual({found[f"lead_{k}percent"] for k in ("", "low_", "high_")}, {0.0})
            self.assertEqual(set(found), set(winner(0, LT)))
            self.assertEqual((made["trials"], len(made["problems"])), ([], 3))
        cold, _ = own(export([winner(0, LT, "cold")], [slower, *others, fastest]), "cold")
        self.assertEqual(cold["winners"][0]["config"], {"kBlockM": 32})

    def test_own_winners_other_operators_and_objectives_stay_where_they_are(self):
        given = [winner(0, SM80), winner(1, LT, "cold"), winner(2, LT)]
        made, missing = own(export(given, [trial(i, SM80, 3.0) for i in range(3)]), "warm")
        self.assertEqual((made["winners"], missing), ([], []))

    def test_a_problem_without_such_a_trial_is_named(self):
        trials = [trial(0, LT, 3.0), trial(0, SM80, 0.0)]  # not measured
        made, missing = own(export([winner(0, LT)], trials), "warm")
        self.assertEqual((made["winners"], missing), ([], ["linear 0"]))

    def test_families_are_told_by_the_first_word(self):
        for config, family, mine in (
            ("family=sm80 kBlockM=64", "sm80", True),
            ("family=cublaslt kTile=1", "cublaslt", False),
            ("family=chain", "chain", False),
            ("kRows=1", "", True),
            ("", "", True),
        ):
            self.assertEqual((family_of(config), is_own(config)), (family, mine))


class ProgramTest(unittest.TestCase):
    def run_program(self, given):
        with tempfile.TemporaryDirectory() as folder:
            tuned, made = (pathlib.Path(folder) / name for name in ("tuned.json", "own.json"))
            tuned.write_text(given)
            made.write_text("of an earlier run")
            done = subprocess.run(
                [sys.executable, "-I", PROGRAM, tuned, made], capture_output=True, text=True
            )
            return done, made.read_text() if made.exists() else None

    def test_it_writes_an_export_and_says_how_many(self):
        done, made = self.run_program(json.dumps(export([winner(0, LT)], [trial(0, SM80, 3.0)])))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("1 winners", done.stdout)
        self.assertEqual(json.loads(made)["winners"][0]["config"], SM80)

    def test_where_nothing_gives_way_no_file_is_left(self):
        done, made = self.run_program(json.dumps(export([winner(0, SM80)], [])))
        self.assertEqual((done.returncode, made), (0, None))
        done, made = self.run_program(json.dumps(export([winner(0, LT)], [])))
        self.assertEqual((done.returncode, made), (1, None))
        self.assertIn("no trial of vitune's own kernels: linear 0", done.stderr)

    def test_a_file_that_is_no_export_is_a_usage_error(self):
        for given in ("{", "[]", '{"format": "else"}', '{"format": "vitune-export"}'):
            done, made = self.run_program(given)
            self.assertEqual((done.returncode, made), (2, "of an earlier run"), given)
            self.assertIn("is no export", done.stderr)


if __name__ == "__main__":
    unittest.main()
