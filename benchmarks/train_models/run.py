#!/usr/bin/env python3
# benchmarks/train_models/run.py -- The program: finds the packages, then hands over to the command line.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/train_models/run.py --help says what it takes."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
# This folder itself must not be on the path: its modules belong to the package.
sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "python")]

from train_models.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
