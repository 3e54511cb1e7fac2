# python/tests/torch_cases.py -- Calls of scaled_dot_product_attention as models make them, on any device, and their judge.
# SPDX-License-Identifier: Apache-2.0
"""Used twice: on the emulated device (test_torch_host.py) and on a GPU (test_torch_gpu.py)."""
import math

import torch
import torch.nn.functional as F


def packed(batch, rows, heads, d, **kind):
    """q, k, v as views of one [B, N, 3, H, D]."""
    return torch.randn(batch, rows, 3, heads, d, **kind).permute(2, 0, 3, 1, 4).unbind(0)


def fresh(*shape, **kind):
    return tuple(torch.randn(*shape, **kind) for _ in range(3))


def cases(device, dtype):
    """Name -> (q, k, v, keywords)."""
    kind = {"device": device, "dtype": dtype}
    float_kind = {"device": device, "dtype": torch.float32}

    def rand_mask(*shape):
        mask = torch.rand(*shape, device=device) > 0.4
        mask[..., 0] = True
        return mask
    cross = torch.randn(2, 7, 2, 3, 16, **kind).permute(2, 0, 3, 1, 4)
    hiera = torch.randn(2, 9, 3, 3, 2, 16, **kind).permute(3, 0, 4, 2, 1, 5).unbind(0)
    twins = torch.randn(2, 3, 9, 3, 2, 16, **kind).permute(3, 0, 1, 4, 2, 5).unbind(0)
    no_key = rand_mask(2, 1, 1, 10)
    no_key[1] = False
    q, k, v = packed(2, 11, 3, 16, **kind)
    rows = torch.randn(2, 3, 10, 24, **kind)[..., :16]  # rows with a gap behind them
    return {
        "packed": (q, k, v, {}),
        "scale": (q, k, v, {"scale": 0.2}),
        "causal": (q, k, v, {"is_causal": True}),
        "rotary: v still packed": (q.contiguous(), k.contiguous(), v, {}),
        "cross": (torch.randn(2, 3, 5, 16, **kind), *cross, {}),
        "causal with more queries than keys": (torch.randn(2, 3, 9, 16, **kind), *cross, {"is_causal": True}),
        "rows with gaps": (rows, rows, rows, {}),
        "bias [N,N]": (q, k, v, {"attn_mask": torch.randn(11, 11, **kind)}),
        "fp32 bias [1,H,N,N]": (q, k, v, {"attn_mask": torch.randn(1, 3, 11, 11, **float_kind)}),
        "bias of padded rows": (q, k, v, {"attn_mask": torch.randn(3, 11, 16, **kind)[..., :11]}),
        "mask [B,1,1,Nk]": (rows, rows, rows, {"attn_mask": no_key}),
        "mask [B,H,N,N]": (q, k, v, {"attn_mask": rand_mask(2, 3, 11, 11)}),
        "expanded mask": (q, k, v, {"attn_mask": rand_mask(11, 11).expand(2, 3, 11, 11)}),
        "rank 3 with a bias per entry": (*fresh(6, 10, 16, **kind), {"attn_mask": torch.randn(6, 10, 10, **kind)}),
        "rank 5 in a loop": (*hiera, {}),
        "rank 5 folded": (*twins, {}),
        "rank 5 with window masks": (*fresh(2, 3, 2, 9, 16, **kind), {"attn_mask": rand_mask(3, 1, 9, 9)}),
        "grouped": (torch.randn(2, 4, 6, 16, **kind), torch.randn(2, 2, 7, 16, **kind), torch.randn(2, 2, 7, 16, **kind),
                    {"enable_gqa": True}),
        "one head of keys for all": (torch.randn(2, 4, 6, 16, **kind), torch.randn(2, 1, 7, 16, **kind),
                                     torch.randn(2, 1, 7, 16, **kind), {}),
        "only v has the batch": (*fresh(1, 3, 5, 16, **kind)[:2], torch.randn(2, 3, 5, 16, **kind), {}),
        "only v has the heads": (*fresh(2, 1, 5, 16, **kind)[:2], torch.randn(2, 3, 5, 16, **kind), {}),
        "k has the batch and v the heads": (torch.randn(1, 1, 6, 16, **kind), torch.randn(2, 1, 7, 16, **kind),
                                            torch.randn(1, 3, 7, 16, **kind), {"attn_mask": rand_mask(2, 1, 6, 7)}),
        "rank 3, only v has the batch": (*fresh(1, 5, 16, **kind)[:2], torch.randn(4, 5, 16, **kind), {}),
        "rank 5, only v has the windows": (*fresh(2, 1, 3, 5, 16, **kind)[:2], torch.randn(2, 4, 3, 5, 16, **kind), {}),
        "one query": (torch.randn(1, 3, 1, 16, **kind).expand(2, -1, -1, -1), *cross, {}),
        "no key": (torch.randn(2, 3, 5, 16, **kind), *(torch.randn(2, 3, 0, 16, **kind),) * 2, {}),
        "no query": (torch.randn(2, 3, 0, 16, **kind), *cross, {}),
        "no batch entry of k and v": (torch.randn(1, 3, 5, 16, **kind), *(torch.randn(0, 3, 7, 16, **kind),) * 2, {}),
        "no batch entry of v": (*fresh(1, 3, 5, 16, **kind)[:2], torch.randn(0, 3, 5, 16, **kind), {}),
    }


