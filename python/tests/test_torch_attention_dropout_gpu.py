# python/tests/test_torch_attention_dropout_gpu.py -- Attention with dropout on a GPU: answers beside the formulas, CUDA graphs, memory, the race.
# SPDX-License-Identifier: Apache-2.0
import copy
import unittest

import vitune

from .support import needs_library, needs_torch, torch
from .test_torch_gpu import needs_gpu

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import nn

from vitune._compile.patterns import benchmark
from vitune._ops import attention_dropout as dropout, attention_training as training
from vitune._ops.order import ROWS

from .test_torch_train_gpu import knows

KNOWS_DROPOUT = knows("attention_backward bf16 b=1 h=1 n=64 d=64 dropout=0.1")
#: Batch, heads of q and of k, rows of q and of k, head size, what the call says.
CASES = {"CCT-14": (8, 6, 6, 576, 576, 64, {}), "ViT-B": (4, 12, 12, 197, 197, 64, {}), "So400m": (2, 16, 16, 300, 300, 72, {}),
         "causal": (2, 8, 8, 260, 260, 64, {"is_causal": True}), "grouped": (2, 8, 2, 130, 130, 128, {}), "few rows": (4, 8, 8, 17, 257, 40, {"scale": 0.2})}


class Block(nn.Module):
    """Attention as CCT-14 has it: a call, or written out."""

    def __init__(self, written=False, p=0.1):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.proj, self.written, self.p = nn.Linear(384, 3 * 384, bias=False), nn.Linear(384, 384), written, p

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, 6, c // 6).permute(2, 0, 3, 1, 4).unbind(0)
        p = self.p if self.training else 0.0
        if self.written:
            found = F.dropout(((q @ k.transpose(-2, -1)) * 0.125).softmax(-1), p, self.training) @ v
        else:
            found = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
        return self.proj(found.transpose(1, 2).reshape(b, n, c))


@needs_library
@needs_torch
@needs_gpu
@unittest.skipUnless(KNOWS_DROPOUT, "the library knows no dropout")
class DropoutGpuTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)
        vitune.torch.reset_stats()

    def operands(self, name, dtype):
        b, h, kv, nq, nk, d, words = CASES[name]
        tensors = [torch.randn(b, n, heads, d, device="cuda", dtype=dtype).transpose(1, 2) for heads, n in ((h, nq), (kv, nk), (kv, nk))]
        return [tensor.requires_grad_() for tensor in tensors], (words.get("is_causal", False), words.get("scale"))

    def test_results_and_gradients_are_those_of_the_formulas(self):
        for name in CASES:
            for dtype, p in ((torch.bfloat16, 0.1), (torch.float16, 0.5)):
                with self.subTest(name, dtype=dtype):
                    given, words = self.operands(name, dtype)
                    out, lse, random = dropout.attention_dropout_train(*given, p, *words, ROWS)
                    dout = torch.randn_like(out)
                    grads = torch.autograd.grad(out, given, dout)
                    with torch.no_grad():
                        ours, theirs = dropout.on_some_heads(*given, dout, (out, lse, *grads), random, p, *words)
                    self.assertEqual(benchmark.difference(ours, theirs), "")
        self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_a_projection_gets_one_gradient_and_both_passes_drop_the_same(self):
        qkv = torch.randn(8, 576, 3, 6, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        out = dropout.attention_qkv_dropout_train(qkv, 0.1, False, None, ROWS)[0]
        dout = torch.randn_like(out)
        grad, = torch.autograd.grad(out, qkv, dout)
        inner = [(a.double() * b.double()).sum().item() for a, b in ((grad[:, :, 2], qkv[:, :, 2]), (out, dout))]  # linear in v
        size = (out.double() * dout.double()).norm().item()
        self.assertLessEqual(abs(inner[0] - inner[1]), 0.02 * size)

    def test_replays_of_a_graph_draw_anew_and_as_the_seed_says(self):
        given, words = self.operands("ViT-B", torch.bfloat16)
        given = [tensor.detach() for tensor in given]
        call = lambda: dropout.attention_dropout_train(*given, 0.1, *words, ROWS)  # noqa: E731
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, _, random = call()
        found = []
        for seed in (5, None, 5):
            if seed is not None:
                torch.cuda.manual_seed(seed)
            graph.replay()
            found.append((out.clone(), random.clone()))
        self.assertTrue(torch.equal(found[0][0], found[2][0]))
        self.assertFalse(torch.equal(found[0][1], found[1][1]))
        self.assertFalse(torch.equal(found[0][0], found[1][0]))

    def test_nothing_of_the_scores_size_is_kept(self):
        given, words = self.operands("CCT-14", torch.bfloat16)
        torch.autograd.grad(dropout.attention_dropout_train(*given, 0.1, *words, ROWS)[0].sum(), given)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.autograd.grad(dropout.attention_dropout_train(*given, 0.1, *words, ROWS)[0].sum(), given)
        self.assertLess(torch.cuda.max_memory_allocated() - before, 10 * given[0].nbytes)

    def test_on_the_average_nothing_is_dropped(self):
        given = [tensor.detach() for tensor in self.operands("ViT-B", torch.float16)[0]]
        plain = training.attention_train(*given, None, False, None, ROWS)[0].float()
        total, square, count = torch.zeros_like(plain), torch.zeros_like(plain), 400
        for _ in range(count):
            out = dropout.attention_dropout_train(*given, 0.1, False, None, ROWS)[0].float()
            total, square = total + out, square + out.square()
        mean = total / count
        errors = (mean - plain) / ((square / count - mean.square()).clamp_min(1e-12) / count).sqrt()
        self.assertLess(errors.abs().mean().item(), 0.9)  # of a normal number 0.8; rounding adds a little

    def test_a_step_is_taken_where_it_wins_and_falls_as_pytorchs(self):
        for written in (False, True):
            model, x = Block(written).cuda(), torch.randn(8, 576, 384, device="cuda")
            losses = {}
            for way in ("eager", "vitune"):
                torch._dynamo.reset()
                torch.manual_seed(1)
                trained = copy.deepcopy(model)
                called = vitune.compile(trained, mode="max-autotune") if way == "vitune" else trained
                optimizer = torch.optim.SGD(trained.parameters(), lr=0.5)
                for _ in range(12):
                    optimizer.zero_grad()
                    with torch.autocast("cuda", torch.bfloat16):
                        loss = (called(x).float() - x.roll(1, 1)).square().mean()
                    loss.backward()
                    optimizer.step()
                losses[way] = loss.item()
            calls = [call for call in vitune.report(called).calls if call.operator == "attention_train"]
            self.assertEqual(len(calls), 1)
            self.assertIsNotNone(calls[0].times, calls[0])
            self.assertEqual(calls[0].times.wrong, "", calls[0])
            print(f"\n{'written out' if written else 'a call'}: {calls[0]}")
            self.assertLess(abs(losses["vitune"] - losses["eager"]), 0.02 * losses["eager"])


if __name__ == "__main__":
    unittest.main()
