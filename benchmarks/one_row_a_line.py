#!/usr/bin/env python3
# benchmarks/one_row_a_line.py -- Results of programs that print JSON their own way, a row a line as those of benchmarks/peers.
# SPDX-License-Identifier: Apache-2.0
"""one_row_a_line.py FILE.json ...: rewrites each in place; one that is not there is passed over. Needs the standard library only."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from peers.engine import document  # noqa: E402


def main(names: list[str]) -> int:
    """0; 1 after a sentence for each file that is no JSON object, which stays as it is."""
    status = 0
    for path in filter(pathlib.Path.exists, map(pathlib.Path, names)):
        try:
            found = json.loads(path.read_text())
            if not isinstance(found, dict):
                raise ValueError("it is no object")
            document.write(found, path)
        except (OSError, ValueError) as reason:
            print(f"one_row_a_line.py: {path}: {reason}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
