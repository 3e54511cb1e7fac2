#!/usr/bin/env python3
# benchmarks/report/run.py -- The program: finds its package, says what is missing, hands over.
# SPDX-License-Identifier: Apache-2.0
"""run.py --help says what it takes; `vitune report` runs it."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# This folder itself must not be on the path: its modules belong to the package.
sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
sys.path.insert(0, str(HERE.parent))


def _python_with_matplotlib() -> str | None:
    """Another python3 on PATH: the distribution's, say, behind one of a version manager."""
    for folder in map(pathlib.Path, os.environ.get("PATH", "").split(":")):
        other = folder / "python3"
        if not folder.is_absolute() or not os.access(other, os.X_OK) or other == pathlib.Path(sys.executable):
            continue
        if subprocess.run([other, "-c", "import matplotlib"], capture_output=True, check=False).returncode == 0:
            return str(other)
    return None


def main() -> int:
    """The exit status: 0, 1 where something is missing, 2 for wrong input."""
    if importlib.util.find_spec("matplotlib") is None:
        other = _python_with_matplotlib()
        if other:
            os.execv(other, [other, "-B", *sys.argv])
        print(
            f"vitune: matplotlib, which draws the report's pictures, is missing in {sys.executable}; "
            f"install it (Debian and Ubuntu: apt-get install python3-matplotlib; elsewhere: "
            f"{sys.executable} -m pip install matplotlib) and run this again",
            file=sys.stderr,
        )
        return 1
    from report.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
