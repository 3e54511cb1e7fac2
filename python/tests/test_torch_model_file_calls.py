# python/tests/test_torch_model_file_calls.py -- vitune.export() of any call: what a file holds and computes alike, what is refused and why.
# SPDX-License-Identifier: Apache-2.0
"""No GPU: files are made and read by Python alone. Where the command is beside the library under test, its reader takes each of them too."""
import unittest
import warnings

import vitune

from .support import torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import nn

from .export_models import Classifier
from .model_file_cases import Calls, FolderCase, kinds


def constant_changed(self, x):
    factor = torch.ones(8) * 2
    first = x * factor
    factor.add_(1)
    return first + x * factor


def constant_seen_changed(self, x):
    factor = torch.ones(8) * 2
    part = factor[:4]
    factor.add_(1)
    return x[..., :4] * part


def in_windows(x, heads, size):
    """Attention of [B, heads, windows, tokens, size], of which not every two dimensions lie one behind the other."""
    qkv = x.repeat(1, 2, 6).reshape(-1, 4, 2, 3, heads, size).permute(3, 0, 4, 2, 1, 5)
    return F.scaled_dot_product_attention(*qkv.unbind(0)).flatten(1)[:, None, :8]


def part_written(self, x):
    x[:, 0] += 1
    return x


def view_kept(self, x):
    old = x[:, 0]
    x += 1
    return x.sum(1) + old


def in_place(self, x):
    x += 1
    x.mul_(2)
    return x[:, 0] + x[:, 1]


