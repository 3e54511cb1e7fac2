# python/tests/test_torch_refusals.py -- What PyTorch's attention refuses is refused: a table of calls beside PyTorch itself.
# SPDX-License-Identifier: Apache-2.0
"""Each call is made of PyTorch's function, of the drop-in in its place, eager and compiled, of vitune.attention and of the operator. No
mask but a bool or floating one that PyTorch takes may ever be added as a bias."""
import contextlib
import gc
import re
import unittest
import warnings
import weakref
from unittest import mock

import vitune

from .support import needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import numpy as np
import torch.nn.functional as F

from vitune._dropin import sdpa as sdpa_dropin

from .test_torch_host import TorchTest
from .torch_cases import fresh

_theirs = F.scaled_dot_product_attention
HALF = {"dtype": torch.bfloat16}


def masks():
    """Name -> an attn_mask for operands of [2, 3, 8, 16]."""
    zeros = torch.zeros(8, 8)
    return {
        **{str(dtype).removeprefix("torch."): zeros.to(dtype) for dtype in (
            torch.bool, torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32,
            torch.int64, torch.complex64, torch.float8_e4m3fn)},
        "no dimension": torch.zeros((), **HALF), "one dimension": torch.zeros(8, **HALF), "one dimension of one": torch.zeros(1, **HALF),
        "one bool dimension": torch.ones(8, dtype=torch.bool), "five dimensions": torch.zeros(1, 2, 3, 8, 8, **HALF),
        "too many keys": torch.zeros(8, 9, **HALF), "too many entries": torch.zeros(5, 1, 8, 8, **HALF),
        "heads that differ": torch.zeros(2, 8, 8, **HALF), "[B,1,1,Nk]": torch.zeros(2, 1, 1, 8, **HALF),
        "[H,N,N]": torch.zeros(3, 8, 8, **HALF), "a parameter": torch.nn.Parameter(torch.zeros(8, 8, **HALF)),
        "a list": [[0.0] * 8] * 8, "an array": np.zeros((8, 8)), "a bool": False,
    }


def arguments():
    """Name -> keywords beside q, k and v."""
    number, yes = torch.nn.Parameter(torch.tensor(0.5)), np.bool_(True)
    return {
        **{f"scale of {type(value).__name__}": {"scale": value} for value in (number, "1", np.float64(0.5), 0.5, 1)},
        **{f"is_causal={value!r}": {"is_causal": value} for value in (yes, np.bool_(False), 1, 0, None, torch.tensor(True), "yes", True)},
        **{f"enable_gqa={value!r}": {"enable_gqa": value} for value in (yes, np.bool_(False), 1, 0, None, True)},
        **{f"dropout_p={value!r}": {"dropout_p": value} for value in (None, "0", "", -0.5, 2.0, float("nan"), number, 0, 0.0)},
    }


def operands():
    """Name -> (q, k, v) that do not go together."""
    q, k, v = fresh(2, 3, 8, 16, **HALF)
    return {"k of another type": (q, k.half(), v), "k of another head size": (q, k[..., :8], v), "fewer heads": (q, k[:, :2], v[:, :2]),
            "a batch that differs": (torch.cat([q, q]), k, v), "one dimension": (q[0, 0, 0],) * 3, "k is None": (q, None, v),
            "integers": (q.int(),) * 3, "k of another device": (q, k.to("meta"), v)}


