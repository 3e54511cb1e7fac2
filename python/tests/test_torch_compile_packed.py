# python/tests/test_torch_compile_packed.py -- vitune.compile() finds packed attention: PyTorch's varlen_attn, flash-attn's operator.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import importlib
import importlib.util
import unittest
from unittest import mock

import vitune

from .support import needs_device, needs_torch, torch
from .test_torch_compile import CompileCase, without_inductor

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

from torch import nn

from vitune._compile.patterns import packed as packed_pattern
from vitune._ops import attention as attention_ops, packed_attention as packed_ops

from .test_torch_packed import launch_packed_staged, offsets_of, sequence_by_sequence

varlen = importlib.import_module("torch.nn.attention.varlen") if importlib.util.find_spec("torch.nn.attention.varlen") else None
LENGTHS = [5, 0, 11]


@torch.library.custom_op("flash_attn::_flash_attn_varlen_forward", mutates_args=())
def flash_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
                  max_seqlen_q: int, max_seqlen_k: int, dropout_p: float, softmax_scale: float, causal: bool, window_size_left: int = -1,
                  window_size_right: int = -1, softcap: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """By the name and schema of flash-attn's operator, whose package needs a GPU to be built."""
    raise AssertionError("the operator of flash-attn was called")


@flash_forward.register_fake
def _(q, k, *_others, **_more):
    return torch.empty_like(q), q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32)


class Attend(nn.Module):
    """A projection and packed attention by `call(q, k, v, offsets)`."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, qkv, offsets):
        return self.call(*qkv.unbind(1), offsets)


@needs_device
@needs_torch
class PackedPatternTest(CompileCase):
    def setUp(self):
        super().setUp()
        packed_ops.packed_attention_op.register_kernel("cpu")(packed_ops.packed_attention_op._init_fn)
        for module, name, value in ((packed_ops, "launch", launch_packed_staged), (packed_pattern, "selected", self.selected)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        packed_ops._plans.clear()
        self.qkv = torch.randn(16, 3, 2, 16, dtype=torch.bfloat16)

    def selected(self, text, device):
        """As if a winner of another problem served what is asked."""
        self.asked = text
        return dataclasses.replace(attention_ops.context_of(device).query(vitune.Problem(text)), outcome="nearest")

    def expect(self, call, causal=False, scale=None):
        with torch.inference_mode():
            got, report = self.compiled(Attend(call), self.qkv, offsets_of(LENGTHS))
        want = sequence_by_sequence(*self.qkv.unbind(1), LENGTHS, LENGTHS, causal, scale)[0]
        self.assertEqual([(each.operator, each.replaced) for each in report.calls], [("packed_attention", True)])
        self.assertLess((got.double() - want).abs().max().item(), 0.03)

    @unittest.skipIf(varlen is None, "this PyTorch has no varlen_attn")
    def test_varlen_attn_is_ours_with_its_mask_and_scale(self):
        self.expect(lambda q, k, v, offsets: varlen.varlen_attn(q, k, v, offsets, offsets, 11, 11))
        self.assertIn("tokens=16 longest=12 sequences=3 h=2 d=16 q=96x16", self.asked)
        self.expect(lambda q, k, v, offsets: varlen.varlen_attn(q, k, v, offsets, offsets, 16, 16, scale=0.3, window_size=(-1, 0)), True, 0.3)

    def test_flash_attns_operator_is_ours(self):
        self.expect(lambda q, k, v, offsets: torch.ops.flash_attn._flash_attn_varlen_forward(q, k, v, offsets, offsets, 11, 11, 0.0, 0.25,
                                                                                             True)[0], True, 0.25)
        self.assertNotIn(torch.ops.flash_attn._flash_attn_varlen_forward, without_inductor.calls)

    def test_what_packed_attention_has_no_kernel_for_stays_theirs_and_says_why(self):
        flash = torch.ops.flash_attn._flash_attn_varlen_forward
        for sentence, call in (
                ("no sliding window", lambda q, k, v, o: flash(q, k, v, o, o, 11, 11, 0.0, 0.25, False, 4, 0)[0]),
                ("dropout_p is 0.1", lambda q, k, v, o: flash(q, k, v, o, o, 11, 11, 0.1, 0.25, False)[0]),
                ("softcap is 30", lambda q, k, v, o: flash(q, k, v, o, o, 11, 11, 0.0, 0.25, False, -1, -1, 30.0)[0]),
                ("log-sum-exp is used", lambda q, k, v, o: flash(q, k, v, o, o, 11, 11, 0.0, 0.25, False)),
                ("bfloat16 and float16", lambda q, k, v, o: flash(q.float(), k.float(), v.float(), o, o, 11, 11, 0.0, 0.25, False)[0])):
            with self.subTest(sentence), torch.inference_mode():
                torch._dynamo.reset()
                compiled = vitune.compile(Attend(call), fullgraph=True)
                with self.assertRaises(AssertionError):
                    compiled(self.qkv, offsets_of(LENGTHS))
                found, = (each for each in vitune.report(compiled).calls if each.operator == "packed_attention")
                self.assertFalse(found.replaced)
                self.assertIn(sentence, found.reason)

    def test_both_sides_of_the_race_have_the_same_sequences(self):
        with torch.inference_mode():
            with mock.patch.object(packed_pattern, "measured", side_effect=lambda calls, device: self.sides.append(calls()) or None):
                self.sides = []
                self.compiled(Attend(lambda q, k, v, o: torch.ops.flash_attn._flash_attn_varlen_forward(
                    q, k, v, o, o, 11, 11, 0.0, 0.25, False)[0]), self.qkv, offsets_of(LENGTHS))
        (ours, theirs), = self.sides
        self.assertEqual(ours.args[3].tolist(), [0, 5, 10, 16])
        self.assertIs(theirs.keywords["cu_seqlens_k"], ours.args[3])
        self.assertIs(theirs.keywords["q"], ours.args[0])
        self.assertEqual(ours.args[0].stride(), (96, 16, 1))
        self.assertTrue(ours()[0].isfinite().all())


if __name__ == "__main__":
    unittest.main()
