# python/tests/test_build.py -- The build backend: what is in the wheel, and that an installed package finds its library.
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

from vitune import _library

from .support import LIBRARY_MISSING, ROOT

PYTHON = ROOT / "python"
sys.path.insert(0, str(PYTHON / "build_backend"))
import vitune_build  # noqa: E402

sys.path.pop(0)


class WheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def built_library(self):
        """A build folder with its data, as small as can be."""
        build = self.folder / "tree" / "build" / "default"
        data = self.folder / "tree" / "data"
        build.mkdir(parents=True)
        data.mkdir()
        (build / "libvitune.so.0.1.0").write_bytes(b"library")
        (build / "libvitune.so.0").symlink_to("libvitune.so.0.1.0")
        (build / "libvitune_torch.so").write_bytes(b"operators")
        (build / "vitune").write_bytes(b"command")
        (data / "bench_problems.json").write_text("{}")
        (data / "h200.db").write_bytes(b"winners")
        return build / "libvitune.so.0"

    def test_holds_the_library_the_command_and_the_data(self):
        name = vitune_build.build_wheel(self.folder, {"library": str(self.built_library())})
        self.assertRegex(name, r"^vitune-[\d.]+-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(self.folder / name) as wheel:
            self.assertIsNone(wheel.testzip())
            names = set(wheel.namelist())
            self.assertEqual(wheel.read("vitune/_lib/libvitune.so.0"), b"library")
            self.assertEqual(wheel.read("vitune/_lib/libvitune_torch.so"), b"operators")
            self.assertEqual(wheel.read("vitune/_lib/share/vitune/h200.db"), b"winners")
            self.assertTrue(wheel.getinfo("vitune/_lib/vitune").external_attr >> 16 & 0o100)
            record = next(name for name in names if name.endswith("RECORD"))
            self.assertEqual({line.split(",")[0] for line in wheel.read(record).decode().split()}, names)
        sources = {f"vitune/{path.name}" for path in (PYTHON / "vitune").glob("*.py")} | {"vitune/py.typed"}
        self.assertLessEqual(sources, names)

    def test_is_the_same_bytes_for_the_same_files(self):
        library = str(self.built_library())
        first = (self.folder / vitune_build.build_wheel(self.folder, {"library": library})).read_bytes()
        self.assertEqual((self.folder / vitune_build.build_wheel(self.folder, {"library": library})).read_bytes(), first)

    def test_a_library_that_is_not_there_is_said(self):
        with self.assertRaisesRegex(SystemExit, "no such file"):
            vitune_build.build_wheel(self.folder, {"library": "/nowhere/libvitune.so.0"})

    def test_the_sources_build_the_package_again(self):
        archive = vitune_build.build_sdist(self.folder)
        with tarfile.open(self.folder / archive) as opened:
            opened.extractall(self.folder / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        tree = self.folder / "unpacked" / archive.removesuffix(".tar.gz")
        name = subprocess.run([sys.executable, "-c", "import vitune_build; print(vitune_build.build_wheel('.'))"], cwd=tree,
                              env={**os.environ, "PYTHONPATH": "build_backend"}, check=True, capture_output=True,
                              text=True).stdout.strip()
        self.assertTrue(name.endswith("-py3-none-any.whl"), name)

    @unittest.skipIf(LIBRARY_MISSING, "no libvitune")
    def test_pip_installs_offline_and_the_package_finds_its_own_library(self):
        import venv
        environment = self.folder / "venv"
        try:
            venv.create(environment, with_pip=True)
        except (subprocess.CalledProcessError, SystemExit):  # Debian's venv ends the program
            self.skipTest("this Python cannot make environments with pip (python3-venv)")
        python = environment / "bin" / "python"
        library = _library._loaded_from or _library.NAME
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--config-settings", f"library={library}",
                        str(PYTHON)], check=True, cwd=self.folder, env={**os.environ, "PIP_FIND_LINKS": ""})
        out = subprocess.run([python, "-c", "import vitune; print(vitune.library_version(), vitune._library._loaded_from);"
                              "print(vitune.command_path()); print(vitune.AttentionDesc(nq=8, nk=8).text())"], check=True,
                             cwd=self.folder, capture_output=True, text=True).stdout
        self.assertIn(f"{environment.resolve()}/lib", out)
        self.assertIn("_lib/vitune\n", out)
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "vitune"], check=True)
