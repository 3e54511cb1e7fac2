# python/tests/test_torch_attention_dropout.py -- Attention with dropout that trains: what is dropped, formulas, gradients, the library's answers.
# SPDX-License-Identifier: Apache-2.0
import math
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("attention that trains is not the operators' library's: once is enough")

from torch.autograd import gradcheck
from torch.utils.checkpoint import checkpoint

from vitune._ops import attention as attention_ops, attention_dropout as dropout, attention_training as training, dropout_mask, problem_text
from vitune._ops.order import CONTIGUOUS, ROWS
from vitune._runtime.counters import counters

from .test_torch_attention_train import heads_of, leaf, run_with_workspace
from .test_torch_norm import launch_copies
from .test_torch_train import serves

KNOWS_DROPOUT = serves("attention_backward bf16 b=1 h=1 n=8 d=8 dropout=0.5")
RANDOM = torch.tensor([0x1234567890ABCDEF, -0x0FEDCBA987654321])


def kept(heads, rows, keys, dropped=26, random=RANDOM):
    return dropout_mask.kept(random, torch.arange(heads), rows, keys, dropped)


def ours(q, k, v, p=0.25, is_causal=False, scale=None, order=ROWS):
    return dropout.attention_dropout_train(q, k, v, p, is_causal, scale, order)


def always(random=RANDOM):
    """The same draw in each call."""
    return mock.patch.object(dropout, "drawn", lambda like: random.to(like.device))


def operands(heads=2, kv_heads=2, nq=9, nk=9, d=8, batch=2, dtype=torch.float64):
    return [heads_of(batch, heads, nq, d, dtype), *(heads_of(batch, kv_heads, nk, d, dtype) for _ in range(2))]


