# python/tests/test_torch_eager_models.py -- Models that train in eager mode while vitune is installed, beside PyTorch's own steps.
# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from .torch_cases import Block
from .training_staged import QKV_BACKWARD, TrainingTest

try:
    import timm
except ImportError:
    timm = None


class Layer(torch.nn.Module):
    """A block of a ViT, of 32 columns."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = torch.nn.LayerNorm(32), Block()

    def forward(self, x):
        return x + self.attention(self.norm(x))


def vit():
    return timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=5)


def swin():
    return timm.create_model("swin_tiny_patch4_window7_224", img_size=16, patch_size=2, window_size=4, embed_dim=32, depths=(2,), num_heads=(2,),
                             num_classes=5, drop_path_rate=0.0)


def steps(make, dtype, images, labels, count=3):
    """The losses of some steps under autocast, gradients scaled, and the parameters after them."""
    torch.manual_seed(4)
    model = make().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler, losses = torch.amp.GradScaler("cpu", init_scale=1024.0), []
    for _ in range(count):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype):
            loss = F.cross_entropy(model(images).float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


@needs_device
@needs_torch
class ModelsTest(TrainingTest):
    @unittest.skipIf(timm is None, "timm is not installed")
    def test_steps_of_timms_models_under_autocast_are_pytorchs(self):
        torch.manual_seed(3)
        for make, size, served, norms in ((vit, 32, 2, 5), (swin, 16, 2, 6)):
            images, labels = torch.randn(2, 3, size, size), torch.tensor([1, 3])
            with self.subTest(make.__name__):
                want, theirs = steps(make, torch.bfloat16, images, labels)
                with vitune.torch.enabled(timm=True, training=True), \
                        mock.patch.object(*QKV_BACKWARD, mock.Mock(side_effect=getattr(*QKV_BACKWARD))) as whole:
                    got, ours = steps(make, torch.bfloat16, images, labels)
                self.assertEqual(self.counts(), (3 * served, 0, 3 * norms))
                self.assertEqual(whole.call_count, 3 * served)
                self.assertLess(want[-1], want[0])
                for mine, right in zip(got, want):
                    self.assertLess(abs(mine - right), 0.02 * right)
                for mine, right in zip(ours, theirs, strict=True):
                    self.assertLess((mine - right).norm(), 0.02 * right.norm() + 2e-3)

    def test_an_overflow_reaches_the_gradients_and_is_skipped(self):
        layer, x = Layer(), torch.randn(2, 9, 32)
        before = [parameter.detach().clone() for parameter in layer.parameters()]
        optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**24)
        with vitune.torch.enabled(training=True):
            with torch.autocast("cpu", torch.float16):
                loss = layer(x).float().square().sum()
            scaler.scale(loss).backward()
        self.assertFalse(layer.norm.weight.grad.isfinite().all())
        scaler.step(optimizer)
        scaler.update()
        self.assertEqual(scaler.get_scale(), 2.0**23)
        self.assertTrue(all(map(torch.equal, before, layer.parameters())))
        self.assertEqual(self.counts(), (1, 0, 1))

    def test_checkpointed_blocks_have_the_same_gradients(self):
        layer, x = Layer().bfloat16(), torch.randn(2, 9, 32, dtype=torch.bfloat16, requires_grad=True)
        found = []
        with vitune.torch.enabled(training=True):
            for call in (layer, lambda x: checkpoint(layer, x, use_reentrant=False), lambda x: checkpoint(layer, x, use_reentrant=True)):
                layer.zero_grad(set_to_none=True)
                call(x).float().square().sum().backward()
                found.append([x.grad, *(parameter.grad for parameter in layer.parameters())])
                x.grad = None
        self.assertTrue(all(map(torch.equal, found[0], found[1])))
        # A reentrant checkpoint first goes forward without a gradient: then the norm is that of inference, the operators' library's or PyTorch's.
        for mine, right in zip(found[2], found[0]):
            self.expect_near(mine, right, 2**-6)
        self.assertEqual(self.counts(), (5, 0, 5 if OPERATORS else 4))

    def test_steps_that_add_up_and_hooks_of_modules_are_as_pytorchs(self):
        layer, x = Layer().bfloat16(), torch.randn(2, 9, 32, dtype=torch.bfloat16)
        found = []
        for training in (False, True):
            seen = []
            hooks = [module.register_full_backward_hook(lambda _module, into, out: seen.append((*into, *out))) for module in layer.modules()]
            layer.zero_grad(set_to_none=True)
            with vitune.torch.enabled(training=training):
                for _ in range(2):
                    layer(x).float().square().sum().backward()
            for hook in hooks:
                hook.remove()
            found.append((len(seen), [parameter.grad for parameter in layer.parameters()]))
        self.assertEqual(found[0][0], found[1][0])
        for mine, right in zip(found[1][1], found[0][1]):
            self.expect_near(mine, right, 2**-5)
        self.assertEqual(self.counts()[::2], (2, 2))


if __name__ == "__main__":
    unittest.main()
