# python/tests/test_torch_space_to_depth.py -- A strided convolution of an image as one of stride 1: the same in fp64.
# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest

from .support import torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F

from vitune._compile.patterns.space_to_depth import space_to_depth


class SpaceToDepthTest(unittest.TestCase):
    def test_it_is_the_convolution(self):
        count = 0
        for kernel, stride, padding, size, channels in itertools.product(
                ((7, 7), (3, 3), (4, 3), (5, 7), (3, 5)), ((2, 2), (4, 4), (2, 3), (3, 2)), ((0, 0), (1, 1), (3, 3), (2, 1)),
                ((32, 32), (17, 23), (31, 16)), (1, 3, 4)):
            form = space_to_depth((2, channels, *size), (8, channels, *kernel), stride, padding)
            self.assertEqual(form is not None, kernel[0] > stride[0] and kernel[1] > stride[1])
            if form is None:
                continue
            count += 1
            x, weight = torch.randn(2, channels, *size, dtype=torch.float64), torch.randn(8, channels, *kernel, dtype=torch.float64)
            image, of_squares = form.image(x), form.weight(weight)
            torch.testing.assert_close(F.conv2d(image, of_squares), F.conv2d(x, weight, None, stride, padding), rtol=1e-12, atol=1e-12)
            for each in (image, of_squares):
                self.assertTrue(each.is_contiguous(memory_format=torch.channels_last))
                self.assertEqual(each.shape[1] % 8, 0)
        self.assertGreater(count, 400)

    def test_what_gains_nothing_by_it_has_no_form(self):
        for channels, kernel, stride in ((8, 7, (2, 2)), (3, 7, (1, 1)), (3, 7, (2, 1)), (3, 2, (2, 2)), (3, 3, (4, 4))):
            self.assertIsNone(space_to_depth((1, channels, 32, 32), (8, channels, kernel, kernel), stride, (0, 0)))


if __name__ == "__main__":
    unittest.main()
