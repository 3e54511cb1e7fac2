# benchmarks/peers/__main__.py -- `python3 -m peers` in the folder benchmarks/.
# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from .cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