#: Calls that lower, and are checked by the exporter itself.
HELD = {
    "arithmetic": lambda self, x: (x * 2 - x / 3 + 1 - x).abs().sqrt() * torch.rsqrt(x.square() + 1) + (2 - x) + 1 / (x.exp() + 2),
    "alpha": lambda self, x: torch.add(x, self.weight, alpha=3) - torch.sub(x, x * x, alpha=0.5) + torch.rsub(x, x * x, alpha=5),
    "softplus": lambda self, x: F.softplus(x, beta=2) + F.softplus(x, 0.5, 40) + F.softplus(x * 1e4) + F.mish(x * 1e4),
    "truths": lambda self, x: x * ((x > 0) & ~(x > 1) | (x < -1)) + x.bool() * 2.0 + x * torch.logical_not(x < 0.1),
    "a constant that is changed": constant_changed,
    "integers": lambda self, x: x * torch.arange(300, 308) + torch.tensor(7),
    "odd heads": lambda self, x: F.scaled_dot_product_attention(x[:, :, None, :4], x[:, :, None, 4:], x[:, :, None, :6], scale=0.3)
    .flatten(2).repeat(1, 1, 2)[..., :8] + F.scaled_dot_product_attention(x[..., :4], x[..., :4], x[..., 4:], x[:, :, :4]).repeat(1, 1, 2),
    "products": lambda self, x: torch.bmm(x @ x.transpose(1, 2), x) + x.matmul(x[:, :1].transpose(1, 2)) + F.linear(x, x[0, :3])[..., :1],
    "convolutions": lambda self, x: F.conv2d(x.reshape(-1, 2, 4, 4), self.inner.weight.reshape(4, 2, 2, 4)[:, :, :, :3], self.weight[:4], 1, 1)
    .flatten(1)[:, None, :8] + F.conv1d(x, self.inner.weight.reshape(16, 4)[:, :, None][:8], None, 2).mean(1, keepdim=True)[..., :1],
    "convolutions in groups": lambda self, x: F.conv2d(x.reshape(-1, 4, 4, 2), self.inner.weight.reshape(8, 2, 2, 2), self.weight, 1, 1, 1, 2)
    .mean((2, 3))[:, None] + F.conv2d(x.reshape(-1, 4, 4, 2), self.inner.weight[:4].reshape(8, 1, 2, 2), self.weight, 2, 1, 2, 4).flatten(1)[:, None, :8],
    "pools": lambda self, x: F.max_pool2d(x.reshape(-1, 2, 4, 4), 3, 2, 1).flatten(1)[:, None] + F.avg_pool2d(
        x.reshape(-1, 2, 4, 4), 3, 2, 1, count_include_pad=False).flatten(1)[:, None] + F.avg_pool2d(x.reshape(-1, 2, 4, 4), 2).flatten(1)[:, None]
    + F.adaptive_avg_pool2d(x.reshape(-1, 2, 4, 4), 2).flatten(1)[:, None] + F.avg_pool2d(x.reshape(-1, 2, 4, 4), 3, 2, 1).flatten(1)[:, None],
    "interpolations": lambda self, x: F.interpolate(x.reshape(-1, 2, 4, 4), (3, 5), mode="bicubic").flatten(2).mean(1, keepdim=True) + F.interpolate(
        x.reshape(-1, 2, 4, 4), scale_factor=(0.75, 1.25), mode="bilinear", antialias=True).flatten(2).mean(1, keepdim=True) + F.interpolate(
            x.reshape(-1, 2, 4, 4), scale_factor=2)[:, :1, :3, :5].flatten(2),
    "attention of five dimensions": lambda self, x: in_windows(x, 2, 8) + in_windows(x, 1, 16),
    "groups": lambda self, x: F.group_norm(x.reshape(-1, 8, 4), 2, self.weight, self.weight, 1e-3).reshape(x.shape) + F.silu(
        F.group_norm(x.reshape(-1, 8, 2, 2), 1).reshape(x.shape)),
    "choices": lambda self, x: torch.where(x > 0.5, x, x * x).clamp(-1, 2).masked_fill(x <= -1, 3.0) + torch.maximum(x, self.weight),
    "comparisons": lambda self, x: x * (x >= 0.1) * (x < 5) * (x != 7) + (x == 0.25) * 3.0,
    "activations": lambda self, x: F.silu(x) + F.gelu(x, approximate="tanh") + F.hardswish(x) + F.relu6(x) + F.elu(x) + F.softplus(x)
    + F.leaky_relu(x, 0.1) + F.mish(x) + F.hardsigmoid(x) + F.glu(x, 2).repeat(1, 1, 2) + F.hardtanh(x),
    "powers": lambda self, x: x ** 2 + x.abs().pow(0.5) + (x * x + 1) ** -0.5 + x.pow(3),
    "reductions": lambda self, x: x.mean(1) + x.sum((1,)) + x.amax(1) + x.mean((1, 2), keepdim=True)[:, 0] + x.var(1),
    "variance": lambda self, x: x.var(-1, unbiased=False, keepdim=True) * x + torch.var(x, 2, correction=1).unsqueeze(-1),
    "softmax": lambda self, x: x.softmax(1) + F.softmax(x, -1) * torch.softmax(x, dim=1),
    "normalised": lambda self, x: F.normalize(x, dim=-1) + x / x.norm(dim=1, keepdim=True),
    "pieces": lambda self, x: torch.cat([x[:, :1], x * 2, torch.stack([x[:, 1], x[:, 2]], 1)], 1).roll((1, 2), (1, 2)),
    "stacked": lambda self, x: torch.stack([x, x * 2], -1).flatten(2) + torch.stack([x, x], 2).reshape(x.shape[0], 4, 16),
    "padded": lambda self, x: F.pad(x, (1, 2, 0, 1), value=0.5)[:, 1:, 2:] + F.pad(x, (-1, 0))[:, :, :1],
    "repeated": lambda self, x: x.repeat(1, 2, 1).reshape(x.shape[0], 2, 4, 8).sum(1) + x.repeat_interleave(2, dim=1)[:, ::2],
    "picked": lambda self, x: x[:, [3, 1, 2]] + x.index_select(1, torch.tensor([0, 1, 0])) + x.flip(1)[:, :3],
    "in place": in_place,
    "views": lambda self, x: (x.permute(2, 0, 1).contiguous().transpose(0, 1) + 1).flatten(1).unflatten(1, (8, 4)).mT,
    "constants": lambda self, x: x + F.interpolate(self.weight.reshape(1, 1, 2, 4), (4, 8), mode="bicubic")[0] + torch.arange(8) * 0.25,
    "filled": lambda self, x: x + torch.zeros_like(x) + x.new_ones(4, 8) + torch.ones_like(x[:, :1]) * 0.5,
    "a copy that no view says": lambda self, x: F.linear((x[..., :6].unflatten(-1, (2, 3)) * 2).mT.reshape(-1, 4, 6), self.inner.weight[:, :6]),
    "matrix": lambda self, x: x @ self.inner.weight + torch.addmm(self.weight, x[:, 0], self.inner.weight)[:, None],
    "two norms": lambda self, x: F.layer_norm(x, (8,)) + F.rms_norm(x, (8,), self.weight, 1e-3),
    "images": lambda self, x: F.adaptive_avg_pool2d(x.reshape(x.shape[0], 2, 4, 4), 1).flatten(1),
}
#: Calls that do not, with the reason.
REFUSED = {
    "no node of a model file": lambda self, x: x.cumsum(1),
    "a part of a tensor": part_written,
    "as it was before": view_kept,
    "a weight that depends on the input": lambda self, x: F.linear(x, x[0, :, :8], self.weight[:4]),
    "with a vector": lambda self, x: x @ x[0, 0],
    "random numbers": lambda self, x: x + torch.rand(8),
    "in place is read as it was before": constant_seen_changed,
    "not known: ['out']": lambda self, x: torch.exp(x, out=torch.empty_like(x)),
    "a softplus with beta 1 and threshold 1": lambda self, x: F.softplus(x, 1, 1),
    "arithmetic of truth values": lambda self, x: x * ((x > 0) + (x > 1)),
    "logic of what is no truth value": lambda self, x: x * torch.logical_and(x, x),
    "a cast to uint8": lambda self, x: x * x.to(torch.uint8),
    "a layer of type float32": lambda self, x: F.linear(x.float(), self.inner.weight.float()),
    "type float32: operands": lambda self, x: x.float() @ self.inner.weight.float(),
    "layer of type": lambda self, x: F.conv2d(x.float()[:, None], self.weight.float().reshape(2, 1, 2, 2), None, 2),
    "a product of type float32": lambda self, x: x.float() @ x.float().transpose(1, 2),
    "a power of 2.5": lambda self, x: x.abs() ** 2.5,
    "a norm over 2 dimensions": lambda self, x: F.layer_norm(x, (4, 8)),
    "padding by mode reflect": lambda self, x: F.pad(x, (1, 1), mode="reflect"),
    "an index that depends on the input": lambda self, x: x[:, x[0, :, 0].argsort()],
    "recorded without values": lambda self, x: x if x.sum() > 0 else -x,
    "with a head size of 4": lambda self, x: F.scaled_dot_product_attention(x[:, :, :4], x[:, :, :4], x[:, :, :4], is_causal=True),
    "a filter that depends on the input": lambda self, x: F.conv2d(x[:, None], x[:2, None, :2, :2]),
    "reach beyond the image": lambda self, x: F.max_pool2d(x[:, None], 3, 2, ceil_mode=True),
    "places of the greatest": lambda self, x: F.max_pool2d(x[:, None], 2, return_indices=True)[0],
    "windows of different sizes": lambda self, x: F.adaptive_avg_pool2d(x[:, None], 3),
}


