# benchmarks/models/tests/test_end_to_end.py -- Whole passes beside eager PyTorch: arguments, energy, a row, going on.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import tempfile
import unittest
from unittest import mock

from .support import needs

from models import end_to_end

try:
    import torch
    from models import floor, row, whole, zoo
    from models.clock import CpuClock
except ImportError:
    torch = None


class ArgumentsTest(unittest.TestCase):
    def test_numbers_are_named_once_and_what_is_none_is_refused(self):
        self.assertEqual(end_to_end.numbers("--sizes", "224,384,224"), [224, 384])
        for text in ("", "0", "4097", "1.5", "1;2", "-1", "1,"):
            with self.assertRaisesRegex(ValueError, "--sizes '.*': whole numbers from 1 to 4096"):
                end_to_end.numbers("--sizes", text)

    def test_arguments_that_cannot_be_are_said_before_anything_is_loaded(self):
        for words, said in ((["--sizes=100"], "multiples of 16"), (["--batches=x"], "--batches 'x'"), (["--seconds=-1"], "from 0 to 600")):
            with contextlib.redirect_stderr(io.StringIO()) as out:
                self.assertEqual(end_to_end.main(words), 2)
            self.assertIn(said, out.getvalue())


@needs("torch")
class RowTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "end_to_end.json"
        self.built = []
        for patch in (mock.patch.object(zoo, "build", self.build), mock.patch.object(row, "BLOCK_MS", 0.0),
                      mock.patch.object(row, "LIMITS", row.Limits(least=2, most=2, noise=1.0, slow_us=float("inf"))),
                      mock.patch.object(whole.Files, "_runner", lambda files: lambda: files._model(files._images))):
            patch.start()
            self.addCleanup(patch.stop)

    def build(self, name, device):
        self.built.append(name)
        torch.manual_seed(0)
        size = int(name.partition("@")[2])
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * size * size, 8)).bfloat16(), size

    def run_it(self, *words):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            status = end_to_end.main(["--device=cpu", f"--json={self.path}", *words])
        self.said = said.getvalue()
        return status

    def test_a_row_has_times_operations_and_bytes_of_all_ways(self):
        found = end_to_end.measured(16, 2, "cpu", CpuClock(), floor.Ceilings(1e-6, 1e5), 0)
        self.assertEqual(found["flops"], 2.0 * 2 * 768 * 8)
        self.assertEqual(found["bytes"], 2.0 * (2 * 768 + 768 * 8 + 8 + 2 * 8))
        self.assertEqual(found["floor_us"], found["flops"])
        self.assertEqual(sorted(found["ms"]), ["runner", "torch"])
        self.assertEqual((found["gain"]["over"], found["failed"]), ("torch", {}))

    def test_rows_are_on_disk_and_another_call_goes_on_with_what_is_missing(self):
        self.assertEqual(self.run_it("--sizes=16", "--batches=1,2"), 0)
        self.assertEqual(self.run_it("--sizes=16,32", "--batches=1"), 0)
        self.assertEqual(self.built, ["vit_base_patch16_224@16"] * 2 + ["vit_base_patch16_224@32"])
        rows = json.loads(self.path.read_text())["rows"]
        self.assertEqual([(each["size"], each["batch"]) for each in rows], [(16, 1), (16, 2), (32, 1)])

    def test_rows_of_another_program_or_version_are_not_gone_on_with(self):
        self.path.write_text('{"schema": 1, "command": "models"}')
        self.assertEqual(self.run_it("--sizes=16"), 1)
        self.assertIn("name another file", self.said)

    def test_a_session_that_fails_is_the_exit_status(self):
        def broken(files):
            raise RuntimeError("no kernel")

        with mock.patch.object(whole.Files, "_runner", broken):
            self.assertEqual(self.run_it("--sizes=16", "--batches=1"), 6)


if __name__ == "__main__":
    unittest.main()
