# python/tests/test_torch_flops.py -- torch.utils.flop_counter counts calls of vitune's operators as PyTorch's own.
# SPDX-License-Identifier: Apache-2.0
import unittest

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_backward_flop_count

from vitune._dropin import layer_norm as dropin_layer_norm
from vitune._ops import (attention_training, flops, group_norm as group_norm_ops, linear_moments as moments_ops, repeating_mask, training,
                         window_attention as window_attention_ops, window_attention_training)

from .test_torch_host import TorchTest
from .torch_cases import Block, fresh, packed


def counted(call):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@needs_torch
class FormulaTest(unittest.TestCase):
    def test_every_operator_has_one(self):
        for name in torch._C._dispatch_get_all_op_names():
            namespace, _, name = name.partition("::")
            if namespace == "vitune":
                with self.subTest(name):
                    self.assertIn(getattr(torch.ops.vitune, name.partition(".")[0]), flop_registry)

    def test_operators_count_what_pytorchs_do(self):
        half = {"dtype": torch.bfloat16, "device": "meta"}
        q, k, v = torch.empty(2, 3, 8, 16, **half), *(torch.empty(2, 3, 12, 16, **half) for _ in range(2))
        x, w, b = torch.empty(2, 5, 24, **half), torch.empty(32, 24, **half), torch.empty(32, **half)
        qkv = torch.empty(2, 14, 10, 3, 4, 16, **half)
        windows = [torch.empty(2 * 4, 4, 49, 16, **half)] * 3  # of 7 x 7, the last ones padded
        shapes = flops.FORMULAS

        def of(formula, *tensors):
            return shapes[formula](*(tensor.shape if isinstance(tensor, torch.Tensor) else tensor for tensor in tensors))

        def attended(*three):
            return counted(lambda: torch.ops.aten._scaled_dot_product_flash_attention(*three))
        self.assertEqual(of("attention", q, k, v), attended(q, k, v))
        self.assertEqual(of("attend_or_torch", q, k, v), 4 * 2 * 3 * 8 * 12 * 16)
        self.assertEqual(of("attention_train", q, k, v), attended(q, k, v))
        self.assertEqual(of("attention_backward", q, q, k, v), sdpa_backward_flop_count(q.shape, q.shape, k.shape, v.shape))
        projection = torch.empty(2, 8, 3, 3, 16, **half)
        self.assertEqual(of("attention_qkv_train", projection), attended(q, q, q))
        self.assertEqual(of("attention_qkv_backward", q, projection), sdpa_backward_flop_count(*[q.shape] * 4))
        self.assertEqual(of("window_attention", qkv, (7, 7)), attended(*windows))
        self.assertEqual(of("window_attention_train", qkv, (7, 7)), attended(*windows))
        self.assertEqual(of("window_attention_backward", qkv[..., 0, :, :], qkv, (7, 7)), sdpa_backward_flop_count(*[windows[0].shape] * 4))
        for name in ("linear", "linear_or_torch", "linear_with_moments_or_torch", "linear_by_moments_or_torch", "linear_train",
                     "linear_act_train"):
            self.assertEqual(of(name, x, w, b), counted(lambda: F.linear(x, w, b)))
        dy = torch.empty(2, 5, 32, **half)
        self.assertEqual(of("act_linear_train", x, x, w, b), counted(lambda: F.linear(x, w, b)))
        for name in ("linear_input_grad", "linear_act_input_grad"):
            self.assertEqual(of(name, dy, w), counted(lambda: dy @ w))
        self.assertEqual(of("linear_weight_grad", dy, x), counted(lambda: dy.flatten(0, 1).t() @ x.flatten(0, 1)))
        self.assertEqual(of("norm", x), 0)


@needs_device
@needs_torch
class CounterTest(TorchTest):
    def test_the_drop_in_counts_as_pytorch_does_and_causal_is_not_halved(self):
        q, k, v = packed(2, 9, 2, 16, dtype=torch.bfloat16)
        block, x = Block().bfloat16().eval(), torch.randn(2, 9, 32, dtype=torch.bfloat16)
        wide = fresh(2, 2, 9, 136, dtype=torch.bfloat16)  # falls back: counted once
        calls = {"a call": lambda: F.scaled_dot_product_attention(q, k, v),
                 "a mask": lambda: F.scaled_dot_product_attention(q, k, v, torch.zeros(9, 9, dtype=torch.bfloat16)),
                 "a model": lambda: block(x)}
        attention, linear = 4 * 2 * 2 * 9 * 9 * 16, 2 * 2 * 9 * 32 * (96 + 32)
        for name, wanted in (("a call", attention), ("a mask", attention), ("a model", attention + linear)):
            with self.subTest(name), vitune.torch.enabled():
                self.assertEqual(counted(calls[name]), wanted)
        with vitune.torch.enabled():
            self.assertEqual(counted(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)), attention)
            self.assertEqual(counted(lambda: F.layer_norm(x, (32,))), 0)
        if OPERATORS:
            with vitune.torch.enabled():
                self.assertEqual(counted(lambda: torch.ops.vitune.attention(*wide, None, False, None, False, True)),
                                 4 * 2 * 2 * 9 * 9 * 136)
        self.assertEqual(counted(lambda: vitune.attention(q, k, v)), attention)
        self.assertEqual(counted(lambda: vitune.attention(q, k, v, return_lse=True)), attention)
