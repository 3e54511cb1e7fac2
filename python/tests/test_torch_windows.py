# python/tests/test_torch_windows.py -- vitune.window_attention() on the emulated device: values, layouts, compilers, refusals.
# SPDX-License-Identifier: Apache-2.0
"""Tensors stay on the CPU: only the launch is replaced, as in test_torch_norm.py."""
import unittest
from unittest import mock

import vitune

from .support import needs_device, needs_library, needs_torch, torch

if torch is not None:
    from vitune._ops import attention as attention_ops, window_attention as window_attention_ops
    from vitune._ops.window_attention import Windows

    from .test_torch_norm import launch_copies


def launch_windows_staged(problem, tensors):
    """What window_attention_ops.launch() does, with tensors of the CPU."""
    launch_copies(tensors, 5, lambda pointers: attention_ops.context_of(0).run(problem, pointers))


def pixel_by_pixel(qkv, windows, bias, padding, scale):
    """The answer in fp64 by the definition, a query at a time; qkv: [B, H, W, 3, heads, d]."""
    (images, rows, columns, _, heads, d), qkv = qkv.shape, qkv.double()
    (tall, wide), (down, across) = windows.window, windows.counts((rows, columns))
    beyond = torch.zeros(3, heads, d, dtype=torch.double) if padding is None else padding.double()
    out = torch.full((images, rows, columns, heads, d), torch.nan, dtype=torch.double)
    for number in range(down * across):
        places = []
        for i in range(tall):
            for j in range(wide):
                y = i * down + number // across if windows.grid else number // across * tall + i
                x = j * across + number % across if windows.grid else number % across * wide + j
                if windows.pads_first:
                    y, x = (y + windows.shift[0]) % (down * tall), (x + windows.shift[1]) % (across * wide)
                if y >= rows or x >= columns:
                    places.append(None)
                elif windows.pads_first:
                    places.append((y, x))
                else:
                    places.append(((y + windows.shift[0]) % rows, (x + windows.shift[1]) % columns))
        for image in range(images):
            q, k, v = torch.stack([beyond if place is None else qkv[(image, *place)] for place in places]).permute(1, 2, 0, 3)
            scores = q @ k.transpose(-1, -2) * (scale or d ** -0.5)
            if bias is not None:
                scores = scores + bias[number % bias.shape[0]].double()
            answers = (scores.softmax(-1) @ v).transpose(0, 1)
            for place, answer in zip(places, answers):
                if place is not None:
                    out[(image, *place)] = answer
    return out


#: image, Windows' fields, windows of the bias, whether padding is given.
CASES = (((6, 8), ((3, 4),), 1, False), ((6, 8), ((3, 4), (1, 2)), 4, False), ((4, 4), ((4, 4), (2, 2)), 1, False),
         ((7, 10), ((4, 4), (2, 1)), 6, True), ((7, 10), ((4, 4), (2, 1), False, True), 6, True), ((5, 3), ((2, 2),), 0, False),
         ((8, 6), ((4, 2), (0, 0), True), 1, False))


