# python/tests/test_command.py -- vitune.tune(): the words it runs, how it ends, and a real run on a device.
# SPDX-License-Identifier: Apache-2.0
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

import vitune
from vitune._runtime import command as _command

from .support import FOLDER, needs_device

NOTHING = dict(model=None, batch=None, dtype=None, operator=None, preset=None, file=None, from_misses=False, device=None, budget=None, way=None,
               effort=None, objective=None, database=None, fresh=False, jobs=None)


def fake_command(body):
    """Has the package find a command that does as `body` says."""
    script = pathlib.Path(tempfile.mkdtemp(dir=FOLDER)) / "vitune"
    script.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    script.chmod(0o700)
    return mock.patch.object(_command, "command_path", return_value=script)


class ArgumentsTest(unittest.TestCase):
    def test_become_the_words_of_the_command(self):
        cases = [
            ([], {}, []),
            (["bf16 b=1 h=1 n=8 d=16"], {}, ["--problem", "bf16 b=1 h=1 n=8 d=16"]),
            ([], {"model": "a", "batch": 32, "budget": 200}, ["--model", "a", "--batch", "32", "--budget", "200"]),
            ([], {"model": ["a", "b"], "batch": [1, 32]}, ["--model", "a", "--model", "b", "--batch", "1,32"]),
            ([], {"model": "a", "operator": "norm"}, ["--model", "a", "--operator", "norm"]),
            ([], {"model": "a", "operator": ["attention", "norm"]}, ["--model", "a", "--operator", "attention,norm"]),
            ([], {"effort": "quick"}, ["--effort", "quick"]),
            ([], {"model": "a", "way": "drop-in"}, ["--model", "a", "--as", "drop-in"]),
            ([], {"from_misses": True, "fresh": True}, ["--from-misses", "--fresh"]),
            ([], {"database": pathlib.Path("/x/y.db"), "file": "p.txt", "device": 0, "jobs": 2, "objective": "warm"},
             ["--from", "p.txt", "--device", "0", "--objective", "warm", "--db", "/x/y.db", "--jobs", "2"]),
        ]
        for problems, options, words in cases:
            with self.subTest(words):
                self.assertEqual(_command.tune_arguments(problems, **{**NOTHING, **options}), words)


class RunTest(unittest.TestCase):
    def test_the_document_is_returned(self):
        with fake_command("import json, sys; print(json.dumps({'schema': 1, 'words': sys.argv[1:]}))"):
            document = vitune.tune("p", quiet=True)
        self.assertEqual(document["words"], ["tune", "--problem", "p", "--json", "--quiet"])

    def test_a_failure_has_the_exit_code(self):
        with fake_command("import sys; sys.exit(3)"), self.assertRaisesRegex(vitune.CommandError, "exit code 3") as caught:
            vitune.tune()
        self.assertEqual(caught.exception.exit_code, 3)

    def test_a_failure_says_what_the_command_said_last(self):
        said = "import sys; [print(f'line {i}', file=sys.stderr) for i in range(9)]; sys.exit(1)"
        for stderr in (io.StringIO(), None):  # a notebook's has no file behind it
            with self.subTest(stderr), fake_command(said), mock.patch("sys.stderr", stderr):
                with self.assertRaisesRegex(vitune.CommandError, "exit code 1: line 4\nline 5\nline 6\nline 7\nline 8$"):
                    vitune.tune()
            if stderr is not None:
                self.assertEqual(stderr.getvalue().count("line"), 9)

    def test_an_interrupted_command_may_finish_what_it_saves(self):
        done = FOLDER / "saved"
        program = textwrap.dedent(f"""
            import pathlib, signal, sys
            from vitune._runtime import command as _command
            signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell started the tests with &
            script = pathlib.Path({str(FOLDER)!r}) / "slow"
            script.write_text('''#!{sys.executable}
            import pathlib, signal, sys, time
            def save(*_):
                time.sleep(0.6)
                pathlib.Path({str(done)!r}).write_text("saved")
                sys.exit(130)
            signal.signal(signal.SIGINT, save)
            print("ready", file=sys.stderr, flush=True)
            time.sleep(300)
            '''.replace("\\n            ", "\\n"))
            script.chmod(0o700)
            _command.command_path = lambda: script
            try:
                _command.run_json(["tune"], False)
            except KeyboardInterrupt:
                print("interrupted")
        """).replace("\n            ", "\n")
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True,
                                   env={**os.environ, "PYTHONPATH": str(pathlib.Path(vitune.__file__).parents[1])})
        self.assertEqual(process.stderr.readline(), "ready\n")
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, error = process.communicate(timeout=120)
        self.assertEqual(out, "interrupted\n", error)
        self.assertEqual(done.read_text(), "saved")


@needs_device
class TuneTest(unittest.TestCase):
    def test_finds_a_winner_that_a_context_then_serves(self):
        database = FOLDER / "tune.db"
        problem = "bf16 b=1 h=1 n=16 d=16 layout=bnhd"
        document = vitune.tune(problem, budget=2, jobs=1, database=database, quiet=True)
        self.assertTrue(document["results"][0]["winner"]["verified"])
        with vitune.Context(0, database=database) as context:
            self.assertEqual(context.query(vitune.AttentionDesc.parse(problem)).outcome, "exact")
