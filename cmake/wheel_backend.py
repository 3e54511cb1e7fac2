# cmake/wheel_backend.py -- What pip builds the package with: scikit-build-core, in the folder of the build before.
#
# pip gives each build an environment of its own, and scikit-build-core then throws away what CMake had: it cannot
# know whether tools of the environment before were used. Here that is looked up.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import re

FOLDER = pathlib.Path("build/wheel")  # build-dir of pyproject.toml
TOOLS = re.compile(r"^CMAKE_(?:COMMAND|MAKE_PROGRAM|CXX_COMPILER):\w+=(.+)$", re.M)

try:
    from scikit_build_core import build
    from scikit_build_core.build import *  # noqa: F403 -- the hooks of PEP 517 and 660
except ImportError:  # the tests need none of it
    build = None


def keep_build(folder, source):
    """Whether the next build goes on in `folder`: it is of this source tree, and its tools are still there."""
    record = folder / ".skbuild-info.json"
    try:
        before = json.loads(record.read_text(encoding="utf-8"))
        tools = TOOLS.findall((folder / "CMakeCache.txt").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if before.get("source_dir") != str(source.resolve()) or len(tools) != 3:
        return False
    if not all(pathlib.Path(tool).is_file() for tool in tools):
        return False
    record.unlink()  # without one scikit-build-core takes the folder as it is
    return True


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 517."""
    keep_build(FOLDER, pathlib.Path())
    return build.build_wheel(wheel_directory, config_settings, metadata_directory)