@needs_library
@needs_device
@needs_torch
class WindowsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        for module, name, value in ((window_attention_ops, "launch", launch_windows_staged),
                                    (attention_ops, "is_on_gpu", lambda tensor: True)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        window_attention_ops._plans.clear()
        vitune.torch.reset_stats()

    def operands(self, image, window, bias_windows, padded, dtype=None):
        dtype = dtype or torch.bfloat16
        n = window[0] * window[1]
        return (torch.randn(2, *image, 3, 2, 16, dtype=dtype), torch.randn(bias_windows, 2, n, n, dtype=dtype) if bias_windows else None,
                torch.randn(3, 2, 16, dtype=dtype) if padded else None)

    def test_answers_are_those_of_the_definition(self):
        for image, fields, bias_windows, padded in CASES:
            with self.subTest(image=image, windows=fields):
                windows = Windows(*fields)
                qkv, bias, padding = self.operands(image, windows.window, bias_windows, padded)
                want = pixel_by_pixel(qkv, windows, bias, padding, None)
                keywords = {"shift": windows.shift, "bias": bias, "padding": padding, "grid": windows.grid,
                            "pads_first": windows.pads_first}
                got = vitune.window_attention(qkv, windows.window, **keywords)
                self.assertLess((got.double() - want).abs().max().item(), 0.03)
                self.assertTrue(got.is_contiguous())
                theirs = window_attention_ops.torch_windows(qkv, windows, bias, padding, None, False)
                self.assertLess((theirs.double() - want).abs().max().item(), 0.03)
                if not padded:
                    turned = qkv.transpose(3, 4).contiguous()
                    self.assertTrue(torch.equal(vitune.window_attention(turned, windows.window, interleaved=True, **keywords), got))
        self.assertGreater(vitune.torch.stats().served, len(CASES))

    def test_views_other_types_and_scales(self):
        qkv = torch.randn(1, 4, 4, 3, 2, 24, dtype=torch.float16)
        want = pixel_by_pixel(qkv, Windows((2, 2)), None, None, 0.4)
        odd = torch.empty(qkv.numel() + 1, dtype=qkv.dtype)[1:].view(qkv.shape).copy_(qkv)  # an odd address
        gaps = torch.stack((qkv, qkv), -1)[..., 0]
        for given in (qkv, odd, gaps):
            self.assertLess((vitune.window_attention(given, 2, scale=0.4).double() - want).abs().max().item(), 0.004)
        bias = torch.randn(1, 1, 4, 4)
        want = pixel_by_pixel(qkv, Windows((2, 2)), bias, None, None)
        self.assertLess((vitune.window_attention(qkv, 2, bias=bias).double() - want).abs().max().item(), 0.004)
        self.assertEqual(tuple(vitune.window_attention(qkv[:0], 2).shape), (0, 4, 4, 2, 24))

    def test_a_compiled_call_is_the_eager_one(self):
        window_attention_ops.window_attention_op.register_kernel("cpu")(window_attention_ops.window_attention_op._init_fn)
        qkv, bias, _ = self.operands((6, 8), (3, 4), 4, False)

        def call(qkv):
            return vitune.window_attention(qkv, (3, 4), shift=(1, 2), bias=bias).flatten(-2)
        with torch.no_grad():
            want = call(qkv)
            for dynamic in (False, True):
                torch._dynamo.reset()
                got = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")(qkv)
                self.assertTrue(torch.equal(got, want))

    def test_what_no_kernel_serves_is_pytorchs_in_a_model(self):
        window_attention_ops.window_attention_op.register_kernel("cpu")(window_attention_ops.window_attention_op._init_fn)
        qkv, bias, padding = self.operands((7, 10), (4, 4), 6, True)
        arguments = (qkv, (4, 4), (2, 1), bias, padding, None, False, False, False)
        with mock.patch.object(window_attention_ops, "launch", side_effect=vitune.Unsupported("not today")):
            got = torch.ops.vitune.window_attention(*arguments, True)
            with self.assertRaisesRegex(vitune.Unsupported, "not today"):
                torch.ops.vitune.window_attention(*arguments, False)
        want = pixel_by_pixel(qkv, Windows((4, 4), (2, 1)), bias, padding, None)
        self.assertLess((got.double() - want).abs().max().item(), 0.03)
        self.assertEqual(vitune.torch.stats().fallbacks, 1)

    def test_wrong_calls_say_why(self):
        qkv = torch.randn(1, 4, 6, 3, 2, 16, dtype=torch.bfloat16)
        bias = torch.randn(1, 2, 4, 4)
        for arguments, keywords, words in (
                ((qkv.float(), 2), {}, "float32: the kernels take"), ((qkv[0], 2), {}, "it must be"),
                ((qkv, 2), {"interleaved": True}, r"\[B, H, W, heads, 3, d\]"), ((qkv, (2, 2, 2)), {}, "3 numbers"),
                ((qkv, 0), {}, "1 is the least"), ((qkv, 2), {"bias": bias[:, :, :3]}, r"1 or 6, 1 or 2, 4, 4"),
                ((qkv, 2), {"bias": bias.double()}, "float64"), ((qkv, 2), {"shift": 4}, "shift=4"),
                ((qkv, 4), {"padding": torch.randn(3, 2, 16)}, "padding of"), ((qkv[..., :12], 2), {}, "multiples of 8")):
            with self.subTest(words), self.assertRaisesRegex(vitune.VituneError, words):
                vitune.window_attention(*arguments, **keywords)
        with self.assertRaisesRegex(vitune.Unsupported, "have no derivative"):
            vitune.window_attention(qkv.requires_grad_(), 2)


if __name__ == "__main__":
    unittest.main()
