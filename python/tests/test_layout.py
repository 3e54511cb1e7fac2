# python/tests/test_layout.py -- Folding and broadcasting, checked address by address; no PyTorch, no library.
# SPDX-License-Identifier: Apache-2.0
import itertools
import math
import random
import unittest

from vitune._runtime.errors import InvalidArgument, Unsupported
from vitune._ops.layout import View, contiguous_strides, fold, output_strides


def permuted(shape, order):
    """A contiguous tensor of `shape`, its dimensions in `order`."""
    strides = contiguous_strides(shape)
    return View(tuple(shape[i] for i in order), tuple(strides[i] for i in order))


def dense(*shape):
    return View(shape, contiguous_strides(shape))


def output_view(q, v):
    return View(q.shape, output_strides(q.shape, v.strides))


def address(view, shape, index):
    """Where element `index` of `view`, broadcast to `shape`, is."""
    missing = len(shape) - len(view.shape)
    return sum(stride * (0 if extent == 1 else i)
               for extent, stride, i in zip(view.shape, view.strides, index[missing:]))


def launched(layout, leading):
    """(launch, batch, head) of a leading index, from the layout's own log-sum-exp, which numbers them."""
    memory_shape = layout.lse_shape[:-1]
    memory_strides = contiguous_strides(memory_shape)
    number = sum(i * memory_strides[layout.lse_order[axis]] for axis, i in enumerate(leading))
    launch, rest = divmod(number, layout.batch * layout.heads)
    return launch, *divmod(rest, layout.heads)


