# python/tests/test_torch_max_pool.py -- max_pool2d that trains beside PyTorch's: values, places, gradients; what compilers make of it.
# SPDX-License-Identifier: Apache-2.0
import unittest

from .support import needs_torch, torch

if torch is not None:
    import torch.nn.functional as F

    from vitune._ops import decompositions, max_pool
    from vitune._runtime.errors import Unsupported

SHAPES = (2, 3, 8, 8), (1, 2, 7, 9), (2, 4, 1, 5), (1, 1, 2, 2), (1, 5, 23, 24), (1, 1, 1, 1)


def images(shape, kind, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)
    if kind == "ties":
        return x.round()
    return {"normal": x, "negative": -x.abs(), "nan": x.where(x < 1, float("nan")), "infinite": x.where(x > -1, -float("inf"))}[kind]


@needs_torch
@unittest.skipIf(torch is not None and not max_pool.CAN_TRAIN, "this PyTorch's Inductor has another forward pass")
class MaxPoolTest(unittest.TestCase):
    def each(self, dtype):
        for shape in SHAPES:
            for kind in ("normal", "ties", "negative", "nan", "infinite"):
                for layout in (torch.contiguous_format, torch.channels_last):
                    yield (shape, kind, layout), images(shape, kind, dtype).contiguous(memory_format=layout)

    def test_values_strides_and_gradients_are_pytorchs(self):
        for dtype, error in ((torch.float64, 1e-14), (torch.bfloat16, 2e-2)):
            for case, x in self.each(dtype):
                theirs, ours = x.clone().requires_grad_(), x.clone().requires_grad_()
                wanted, (found, places) = F.max_pool2d(theirs, 3, 2, 1), torch.ops.vitune.max_pool_train(ours)
                torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True, msg=str(case))
                self.assertEqual((found.stride(), places.dtype, places.requires_grad), (wanted.stride(), torch.int8, False), case)
                gradient = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
                wanted.backward(gradient), found.backward(gradient)
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=error, atol=error if dtype == torch.bfloat16 else 0, msg=str(case))

    def test_the_operators_are_what_pytorch_expects_of_operators(self):
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(2, 8, 9, 12).contiguous(memory_format=layout).requires_grad_()
            torch.library.opcheck(torch.ops.vitune.max_pool_train.default, (x,))

    def test_a_second_derivative_is_refused_with_a_sentence(self):
        x = torch.randn(1, 2, 6, 6, requires_grad=True)
        gradient, = torch.autograd.grad(torch.ops.vitune.max_pool_train(x)[0].square().sum(), x, create_graph=True)
        with self.assertRaisesRegex(Unsupported, "no second derivative"):
            gradient.sum().backward()

    def test_a_compiler_keeps_a_byte_of_each_window_and_no_image(self):
        kept = []

        def keep(tensor):
            kept.append(tensor)
            return tensor

        decompositions.register()
        x = torch.randn(2, 8, 16, 16).contiguous(memory_format=torch.channels_last).requires_grad_()
        compiled = torch.compile(lambda x: torch.ops.vitune.max_pool_train(x * 2)[0].relu(), fullgraph=True)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
            found = compiled(x)
        self.assertEqual({each.dtype for each in kept if each.numel() == 2 * 8 * 8 * 8} - {torch.float32}, {torch.int8, torch.bool})
        self.assertFalse([each.shape for each in kept if each.numel() > 2 * 8 * 8 * 8])
        wanted = F.max_pool2d(theirs := x.detach().clone().requires_grad_() * 1, 3, 2, 1)
        self.assertTrue(torch.equal(found, (wanted * 2).relu()))
        theirs = x.detach().clone().requires_grad_()
        F.max_pool2d(theirs * 2, 3, 2, 1).relu().sum().backward()
        found.sum().backward()
        self.assertTrue(torch.equal(x.grad, theirs.grad))
        self.assertTrue(x.grad.is_contiguous(memory_format=torch.channels_last))

    def test_places_are_rows_and_columns_of_a_window(self):
        x = torch.zeros(1, 1, 4, 4)
        x[0, 0, 1, 0] = x[0, 0, 2, 3] = 1
        values, places = max_pool.max_pool_by_torch(x)
        # Of the first window pixel (1, 0) is in row 2 and column 1; of that at the right below pixel (2, 3) is in row 1 and column 2.
        self.assertEqual((values.flatten().tolist(), places.flatten().tolist()[0], places.flatten().tolist()[3]), ([1, 0, 1, 1], 7, 5))


if __name__ == "__main__":
    unittest.main()
