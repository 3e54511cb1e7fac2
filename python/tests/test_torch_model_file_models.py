# python/tests/test_torch_model_file_models.py -- vitune.export() of small models of timm, transformers and torchvision.
# SPDX-License-Identifier: Apache-2.0
"""No GPU: files are made and read by Python alone. Where the command is beside the library under test, its reader takes each of them too."""
import unittest

from .support import torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

from .model_file_cases import FolderCase, kinds

try:
    import timm
except ImportError:
    timm = None
try:
    import transformers
except ImportError:
    transformers = None
try:
    import torchvision
except ImportError:
    torchvision = None


class ModelsTest(FolderCase):
    """Small models of the libraries that people have them from."""

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_timms_models(self):
        from timm.models import beit, eva, swin_transformer, swin_transformer_v2, vision_transformer
        small = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 2, "num_classes": 10}
        windows = {"patch_size": 4, "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4), "num_classes": 10}
        vit = vision_transformer.VisionTransformer
        models = {
            "class token": (vit(**small), 32, {}), "registers, LayerScale, another size": (
                vit(**small, init_values=0.1, reg_tokens=2, dynamic_img_size=True), 40, {}),
            "pooled by attention": (vit(**small, global_pool="map", class_token=False), 32, {}),
            "pooled, q and k normalised": (vit(**small, global_pool="avg", class_token=False, qk_norm=True), 32, {}),
            "rotary embedding, SwiGLU": (eva.Eva(**small, swiglu_mlp=True, ref_feat_shape=(4, 4)), 32, {}),
            "relative bias": (beit.Beit(**small, use_rel_pos_bias=True, use_abs_pos_emb=False, init_values=0.1), 32, {}),
            "windows": (swin_transformer.SwinTransformer(img_size=56, window_size=7, **windows), 56, {"window_attention": 4}),
            "padded windows": (swin_transformer.SwinTransformer(img_size=64, window_size=7, **windows), 64, {"window_attention": 4}),
            "cosine windows": (swin_transformer_v2.SwinTransformerV2(img_size=32, window_size=4, **{**windows, "depths": (2,), "num_heads": (2,)}),
                               32, {"attention": 2})}
        for name, (model, size, wanted) in models.items():
            with self.subTest(name):
                held, _ = self.exported(model, torch.zeros(1, 3, size, size))
                for kind, count in wanted.items():
                    self.assertEqual(kinds(held).count(kind), count)

    @unittest.skipIf(transformers is None, "transformers is not installed")
    def test_transformers_models_by_the_names_of_their_results(self):
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "image_size": 32, "patch_size": 8}
        models = {
            "logits": transformers.ViTForImageClassification(transformers.ViTConfig(**sizes)),
            "pooler_output": transformers.Dinov2Model(transformers.Dinov2Config(**sizes)),
            "last_hidden_state": transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**sizes))}
        for output, model in models.items():
            with self.subTest(output):
                held, _ = self.exported(model, {"pixel_values": torch.zeros(1, 3, 32, 32)}, outputs=[output])
                self.assertEqual([each["name"] for each in held.graph["outputs"]], [output])
                self.assertEqual(held.graph["inputs"][0]["name"], "pixel_values")

    @unittest.skipIf(torchvision is None, "torchvision is not installed")
    def test_torchvisions_models(self):
        models = {32: torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=64, mlp_dim=128,
                                                           num_classes=10),
                  56: torchvision.models.SwinTransformer(patch_size=[4, 4], embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=[7, 7],
                                                         num_classes=10)}
        for size, model in models.items():
            with self.subTest(type(model).__name__):
                self.exported(model, torch.zeros(1, 3, size, size))


if __name__ == "__main__":
    unittest.main()
