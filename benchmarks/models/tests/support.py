# benchmarks/models/tests/support.py -- Paths, what this machine lacks, a document to read.
# SPDX-License-Identifier: Apache-2.0
import importlib.util
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "python")]


def needs(*packages):
    """Skips, visibly, where one is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def ms(*values):
    """What a row says of each way: {way: {ms, low, high}}."""
    return {
        way: {"ms": value, "low": value, "high": value, "samples": 7}
        for way, value in zip(("torch", "cudnn", "vitune"), values)
    }


def row(model, batch, mode, *values, failed=None):
    """A row of these times, the gain over the better of the first two."""
    found = {"model": model, "batch": batch, "mode": mode, "ms": ms(*values), "host_ms": {}}
    gain = min(values[:2]) / values[2] if len(values) > 2 else None
    if gain:
        found["gain"] = {"over": "torch", "times": gain, "low": gain - 0.01, "high": gain + 0.01}
    return found | {"error": {}, "failed": failed or {}}


def result(*rows, **more):
    """A document of these rows."""
    from models import document

    head = document.new({"name": "a GPU"}, {"torch": "2.11"}, "2026-11-23T00:00:00+00:00", {"ms": "x"})
    return head | {"rows": list(rows)} | more
