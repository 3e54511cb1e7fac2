# python/tests/test_torch_compile_train_patches.py -- vitune.compile() on patch embeddings that train, beside eager mode's, on a CPU.
# SPDX-License-Identifier: Apache-2.0
import unittest

from .support import OPERATORS, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("linear layers are not the operators' library's: once is enough")

from torch import nn

from .test_torch_compile_train import OPS, TrainCase, timm
from .test_torch_compile_train_race import RaceCase
from .train_step_cases import one_thread

setUpModule = one_thread

CALL = "patch embedding in training"


class Embedded(nn.Module):
    """Patches with a class token before them, as tokens or as an image; something that trains is before and behind."""

    def __init__(self, size=4, tokens=True, bias=True, **keywords):
        super().__init__()
        torch.manual_seed(2)
        self.proj = nn.Conv2d(3, 24, size, **{"stride": size, **keywords}, bias=bias)
        self.token, self.scale, self.tokens = nn.Parameter(torch.randn(1, 1, 24)), nn.Parameter(torch.randn(24)), tokens

    def forward(self, x):
        x = self.proj(x)
        if not self.tokens:
            return x.permute(0, 2, 3, 1) * self.scale
        x = x.flatten(2).transpose(1, 2)
        return torch.cat((self.token.expand(len(x), -1, -1), x), 1) * self.scale


class PatchesTest(TrainCase):
    def expect_replaced(self, count, model, x, bound, on=False, **keywords):
        calls = self.expect_eagers(model, x, bound, on, images=False, **keywords)
        self.assertEqual([call.call for call in calls if call.replaced and call.call == CALL], [CALL] * count, calls)
        return calls

    def test_gradients_are_eager_modes_of_each_kind_of_patch(self):
        for name, model, size in (("tokens", Embedded(), (12, 8)), ("an image", Embedded(tokens=False), (12, 8)),
                                  ("no bias", Embedded(bias=False), (12, 8)), ("rows with spare columns", Embedded(5), (10, 15)),
                                  ("pixels behind the last patch", Embedded(tokens=False), (13, 11))):
            for dtype, bound, on in ((torch.float32, 1e-5, False), (torch.float32, 1e-2, True), (torch.bfloat16, 2e-2, False)):
                with self.subTest(name, dtype=dtype, autocast=on):
                    self.expect_replaced(1, model.to(dtype), torch.randn(2, 3, *size, dtype=dtype), bound, on)
                    self.assertEqual(self.targets, [OPS.linear_train.default])

    def test_images_in_channels_last_train(self):
        self.expect_replaced(1, Embedded().to(memory_format=torch.channels_last),
                             torch.randn(2, 3, 12, 8).contiguous(memory_format=torch.channels_last), 1e-5)

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_a_swin_of_timm_trains_by_it(self):
        model = timm.create_model("swin_tiny_patch4_window7_224", img_size=16, window_size=2, embed_dim=16, depths=(1,), num_heads=(1,),
                                  num_classes=4, drop_path_rate=0.0)
        self.expect_replaced(1, model.train(), torch.randn(3, 3, 16, 16), 1e-2, on=True)

    def test_images_that_want_a_gradient_and_other_convolutions_are_left_alone(self):
        calls = self.expect_eagers(Embedded(), torch.randn(2, 3, 12, 8), 1e-5)
        self.assertEqual([(call.call, call.replaced, call.reason) for call in calls], [(CALL, False, "a gradient of the images is wanted")])
        for keywords in ({"stride": 2}, {"padding": 1}, {"dilation": 2}):
            self.assertEqual(self.expect_replaced(0, Embedded(**keywords), torch.randn(2, 3, 12, 12), 1e-5), [])
        self.assertEqual(self.targets, [])

    def test_frozen_parts_have_no_gradients(self):
        for frozen in ("weight", "bias"):
            model = Embedded()
            getattr(model.proj, frozen).requires_grad_(False)
            self.expect_replaced(1, model, torch.randn(2, 3, 12, 8), 1e-5)
        model.proj.requires_grad_(False)
        self.assertEqual(self.expect_replaced(0, model, torch.randn(2, 3, 12, 8), 1e-5), [])


class RaceTest(RaceCase):
    def test_both_sides_are_the_same_function_with_the_same_gradients_and_all_of_it_is_asked(self):
        for tokens in (True, False):
            with self.subTest(tokens=tokens):
                report = self.report(Embedded(tokens=tokens), torch.randn(2, 3, 12, 8), images=False)
                self.assertEqual([(call.call, call.replaced) for call in report.calls if call.operator == "linear_train"], [(CALL, True)])
                self.assertEqual(self.asked, ["linear bf16 m=12 n=24 k=48 bias params=fp32",
                                              "linear_weight_grad bf16 m=12 n=24 k=48 bias out=fp32"])
                (ours, theirs), = self.raced
                self.assertEqual(len(ours), 3)  # the result, gradients of weight and bias
                for mine, other in zip(ours, theirs, strict=True):
                    self.assertEqual((mine.shape, mine.dtype), (other.shape, other.dtype))
                    self.assertLessEqual((mine - other).norm().item(), 0.02 * other.norm().item())
