# python/build_backend/vitune_build.py -- Builds the wheel: the package and, if it is built, the library with its data.
"""A build backend (PEP 517, PEP 660) of the standard library alone, since pip would fetch any other.

With a built libvitune (build/default of the source tree, the prefix this folder was installed to, or what
--config-settings library=PATH names) the wheel is for this platform and holds library, command and data. Without one it is
pure Python, and the package looks for an installed library (docs/python.md).
"""
import base64
import hashlib
import pathlib
import re
import sys
import sysconfig
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent.parent
LIBRARY, COMMAND, MARKER = "libvitune.so.0", "vitune", "bench_problems.json"
OPERATORS = "libvitune_torch.so"  # beside the library, where PyTorch's headers were found
SUMMARY = "Fused attention for vision transformers, served by kernels tuned for each problem"
EXECUTABLE, PLAIN = 0o100755, 0o100644


def _version():
    text = (HERE / "vitune" / "_structs.py").read_text()
    return ".".join(re.search(r"^VERSION = \((\d+), (\d+), (\d+)\)", text, re.M).groups())


def _metadata():
    lines = ["Metadata-Version: 2.1", "Name: vitune", f"Version: {_version()}", f"Summary: {SUMMARY}",
             "Requires-Python: >=3.9", "Provides-Extra: torch", "Requires-Dist: torch>=2.5; extra == 'torch'",
             "Description-Content-Type: text/markdown", "", (HERE / "README.md").read_text()]
    return "\n".join(lines)


def _library(settings):
    named = (settings or {}).get("library")
    if named:
        path = pathlib.Path(named).resolve()
        if not path.is_file():
            raise SystemExit(f"library={named}: there is no such file; name a built {LIBRARY}")
        return path
    multiarch = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    folders = [HERE.parent / "build" / "default"]
    if HERE.parents[1].name == "share" and HERE.parent.name == "vitune":  # an installed PREFIX/share/vitune/python
        folders += [HERE.parents[2] / name for name in (f"lib/{multiarch}", "lib", "lib64")]
    return next((folder / LIBRARY for folder in folders if (folder / LIBRARY).is_file()), None)


def _data_folder(library):
    """As core/data_dir.cpp finds it: share/vitune or data of the library's folder and the three above."""
    for folder in [library.parent, *list(library.parents)[1:4]]:
        for candidate in (folder / "share" / "vitune", folder / "data"):
            if (candidate / MARKER).is_file():
                return candidate
    return None


def _bundled(library):
    """Name in the wheel, file and mode of what comes with the library."""
    yield f"vitune/_lib/{LIBRARY}", library, EXECUTABLE
    if (library.parent / OPERATORS).is_file():
        yield f"vitune/_lib/{OPERATORS}", library.parent / OPERATORS, EXECUTABLE
    for folder in [library.parent, *(parent / "bin" for parent in list(library.parents)[1:3])]:
        if (folder / COMMAND).is_file():
            yield f"vitune/_lib/{COMMAND}", folder / COMMAND, EXECUTABLE
            break
    data = _data_folder(library)
    for path in sorted(data.glob("*")) if data else ():
        if path.is_file() and path.suffix != ".py":
            yield f"vitune/_lib/share/vitune/{path.name}", path, PLAIN


def _package_files():
    for path in sorted((HERE / "vitune").glob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            yield f"vitune/{path.name}", path, PLAIN


class _Wheel:
    """A zip whose RECORD is kept as files are added; equal inputs give equal bytes."""

    def __init__(self, path):
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._record = []

    def add(self, name, data, mode=PLAIN):
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
        self._zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}")

    def finish(self, tag):
        folder = f"vitune-{_version()}.dist-info"
        self.add(f"{folder}/METADATA", _metadata().encode())
        pure = "true" if tag.endswith("any") else "false"
        self.add(f"{folder}/WHEEL", f"Wheel-Version: 1.0\nGenerator: vitune_build\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode())
        record = "\n".join([*self._record, f"{folder}/RECORD,,", ""])
        self._zip.writestr(zipfile.ZipInfo(f"{folder}/RECORD", (1980, 1, 1, 0, 0, 0)), record)
        self._zip.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel; returns its name."""
    library = _library(config_settings)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = "py3-none-any" if library is None else f"py3-none-{platform}"
    if library is None:
        print(f"vitune: no built {LIBRARY} here, so none goes into the wheel; the package will look for an installed one",
              file=sys.stderr)
    name = f"vitune-{_version()}-{tag}.whl"
    wheel = _Wheel(pathlib.Path(wheel_directory) / name)
    for place, path, mode in [*_package_files(), *(_bundled(library) if library else ())]:
        wheel.add(place, path.read_bytes(), mode)
    wheel.finish(tag)
    return name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes a wheel that points here (pip install -e); returns its name."""
    name = f"vitune-{_version()}-py3-none-any.whl"
    wheel = _Wheel(pathlib.Path(wheel_directory) / name)
    wheel.add("vitune.pth", f"{HERE}\n".encode())
    wheel.finish("py3-none-any")
    return name


def build_sdist(sdist_directory, config_settings=None):
    """Writes the sources of the package (without a library); returns the archive's name."""
    base = f"vitune-{_version()}"
    with tarfile.open(pathlib.Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in ("pyproject.toml", "README.md", "build_backend/vitune_build.py"):
            archive.add(HERE / name, f"{base}/{name}")
        for place, path, _ in _package_files():
            archive.add(path, f"{base}/{place}")
    return f"{base}.tar.gz"
