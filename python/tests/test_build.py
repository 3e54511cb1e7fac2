# python/tests/test_build.py -- What is installed with the package: its command, its layout, and the check of a wheel.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock
import zipfile

import vitune
from vitune._runtime import library as _library

from .support import LIBRARY_MISSING, ROOT, needs_torch

PACKAGE = pathlib.Path(vitune.__file__).parent


def build_script(name):
    """cmake/NAME.py as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "cmake" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_package(self, *words, **changes):
        """`python -m vitune WORDS` with the copy of the package in the folder."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), **changes}
        return subprocess.run([sys.executable, "-m", "vitune", *words], cwd=self.folder, env=environment, text=True,
                              capture_output=True)

    def copy_package(self):
        shutil.copytree(PACKAGE, self.folder / "vitune", dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__", "_lib"))


class WheelBackendTest(InFolder):
    """Whether pip's next build goes on in the folder of the one before."""

    def setUp(self):
        super().setUp()
        self.backend = build_script("wheel_backend")
        self.build = self.folder / "build" / "wheel"
        self.build.mkdir(parents=True)
        self.record = self.build / ".skbuild-info.json"
        tools = [self.folder / name for name in ("cmake", "ninja", "c++")]
        for tool in tools:
            tool.touch()
        cache = "CMAKE_COMMAND:INTERNAL={}\nCMAKE_MAKE_PROGRAM:UNINITIALIZED={}\nCMAKE_CXX_COMPILER:STRING={}\n"
        (self.build / "CMakeCache.txt").write_text(cache.format(*tools))
        self.write_record(self.folder)

    def write_record(self, source):
        self.record.write_text(json.dumps({"source_dir": str(source.resolve()), "skbuild_path": "gone"}))

    def keeps(self):
        kept = self.backend.keep_build(self.build, self.folder)
        self.assertEqual(self.record.exists(), not kept)  # scikit-build-core goes by the record
        return kept

    def test_goes_on_though_the_environment_is_another(self):
        self.assertTrue(self.keeps())

    def test_starts_anew_where_a_tool_went_with_its_environment(self):
        (self.folder / "ninja").unlink()
        self.assertFalse(self.keeps())

    def test_starts_anew_where_the_tree_was_elsewhere(self):
        self.write_record(self.folder / "elsewhere")
        self.assertFalse(self.keeps())

    def test_starts_anew_after_a_build_that_was_cut_off(self):
        self.record.write_text("{")
        self.assertFalse(self.keeps())
        self.write_record(self.folder)
        (self.build / "CMakeCache.txt").unlink()
        self.assertFalse(self.keeps())

    def test_the_folder_is_that_of_the_project(self):
        self.assertIn(f'build-dir = "{self.backend.FOLDER}"', (ROOT / "pyproject.toml").read_text())


class CommandTest(InFolder):
    def setUp(self):
        super().setUp()
        self.copy_package()

    def script(self, path, body):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o700)

    def test_gets_its_words_and_answers_with_its_own_exit_code(self):
        (self.folder / "vitune" / "_lib").mkdir()
        (self.folder / "vitune" / "_lib" / _library.NAME).touch()
        self.script(self.folder / "vitune" / "_lib" / "vitune", 'printf "<%s>" "$@"; exit 6')
        done = self.run_package("compare", "a b", "--json", "")
        self.assertEqual((done.stdout, done.returncode), ("<compare><a b><--json><>", 6), done.stderr)

    def doctor(self, *words):
        """Of a command that finds one thing: its output, parsed if it is JSON."""
        (self.folder / "vitune" / "_lib").mkdir(exist_ok=True)
        (self.folder / "vitune" / "_lib" / _library.NAME).touch()
        self.script(self.folder / "vitune" / "_lib" / "vitune",
                    """case "$*" in *--json*) echo '{"checks": [{"check": "GPU"}]}';; *) echo "ok    GPU: $*";; esac; exit 1""")
        done = self.run_package("doctor", *words)
        self.assertEqual(done.returncode, 1, done.stderr)
        return json.loads(done.stdout) if "--json" in words else done.stdout

    def test_doctor_also_says_what_this_python_has(self):
        said = self.doctor("--db", "x")
        self.assertRegex(said, r"^ok    GPU: doctor --db x\n(ok|warn) +PyTorch: ")
        checks = [found["check"] for found in self.doctor("--json")["checks"]]
        self.assertEqual(checks[:2], ["GPU", "PyTorch"])
        self.assertEqual(self.doctor("--csv"), "ok    GPU: doctor --csv\n")

    @needs_torch
    def test_doctor_says_that_the_operators_library_is_missing_and_what_that_costs(self):
        self.assertRegex(self.doctor(), r"warn +operators' library: LayerNorms stay PyTorch's .*: (libvitune_torch.so is not|it needs)")

    @needs_torch
    def test_doctor_looks_at_the_libraries_beside_pytorch_and_where_models_come_from(self):
        said = self.doctor()
        for check in ("PyTorch's CUDA", "timm", "transformers"):
            self.assertRegex(said, rf"(ok|warn) +{check}: ")

    def test_doctor_tells_another_cublaslt_and_a_missing_nvrtc(self):
        from vitune import _doctor as doctor

        cases = [  # installed, PyTorch's CUDA, {check: (verdict, words)}
            ({"nvidia-cublas": "13.1.0.3", "nvidia-cuda-nvrtc": "13.0.88"}, "13.0",
             {"PyTorch's CUDA": ("ok", "13.0"), "PyTorch's cuBLASLt": ("ok", "13.1.0.3"), "PyTorch's NVRTC": ("ok", "13.0.88")}),
            ({"nvidia-cublas-cu12": "12.8.4.1"}, "12.8",
             {"PyTorch's cuBLASLt": ("warn", "12.8.4.1: shipped winners that call one are of 13.1.0"), "PyTorch's NVRTC": ("warn", "none")}),
            ({}, "13.0", {"PyTorch's cuBLASLt": ("ok", "none of its own")}),
            ({}, None, {"PyTorch's CUDA": ("warn", "without CUDA")}),
        ]  # fmt: skip
        for installed, cuda, wanted in cases:
            with unittest.mock.patch.object(doctor, "_version", lambda *names, of=installed: next((of[n] for n in names if n in of), None)):
                found = {one["check"]: one for one in doctor._cuda(cuda)}
                models = doctor._models()
            for check, (verdict, words) in wanted.items():
                self.assertEqual(found[check]["verdict"], verdict, check)
                self.assertIn(words, found[check]["detail"])
                self.assertEqual(bool(found[check]["advice"]), verdict == "warn", check)
            self.assertEqual([one["verdict"] for one in models], ["ok", "ok"])
            self.assertIn("not installed", models[0]["detail"])

    def test_that_is_missing_is_said_and_no_other_program_is_run_for_it(self):
        self.script(self.folder / "bin" / "vitune", "echo another")
        for file in self.folder.glob("vitune/_runtime/library.py"):  # no library of this machine either
            file.write_text(re.sub(r'^NAME = .*$', 'NAME = "libvitune_of_nobody.so"', file.read_text(), flags=re.M))
        done = self.run_package("--version", PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}")
        self.assertEqual((done.stdout, done.returncode), ("", 1))
        self.assertRegex(done.stderr, r"^vitune: the command is not beside .* install the package again")

    def test_that_cannot_be_run_is_said(self):
        (self.folder / "vitune" / "_lib").mkdir()
        (self.folder / "vitune" / "_lib" / _library.NAME).touch()
        command = self.folder / "vitune" / "_lib" / "vitune"
        command.write_bytes(b"\x7fELF")
        command.chmod(0o700)
        done = self.run_package("--version")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Exec format error", done.stderr)


