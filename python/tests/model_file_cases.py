# python/tests/model_file_cases.py -- What the tests of vitune.export() share: a folder with a file, whose reader the command is, and models of one call.
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import warnings

import torch
from torch import nn

import vitune

from vitune._export import file as model_file

from .export_models import drawn

#: The command beside the library under test, whose reader is to take every file that is written here.
COMMAND = next((str(path) for path in [pathlib.Path(os.environ.get("VITUNE_TEST_LIBRARY", "")).parent / "vitune"] if path.is_file()), None)


def kinds(held):
    return [node["op"] for node in held.graph["nodes"]]


class FolderCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "model.safetensors"

    def exported(self, model, sample, **words):
        """The file of a model, and what export() said of it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            written = vitune.export(drawn(model), self.path, sample, **words)
        self.assertLess(written.error, 1e-5)
        self.assertLess(written.rounding, 0.05)
        if COMMAND is not None:
            read = subprocess.run([COMMAND, "models", str(self.path), "--batch", "3", "--json"], capture_output=True, text=True, timeout=300,
                                  env={**os.environ, "VITUNE_DB": str(self.folder / "vitune.db")}, check=False)
            self.assertEqual(read.returncode, 0, read.stderr)
            self.assertEqual(sum(json.loads(read.stdout)["kinds"].values()), written.nodes)
        return model_file.read(self.path), written


class Calls(nn.Module):
    """Any function of x [B, 4, 8], behind a layer."""

    def __init__(self, function, wide=None):
        """wide: a buffer `wide` of eight such numbers."""
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.ones(8))
        self.function = function
        if wide is not None:
            self.register_buffer("wide", torch.full((8,), wide))

    def forward(self, x):
        return self.function(self, self.inner(x))
