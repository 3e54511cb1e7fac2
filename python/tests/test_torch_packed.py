# python/tests/test_torch_packed.py -- vitune.attention_varlen() on the emulated device: values, offsets, graphs' compilers, refusals.
# SPDX-License-Identifier: Apache-2.0
"""Tensors stay on the CPU: only the launch is replaced, as in test_torch_norm.py."""
import unittest
from unittest import mock

import vitune

from .support import needs_device, needs_library, needs_torch, torch

if torch is not None:
    from vitune._ops import attention as attention_ops, packed_attention as packed_ops

    from .test_torch_norm import launch_copies


def launch_packed_staged(problem, tensors):
    """What packed_ops.launch() does, with tensors of the CPU."""
    launch_copies(tensors, 5, lambda pointers: attention_ops.context_of(0).run(problem, pointers))


def offsets_of(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def sequence_by_sequence(q, k, v, lengths, key_lengths, causal=False, scale=None):
    """The answer and its log-sum-exp in fp64, a sequence at a time."""
    group = q.shape[1] // k.shape[1]
    outs, lses = [], []
    for own, keys, values in zip(q.double().split(lengths), k.double().split(key_lengths), v.double().split(key_lengths)):
        own, keys, values = own.transpose(0, 1), *(t.transpose(0, 1).repeat_interleave(group, 0) for t in (keys, values))
        scores = own @ keys.transpose(1, 2) * (scale or q.shape[2] ** -0.5)
        if causal:
            rows, columns = scores.shape[1:]
            seen = torch.arange(columns) <= torch.arange(rows)[:, None] + columns - rows
            scores = scores.masked_fill(~seen, -torch.inf)
        lse = scores.logsumexp(-1)
        weights = (scores - lse[..., None]).exp().masked_fill(lse[..., None].isinf(), 0)
        outs.append((weights @ values).transpose(0, 1))
        lses.append(lse)
    return torch.cat(outs), torch.cat(lses, 1)


@needs_library
@needs_device
@needs_torch
class PackedTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        for module, name, value in ((packed_ops, "launch", launch_packed_staged), (attention_ops, "is_on_gpu", lambda tensor: True)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        packed_ops._plans.clear()

    def close(self, got, want):
        self.assertLess((got.double() - want).abs().max().item(), 0.03)

    def test_answers_are_those_of_each_sequence(self):
        lengths = [5, 0, 40, 1]
        q, k, v = torch.randn(46, 3, 2, 16, dtype=torch.bfloat16).unbind(1)  # views of a projection
        out, lse = vitune.attention_varlen(q, k, v, offsets_of(lengths), max_seqlen_q=40, return_lse=True)
        want, want_lse = sequence_by_sequence(q, k, v, lengths, lengths)
        self.close(out, want)
        self.assertLess((lse.double() - want_lse).abs().max().item(), 1e-3)

    def test_the_same_plan_serves_other_offsets(self):
        q, k, v = torch.randn(3, 46, 2, 16, dtype=torch.bfloat16)
        for lengths in ([5, 1, 40], [20, 20, 6], [0, 0, 46]):
            out = vitune.attention_varlen(q, k, v, offsets_of(lengths), max_seqlen_q=46)
            self.close(out, sequence_by_sequence(q, k, v, lengths, lengths)[0])
        self.assertEqual(len(packed_ops._plans), 1)

    def test_bad_offsets_touch_nothing_outside(self):
        # On the emulated device each tensor is an allocation, and an access outside of one is a fault.
        q, k, v = torch.randn(3, 46, 2, 16, dtype=torch.bfloat16)
        for numbers in ([0, 50, 20, 46], [-5, 10, 99, 1 << 30], [46, 40, 3, 0], [-(1 << 31), (1 << 31) - 1, 0, 7]):
            bad = torch.tensor(numbers, dtype=torch.int32)
            self.assertEqual(vitune.attention_varlen(q, k, v, bad, max_seqlen_q=46).shape, q.shape)
            vitune.attention_varlen(q, k, v, offsets_of([6, 0, 40]), bad, 46, 46, is_causal=True)

    def test_the_checked_mode_says_what_is_wrong_with_offsets(self):
        q, k, v = torch.randn(3, 46, 2, 16, dtype=torch.bfloat16)
        with mock.patch.object(packed_ops, "checked", True):
            for sentence, numbers in ((r"cu_seqlens_q\[1\] is 50, beyond the 46 tokens", [0, 50, 20, 46]),
                                      (r"cu_seqlens_q falls from 40 to 3 at \[2\]", [6, 40, 3, 46]), (r"cu_seqlens_q\[0\] is -5", [-5, 10]),
                                      (r"sequence 1 has 40 tokens, and max_seqlen_q is 39", [0, 6, 46])):
                with self.subTest(sentence), self.assertRaisesRegex(vitune.InvalidArgument, sentence):
                    vitune.attention_varlen(q, k, v, torch.tensor(numbers, dtype=torch.int32), max_seqlen_q=39)
            with self.assertRaisesRegex(vitune.InvalidArgument, r"cu_seqlens_k\[2\] is 47, beyond the 46"):
                vitune.attention_varlen(q, k, v, offsets_of([6, 40]), offsets_of([6, 41]), 46, 46)
            lengths = [6, 0, 39]  # and one row of no sequence
            got = vitune.attention_varlen(q, k, v, offsets_of(lengths), max_seqlen_q=39)
        self.close(got[:45], sequence_by_sequence(q[:45], k[:45], v[:45], lengths, lengths)[0])

    def test_new_lengths_of_a_known_bucket_neither_look_up_nor_compile(self):
        q, k, v = torch.randn(3, 46, 2, 16, dtype=torch.bfloat16)

        def attend(lengths):
            rows = sum(lengths)
            out = vitune.attention_varlen(q[:rows], k[:rows], v[:rows], offsets_of(lengths), max_seqlen_q=max(lengths))
            self.close(out, sequence_by_sequence(q[:rows], k[:rows], v[:rows], lengths, lengths)[0])
        context = attention_ops.context_of(0)
        attend([20, 20, 6])
        before = context.stats()
        with mock.patch.object(packed_ops, "Problem", side_effect=AssertionError("a problem was looked up")):
            for lengths in ([24, 1, 21], [17, 17, 12], [22, 24, 0]):
                attend(lengths)
        after = context.stats()
        self.assertEqual((after.problems, after.kernels_loaded, after.kernels_compiled),
                         (before.problems, before.kernels_loaded, before.kernels_compiled))
        for lengths in ([20, 20, 5], [20, 10, 10, 6]):  # other tokens, other sequences: plans of their own, of the same kernel
            attend(lengths)
        self.assertEqual((context.stats().problems, context.stats().kernels_compiled), (before.problems + 2, before.kernels_compiled))

    def test_the_signature_of_flash_attn_has_its_causal_mask(self):
        lengths, key_lengths = [3, 20], [9, 12]
        q = torch.randn(23, 4, 16, dtype=torch.float16)
        k, v = torch.randn(2, 21, 2, 16, dtype=torch.float16)
        offsets = offsets_of(lengths), offsets_of(key_lengths)
        out = vitune.flash_attn_varlen_func(q, k, v, *offsets, 20, 12, softmax_scale=0.3, causal=True)
        self.close(out, sequence_by_sequence(q, k, v, lengths, key_lengths, True, 0.3)[0])

    def test_rows_that_kernels_do_not_reach_are_copied(self):
        lengths = [4, 9]
        wide = torch.randn(13, 2, 20, dtype=torch.bfloat16)
        q = wide[..., 1:17]  # at odd addresses
        k, v = torch.randn(2, 2, 13, 16, dtype=torch.bfloat16).transpose(1, 2).unbind(0)
        self.close(vitune.attention_varlen(q, k, v, offsets_of(lengths)), sequence_by_sequence(q, k, v, lengths, lengths)[0])

    def test_rows_of_no_sequence_may_follow_and_one_row_may_lie_anywhere(self):
        lengths = [5, 7]
        q, k, v = torch.randn(3, 64, 2, 16, dtype=torch.bfloat16)
        out = vitune.attention_varlen(q, k, v, offsets_of(lengths), max_seqlen_q=8)
        self.close(out[:12], sequence_by_sequence(q[:12], k[:12], v[:12], lengths, lengths)[0])
        # Keys that are more than those of the sequences, whose offsets are the queries' own.
        offsets = offsets_of(lengths)
        out = vitune.flash_attn_varlen_func(q[:12], k, v, offsets, offsets, 8, 8)
        self.close(out, sequence_by_sequence(q[:12], k[:12], v[:12], lengths, lengths)[0])
        one = [torch.randn(100, dtype=torch.bfloat16)[3:].as_strided((1, 2, 16), (97, 16, 1)) for _ in range(3)]
        self.close(vitune.attention_varlen(*one, offsets_of([1])), sequence_by_sequence(*one, [1], [1])[0])

    def test_nothing_in_is_nothing_out(self):
        offsets = offsets_of([0, 0])
        q, k, v = torch.randn(3, 0, 2, 16, dtype=torch.bfloat16)
        self.assertEqual(tuple(vitune.attention_varlen(q, k, v, offsets).shape), (0, 2, 16))
        some = torch.randn(3, 2, 16, dtype=torch.bfloat16)
        out, lse = vitune.attention_varlen(some, k, v, offsets_of([3, 0]), offsets, max_seqlen_k=0, return_lse=True)
        self.assertTrue(bool((out == 0).all()) and bool((lse == -torch.inf).all()))

    def test_a_compiled_call_is_the_eager_one(self):
        packed_ops.packed_attention_op.register_kernel("cpu")(packed_ops.packed_attention_op._init_fn)
        q, k, v = torch.randn(3, 20, 2, 16, dtype=torch.bfloat16)
        offsets = offsets_of([7, 13])

        def call(q):
            return vitune.attention_varlen(q, k, v, offsets, max_seqlen_q=16).flatten(-2)
        with torch.no_grad():
            want = call(q)
            self.assertTrue(torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(q), want))

    def test_buckets_are_powers_of_two_and_their_halves(self):
        self.assertEqual([packed_ops.bucket(n) for n in (1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 64, 65, 97, 4097)],
                         [1, 2, 3, 4, 6, 6, 8, 12, 12, 16, 64, 96, 128, 6144])

    def test_refusals_say_what_to_do(self):
        q, k, v = torch.randn(3, 8, 2, 16, dtype=torch.bfloat16)
        offsets = offsets_of([8])
        flash = (q, k, v, offsets, offsets, 8, 8)
        for sentence, call in (
                ("give cu_seqlens_k", lambda: vitune.attention_varlen(q, k[:4], v[:4], offsets)),
                ("must be int32", lambda: vitune.attention_varlen(q, k, v, offsets.long())),
                ("must be int32", lambda: vitune.attention_varlen(q, k, v, offsets[:1])),
                ("as many of each", lambda: vitune.attention_varlen(q, k, v, offsets, offsets_of([4, 4]))),
                ("all be bfloat16 or all float16", lambda: vitune.attention_varlen(q.float(), k, v, offsets)),
                ("1 is the least", lambda: vitune.attention_varlen(q, k, v, offsets, max_seqlen_q=0)),
                ("no derivative", lambda: vitune.attention_varlen(q.clone().requires_grad_(), k, v, offsets)),
                ("no dropout", lambda: vitune.flash_attn_varlen_func(*flash, dropout_p=0.1)),
                ("no sliding window", lambda: vitune.flash_attn_varlen_func(*flash, window_size=(4, -1))),
                ("no pages", lambda: vitune.flash_attn_varlen_func(*flash, block_table=offsets)),
                ("no probabilities", lambda: vitune.flash_attn_varlen_func(*flash, return_attn_probs=True))):
            with self.subTest(sentence), self.assertRaisesRegex(vitune.VituneError, sentence):
                call()


if __name__ == "__main__":
    unittest.main()
