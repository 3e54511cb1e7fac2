# python/tests/test_torch_export.py -- An exported model holds vitune's attention, and a program in C++ runs it without Python.
# SPDX-License-Identifier: Apache-2.0
"""Needs VITUNE_TEST_OPERATORS (support.py); the second test also a C++ compiler: it takes minutes."""
import os
import shutil
import subprocess
import unittest

import vitune

from .support import FOLDER, OPERATORS, ROOT, needs_device, needs_torch, torch

if torch is not None:

    from .test_torch_host import TorchTest
    from .torch_cases import Block
else:
    TorchTest = unittest.TestCase

COMPILER = shutil.which(os.environ.get("CXX", "c++"))


def exported():
    """A block of a ViT by torch.export, an input, and what PyTorch alone answers."""
    block, x = Block().bfloat16().eval(), torch.randn(1, 9, 32, dtype=torch.bfloat16)
    with torch.no_grad():
        wanted = block(x)
        with vitune.torch.enabled():
            return torch.export.export(block, (x,)), x, wanted


@unittest.skipUnless(OPERATORS, "no operators' library was named")
@needs_device
@needs_torch
class ExportTest(TorchTest):
    def test_an_exported_graph_holds_the_operator_and_runs(self):
        program, x, wanted = exported()
        names = [str(node.target) for node in program.graph.nodes]
        self.assertIn("vitune.attention.default", names)
        self.assertFalse(any("scaled_dot_product" in name for name in names), names)
        path = FOLDER / "block_graph.pt2"
        torch.export.save(program, path)
        with torch.no_grad():
            torch.testing.assert_close(torch.export.load(path).module()(x), wanted, atol=0.02, rtol=0.02)
        self.assertEqual(vitune.torch.stats().served, 1)

    @unittest.skipUnless(COMPILER, "no C++ compiler")
    def test_a_program_in_cpp_runs_it_without_python(self):
        program, x, wanted = exported()
        model = torch._inductor.aoti_compile_and_package(program, package_path=str(FOLDER / "block.pt2"))
        given, answered, binary = FOLDER / "input.bin", FOLDER / "output.bin", FOLDER / "exported_model"
        given.write_bytes(bytes(x.untyped_storage()))
        from torch.utils import cpp_extension
        libraries = cpp_extension.library_paths()
        subprocess.run([COMPILER, "-std=c++17", "-O0", *(f"-isystem{path}" for path in cpp_extension.include_paths()),
                        str(ROOT / "tests" / "torch_ops" / "exported_model.cpp"), "-o", str(binary),
                        *(f"-L{path}" for path in libraries), *(f"-Wl,-rpath,{path}" for path in libraries),
                        # First, since libtorch.so has parts of std::filesystem of its own that end in a crash.
                        "-Wl,--no-as-needed", "-lstdc++", "-ltorch", "-ltorch_cpu", "-lc10"], check=True, timeout=600)
        # libvitune is found beside the operators' library, or on the loader's path.
        library = os.path.dirname(os.environ["VITUNE_TEST_LIBRARY"])
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        done = subprocess.run([str(binary), OPERATORS, model, str(given), str(answered), "9", "32"], env=environment,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "1"), done.stderr[-2000:])
        got = torch.frombuffer(bytearray(answered.read_bytes()), dtype=torch.bfloat16).reshape(wanted.shape)
        torch.testing.assert_close(got, wanted, atol=0.02, rtol=0.02)
