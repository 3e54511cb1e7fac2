# python/tests/test_programs.py -- benchmarks/programs on a CPU: the losses of each with its one line are those without.
# SPDX-License-Identifier: Apache-2.0
"""The operators are put in by their names, where PyTorch computes them; aot_eager stands in for Inductor."""
import contextlib
import importlib
import importlib.util
import subprocess
import sys
import unittest
from unittest import mock

from .support import ROOT, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

from vitune._compile import backend

from .test_torch_compile import without_inductor

FOLDER = str(ROOT / "benchmarks")
MADE = []  #: backends, one for each graph
_Backend = backend.Backend


def by_force(mode, dynamic, options, replace, prepared, training):
    made = _Backend(mode, dynamic, options, ["linear_train", "norm_train"], prepared, training)
    MADE.append(made)
    return made


@contextlib.contextmanager
def patched():
    MADE.clear()
    with mock.patch.object(backend, "Backend", by_force), mock.patch.object(backend, "compile_fx", without_inductor):
        yield


def setUpModule():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    unittest.addModuleCleanup(torch.set_num_threads, threads)
    sys.path.insert(0, FOLDER)
    unittest.addModuleCleanup(sys.path.remove, FOLDER)


@needs_device
@needs_torch
class ProgramsTest(unittest.TestCase):
    steps = 3

    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)

    def expect_alike(self, name, bound):
        """The losses."""
        missing = [each for each in importlib.import_module("programs.run").PROGRAMS[name].needs if importlib.util.find_spec(each) is None]
        if missing:
            self.skipTest(f"{missing[0]} is not installed")
        program, switch = importlib.import_module(f"programs.{name}"), importlib.import_module("programs.switch")
        plain = program.train("eager", self.steps, "cpu", True).losses
        with patched():
            ours = program.train("vitune", self.steps, "cpu", True).losses
        self.assertLess(switch.apart(plain, ours), bound, (plain, ours))
        self.assertGreaterEqual(len(plain), self.steps)
        self.assertGreater(sum(call.replaced and call.trains for made in MADE for graph in made.graphs for call in graph.calls), 3)

    def test_timm(self):
        self.expect_alike("timm_loop", 1e-2)

    def test_trainer(self):
        self.expect_alike("trainer", 1e-2)

    def test_lightning(self):
        self.expect_alike("lightning_fit", 1e-2)

    def test_lora(self):
        self.expect_alike("lora", 1e-3)

    @unittest.skipUnless(importlib.util.find_spec("timm"), "timm is not installed")
    @unittest.skipUnless(torch.distributed.is_available() and torch.distributed.is_gloo_available(), "PyTorch has no gloo")
    def test_fsdp2(self):
        done = subprocess.run([sys.executable, "-W", "ignore", "-m", "tests.program_ranks", "8"], capture_output=True, text=True,
                              cwd=ROOT / "python")
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        for way in ("fp32: 8 steps, 28 places train", "bf16: 8 steps, 28 places train"):
            self.assertEqual(done.stdout.count(way), 2, done.stdout)


if __name__ == "__main__":
    unittest.main()
