# benchmarks/peers/tests/test_processes.py -- Compiling ahead and watching, with own processes.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import time
import unittest

from .support import is_prompt, needs_library

from peers.engine import precompile, supervise

# Answers as a peer's name says: "dies", "hangs", "refuses"; else well.
WORKER = """
import json, os, sys, time
for line in sys.stdin:
    peer = json.loads(line)["peer"]
    if peer == "dies": os._exit(9)
    if peer == "hangs": time.sleep(600)
    print(json.dumps({"refused": "not mine"} if peer == "refuses" else {}), flush=True)
"""

# Notes what it is at; dies or hangs at the peer "bad" unless that is excluded; counts its starts.
SESSION = """
import json, os, pathlib, sys, time
folder, how = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / "starts").open("a").write(sys.argv[3] + "\\n")
barred = json.loads((folder / "excluded").read_text())
for peer in ("good", "bad"):
    (folder / "now").write_text(json.dumps({"problem": "p", "peer": peer, "stage": "first call"}))
    if peer == "bad" and "bad" not in barred.get("p", {}):
        if how == "hangs": time.sleep(600)
        if how != "well": os._exit(139)
    if how == "always": os._exit(1)
(folder / "now").unlink()
"""


def task(peer, problem="p"):
    return {"peer": peer, "problem": {"problem": problem}}


class PoolTest(unittest.TestCase):
    def run_pool(self, *groups, seconds=300.0, per_task=60.0):
        return precompile.run_pool(
            list(groups), [sys.executable, "-c", WORKER], 2, seconds, per_task
        )

    def test_what_goes_well_leaves_no_verdict(self):
        self.assertEqual(self.run_pool([task("a"), task("a", "q")], [task("b")]), {})

    def test_a_refusal_keeps_its_reason(self):
        self.assertEqual(self.run_pool([task("refuses")]), {"p": {"refuses": "refused: not mine"}})

    def test_a_death_costs_one_peer_its_problem_and_the_group_goes_on(self):
        found = self.run_pool([task("dies"), task("refuses"), task("dies", "q")])
        self.assertEqual(sorted(found), ["p", "q"])
        self.assertIn("exit status 9", found["p"]["dies"])
        self.assertEqual(found["p"]["refuses"], "refused: not mine")

    def test_a_first_call_beyond_its_share_is_reported_as_such(self):
        def hang():
            found = self.run_pool([task("hangs"), task("refuses", "q")], per_task=4.0)
            self.assertIn("failed: its first call took more than", found["p"]["hangs"])
            self.assertIn("refuses", found["q"])

        self.assertTrue(is_prompt(10, hang))

    def test_what_the_whole_time_leaves_undone_is_no_failure(self):
        def hang():
            self.assertEqual(self.run_pool([task("hangs"), task("refuses")], seconds=1.0), {})

        self.assertTrue(is_prompt(10, hang))


class WatchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "excluded").write_text("{}")

    def watch(self, how, stall=60.0, seconds=300.0):
        def start(resume):
            return [
                sys.executable,
                "-c",
                SESSION,
                str(self.folder),
                how,
                "resume" if resume else "first",
            ]

        with contextlib.redirect_stderr(io.StringIO()):
            return self.watched(start, stall, seconds)

    def watched(self, start, stall, seconds):
        return supervise.watch(
            start,
            self.folder / "now",
            self.folder / "excluded",
            time.time() + seconds,
            stall,
            poll=0.02,
        )

    def starts(self):
        return (self.folder / "starts").read_text().split()

    def excluded(self):
        return json.loads((self.folder / "excluded").read_text())

    def test_a_session_that_ends_well_runs_once(self):
        self.assertEqual((self.watch("well"), self.starts(), self.excluded()), (0, ["first"], {}))

    def test_a_death_is_answered_by_a_session_that_goes_on_without_the_peer(self):
        self.assertEqual((self.watch("dies"), self.starts()), (0, ["first", "resume"]))
        self.assertEqual(
            self.excluded(),
            {"p": {"bad": "failed: the process died (exit status 139) at its first call"}},
        )

    def test_a_session_without_progress_is_stopped_and_its_peer_left_out(self):
        self.assertEqual((self.watch("hangs", stall=4.0), self.starts()), (0, ["first", "resume"]))
        self.assertIn("no progress", self.excluded()["p"]["bad"])

    def test_sessions_that_always_die_end(self):
        self.assertEqual(self.watch("always"), 1)
        self.assertEqual(len(self.starts()), supervise.MOST_STARTS)

    def test_no_session_is_started_after_the_time(self):
        self.assertNotEqual(self.watch("dies", seconds=-1.0), 0)
        self.assertEqual(self.starts(), ["first"])


@needs_library
class OptionsTest(unittest.TestCase):
    def run_main(self, *words):
        from peers import cli
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                status = cli.main(words)
            except SystemExit as end:
                status = end.code
        return status, said.getvalue()

    def test_mistakes_are_usage_errors_with_the_word(self):
        for words, wanted in (
            (["--peers", "vitune,zebra"], "zebra"),
            (["--only", "zebra"], "zebra"),
            (["--problem", "nonsense"], "nonsense"),
            (["--zebra"], "zebra"), (["--db", "zebra.db"], "zebra"),
        ):
            with self.subTest(words=words):
                status, said = self.run_main(*words)
                self.assertEqual(status, 2)
                self.assertIn(wanted, said)

    def test_without_a_driver_it_says_so_before_anything_is_compiled(self):
        from unittest import mock

        from peers import cli

        with (
            mock.patch.object(cli, "missing", return_value="no GPU"),
            mock.patch.object(cli.precompile, "run_pool") as pool,
        ):
            results = pathlib.Path(__file__).parent / "absent" / "peers.json"
            self.assertEqual(self.run_main("--json", str(results)), (3, "peers: no GPU\n"))
            pool.assert_not_called()

    def test_a_child_gets_the_same_options(self):
        from peers import cli

        given = [
            "--problem",
            "bf16 b=1 h=1 n=8 d=8",
            "--from",
            "x.txt",
            "--only",
            "b",
            "--peers",
            "cudnn",
            "--db",
            "d.db",
            "--library",
            "l.so",
            "--json",
            "r.json",
            "--seed",
            "7",
        ]
        parser = cli._parser()
        first = parser.parse_args(given)
        again = parser.parse_args(cli._again(first, pathlib.Path("e"), 9.0)[2:])
        for name in ("problem", "files", "only", "peers", "db", "library", "json", "seed"):
            self.assertEqual(getattr(again, name), getattr(first, name), name)
        self.assertEqual((again.until, again.excluded), (9.0, pathlib.Path("e")))