class LayoutTest(InFolder):
    def test_the_version_is_the_one_that_pip_will_read(self):
        settings = (ROOT / "pyproject.toml").read_text().partition("[tool.scikit-build.metadata.version]")[2]
        said = {key: re.search(rf"^{key} = ['\"](.*)['\"]$", settings, re.M)[1] for key in ("input", "regex", "result")}
        found = re.search(said["regex"], (ROOT / said["input"]).read_text(), re.M)
        self.assertEqual(said["result"].format_map(found.groupdict()), vitune.__version__)

    @unittest.skipIf(LIBRARY_MISSING, "no libvitune")
    def test_what_cmake_puts_into_the_wheel_is_found_by_the_package(self):
        build = (_library._loaded_from or pathlib.Path(_library.NAME)).resolve().parent
        if not (build / "cmake_install.cmake").is_file() or not (build / "vitune").is_file():
            self.skipTest("the library under test does not lie in a build folder with the command")
        subprocess.run(["cmake", "--install", build, "--component", "python", "--prefix", self.folder], check=True,
                       capture_output=True)
        files = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()}
        self.assertEqual({file for file in files if not file.startswith("vitune/_lib/")}, set())
        self.assertFalse([path for path in self.folder.rglob("*") if path.is_symlink()], "a wheel has no links")
        self.copy_package()
        self.assertIn(vitune.__version__, self.run_package("--version").stdout)
        # The data are found from there: the recording answers where no GPU is.
        done = self.run_package("doctor", "--csv")
        self.assertIn(str(self.folder / "vitune" / "_lib" / "share" / "vitune"), done.stdout)
        out = subprocess.run([sys.executable, "-c", "import vitune; vitune.library_version();"
                              "print(vitune._runtime.library._loaded_from, vitune.command_path())"], check=True, text=True,
                             cwd=self.folder, env={**os.environ, "PYTHONPATH": str(self.folder)}, capture_output=True).stdout
        self.assertEqual(out.split(), [str(self.folder / "vitune" / "_lib" / name) for name in (_library.NAME, "vitune")])