def in_order(order, *shape, **kind):
    """A tensor of that shape whose dimensions lie in that order in memory, outermost first."""
    return torch.randn(*(shape[i] for i in order), **kind).permute(*(order.index(i) for i in range(len(order))))


def layouts(device, dtype):
    """Name -> (q, k, v, keywords): every way that operands of rank 4 lie, alone and beside a mask, and calls of the other ranks."""
    kind = {"device": device, "dtype": dtype}
    shape, bias = (2, 3, 16, 32), torch.randn(2, 3, 16, 16, **kind)
    operands = {
        "packed": packed(2, 16, 3, 32, **kind), "rows outside": [in_order((0, 2, 1, 3), *shape, **kind) for _ in range(3)],
        "contiguous": fresh(*shape, **kind), "heads outermost": [in_order((1, 0, 2, 3), *shape, **kind) for _ in range(3)],
        "rows outermost": [in_order((2, 0, 1, 3), *shape, **kind) for _ in range(3)],
        "heads before the batch, rows within": [in_order((1, 2, 0, 3), *shape, **kind) for _ in range(3)],
        "rows with gaps": [torch.randn(2, 3, 16, 40, **kind)[..., :32] for _ in range(3)],
        "every other head": [torch.randn(2, 6, 16, 32, **kind)[:, ::2] for _ in range(3)],
        "q contiguous, v packed": [*fresh(*shape, **kind)[:2], packed(2, 16, 3, 32, **kind)[2]],
        "q packed, k and v contiguous": [packed(2, 16, 3, 32, **kind)[0], *fresh(*shape, **kind)[:2]],
        "one head": fresh(2, 1, 16, 32, **kind), "one row": [torch.randn(2, 3, 1, 32, **kind), *fresh(*shape, **kind)[:2]],
        "one entry": [in_order((0, 2, 1, 3), 1, 3, 16, 32, **kind) for _ in range(3)],
        "q repeated over the batch": [torch.randn(1, 3, 16, 32, **kind).expand(2, -1, -1, -1), *fresh(*shape, **kind)[:2]],
        "k and v of one entry": [torch.randn(*shape, **kind), *fresh(1, 3, 16, 32, **kind)[:2]],
    }
    masks = {"": None, ", bias": bias, ", bias for all heads": bias[:, :1], ", bool mask": bias > -2, ", bias [N,N]": bias[0, 0],
             ", wide bias": bias.float()}
    calls = {name + more: (*tensors, {} if mask is None else {"attn_mask": mask[:tensors[0].shape[0], :, :tensors[0].shape[-2]]
                                                             if mask is not None and mask.dim() == 4 else mask})
             for name, tensors in operands.items() for more, mask in masks.items()
             if mask is None or name not in ("one head", "one row", "one entry")}
    five = torch.randn(2, 4, 9, 3, 3, 16, **kind)
    return {
        **calls, "causal": (*operands["contiguous"], {"is_causal": True}), "causal, rows outside": (*operands["packed"], {"is_causal": True}),
        "grouped": (torch.randn(2, 6, 16, 32, **kind), *fresh(2, 3, 16, 32, **kind)[:2], {"enable_gqa": True}),
        "rank 2": (*(x[0, 0] for x in operands["packed"]), {}), "rank 3": (*(x[0] for x in operands["packed"]), {}),
        "rank 3, contiguous": (*fresh(6, 16, 32, **kind), {}),
        "rank 5, windows outside of heads": (*five.permute(3, 0, 1, 4, 2, 5).unbind(0), {}),
        "rank 5, heads outside of windows": (*five.permute(3, 0, 4, 1, 2, 5).unbind(0), {}),
        "rank 5, rows outside of windows": (*five.permute(3, 0, 4, 2, 1, 5).unbind(0), {}),
        "rank 5, contiguous": (*fresh(2, 3, 4, 9, 16, **kind), {}),
    }


def strides_that_matter(tensor):
    """Those of dimensions of more than one element: the others have no influence on what a tensor may be viewed as. Of nothing, none."""
    return () if tensor.numel() == 0 else tuple(stride for stride, extent in zip(tensor.stride(), tensor.shape) if extent != 1)


def scores_of(q, k, *, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """Scores in fp64; -inf where a key may not be attended."""
    if enable_gqa:
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
    scores = q.double() @ k.double().transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(), -math.inf)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask.double()
    return scores


def reference(q, k, v, **keywords):
    """(out, lse) in fp64; a row without any key gives 0 and -inf."""
    scores = scores_of(q, k, **keywords)
    if keywords.get("enable_gqa"):
        v = v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
    out = torch.softmax(scores, -1).nan_to_num(0) @ v.double()
    return out, torch.logsumexp(scores, -1).expand(out.shape[:-1])


def expect_right(test, out, wanted, dtype):
    """Of a 16-bit result of numbers of about 1."""
    test.assertEqual(out.shape, wanted.shape)
    test.assertEqual(out.dtype, dtype)
    if out.numel():
        limit = 0.03 if dtype is torch.bfloat16 else 0.004
        test.assertLess((out.double() - wanted).abs().max().item(), limit)


class Block(torch.nn.Module):
    """Attention as timm writes it: its last reshape is free only if the output is [B, N, H, D] in memory."""

    def __init__(self, heads=2, d=16, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = torch.nn.Linear(heads * d, 3 * heads * d)
        self.proj = torch.nn.Linear(heads * d, heads * d)

    def forward(self, x, attn_mask=None):
        batch, rows, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p=self.dropout if self.training else 0.0)
        return self.proj(x.transpose(1, 2).reshape(batch, rows, width))
