# benchmarks/peers/tests/test_stored.py -- Peers' times of a run as bench and report find them.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "benchmarks")]

from peers import stored  # noqa: E402
from peers.engine import document  # noqa: E402

PROGRAM = ROOT / "benchmarks/peers/stored.py"
RUN, SHIPPED = ROOT / "benchmarks/results/h200/peers.json", ROOT / "data/bench_problems.json"


class StoredTest(unittest.TestCase):
    def test_the_shipped_file_has_every_peer_of_the_committed_run(self):
        run = document.read(RUN)
        self.assertEqual(SHIPPED.read_text(), stored.text(stored.stored(run, json.loads(SHIPPED.read_text()))),
                         "run benchmarks/peers/stored.py benchmarks/results/h200/peers.json data/bench_problems.json")

    def test_the_best_stored_peer_is_the_best_of_the_run(self):
        run = {row["problem"]: row["us"] for row in document.read(RUN)["rows"]}
        for problem in json.loads(SHIPPED.read_text())["problems"]:
            for kind in stored.KINDS:
                best = min(us[kind] for peer, us in run[problem["problem"]].items() if stored.is_peer(peer) and kind in us)
                found = min(us[kind] for us in problem["peers_us"].values())
                self.assertAlmostEqual(found, best, delta=0.005001, msg=problem["name"])

    def test_a_problem_that_the_run_lacks_is_named_and_nothing_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder) / "problems.json"
            target.write_text('{"schema":1,"problems":[{"name":"x","problem":"attention bf16 b=1 h=1 nq=3 nk=3 d=8","peers_us":{}}]}')
            before = target.read_text()
            done = subprocess.run([sys.executable, str(PROGRAM), str(RUN), str(target)], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, target.read_text()), (1, before))
            self.assertIn("nq=3", done.stderr)


if __name__ == "__main__":
    unittest.main()
