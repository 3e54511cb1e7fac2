# benchmarks/train_models/tests/support.py -- Documents to read, a small model that trains, a clock that counts.
# SPDX-License-Identifier: Apache-2.0
import contextlib

from models.tests.support import ROOT, needs

from train_models import document

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)  # models here are so small that several would wait for each other most of the time

__all__ = ["ROOT", "document_of", "needs", "row", "small", "training"]


def row(model, batch, mode="graph", params="amp", failed=None, **ms):
    """A row of these times by way."""
    times = {way: {"ms": value, "low": value - 0.1, "high": value + 0.1} for way, value in ms.items()}
    name = {"model": model, "batch": batch, "params": params}
    return name | document.new_row(mode) | {"ms": times, "failed": failed or {}}


def document_of(*rows, **more):
    """A document of these rows."""
    head = document.new({"name": "a GPU"}, {"torch": "2.11"}, "2026-11-28T00:00:00+00:00", {"ms": "x"})
    return head | {"rows": list(rows)} | more


def small(classes=8):
    """Of images of 4 x 4 pixels."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 16), torch.nn.GELU(), torch.nn.Linear(16, classes))
    model.num_classes = classes
    return model


def training(device="cpu", rate=0.0, params="amp"):
    """Of the small model on four images."""
    from train_models import zoo
    from train_models.step import Training

    model = small().to(device)
    model = model.bfloat16() if params == "bf16" else model
    return Training(model, *zoo.batch(4, 4, 8, params, device), params, rate)
