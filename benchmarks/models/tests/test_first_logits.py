# benchmarks/models/tests/test_first_logits.py -- From a process's start to its first line: stand-ins for the command.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import os
import pathlib
import stat
import struct
import sys
import tempfile
import unittest
from unittest import mock

from . import support  # noqa: F401 -- sets the path

import first_logits


class FirstLogitsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.model([{"name": "pixels", "shape": ["B", 3, 4, 5]}])

    def model(self, inputs):
        header = json.dumps({"__metadata__": {"vitune.graph": json.dumps({"inputs": inputs})}}).encode()
        path = self.folder / "model.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        return path

    def command(self, body):
        path = self.folder / "command"
        path.write_text(f"#!{sys.executable}\nimport sys, pathlib\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def run_it(self, *words):
        self.out, self.err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(self.out), contextlib.redirect_stderr(self.err):
            return first_logits.main(list(map(str, words)))

    def test_the_command_is_given_one_image_of_the_models_shape_and_its_first_start_is_not_counted(self):
        command = self.command(f"pathlib.Path({str(self.folder / 'asked')!r}).open('a').write(' '.join(sys.argv[1:3]) + '\\n')\n"
                               "data = pathlib.Path(sys.argv[3]).read_bytes()\n"
                               "assert b'(1, 3, 4, 5)' in data and len(data) % 64 == (4 * 60) % 64 and len(data) > 240\nprint('logits')")
        self.assertEqual(self.run_it(command, self.file, "--runs", 3, "--beside", f"other={command} x y {self.folder / 'absent'}"), 1)
        (self.folder / "asked").unlink()
        self.assertEqual(self.run_it(command, self.file, "--runs", 3), 0, self.err.getvalue())
        found = json.loads(self.out.getvalue())["first_logits"]
        self.assertEqual((list(found), found["vitune"]["samples"]), (["vitune"], 3))
        self.assertGreater(found["vitune"]["seconds"], 0)
        self.assertEqual((self.folder / "asked").read_text().splitlines(), [f"run {self.file}"] * 4)

    def test_the_time_ends_with_the_first_output_and_not_with_the_process(self):
        gate = self.folder / "gate"
        os.mkfifo(gate)
        command = self.command(f"print('logits', flush=True)\nopen({str(gate)!r}).read()")  # waits for somebody who writes
        asked = []

        def now():
            asked.append(None)
            if len(asked) == 2:
                gate.write_text("go on")
            return float(len(asked))

        with mock.patch.object(first_logits.time, "perf_counter", now):
            self.assertEqual(first_logits.seconds_to_first_output([command], 60), 1.0)

    def test_a_command_that_fails_or_is_silent_is_said_with_its_words(self):
        self.assertEqual(self.run_it(self.command("sys.exit('no GPU')"), self.file), 1)
        self.assertIn("no GPU", self.err.getvalue())
        self.assertEqual(self.run_it(self.command("pass"), self.file), 1)
        self.assertIn("printed nothing", self.err.getvalue())

    def test_arguments_that_cannot_be_are_refused(self):
        cases = ((("x", self.folder / "absent"), "is no model file"), (("x", self.file, "--runs", 0), "--runs"),
                 (("x", self.file, "--beside", "aoti"), "--beside"), (("x", self.file, "--beside", "vitune=y"), "--beside"))
        for words, said in cases:
            self.assertEqual(self.run_it(*words), 2)
            self.assertIn(said, self.err.getvalue())
        self.model([])
        self.assertEqual(self.run_it("x", self.file), 2)


if __name__ == "__main__":
    unittest.main()