def refuses(call, *tensors, **keywords):
    """What a call raises, None if it answers."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(*tensors, **keywords)
    except Exception as error:
        return error
    return None


def sentence(error):
    """Without the place of an argument that was given by name."""
    return re.sub(r" \(position \d\)", "", str(error))


@needs_device
@needs_torch
class RefusalTest(TorchTest):
    def table(self):
        three = fresh(2, 3, 8, 16, **HALF)
        yield from ((f"mask {name}", three, {"attn_mask": mask}) for name, mask in masks().items())
        yield from ((name, three, keywords) for name, keywords in arguments().items())
        yield from ((name, tensors, {}) for name, tensors in operands().items())

    def test_the_drop_in_raises_what_pytorch_raises(self):
        refused = 0
        for name, tensors, keywords in self.table():
            with self.subTest(name):
                want = refuses(_theirs, *tensors, **keywords)
                with vitune.torch.enabled():
                    got = refuses(F.scaled_dot_product_attention, *tensors, **keywords)
                self.assertEqual((type(got), sentence(got)), (type(want), sentence(want)))
                refused += want is not None
        self.assertGreater(refused, 30)

    def test_the_drop_in_compiled_raises_where_pytorch_does(self):
        def attend(q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, mask)
        three = fresh(2, 3, 8, 16, **HALF)
        for name in ("float64", "float16", "int32", "uint8", "one dimension", "too many keys", "bool", "float32"):
            mask = masks()[name]
            with self.subTest(name):
                torch._dynamo.reset()
                want = refuses(torch.compile(attend, backend="aot_eager", fullgraph=True), *three, mask)
                torch._dynamo.reset()
                with vitune.torch.enabled():
                    got = refuses(torch.compile(attend, backend="aot_eager", fullgraph=True), *three, mask)
                self.assertEqual(type(got), type(want))

    def test_the_function_refuses_what_pytorch_refuses(self):
        for name, tensors, keywords in self.table():
            with self.subTest(name):
                if refuses(_theirs, *tensors, **keywords) is not None:
                    self.assertIsNotNone(refuses(vitune.attention, *tensors, **keywords))

    def test_the_operator_refuses_the_masks_that_pytorch_refuses(self):
        three = fresh(2, 3, 8, 16, **HALF)
        for name, mask in masks().items():
            if isinstance(mask, torch.Tensor):
                for fall_back in (False, True):
                    with self.subTest(name, fall_back=fall_back):
                        want = refuses(_theirs, *three, mask)
                        got = refuses(torch.ops.vitune.attention, *three, mask, False, None, False, fall_back)
                        self.assertEqual(got is None, want is None, got)

    def test_refused_calls_keep_no_tensor(self):
        def attention(x):
            return F.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True)  # 3 heads of queries, 2 of keys

        def masked(x):
            return F.scaled_dot_product_attention(x, x, x, torch.zeros(2, 3, 8, 9, **HALF))

        def norm(x):
            return F.layer_norm(x.double(), (16,))

        calls = {"attention": attention, "a mask of other keys": masked, "norm": norm,
                 "vitune.attention": lambda x: vitune.attention(x, x[:, :2], x[:, :2], enable_gqa=True),
                 "vitune.layer_norm": lambda x: vitune.layer_norm(x.double(), (16,)),
                 "vitune.linear": lambda x: vitune.linear(x, x[0, 0, :, :8]),
                 "the operator": lambda x: torch.ops.vitune.attention(x, x[:, :2], x[:, :2], None, False, None, True, True)}
        for name, call in calls.items():
            for gradient in (False, True):
                with self.subTest(name, gradient=gradient), vitune.torch.enabled(training=True):
                    x = torch.randn(2, 3, 8, 16, **HALF).requires_grad_(gradient)
                    kept = weakref.ref(x)

                    def refused(x):
                        with contextlib.suppress(Exception), warnings.catch_warnings(), torch.set_grad_enabled(gradient):
                            warnings.simplefilter("ignore")
                            call(x)
                    refused(x)
                    del x
                    gc.collect()
                    self.assertIsNone(kept())

    def test_autocast_casts_a_mask_of_the_other_half_type_and_no_wider_one(self):
        three = fresh(2, 3, 8, 16)
        for dtype in (torch.float16, torch.float32, torch.bool, torch.float64, torch.int64):
            mask = torch.ones(8, 8).to(dtype)
            with self.subTest(dtype), mock.patch.object(torch, "is_autocast_enabled", return_value=True), \
                    mock.patch.object(torch, "get_autocast_dtype", return_value=torch.bfloat16):
                *cast, mask = sdpa_dropin.cast(*three, mask)
                self.assertEqual({x.dtype for x in cast}, {torch.bfloat16})
                self.assertEqual(mask.dtype, torch.bfloat16 if dtype is torch.float16 else dtype)
                served = dtype in (torch.float16, torch.float32, torch.bool)
                self.assertEqual(refuses(vitune.attention, *cast, mask) is None, served)
