# python/tests/test_import.py -- What is missing is an error at use, never at import.
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

import vitune

PACKAGE = pathlib.Path(vitune.__file__).parent


def run_alone(program, **changes):
    """`program` in an interpreter of its own, with a copy of the package far from any build; its stdout."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, pathlib.Path(folder) / "vitune", ignore=shutil.ignore_patterns("__pycache__", "_lib"))
        environment = {**os.environ, "PYTHONPATH": folder, **changes}
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True,
                              cwd=folder, env=environment)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class ImportTest(unittest.TestCase):
    def test_without_torch_attention_says_what_is_missing(self):
        out = run_alone("""
            import sys
            sys.modules["torch"] = None
            import vitune
            for use in (lambda: vitune.attention(1, 2, 3), lambda: vitune.torch, lambda: vitune.prepare(print),
                        lambda: vitune.explain(1, 2, 3)):
                try:
                    use()
                except vitune.TorchNotFound as error:
                    print(isinstance(error, ImportError), error)
        """)
        self.assertEqual(out.count("True this needs PyTorch"), 4, out)

    def test_without_the_library_the_error_names_the_places(self):
        out = run_alone("""
            import vitune
            vitune._runtime.library.NAME = "libvitune_of_nobody.so"
            try:
                vitune.library_version()
            except vitune.LibraryNotFound as error:
                print(error)
        """)
        self.assertIn("vitune/_lib/libvitune_of_nobody.so", out)
        self.assertIn("make install", out)

    def test_a_named_library_must_be_one(self):
        out = run_alone("""
            import os, vitune
            for path in (os.path.join(os.getcwd(), "absent", "libvitune.so.0"), "libm.so.6"):
                try:
                    vitune._runtime.library._open(path)
                except vitune.LibraryNotFound as error:
                    print(error)
        """)
        self.assertRegex(out, "cannot load /.*/absent/libvitune.so.0")
        self.assertIn("libm.so.6 is no libvitune", out)

    @unittest.skipUnless(os.environ.get("VITUNE_TEST_LIBRARY"), "no library was named")
    def test_what_lies_beside_the_loaders_library_is_found(self):
        library = pathlib.Path(os.environ["VITUNE_TEST_LIBRARY"]).resolve()
        out = run_alone("""
            from vitune._runtime import library
            library.library_candidates = list  # whoever is installed here
            print(library.of_loader(), library._loaded)
            library.library()
            print(library._loaded_from, library.command_beside())
        """, LD_LIBRARY_PATH=str(library.parent))
        self.assertEqual(out, f"{library} None\n{library} {library.parent / 'vitune'}\n")

    def test_no_variable_names_a_library(self):
        out = run_alone("""
            import vitune
            print([str(path) for path in vitune._runtime.library.library_candidates()])
        """, VITUNE_LIBRARY="/evil/libvitune.so.0", VITUNE_CACHE_DIR="/evil")
        self.assertNotIn("evil", out)

    def test_a_fork_while_a_thread_loads_the_library_leaves_no_lock_held(self):
        out = run_alone("""
            import os, vitune
            vitune._runtime.library._lock.acquire()
            child = os.fork()
            if child == 0:
                os._exit(0 if vitune._runtime.library._lock.acquire(timeout=10) else 1)
            print("child", os.waitpid(child, 0)[1])
        """)
        self.assertEqual(out, "child 0\n")

    def test_unknown_names_are_attribute_errors(self):
        with self.assertRaisesRegex(AttributeError, "no attribute 'attend'"):
            vitune.attend
        self.assertFalse(hasattr(vitune, "attend"))
