# python/tests/conftest.py -- For pytest: tests that need a GPU carry the mark gpu (`pytest -m "not gpu"`).
# SPDX-License-Identifier: Apache-2.0
import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.cls is not None and item.cls.__name__.endswith("GpuTest"):
            item.add_marker(pytest.mark.gpu)
