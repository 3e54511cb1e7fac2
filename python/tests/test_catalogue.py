# python/tests/test_catalogue.py -- Every attention call of the catalogued models: served, or refused with a reason.
# SPDX-License-Identifier: Apache-2.0
"""As texts, on the emulated device; and as timm's models make them, on the meta device. VITUNE_TEST_ALL_MODELS=1 builds all 380
instead of one of each kind (some minutes)."""
import collections
import json
import os
import unittest
import warnings

import vitune

from .support import FOLDER, ROOT, needs_device, needs_torch, torch

try:
    import timm
except ImportError:
    timm = None

CATALOGUE = {model["name"]: model["attention"] for model in json.loads((ROOT / "data/timm_models.json").read_text())["models"]}
#: One of each way to attend: plain, biased, windows, pooling, masks, rank 5, folded heads, head sizes that no kernel has.
KINDS = ("vit_base_patch16_224", "beit_base_patch16_224", "swin_tiny_patch4_window7_224", "vit_so400m_patch14_siglip_384",
         "samvit_base_patch16_224", "hiera_tiny_224", "maxvit_tiny_tf_224", "mobilevit_s", "twins_svt_small", "xcit_tiny_12_p8_224")


@needs_device
class CatalogueTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = vitune.Context(0, database=FOLDER / "models.db", shipped_database="")
        cls.addClassCleanup(cls.context.close)

    def outcome(self, text):
        """What serves a problem, or why nothing does."""
        try:
            return self.context.query(vitune.Problem(text)).outcome
        except vitune.Unsupported as reason:
            return str(reason)

    def test_every_call_is_served_or_refused_with_the_reason_that_the_catalogue_has(self):
        served = {}
        for name, calls in CATALOGUE.items():
            for call in calls:
                text = f"attention {call['problem']}"
                if text not in served:
                    served[text] = self.outcome(text)
                found = served[text]
                if "unsupported" in call:
                    self.assertRegex(found, r"head size d=\d+ is not supported: use", name)
                else:
                    self.assertEqual(found, "default", f"{name}: {text}")
        self.assertGreater(len(served), 400)

    @needs_torch
    @unittest.skipIf(timm is None, "timm is not installed")
    def test_models_as_timm_makes_them_ask_for_nothing_else(self):
        every = bool(os.environ.get("VITUNE_TEST_ALL_MODELS"))
        vitune.torch.install_module.timm.enter()  # fused attention, where timm leaves it off
        self.addCleanup(vitune.torch.install_module.timm.leave)
        for name in CATALOGUE if every else KINDS:
            with self.subTest(name):
                wanted = collections.Counter()
                for call in CATALOGUE[name]:  # a problem of one image is asked once for all of them
                    wanted["unsupported" not in call] += call["calls"]
                self.assertEqual(self.asked(name), wanted)

    def asked(self, name):
        """Calls of a pass for two images by whether they are served; those that are not have a reason."""
        with warnings.catch_warnings(), torch.device("meta"), torch.inference_mode():
            warnings.simplefilter("ignore")
            model = timm.create_model(name).eval().bfloat16()
            watch = Watch()
            with watch:
                model(torch.empty(2, *model.pretrained_cfg["input_size"], dtype=torch.bfloat16))
        found = collections.Counter()
        for text in watch.texts:
            outcome = self.outcome(text) if text.startswith("attention ") else text
            self.assertTrue(outcome)
            found[outcome == "default"] += 1
        return found


if torch is not None:
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        """The problem of each call of scaled_dot_product_attention, or why there is none."""

        def __init__(self):
            super().__init__()
            self.texts = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is torch.nn.functional.scaled_dot_product_attention:
                try:
                    self.texts.append(vitune.problem_text(*args, **(kwargs or {})))
                except vitune.Unsupported as reason:
                    self.texts.append(str(reason))
            return function(*args, **(kwargs or {}))


if __name__ == "__main__":
    unittest.main()
