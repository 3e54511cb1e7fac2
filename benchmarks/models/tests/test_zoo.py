# benchmarks/models/tests/test_zoo.py -- Models are built alike, and their attention shows in the answer.
# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from .support import needs

try:
    import torch
    from models import answer, calls, zoo
    from models.clock import CpuClock
except ImportError:
    torch = None


def answer_of(name, batch=2):
    model, size = zoo.build(name, "cpu")
    images = zoo.images(batch, size, "cpu")
    wanted = answer.reference(model, images)
    with torch.inference_mode():
        return model, images, wanted, model(images)


@needs("torch", "timm")
class ZooTest(unittest.TestCase):
    def test_a_name_gives_the_same_weights_and_images(self):
        first, second = answer_of("test_vit"), answer_of("test_vit")
        self.assertTrue(torch.equal(first[3], second[3]))

    def test_the_reference_leaves_the_model_as_it_was(self):
        model, size = zoo.build("test_vit", "cpu")
        before = {name: value.clone() for name, value in model.state_dict().items()}
        answer.reference(model, zoo.images(2, size, "cpu"))
        for name, value in model.state_dict().items():
            self.assertEqual(value.dtype, before[name].dtype)
            self.assertTrue(torch.equal(value, before[name]), name)

    def test_a_head_of_tiny_weights_does_not_hide_what_lies_before_it(self):
        model = torch.nn.Linear(64, 8)
        with torch.no_grad():
            model.weight.mul_(1e-3)
        zoo._fill(model)
        self.assertGreater(model.weight.std().item(), 0.01)

    def test_wrong_attention_is_seen_behind_small_layer_scales_too(self):
        # LayerScale begins at 1e-5 here: left so, attention would not show in the answer.
        import timm

        def scaled(name, **more):
            return made("vit_tiny_patch16_224", init_values=1e-5, depth=4, img_size=64, **more)

        made = timm.create_model
        with mock.patch.object(timm, "create_model", scaled):
            model, _ = zoo.build("scaled", "cpu")
        images = zoo.images(2, 64, "cpu")
        wanted = answer.reference(model, images)
        sdpa = torch.nn.functional.scaled_dot_product_attention
        with torch.inference_mode():
            right = answer.error(model(images), wanted)
            with mock.patch.object(
                torch.nn.functional, "scaled_dot_product_attention", lambda *a, **k: 0 * sdpa(*a, **k)
            ):
                wrong = answer.error(model(images), wanted)
        self.assertIsNone(answer.wrong(right, right))
        self.assertIsNotNone(answer.wrong(wrong, right))


@needs("torch", "transformers")
class TransformersTest(unittest.TestCase):
    def test_a_model_of_transformers_answers_a_tensor(self):
        _, _, wanted, found = answer_of("transformers/vit_mini")
        self.assertLess(answer.error(found, wanted), 0.05)


@needs("torch")
class CallsTest(unittest.TestCase):
    def test_each_candidate_has_a_time_or_a_reason(self):
        import random

        with (
            mock.patch.object(calls, "CALLS", 2),
            mock.patch.object(calls, "PROBLEM", dict(batch=1, heads=2, tokens=5, head_size=8)),
        ):
            rows = calls.measure("cpu", CpuClock(), 0.0, random.Random(0))
            everyone = {*calls.candidates("cpu")[0], *calls.candidates("cpu")[1]}
        self.assertEqual([row["grad"] for row in rows], ["inference_mode", "no_grad"])
        for row in rows:
            self.assertEqual({*row["us"], *row["failed"]}, everyone)
            self.assertIn("torch math", row["us"])
            self.assertIn("vitune.attention", row["failed"])  # it is no CPU's