@unittest.skipIf(shutil.which("readelf") is None or shutil.which("cc") is None, "no readelf, no C compiler")
class CheckWheelTest(InFolder):
    """A wheel of small programs that has nothing wrong, and what is said of it when one thing is."""

    NAME = "vitune-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
    METADATA = "".join(f"{field}: x\n" for field in ("Version", "Summary", "Author", "License-Expression", "Classifier",
                                                     "Keywords", "Requires-Python", "Description-Content-Type"))

    def setUp(self):
        super().setUp()
        self.check = build_script("check_wheel")

    def binary(self, *words):
        """A program of C."""
        out = self.folder / "program"
        subprocess.run(["cc", "-x", "c", "-", "-o", out, *words], input=b"int main(void) { return 0; }", check=True)
        return out.read_bytes()

    def faults(self, name=NAME, leave_out="", command=None, metadata=METADATA):
        program = self.binary("-s")
        files = {file: b"" for file in self.check.FILES if not file.startswith("vitune/_lib/") or "share" in file}
        files |= {self.check.LIBRARY: program, self.check.OPERATORS: program, self.check.COMMAND: command or program}
        about = "vitune-0.1.0.dist-info"
        files |= {f"{about}/METADATA": metadata.encode(), f"{about}/entry_points.txt": b"",
                  f"{about}/licenses/LICENSE": b"", f"{about}/licenses/THIRD_PARTY_NOTICES.md": b"", f"{about}/sboms/vitune.cdx.json": b""}
        wheel = self.folder / name
        with zipfile.ZipFile(wheel, "w") as archive:
            for file, data in files.items():
                if file != leave_out:
                    archive.writestr(file, data)
        return list(self.check.faults_of(wheel))

    def test_finds_nothing_where_nothing_is_wrong(self):
        self.assertEqual(self.faults(), [])

    def test_names_what_is_wrong(self):
        cases = [
            ({"name": "vitune-0.1.0-py3-none-linux_x86_64.whl"}, "not named for a manylinux"),
            ({"leave_out": "vitune/_lib/share/vitune/winners.db"}, "there is no vitune/_lib/share/vitune/winners.db"),
            ({"leave_out": "vitune-0.1.0.dist-info/licenses/THIRD_PARTY_NOTICES.md"}, "there is no .*THIRD_PARTY"),
            ({"command": self.binary("-g")}, "vitune/_lib/vitune is not stripped"),
            ({"command": self.binary("-s", "-Wl,-rpath,/somewhere")}, "remembers a folder"),
            ({"command": self.binary("-s", "-Wl,--no-as-needed", "-lstdc++")}, r"needs libstdc\+\+"),
            ({"metadata": self.METADATA.replace("Author: x\n", "")}, "METADATA has no Author"),
        ]
        for changes, sentence in cases:
            with self.subTest(sentence):
                faults = self.faults(**changes)
                self.assertEqual(len(faults), 1, faults)
                self.assertRegex(faults[0], sentence)

    def test_a_wheel_that_is_too_large_is_one_fault(self):
        self.check.MOST_BYTES = 1000
        self.assertRegex(self.faults()[0], "bytes, more than 1,000")


