# python/tests/test_torch_compile_by_name.py -- backend="vitune": found without an import, and given what torch.compile was.
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

from .support import OPERATORS, ROOT, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("the operators' library is not asked: once is enough")

from vitune._compile import backend


@needs_torch
class ByNameTest(unittest.TestCase):
    def given(self, **keywords):
        """What vitune.compile()'s backend is made with."""
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        with mock.patch.object(backend, "Backend") as made:
            made.return_value = lambda module, inputs: module.forward
            torch.compile(lambda x: x + 1, backend="vitune", **keywords)(torch.ones(2))
        return made.call_args.args

    def test_modes_and_options_are_handed_on(self):
        self.assertEqual(self.given(), (None, None, None, None, True, None))
        self.assertEqual(self.given(mode="reduce-overhead"), ("reduce-overhead", None, None, None, True, None))
        self.assertEqual(self.given(options={"epilogue_fusion": True}), (None, None, {"epilogue_fusion": True}, None, True, None))

    def test_training_is_an_option(self):
        self.assertEqual(self.given(options={"training": True}), (None, None, None, None, True, True))
        self.assertEqual(self.given(options={"training": False, "epilogue_fusion": True})[2:], ({"epilogue_fusion": True}, None, True, False))

    def test_an_installed_package_is_found_without_an_import(self):
        with tempfile.TemporaryDirectory() as folder:
            installed = pathlib.Path(folder) / "vitune-0.dist-info"
            installed.mkdir()
            (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: vitune\nVersion: 0\n")
            project = (ROOT / "pyproject.toml").read_text().partition("[project.entry-points.torch_dynamo_backends]")[2]
            line = next(each for each in project.splitlines() if each.startswith("vitune")).replace('"', "")
            (installed / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{line}\n")
            program = textwrap.dedent("""
                import sys, torch
                compiled = torch.compile(torch.nn.Linear(2, 2), backend="vitune")
                loaded = "vitune._compile.backend" in sys.modules
                import vitune._compile.backend  # registers no second one
                print(loaded, "vitune" in torch._dynamo.list_backends())
                """)
            found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join((folder, str(ROOT / "python")))})
        self.assertEqual((found.returncode, found.stdout.split()), (0, ["False", "True"]), found.stderr)


if __name__ == "__main__":
    unittest.main()
