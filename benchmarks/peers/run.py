#!/usr/bin/env python3
# benchmarks/peers/run.py -- The program: finds the package and vitune's own, then hands over to it.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/peers/run.py --help says what it takes."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
# This folder itself must not be on the path: its modules belong to the package.
sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "python")]

from peers.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
