# benchmarks/train_models/tests/test_zoo.py -- Models that train: their sizes, what chance does in them, their images.
# SPDX-License-Identifier: Apache-2.0
import unittest

from .support import needs

try:
    import torch
    from train_models import cct, zoo
    from train_models.step import Training
except ImportError:
    torch = None


@needs("torch")
class ZooTest(unittest.TestCase):
    def test_cct_14_has_its_authors_size(self):
        with torch.device("meta"):
            models = [cct.CCT(cct.RECIPES[name]) for name in ("cct_14_7x2_384", "cct_14_7x2_384_plain")]
        for model in models:
            millions = sum(each.numel() for each in model.parameters()) / 1e6
            self.assertAlmostEqual(millions, 22.5, delta=0.3)  # 22.36 at 224 pixels, and 380 positions more
            self.assertEqual((tuple(model.positions.shape), len(model.layers)), ((1, 576, 384), 14))
        self.assertEqual([layer.drop_path for layer in models[0].layers][::13], [0.0, 0.1])
        self.assertFalse(any(layer.drop_path or layer.attention_dropout for layer in models[1].layers))

    def test_the_authors_residual_is_what_the_norm_gives(self):
        recipe = cct.RECIPES["cct_mini"]
        x = torch.randn(2, 5, recipe.width)
        layer = cct._Layer(recipe, 0.0)
        normed = layer.norm2(x + layer._attention(layer.norm1(x)))
        torch.testing.assert_close(layer(x), normed + layer._mlp(normed))
        layer.authors = False
        before = x + layer._attention(layer.norm1(x))
        torch.testing.assert_close(layer(x), before + layer._mlp(layer.norm2(before)))

    def test_drop_path_drops_whole_samples_and_only_in_training(self):
        layer = cct._Layer(cct.RECIPES["cct_mini"], 0.5)
        torch.manual_seed(0)
        found = layer._dropped(torch.ones(64, 3, 2))
        self.assertEqual(set(found.flatten().tolist()), {0.0, 2.0})
        self.assertTrue(torch.equal(found, found[:, :1, :1].expand_as(found)))
        self.assertTrue(torch.equal(layer.eval()._dropped(found), found))

    def test_weights_and_images_are_the_same_at_every_build(self):
        (one, size), (other, _) = (zoo.build("cct_mini", "amp", "cpu") for _ in range(2))
        self.assertTrue(one.training)
        for a, b in zip(one.parameters(), other.parameters()):
            self.assertTrue(torch.equal(a, b))
        for params, dtype in (("amp", torch.float32), ("bf16", torch.bfloat16)):
            images, labels = zoo.batch(3, size, 1000, params, "cpu")
            self.assertEqual((images.dtype, tuple(images.shape), labels.dtype), (dtype, (3, 3, size, size), torch.int64))
            self.assertTrue(torch.equal(images, zoo.batch(3, size, 1000, params, "cpu")[0]))

    def test_bf16_is_of_weights_gradients_and_optimizer(self):
        model, size = zoo.build("cct_mini", "bf16", "cpu")
        training = Training(model, *zoo.batch(2, size, 1000, "bf16", "cpu"), "bf16")
        training.step(model)()
        for each in model.parameters():
            self.assertEqual((each.dtype, each.grad.dtype), (torch.bfloat16,) * 2)
        self.assertEqual({each["exp_avg"].dtype for each in training.optimizer.state.values()}, {torch.bfloat16})

    @needs("timm")
    def test_models_of_timm_have_classes_and_lose_dropout_on_demand(self):
        model, _ = zoo.build("test_vit", "amp", "cpu")
        self.assertGreater(model.num_classes, 0)
        import timm

        swin = timm.create_model("swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(2, 2), num_heads=(1, 2), window_size=7)
        rates = lambda: {module.drop_prob for module in swin.modules() if hasattr(module, "drop_prob")}  # noqa: E731
        self.assertGreater(max(rates()), 0.0)
        zoo.without_dropout(swin)
        self.assertEqual(rates(), {0.0})
