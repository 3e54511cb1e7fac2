# benchmarks/peers/tests/test_first_calls.py -- First calls: turns, budget, deaths, the steps told apart.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from .support import is_prompt, needs_library, needs_torch

from peers import cli
from peers.engine import first_calls, problems
from peers.rosters import ROSTERS, roster_of

RUN = pathlib.Path(cli.__file__).with_name("run.py")

# Answers as a peer's name says, and counts its starts in a file; the first start of all says that it was slow.
WORKER = """
import json, os, pathlib, sys, time
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
number = len(list(folder.iterdir()))
(folder / str(number)).write_text(name)
if name == "dies": sys.exit("the driver said no")
if name == "hangs": time.sleep(600)
if name == "refuses": print(json.dumps({"refused": "not mine"})); sys.exit(0)
if name == "babbles": print("no JSON"); sys.exit(0)
steps = STEPS
us = {step: 1000.0 * (i + 1) for i, step in enumerate(steps)}
us["first"] = 9e6 if number == 0 else 5000.0 + number
print("a library's own words")
print(json.dumps({"us": us}))
""".replace("STEPS", repr(first_calls.STEPS))


class CollectTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def collect(self, *names, budget=300.0, turns=4):
        def command(name):
            return [sys.executable, "-c", WORKER, name, str(self.folder)]

        return first_calls.collect(names, command, budget, turns, random.Random(1))

    def starts(self):
        return [
            path.read_text() for path in sorted(self.folder.iterdir(), key=lambda p: int(p.name))
        ]

    def test_the_turn_that_fills_the_file_cache_is_not_counted(self):
        found = self.collect("cudnn")["us"]["cudnn"]
        self.assertEqual((found["samples"], found["file_cache_filled"]), (3, True))
        self.assertEqual(
            (found["first_low"], found["first"], found["first_high"]), (5001, 5002, 5003)
        )
        self.assertEqual(found["second"], 4000)

    def test_an_only_turn_is_counted_and_says_so(self):
        found = self.collect("cudnn", turns=1)["us"]["cudnn"]
        self.assertEqual((found["samples"], found["file_cache_filled"]), (1, False))
        self.assertEqual(found["first"], 9e6)

    def test_peers_take_turns(self):
        self.collect("a", "b", turns=3)
        turns = [sorted(self.starts()[at : at + 2]) for at in (0, 2, 4)]
        self.assertEqual(turns, [["a", "b"]] * 3)
        self.assertEqual(self.starts()[:2], ["a", "b"])  # whoever comes first is served first

    def test_a_peer_that_cannot_costs_one_process_and_keeps_its_reason(self):
        found = self.collect("dies", "refuses", "babbles", "cudnn", turns=3)
        self.assertEqual(list(found["us"]), ["cudnn"])
        self.assertEqual(found["refused"], {"refuses": "not mine"})
        self.assertIn("status 1: the driver said no", found["failed"]["dies"])
        self.assertIn("ended with status 0", found["failed"]["babbles"])
        self.assertEqual(self.starts().count("dies"), 1)

    def test_the_budget_holds_even_if_a_process_hangs(self):
        def hang():
            found = self.collect("hangs", budget=1.0)
            self.assertIn("did not end within 1 s", found["failed"]["hangs"])

        self.assertTrue(is_prompt(10, hang))

    def test_no_process_begins_that_would_end_too_late(self):
        now, given = [100.0], []

        def ask(command, seconds):
            given.append(seconds)
            now[0] += 0.75  # what a process takes
            return {"us": {step: 1000.0 for step in first_calls.STEPS}}

        with (
            mock.patch("peers.engine.first_calls._ask", ask),
            mock.patch("peers.engine.first_calls.time.monotonic", lambda: now[0]),
        ):
            found = self.collect("cudnn", budget=2.5, turns=50)
        self.assertEqual(given, [2.5, 1.75, 1.0])  # one more would have ended after 3 s
        self.assertEqual((list(found["us"]), found["failed"]), (["cudnn"], {}))

    def test_a_peer_without_a_turn_says_why(self):
        self.assertEqual(
            self.collect("cudnn", budget=-1)["failed"], {"cudnn": "no time was left for it"}
        )


@needs_library
class DocumentTest(unittest.TestCase):
    def test_the_document_has_a_schema_and_both_problems(self):
        found = {"us": {"cudnn": {"first": 1.0}}, "refused": {}, "failed": {"flash": "why"}}
        _, chosen = problems.collect(roster_of, ROSTERS[0].first_calls.problems)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "first_calls.json"
            first_calls.write(
                found, ({"name": "A GPU"}, {"torch": "2"}), chosen, "2026-01-02", path
            )
            made = json.loads(path.read_text())
        self.assertEqual((made["schema"], made["command"]), (1, "first_calls"))
        self.assertIn("nq=197", made["problem"])
        self.assertIn("nq=577", made["next_problem"])
        self.assertEqual(made["failed"], {"flash": "why"})
        self.assertEqual(set(made["method"]), {"process", *first_calls.STEPS})

    def test_one_problem_is_too_few(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            status = cli.main(["--first-calls", "x.json", "--problem", "bf16 b=1 h=1 n=16 d=16"])
        self.assertEqual(status, 2)
        self.assertIn("two problems", said.getvalue())


@needs_library
@needs_torch
class WorkerTest(unittest.TestCase):
    """On the CPU, where PyTorch's own backends answer as well."""

    def test_steps_are_told_apart_in_a_process_that_imports_pytorch_last(self):
        program = (
            f"import sys; sys.path[:0] = {[str(RUN.parents[1]), str(RUN.parents[2] / 'python')]!r}\n"
            "from peers import cli\n"
            "from peers.engine import first_calls, peer, problems\n"
            "from peers.rosters import roster_of\n"
            "texts = ['bf16 b=1 h=2 n=32 d=16', 'bf16 b=1 h=2 n=48 d=16']\n"
            "roster, chosen = problems.collect(roster_of, texts)\n"
            "assert 'torch' not in sys.modules, 'imported before it was timed'\n"
            "first_calls.worker(roster, sys.argv[1], chosen, peer.Settings(), 'cpu')\n"
        )

        def answer(peer):
            command = [sys.executable, "-c", program, peer]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout.splitlines()[-1])

        self.assertIn("No viable backend", answer("effic")["refused"])  # the CPU has no such one
        us = answer("eager")["us"]
        self.assertEqual(tuple(us), first_calls.STEPS)
        self.assertGreater(us["import_torch"], us["later"])
        self.assertTrue(all(value > 0 for value in us.values()))


if __name__ == "__main__":
    unittest.main()
