# python/tests/test_torch_compile_renewal.py -- The kernel that compares prepared weights in each pass, by Triton's interpreter.
# SPDX-License-Identifier: Apache-2.0
"""In a process of its own, since Triton decides when it is imported. float16 alone: the interpreter cuts bfloat16 off where GPUs round."""
import importlib.util
import os
import subprocess
import sys
import unittest

from .support import ROOT, needs_torch

PROGRAM = """
import torch
from vitune._compile.patterns import forms; from vitune._compile.patterns import renewal as renewal_module


def form_of(rows, columns, rms=False, bias=True, norm_bias=True, norm_weight=True):
    weight, others = torch.randn(rows, columns).half(), [torch.randn(size).half() for size in (rows, columns, columns)]
    sources = [weight, *(each if there else None for each, there in zip(others, (bias, norm_weight, norm_bias)))]
    folded = forms.Folded(torch.float16, rms)
    made = folded.make(*sources)
    return folded, sources, made, folded.form(sources, made)


def is_right(folded, sources, made, form):
    want = folded.make(*sources)
    return torch.equal(want[0], made[0]) and all(torch.allclose(a, b, rtol=1e-5, atol=1e-4) for a, b in zip(want[1:], made[1:]))


torch.manual_seed(0)
cases = [form_of(300, 96), form_of(64, 1032, rms=True), form_of(33, 64, bias=False, norm_bias=False), form_of(40, 24, norm_weight=False)]
requests = torch.ones(1, dtype=torch.int64)
group = renewal_module._Group([form for *_, form in cases], requests)
group.launch()
assert all(is_right(*case) for case in cases)
quiet = requests.item()
for _ in range(3):
    group.launch()
assert requests.item() == quiet, "made anew where nothing changed"

weight, bias, norm_weight, norm_bias = cases[0][1]


def exchange():
    weight[[2, 290]] = weight[[290, 2]]


changes = {"whole": (lambda: weight.mul_(0.5), 1), "a row": (lambda: weight[17].add_(1), 1), "two rows": (exchange, 1),
           "an element": (lambda: weight[3, 50].add_(1), 96 // 8), "norm's weight": (lambda: norm_weight[5].add_(1), 1),
           "norm's bias": (lambda: norm_bias[95].add_(1), 1), "bias": (lambda: bias[299].add_(1), 1),
           "wide": (lambda: cases[1][1][2][1031].add_(1), 1), "no vectors": (lambda: cases[2][1][0].neg_(), 1)}
for name, (change, passes) in changes.items():
    change()
    assert not all(is_right(*case) for case in cases), name
    for _ in range(passes):
        group.launch()
    assert all(is_right(*case) for case in cases), name
    for _ in range(2):  # those that were asked
        group.launch()
    quiet = requests.item()
    group.launch()
    assert requests.item() == quiet, name

# With the host's knowledge everything is made anew, whatever the samples say.
for _, _, made, _ in cases:
    made[1].zero_()
requests.add_(1)
group.launch()
assert all(is_right(*case) for case in cases)
"""


@needs_torch
@unittest.skipIf(importlib.util.find_spec("triton") is None or importlib.util.find_spec("numpy") is None, "Triton is not installed")
class RenewalTest(unittest.TestCase):
    def test_what_differs_is_made_anew_in_the_same_pass(self):
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT / "python")}
        ran = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=900)
        self.assertEqual(ran.returncode, 0, ran.stderr[-3000:])


if __name__ == "__main__":
    unittest.main()