@needs_torch
class MaskTest(unittest.TestCase):
    def test_philox_gives_the_known_answers(self):
        """Of the authors' kat_vectors, for seven rounds."""
        answers = {((0,) * 4, (0,) * 2): (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48),
                   ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2): (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662),
                   ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)):
                       (0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A)}
        for given, want in answers.items():
            counter, key = (tuple(map(torch.tensor, each)) for each in given)
            self.assertEqual(tuple(word.item() for word in dropout_mask.philox(counter, key)), want)

    def test_it_is_the_definition_score_by_score(self):
        """templates/attention/dropout.cuh's, written down once more."""
        seed, offset = (value % 2**64 for value in RANDOM.tolist())
        found = kept(3, 35, 21, 100)
        for head, row, key in ((0, 0, 0), (0, 1, 0), (1, 8, 3), (2, 34, 20), (1, 17, 9), (0, 31, 15), (2, 6, 16), (1, 25, 12)):
            counter = (row // 16 * 4 + row % 8 // 2, key // 16 * 4 + key % 8 // 2, head, offset % 2**32)
            upper = ((seed >> 32) + (offset >> 32)) % 2**32
            words = dropout_mask.philox(tuple(map(torch.tensor, counter)), (torch.tensor(seed % 2**32), torch.tensor(upper)))
            octet = words[row % 2 * 2 + row // 8 % 2].item() >> (8 * (key // 8 % 2 * 2 + key % 2)) & 255
            self.assertEqual(found[head, row, key].item(), octet >= 100, (head, row, key))

    def test_sizes_and_other_heads_change_nothing(self):
        whole = kept(5, 70, 100)
        self.assertTrue(torch.equal(kept(5, 37, 75), whole[:, :37, :75]))
        self.assertTrue(torch.equal(dropout_mask.kept(RANDOM, torch.tensor([4, 1]), 70, 100, 26), whole[[4, 1]]))

    def test_as_many_are_kept_as_is_asked_for_in_each_row_column_and_head(self):
        for dropped in (1, 26, 128, 255):
            rate, found = 1 - dropped / 256, kept(8, 256, 256, dropped).double()
            for dims, count in (((0, 1, 2), 8 * 256**2), ((1, 2), 256**2), ((0, 1), 8 * 256), ((0, 2), 8 * 256)):
                bound = 6 * math.sqrt(rate * (1 - rate) / count) + 6 / count  # few of few are no normal number
                self.assertLessEqual((found.mean(dims) - rate).abs().max().item(), bound, (dropped, dims))

    def test_heads_rows_keys_seeds_and_offsets_are_independent(self):
        def centred(found):
            return found.double() - 0.5
        base = centred(kept(4, 256, 256, 128))
        others = {"a head": base.roll(1, 0), "a row": base.roll(1, 1), "eight rows": base.roll(8, 1), "sixteen rows": base.roll(16, 1),
                  "a key": base.roll(1, 2), "eight keys": base.roll(8, 2), "sixteen keys": base.roll(16, 2), "transposed": base.transpose(1, 2),
                  **{f"bit {bit} of {what}": centred(kept(4, 256, 256, 128, RANDOM ^ torch.tensor([on << bit, (1 - on) << bit])))
                     for bit in (0, 31, 32, 62) for on, what in ((1, "the seed"), (0, "the offset"))}}
        for name, other in others.items():
            # The mean of products of independent signs, but for the diagonal of the transposed.
            self.assertLessEqual(abs((base * other).mean().item()) * 4, 6 / math.sqrt(base.numel()) + (1 / 256 if name == "transposed" else 0), name)

    def test_probabilities_are_rounded_to_256ths_and_others_refused(self):
        self.assertEqual([dropout_mask.dropped_of(p) for p in (0.1, 0.5, 1 / 512, 0.9, 255 / 256)], [26, 128, 1, 230, 255])
        for p, error in ((0.001, vitune.Unsupported), (0.0, vitune.Unsupported), (0.999, vitune.Unsupported), (1.0, vitune.Unsupported),
                         (1.5, vitune.InvalidArgument), (-0.1, vitune.InvalidArgument), (math.nan, vitune.InvalidArgument)):
            with self.subTest(p), self.assertRaisesRegex(error, "dropout_p"):
                dropout_mask.dropped_of(p)


@needs_torch
class FormulaTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)

    def test_each_gradient_is_that_of_differences(self):
        for words in ({}, {"is_causal": True}, {"scale": 0.3}):
            with self.subTest(words), always():
                self.assertTrue(gradcheck(lambda *given: ours(*given, 0.4, **words)[0], operands(2, 1, 5, 6), fast_mode=True))
        with always():
            self.assertTrue(gradcheck(lambda qkv: dropout.attention_qkv_dropout_train(qkv, 0.4, False, None, ROWS)[0], leaf(2, 5, 3, 2, 8),
                                      fast_mode=True))

    def test_the_result_is_softmax_dropout_and_a_product(self):
        q, k, v = operands(4, 2, 20, 35)
        with always():
            out, lse, random = ours(q, k, v, 0.25, scale=0.5)
        scores = 0.5 * q @ k.repeat_interleave(2, 1).transpose(-2, -1)
        weights = scores.softmax(-1) * kept(8, 20, 35, 64).view(2, 4, 20, 35) / 0.75
        torch.testing.assert_close(out, weights @ v.repeat_interleave(2, 1))
        torch.testing.assert_close(lse, scores.logsumexp(-1))
        self.assertTrue(torch.equal(random, RANDOM))
        self.assertEqual((out.requires_grad, lse.requires_grad, random.requires_grad), (True, False, False))

    def test_a_projection_has_the_gradients_of_its_views_in_one(self):
        qkv = leaf(2, 9, 3, 2, 8)
        with always():
            got, want = dropout.attention_qkv_dropout_train(qkv, 0.25, True, None, ROWS)[0], ours(*training.unpacked(qkv), is_causal=True)[0]
        torch.testing.assert_close(got, want)
        dout = torch.randn_like(got)
        torch.testing.assert_close(*(torch.autograd.grad(each, qkv, dout)[0] for each in (got, want)))

    def test_calls_draw_anew_as_the_seed_says_and_on_the_average_nothing_is_dropped(self):
        given = [tensor.detach() for tensor in operands(4, 4, 17, 33, batch=4)]
        torch.manual_seed(9)
        first, second = (ours(*given)[0] for _ in range(2))
        torch.manual_seed(9)
        self.assertTrue(torch.equal(ours(*given)[0], first))
        self.assertFalse(torch.equal(first, second))
        plain = training.attention_train(*given, None, False, None, ROWS)[0]
        many = torch.stack([ours(*given)[0] for _ in range(256)])
        errors = (many.mean(0) - plain) / (many.std(0) / 16)
        self.assertLessEqual(errors.abs().max().item(), 6)  # of 2,000 nearly normal numbers
        self.assertAlmostEqual(errors.square().mean().item(), 1, delta=0.2)

    def test_both_passes_drop_the_same(self):
        """The result is linear in v."""
        for call in (lambda q, k, v: ours(q, k, v, 0.5)[0], lambda *given: checkpoint(lambda *each: ours(*each, 0.5)[0], *given, use_reentrant=False),
                     lambda *given: checkpoint(lambda *each: ours(*each, 0.5)[0], *given, use_reentrant=True)):
            given = operands(4, 2, 33, 21)
            given[2].retain_grad()
            out = call(*given)
            dout = torch.randn_like(out)
            out.backward(dout)
            self.assertAlmostEqual((given[2].grad * given[2]).sum().item(), (dout * out).sum().item(), places=9)

    def test_compilers_see_what_they_compute(self):
        given, checks = operands(4, 2), ("test_schema", "test_autograd_registration", "test_faketensor")  # the rest compares two draws
        torch.library.opcheck(dropout.attention_dropout_train, (*given, 0.25, False, None, CONTIGUOUS), test_utils=checks)
        found = [tensor.detach() for tensor in (*given, *ours(*given))]
        torch.library.opcheck(dropout.attention_dropout_backward, (found[3], *found, 0.25, False, None))
        qkv = leaf(2, 5, 3, 2, 8)
        torch.library.opcheck(dropout.attention_qkv_dropout_train, (qkv, 0.25, False, 0.3, ROWS), test_utils=checks)
        found = [tensor.detach() for tensor in (qkv, *dropout.attention_qkv_dropout_train(qkv, 0.25, False, 0.3, ROWS))]
        torch.library.opcheck(dropout.attention_qkv_dropout_backward, (found[1], *found, 0.25, False, 0.3))
        for op in (dropout.attention_dropout_train, dropout.attention_qkv_dropout_train):
            self.assertIn(torch.Tag.nondeterministic_seeded, op._opoverload.tags)  # compilers restore the generator where they run it twice

    def test_second_derivatives_and_wrong_operands_are_refused_with_a_sentence(self):
        given = operands()
        first, = torch.autograd.grad(ours(*given)[0].square().sum(), given[0], create_graph=True)
        with self.assertRaisesRegex(vitune.Unsupported, "no second derivative"):
            torch.autograd.grad(first.square().sum(), given[1])
        with self.assertRaisesRegex(vitune.InvalidArgument, "one batch"):
            ours(given[0], given[1][:1], given[2][:1])

    def test_nothing_to_attend_to_gives_zeros(self):
        for nq, nk in ((0, 4), (4, 0)):
            given = operands(nq=nq, nk=nk)
            out = ours(*given)[0]
            self.assertEqual(out.abs().sum().item(), 0.0)
            self.assertEqual([grad.shape for grad in torch.autograd.grad(out.sum(), given)], [tensor.shape for tensor in given])


@needs_device
@needs_torch
@unittest.skipUnless(KNOWS_DROPOUT, "the library knows no dropout")
class ServedTest(unittest.TestCase):
    """By the library, on the emulated device."""

    def setUp(self):
        torch.manual_seed(8)
        self.asked = []

        def launch(problem, tensors):
            self.asked.append(problem.text)
            first_result = 5 if problem.text.startswith("attention ") else 8
            launch_copies(tensors, first_result, lambda pointers: run_with_workspace(problem, pointers))
        for module, name, value in ((dropout, "launch", launch), (attention_ops, "is_on_gpu", lambda tensor: True),
                                    (dropout, "_plans", problem_text.Plans())):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        before = dict(counters.fallbacks)
        self.addCleanup(lambda: counters.fallbacks.update(before))
        counters.fallbacks.clear()

    def expect_right(self, given, call, views=lambda given: given, p=0.25, **words):
        """The library's answers are the formulas' of what it drew."""
        out, lse, random = call(*given, p, *words.values(), ROWS)
        dout = torch.randn_like(out)
        grads = torch.autograd.grad(out, given, dout)
        q, k, v = (tensor.detach().double() for tensor in views(given))
        choice = dropout.Choice.of(q, random, p)
        right, of_rows = dropout.forward_by_torch(q, k, v, choice, *words.values())
        rights = dropout.backward_by_torch(dout.double(), q, k, v, out.double(), of_rows, choice, *words.values())
        for mine, want in zip((out, lse, *views(grads)), (right, of_rows, *rights), strict=True):
            self.assertLessEqual((mine.double() - want).norm().item(), 2**-6 * want.norm().item())
        self.assertEqual(counters.fallbacks, {})

    def test_results_and_gradients_are_right_of_each_kind_of_call(self):
        call = dropout.attention_dropout_train
        self.expect_right(operands(2, 2, 40, 70, 16, dtype=torch.bfloat16), call, is_causal=False, scale=None)
        self.expect_right(operands(4, 2, 33, 33, 32, dtype=torch.float16), call, p=0.5, is_causal=True, scale=None)
        self.expect_right(operands(1, 1, 17, 50, 8, dtype=torch.bfloat16), call, p=0.9, is_causal=False, scale=0.2)
        self.assertEqual([text.split()[0] for text in self.asked], ["attention", "attention_backward"] * 3)

    def test_a_projection_is_asked_for_with_packed_gradients(self):
        self.expect_right([leaf(2, 50, 3, 2, 16, dtype=torch.bfloat16)], dropout.attention_qkv_dropout_train,
                          lambda given: training.unpacked(given[0]), is_causal=False, scale=None)
        canonical = [attention_ops.context_of(0).query(vitune.Problem(text)).problem for text in self.asked]
        self.assertEqual(canonical, ["attention bf16 b=2 h=2 nq=50 nk=50 d=16 layout=packed dropout=0.25 lse",
                                     "attention_backward bf16 b=2 h=2 nq=50 nk=50 d=16 layout=packed dropout=0.25"])

    def test_calls_of_one_kind_with_other_draws_are_one_problem(self):
        given = [tensor.detach() for tensor in operands(dtype=torch.bfloat16)]
        first, second = (ours(*given)[0] for _ in range(2))
        self.assertFalse(torch.equal(first, second))
        self.assertEqual(len(set(self.asked)), 1)

    def test_what_is_refused_pytorch_computes(self):
        ours(*operands(dtype=torch.float32))
        self.assertIn("float32", str(counters.fallbacks))
        counters.fallbacks.clear()
        self.assertRaisesRegex(vitune.Unsupported, "256ths", ours, *operands(dtype=torch.bfloat16), 0.001)  # the formulas have no such choice either
        self.assertEqual((counters.fallbacks, self.asked), ({}, []))


if __name__ == "__main__":
    unittest.main()
