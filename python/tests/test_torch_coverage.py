# python/tests/test_torch_coverage.py -- What a model attends by itself is told: stats(), prepare() and coverage().
# SPDX-License-Identifier: Apache-2.0
import unittest
import warnings
from unittest import mock

import vitune

from .support import needs_device, needs_torch, torch
from .test_torch_host import TorchTest

if torch is not None:
    import torch.nn.functional as F

    from .torch_cases import Block

try:
    import timm
except ImportError:
    timm = None


def of(kind):
    """A model of layers; made late, since torch may be missing."""
    class ByHand(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            scores = (q @ k.mT * 0.2 + torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype)).softmax(-1)
            return self.out(F.dropout(scores, 0.0) @ v)

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.tail = torch.nn.Linear(32, 10), torch.nn.Linear(10, 5)

        def forward(self, x):
            return self.tail(self.head(x).softmax(-1))
    return {"served": lambda: Block(), "wide": lambda: Block(heads=1, d=136), "by hand": ByHand, "classifier": Classifier,
            "heads": lambda: torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)}[kind]().bfloat16().eval()


@needs_device
@needs_torch
class CoverageTest(TorchTest):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(torch.Tensor, "get_device", lambda self: 0)
        patch.start()
        self.addCleanup(patch.stop)
        self.x = torch.randn(2, 9, 32, dtype=torch.bfloat16)

    def test_each_site_has_a_kernel_or_a_reason(self):
        model = torch.nn.Sequential(of("served"), of("by hand"), of("heads"), of("classifier"))
        with torch.no_grad():
            wanted = model(self.x)
        sites = vitune.torch.coverage(model, self.x)
        self.assertEqual([(site.module, site.call, site.shape) for site in sites],
                         [("0", "scaled_dot_product_attention", (2, 2, 9, 16)), ("1", "softmax", (2, 9, 9)),
                          ("2.self_attn", "scaled_dot_product_attention", (2, 2, 9, 16))])
        self.assertIn("0: scaled_dot_product_attention of [2, 2, 9, 16]: served, default", str(sites[0]))
        self.assertEqual(sites[0].selection.problem, "attention bf16 b=2 h=2 nq=9 nk=9 d=16 layout=packed")
        self.assertIn("1: softmax of [2, 9, 9]: not served: the model multiplies", str(sites[1]))
        stats = vitune.torch.stats()
        self.assertEqual((stats.served, stats.fallbacks), (0, 0))
        with torch.no_grad():
            torch.testing.assert_close(model(self.x), wanted)

    def test_a_fallback_is_told_and_a_compiled_model_is_looked_into(self):
        sites = vitune.torch.coverage(torch.compile(of("wide"), backend="eager"), torch.randn(2, 5, 136, dtype=torch.bfloat16))
        self.assertEqual([(site.selection, site.reason) for site in sites], [(None, "head size 136 is above 128")])

    def test_a_pass_that_asks_nothing_says_so(self):
        with self.assertWarnsRegex(vitune.torch.FallbackWarning, "nothing was asked"):
            stats = vitune.prepare(of("by hand"), self.x)
        self.assertIn("coverage(model, sample)", str(stats))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            stats = vitune.prepare(of("served"), self.x)
        self.assertNotIn("nothing was asked", str(stats))

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_models_of_timm(self):
        small = dict(img_size=32, embed_dim=32, depth=1, num_heads=2)
        x = torch.randn(1, 3, 32, 32, dtype=torch.bfloat16)
        cait = timm.create_model("cait_xxs24_224", patch_size=8, **small).bfloat16().eval()
        self.assertIn("softmax", {site.call for site in vitune.torch.coverage(cait, x)})
        swin = timm.create_model("swin_tiny_patch4_window7_224", img_size=56, window_size=7, embed_dim=32, depths=(1,),
                                 num_heads=(2,)).bfloat16().eval()
        x = torch.randn(1, 3, 56, 56, dtype=torch.bfloat16)
        self.assertIn("enabled(timm=True)", vitune.torch.coverage(swin, x)[0].reason)
        with vitune.torch.enabled(timm=True):
            self.assertEqual(vitune.torch.coverage(swin, x)[0].reason, "")