def expect_same_elements(test, layout, q, k, v, mask=None, grouped=1, window=None):
    """Every element that a kernel would touch is the one that the caller meant."""
    o = output_view(q, v)
    leading_shape, nq, nk, d = q.shape[:-2], q.shape[-2], k.shape[-2], q.shape[-1]
    written = set()
    for leading in itertools.product(*map(range, leading_shape)):
        launch, b, h = launched(layout, leading)
        kv = (*leading[:-1], leading[-1] // grouped) if grouped > 1 else leading
        kv_shape = (*leading_shape[:-1], leading_shape[-1] // grouped) if grouped > 1 else leading_shape

        def at(strides, step, head):
            return launch * layout.steps[step] + b * strides[0] + head * strides[1]
        test.assertEqual(at(layout.q, 0, h), address(q, q.shape, (*leading, 0, 0)))
        test.assertEqual(at(layout.k, 1, h * layout.kv_heads // layout.heads),
                         address(k, (*kv_shape, nk, d), (*kv, 0, 0)))
        test.assertEqual(at(layout.v, 2, h * layout.kv_heads // layout.heads),
                         address(v, (*kv_shape, nk, d), (*kv, 0, 0)))
        test.assertEqual(at(layout.o, 4, h), address(o, o.shape, (*leading, 0, 0)))
        written.update(at(layout.o, 4, h) + row * layout.o[2] for row in range(nq))
        if mask is not None:
            wanted = (leading[0] % window, *leading[1:]) if window else leading
            for row, key in ((0, 0), (nq - 1, nk - 1)):
                mine = (launch * layout.steps[3] + b % layout.mask_batches * layout.mask[0] + h * layout.mask[1]
                        + row * layout.mask[2] + key * layout.mask[3])
                test.assertEqual(mine, address(mask, (*leading_shape, nq, nk), (*wanted, row, key)))
    test.assertEqual((layout.q[2], layout.k[2], layout.v[2]), (q.strides[-2], k.strides[-2], v.strides[-2]))
    test.assertEqual(layout.out_shape, q.shape)
    test.assertEqual(len(written), math.prod(q.shape[:-1]), "rows of the output overlap")


class FoldTest(unittest.TestCase):
    def test_views_of_a_packed_projection_are_batch_and_head(self):
        x = permuted((2, 197, 3, 12, 64), (2, 0, 3, 1, 4))
        q = View(x.shape[1:], x.strides[1:])
        layout = fold(q, q, q)
        self.assertEqual((layout.batch, layout.heads, layout.launches), (2, 12, 1))
        self.assertEqual(layout.q, (197 * 2304, 64, 2304))
        self.assertEqual(layout.o, (197 * 768, 64, 768))

    def test_rank_3_is_all_batch(self):
        q = dense(24, 196, 64)
        layout = fold(q, q, q, dense(24, 196, 196))
        self.assertEqual((layout.batch, layout.heads, layout.mask_batches), (24, 1, 24))
        self.assertEqual(output_view(q, q).strides, q.strides)

    def test_hiera_of_several_images_is_one_launch_per_image(self):
        images, windows, rows, heads, d = 3, 4, 16, 2, 32
        x = permuted((images, rows, windows, 3, heads, d), (3, 0, 4, 2, 1, 5))
        q = View(x.shape[1:], x.strides[1:])
        layout = fold(q, q, q)
        self.assertEqual((layout.batch, layout.heads, layout.launches), (windows, heads, images))
        expect_same_elements(self, layout, q, q, q)
        # As Hiera goes on: x.transpose(1, 3).reshape(images, -1, heads * d), which is then no copy.
        self.assertEqual(output_view(q, q).strides, (rows * windows * heads * d, d, heads * d, windows * heads * d, 1))

    def test_twins_folds_images_and_groups_also_for_one_image(self):
        for images in (1, 2):
            x = permuted((images, 9, 49, 3, 2, 32), (3, 0, 1, 4, 2, 5))
            q = View(x.shape[1:], x.strides[1:])
            layout = fold(q, q, q)
            self.assertEqual((layout.batch, layout.heads, layout.launches), (images * 9, 2, 1))
            self.assertEqual(output_view(q, q).strides[1:], (49 * 64, 32, 64, 1))

    def test_window_masks_are_the_batch_entry_modulo_w(self):
        q = dense(12, 3, 49, 32)
        mask = dense(4, 1, 49, 49)
        layout = fold(q, q, q, mask, window_masks=True)
        self.assertEqual((layout.mask_batches, layout.mask), (4, (49 * 49, 0, 49, 1)))
        expect_same_elements(self, layout, q, q, q, mask, window=4)
        with self.assertRaises(InvalidArgument):
            fold(q, q, q, mask)
        with self.assertRaises(InvalidArgument):
            fold(q, q, q, dense(5, 1, 49, 49), window_masks=True)

    def test_rank_5_masks_of_windows_repeat_for_every_image(self):
        q = dense(3, 4, 2, 9, 8)  # images, windows, heads
        mask = dense(4, 1, 9, 9)
        layout = fold(q, q, q, mask)
        self.assertEqual((layout.batch, layout.launches, layout.mask_batches), (12, 1, 4))
        expect_same_elements(self, layout, q, q, q, mask)

    def test_every_mask_shape_reads_the_elements_that_broadcasting_means(self):
        q = permuted((3, 5, 4, 8), (0, 2, 1, 3))
        k = permuted((3, 6, 4, 8), (0, 2, 1, 3))
        for shape in ((5, 6), (1, 6), (5, 1), (4, 5, 6), (1, 4, 5, 6), (3, 1, 1, 6), (3, 4, 5, 6), (1, 1, 1, 1), (6,)):
            mask = dense(*shape)
            expect_same_elements(self, fold(q, k, k, mask), q, k, k, mask)

    def test_random_views_of_every_rank_read_their_own_elements(self):
        chosen = random.Random(7)
        folded = 0
        for _ in range(600):
            rank = chosen.randint(2, 5)
            leading = [chosen.choice((1, 2, 3)) for _ in range(rank - 2)]
            nq, nk = chosen.randint(1, 4), chosen.randint(1, 4)

            def view(rows):
                order = list(range(rank - 1))
                chosen.shuffle(order)
                shape = [(*leading, rows)[i] for i in order] + [8 * chosen.choice((1, 3))]
                inverse = [order.index(i) for i in range(rank - 1)] + [rank - 1]
                wide = permuted(shape, inverse)
                return View((*wide.shape[:-1], 8), wide.strides)
            q, k, v = view(nq), view(nk), view(nk)
            mask = dense(*(chosen.choice((1, extent)) for extent in leading), nq, nk) if chosen.random() < 0.6 else None
            layout = fold(q, k, v, mask)
            folded += layout.launches == 1
            expect_same_elements(self, layout, q, k, v, mask)
        self.assertGreater(folded, 400)  # most of these need no loop

    def test_grouped_heads_of_every_rank(self):
        for leading in ((), (2,), (2, 3)):
            q, k = dense(*leading, 6, 4, 8), dense(*leading, 2, 5, 8)
            layout = fold(q, k, k, enable_gqa=True)
            self.assertEqual((layout.heads, layout.kv_heads), (6, 2))
            expect_same_elements(self, layout, q, k, k, grouped=3)

    def test_grouped_heads_of_hiera_like_views_loop(self):
        x = permuted((2, 5, 3, 4, 8), (0, 2, 3, 1, 4))  # images, windows, heads, rows: images and windows do not fold
        q, k = x, View((2, 3, 2, 5, 8), x.strides)
        layout = fold(q, k, k, enable_gqa=True)
        self.assertEqual((layout.launches, layout.batch, layout.heads, layout.kv_heads), (2, 3, 4, 2))
        expect_same_elements(self, layout, q, k, k, grouped=2)

    def test_keys_and_values_broadcast_by_strides_of_0(self):
        q, k = dense(4, 6, 5, 8), dense(1, 1, 7, 8)
        layout = fold(q, k, k)
        self.assertEqual((layout.k, layout.kv_heads), ((0, 0, 8), 6))

    def test_the_output_has_what_any_of_the_three_is_wide_in(self):
        cases = [
            ((1, 3), (1, 3), (2, 3)), ((2, 1), (2, 1), (2, 3)), ((1, 1), (2, 1), (1, 3)), ((1, 3), (2, 3), (1, 1)),
            ((1,), (1,), (4,)), ((2, 1, 3), (2, 1, 3), (2, 4, 3)), ((1, 3), (0, 3), (0, 3)), ((1, 3), (1, 3), (0, 3)),
        ]
        for q, k, v in cases:
            wide = tuple(next((extent for extent in extents if extent != 1), 1) for extents in zip(q, k, v))
            with self.subTest(q=q, k=k, v=v):
                layout = fold(dense(*q, 5, 8), dense(*k, 7, 8), dense(*v, 7, 8))
                self.assertEqual(layout.out_shape, (*wide, 5, 8))
                self.assertEqual(layout.launches * layout.batch * layout.heads, math.prod(wide))
                self.assertEqual(math.prod(layout.lse_shape), math.prod(wide) * 5)

    def test_contradictions_and_limits_are_named(self):
        q = dense(2, 3, 5, 64)
        cases = [
            (InvalidArgument, "ranks", (q, dense(3, 5, 64), q)),
            (InvalidArgument, "head size", (q, dense(2, 3, 5, 32), dense(2, 3, 5, 32))),
            (InvalidArgument, "rows", (q, dense(2, 3, 5, 64), dense(2, 3, 6, 64))),
            (InvalidArgument, "enable_gqa", (q, dense(2, 2, 5, 64), dense(2, 2, 5, 64))),
            (InvalidArgument, "broadcast", (q, q, q, dense(2, 2, 5, 5))),
            (InvalidArgument, "broadcast", (q, q, q, dense(1, 2, 3, 5, 5))),
            (Unsupported, "above 128", (dense(2, 3, 5, 136),) * 3),
            (Unsupported, "multiple of 8", (dense(2, 3, 5, 36),) * 3),
            (Unsupported, "one head size", (q, q, dense(2, 3, 5, 32))),
            (Unsupported, "rank 6", (dense(1, 1, 2, 3, 5, 64),) * 3),
            (Unsupported, "not contiguous", (q, permuted((2, 3, 64, 5), (0, 1, 3, 2)), q)),
        ]
        for error, words, arguments in cases:
            with self.subTest(words), self.assertRaisesRegex(error, words):
                fold(*arguments)