class ReleaseTest(InFolder):
    """A tree of the few files that a release reads, and files of a build."""

    def setUp(self):
        super().setUp()
        self.release = build_script("release")
        self.release.ROOT = self.folder
        self.file(self.release.HEADER, "".join(f"#define VITUNE_VERSION_{part} {number}\n" for part, number in
                                               (("MAJOR", 1), ("MINOR", 2), ("PATCH", 3))))
        self.file("python/vitune/_runtime/structs.py", "VERSION = (1, 2, 3)\n")
        (self.folder / "CITATION.cff").write_text("version: 1.2.3\n")
        (self.folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (unreleased)\n\n- New.\n\n## 1.2.2 (2026-01-01)\n\n- Old.\n")
        self.wheel = self.folder / "vitune-1.2.3-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr("vitune-1.2.3.dist-info/sboms/vitune.cdx.json", "{}")

    def file(self, name, text):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def made(self, *files, tag=None):
        self.release.tag = lambda: tag
        with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
            with unittest.mock.patch.object(sys, "argv", ["release.py", str(self.folder / "out"), *map(str, files or (self.wheel,))]):
                return self.release.main(), said.getvalue()

    def test_files_their_bill_notes_and_sums(self):
        self.assertEqual(self.made(), (0, ""))
        out = self.folder / "out"
        self.assertEqual((out / "NOTES.md").read_text(), "- New.\n")
        self.assertEqual(json.loads((out / f"{self.wheel.name}.cdx.json").read_text()), {})
        told = dict(reversed(line.split()) for line in (out / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(told, {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir() if path.name != "SHA256SUMS"})
        self.assertEqual(len(told), 3)

    def test_what_is_no_release_is_said(self):
        dated = "## 1.2.3 (2027-01-31)\n\n- New.\n"
        bare = self.folder / "vitune-1.2.3-linux-x86_64.tar.gz"
        with tarfile.open(bare, "w:gz"):
            pass
        other = self.folder / "vitune-1.0.0-linux-x86_64.tar.gz"
        other.write_bytes(bare.read_bytes())
        for file, text, files, tag, words in (
                ("CITATION.cff", "version: 1.2.2\n", (), None, "CITATION.cff says 1.2.2"),
                ("python/vitune/_runtime/structs.py", "VERSION = (1, 2, 2)\n", (), None, "structs.py says 1.2.2"),
                ("CHANGELOG.md", "## 1.2.2 (2026-01-01)\n", (), None, "no heading '## 1.2.3"),
                ("CHANGELOG.md", "## 1.2.3 (unreleased)\n", (), "v1.2.3", "has its date"),
                ("CHANGELOG.md", dated, (), "v1.3.0", "tag is v1.3.0"),
                ("CHANGELOG.md", dated, (bare,), None, "has no vitune.cdx.json"),
                ("CHANGELOG.md", dated, (other,), None, "is not of version 1.2.3")):  # fmt: skip
            before = (self.folder / file).read_text()
            (self.folder / file).write_text(text)
            with self.subTest(words):
                status, said = self.made(*files, tag=tag)
                self.assertEqual(status, 1)
                self.assertIn(words, said)
            (self.folder / file).write_text(before)
        (self.folder / "CHANGELOG.md").write_text(dated)
        self.assertEqual(self.made(tag="v1.2.3"), (0, ""))
