# python/tests/test_torch_packed_gpu.py -- vitune.attention_varlen() on a GPU: random sequences by seed, bad offsets, graphs.
# SPDX-License-Identifier: Apache-2.0
import os
import random
import unittest

import vitune

from .support import needs_library, needs_torch, torch

HAS_GPU = torch is not None and "emulator" not in os.environ.get("LD_LIBRARY_PATH", "") and torch.cuda.is_available()
#: Types, head sizes and words of the kernels, which are compiled once each.
KERNELS = (("bfloat16", 80, {}), ("bfloat16", 72, {}), ("bfloat16", 64, {"return_lse": True}), ("float16", 128, {"is_causal": True}),
           ("bfloat16", 80, {"is_causal": True, "return_lse": True}), ("float16", 24, {}))
SETS = 5000


def offsets_of(lengths):
    return torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)


def drawn_lengths(draw):
    """A few long sequences, many short ones, empty ones among them, windows, or one alone."""
    kind = draw.randrange(5)
    if kind == 0:
        return [draw.randrange(1, 1200) for _ in range(draw.randrange(1, 5))]
    if kind == 1:
        return [draw.randrange(65) for _ in range(draw.randrange(1, 300))] + [1]
    if kind == 2:
        return [64] * draw.randrange(1, 40) + [draw.randrange(64) for _ in range(3)]
    if kind == 3:
        return [draw.choice((0, 1, 127, 128, 129, 191, 193, 256)) for _ in range(draw.randrange(1, 12))] + [7]
    return [draw.randrange(1, 3000)]


def expected(q, k, v, lengths, key_lengths, causal):
    """The answer and its log-sum-exp in fp32, all sequences in one product: those of others are masked."""
    group = q.shape[1] // k.shape[1]
    def places(lengths):
        numbers = torch.arange(len(lengths), device="cuda").repeat_interleave(torch.tensor(lengths, device="cuda"))
        starts = offsets_of(lengths)[:-1].long()
        return numbers, torch.arange(len(numbers), device="cuda") - starts[numbers]
    (of_q, row), (of_k, column) = places(lengths), places(key_lengths)
    seen = of_q[:, None] == of_k
    if causal:
        more = torch.tensor([m - n for n, m in zip(lengths, key_lengths)], device="cuda")
        seen &= column <= (row + more[of_q])[:, None]
    q, k, v = q.float().transpose(0, 1), *(t.float().transpose(0, 1).repeat_interleave(group, 0) for t in (k, v))
    scores = (q @ k.transpose(1, 2) * q.shape[2] ** -0.5).masked_fill(~seen, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None].nan_to_num(neginf=0)).exp()
    return (weights @ v).transpose(0, 1), lse


@needs_library
@needs_torch
@unittest.skipUnless(HAS_GPU, "no GPU, or PyTorch without CUDA")
class PackedGpuTest(unittest.TestCase):
    def test_random_sequences_are_those_of_the_formula(self):
        torch.manual_seed(3)
        draw = random.Random(20261128)
        allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        self.addCleanup(setattr, torch.backends.cuda.matmul, "allow_tf32", allowed)
        for number in range(SETS):
            dtype, d, words = draw.choice(KERNELS)
            lengths = drawn_lengths(draw)
            own = draw.random() < 0.3
            key_lengths = [draw.randrange(0, n + 40) for n in lengths] if own else lengths
            if sum(key_lengths) == 0 or sum(lengths) == 0:
                continue
            heads, kv_heads = draw.choice(((1, 1), (4, 4), (4, 2), (6, 1)))
            # Rows of others before, between and behind those of a view: NaN, which no result may show.
            def tensor(tokens, heads):
                whole = torch.full((tokens + 2, heads + 1, d), torch.nan, dtype=getattr(torch, dtype), device="cuda")
                view = whole[1:-1, :heads]
                view.normal_()
                return view
            q, k, v = tensor(sum(lengths), heads), tensor(sum(key_lengths), kv_heads), tensor(sum(key_lengths), kv_heads)
            with self.subTest(number=number, lengths=str(lengths)[:200], d=d, **words):
                found = vitune.attention_varlen(q, k, v, offsets_of(lengths), offsets_of(key_lengths) if own else None,
                                                max(lengths), max(key_lengths), **words)
                out, lse = found if "return_lse" in words else (found, None)
                wanted, wanted_lse = expected(q, k, v, lengths, key_lengths, "is_causal" in words)
                self.assertLess((out.float() - wanted).abs().max().item(), 0.04)
                if lse is not None:
                    torch.testing.assert_close(lse, wanted_lse, atol=0.02, rtol=0.01)

    def test_bad_offsets_touch_nothing_outside(self):
        draw = random.Random(5)
        for _ in range(200):
            tokens, sequences = draw.randrange(1, 400), draw.randrange(1, 40)
            whole = torch.zeros(3, tokens + 256, 2, 64, dtype=torch.bfloat16, device="cuda")
            offsets = torch.tensor([draw.choice((-2**31, -7, 0, 2**31 - 1, draw.randrange(tokens + 90))) for _ in range(sequences + 1)],
                                   dtype=torch.int32, device="cuda")
            q, k, v = whole[:, 128:-128]
            vitune.attention_varlen(q, k, v, offsets, max_seqlen_q=tokens)
            torch.cuda.synchronize()
            self.assertEqual(whole.count_nonzero().item(), 0)

    def test_a_graph_is_replayed_with_other_offsets(self):
        q, k, v = torch.randn(3, 500, 4, 80, dtype=torch.bfloat16, device="cuda")
        offsets = offsets_of([500] + [0] * 9)
        def call():
            return vitune.attention_varlen(q, k, v, offsets, max_seqlen_q=500)
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        for lengths in ([50] * 10, [499, 1] + [0] * 8, [0, 3, 197, 300] + [0] * 6):
            offsets.copy_(offsets_of(lengths))
            graph.replay()
            self.assertLess((out.float() - expected(q, k, v, lengths, lengths, False)[0]).abs().max().item(), 0.04)


if __name__ == "__main__":
    unittest.main()
