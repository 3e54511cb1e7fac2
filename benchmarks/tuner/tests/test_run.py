# benchmarks/tuner/tests/test_run.py -- The program that measures the tuner, on stand-ins of the command and of the race.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import stat
import tempfile
import unittest

from tuner import figures, race, run

_COMMAND = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
if words[0] == "devices":
    print(json.dumps({"devices": [{"name": "a GPU"}]}))
    sys.exit(0)
seed = int(words[words.index("--seed") + 1])
problems = words[words.index("--db") + 2:]
if "broken" in problems:
    print("no such problem", file=sys.stderr)
    sys.exit(2)
wins = {"norm bf16 m=8 d=64": 1, "linear bf16 m=8 n=64 k=64": seed}
print(json.dumps({"results": [{"problem": p, "trials": 70 + seed, "seconds": 2.5, "winner": p != "none works" and {"config": {"kB": wins[p], "kA": 4}}}
                              for p in problems]}))
"""
_RACE = """#!/usr/bin/env python3
import sys
cases = open(sys.argv[sys.argv.index("--cases") + 1]).read().splitlines()
for case in cases:
    name, problem, config = case.split("; ")
    us = 10 + int(config.split("kB=")[1]) / 10
    if problem != "norm bf16 m=8 d=64" or "FAIL" not in open(sys.argv[0]).read().split("#", 2)[2]:
        print(f"{name} t    warm    {us:.2f} us 1.000  cold 20.00 us 1.000  128 registers")
"""


class RunTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.command, self.variants = self.script("vitune", _COMMAND), self.script("variants", _RACE + "# ")

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def run_it(self, *words):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            status = run.main([self.command, self.variants, "--json", str(self.folder / "tuner.json"), *words])
        return status, said.getvalue()

    def test_rows_have_what_their_winner_takes_beside_the_best(self):
        self.assertEqual(self.run_it("--seeds", "2", "--cores", "3", "--problem", "norm bf16 m=8 d=64", "--problem", "linear bf16 m=8 n=64 k=64"),
                         (0, ""))
        found = json.loads((self.folder / "tuner.json").read_text())
        self.assertEqual(found["device"], {"name": "a GPU"})
        self.assertEqual([(row["problem"].split()[0], row["seed"], row["cores"], row["seconds"], row["trials"], row["config"], row["warm_us"],
                           row["best_us"]) for row in found["rows"]],
                         [("norm", 1, 3, 2.5, 71, "kA=4 kB=1", 10.1, 10.1), ("linear", 1, 3, 2.5, 71, "kA=4 kB=1", 10.1, 10.1),
                          ("norm", 2, 3, 2.5, 72, "kA=4 kB=1", 10.1, 10.1), ("linear", 2, 3, 2.5, 72, "kA=4 kB=2", 10.2, 10.1)])
        self.assertEqual(found["figures"]["same_percent"], 75.0)

    def test_configs_that_are_known_race_too(self):
        known = self.folder / "known.jsonl"
        known.write_text(json.dumps({"problem": "norm bf16 m=8 d=64", "config": "kA=4 kB=0"}) + "\n"
                         + json.dumps({"problem": "another", "config": "kA=4 kB=0"}) + "\n")
        self.assertEqual(self.run_it("--seeds", "1", "--problem", "norm bf16 m=8 d=64", "--known", str(known))[0], 0)
        row, = json.loads((self.folder / "tuner.json").read_text())["rows"]
        self.assertEqual((row["warm_us"], row["best_us"]), (10.1, 10.0))
        self.assertEqual(race.known_from(self.folder / "tuner.json"), [{"problem": row["problem"], "config": row["config"]}])

    def test_the_race_has_its_part_of_the_time(self):
        self.assertEqual(self.run_it("--seeds", "9", "--limit", "1e-9", "--problem", "norm bf16 m=8 d=64"), (1, "tuner: no problem was tuned\n"))
        slow = self.script("slow", _COMMAND.replace("seed = int", "import time; time.sleep(0.5)\nseed = int"))
        self.command = slow
        self.assertEqual(self.run_it("--seeds", "9", "--limit", "2", "--problem", "norm bf16 m=8 d=64"), (0, ""))
        self.assertIn(len(json.loads((self.folder / "tuner.json").read_text())["rows"]), (1, 2, 3))

    def test_without_a_gpu_it_says_so(self):
        self.command = self.script("without", _COMMAND.replace('{"name": "a GPU"}', ""))
        status, said = self.run_it()
        self.assertEqual(status, 1)
        self.assertIn("finds no usable GPU", said)

    def test_what_fails_is_said(self):
        self.assertIn("no such problem", self.run_it("--problem", "broken")[1])
        self.assertIn("no problem was tuned", self.run_it("--problem", "none works", "--seeds", "1")[1])
        self.assertEqual(self.run_it("--known", str(self.folder / "is not there"))[0], 1)
        bad = self.folder / "bad.jsonl"
        bad.write_text('{"problem": "p"}\n')
        self.assertIn("without a problem and a config", self.run_it("--known", str(bad))[1])
        self.variants = self.script("silent", _RACE + "# FAIL")
        status, said = self.run_it("--seeds", "1", "--problem", "norm bf16 m=8 d=64", "--problem", "linear bf16 m=8 n=64 k=64")
        self.assertEqual(status, 1)
        self.assertIn("timed all but 1 configs", said)


class FiguresTest(unittest.TestCase):
    def test_of_rows(self):
        rows = [{"problem": p, "config": c, "warm_us": us, "best_us": 10.0, "seconds": 2.0, "trials": 64}
                for p, c, us in (("a", "x", 10.0), ("a", "x", 10.0), ("a", "y", 10.05), ("b", "z", 10.0), ("b", "z", 10.0), ("b", "w", 10.4))]
        self.assertEqual(figures.of(rows), {"loss_percent_mean": 0.75, "loss_percent_worst": 4.0, "same_percent": 66.7, "equal_percent": 83.3,
                                            "seconds": 2.0, "trials": 64.0})


if __name__ == "__main__":
    unittest.main()