class CallsTest(FolderCase):
    def test_calls_are_nodes_that_compute_the_same(self):
        for name, function in HELD.items():
            with self.subTest(name):
                self.exported(Calls(function), torch.zeros(1, 4, 8))

    def test_pointwise_calls_one_after_the_other_are_one_map(self):
        held, _ = self.exported(Calls(HELD["powers"]), torch.zeros(1, 4, 8))
        self.assertEqual(kinds(held), ["linear", "map"])

    def test_every_call_that_cannot_be_held_is_said_with_its_module(self):
        model = nn.ModuleDict({"a": Calls(REFUSED["no node of a model file"]), "b": Calls(lambda self, x: x.cumprod(1))})
        model.forward = lambda x: model["b"](model["a"](x))
        found = vitune.exportable(model.eval(), torch.zeros(1, 4, 8))
        self.assertEqual([(each.module, each.call) for each in found], [("a", "cumsum of [2, 4, 8]"), ("b", "cumprod of [2, 4, 8]")])
        with self.assertRaisesRegex(vitune.Unsupported, "2 calls that a model file cannot hold:\na: cumsum of .*\nb: cumprod of "):
            vitune.export(model, self.path, torch.zeros(1, 4, 8))
        self.assertFalse(self.path.exists())

    def test_each_reason_is_a_sentence(self):
        for reason, function in REFUSED.items():
            with self.subTest(reason), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = vitune.exportable(Calls(function).eval(), torch.zeros(1, 4, 8))
                self.assertIn(reason, "\n".join(map(str, found)))
                with self.assertRaises(vitune.Unsupported):
                    vitune.export(Calls(function).eval(), self.path, torch.zeros(1, 4, 8))

    def test_a_batch_that_does_not_grow_evenly_is_refused(self):
        found = vitune.exportable(Calls(lambda self, x: x.reshape(x.shape[0], -1)[:, :x.shape[0] ** 2]).eval(), torch.zeros(1, 4, 8))
        self.assertRegex(str(found[0]), "no a \\+ b B|does not grow evenly")

    def test_what_is_no_sample_or_result_is_an_error(self):
        model = Classifier().eval()
        with self.assertRaisesRegex(vitune.InvalidArgument, "model.eval"):
            vitune.export(Classifier().train(), self.path, torch.zeros(1, 3, 32, 32))
        with self.assertRaisesRegex(vitune.InvalidArgument, "a sample is needed"):
            vitune.export(model, self.path)
        with self.assertRaisesRegex(vitune.InvalidArgument, "a sample is a tensor"):
            vitune.export(model, self.path, 3)
        with self.assertRaisesRegex(vitune.InvalidArgument, "no result logits; it has out"):
            vitune.export(model, self.path, torch.zeros(1, 3, 32, 32), outputs=["logits"])
        with self.assertRaisesRegex(vitune.InvalidArgument, "'int8'"):
            vitune.export(model, self.path, torch.zeros(1, 3, 32, 32), dtype="int8")


if __name__ == "__main__":
    unittest.main()
