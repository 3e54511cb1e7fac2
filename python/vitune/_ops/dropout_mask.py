# python/vitune/_ops/dropout_mask.py -- Which weights attention with dropout keeps, as templates/attention/dropout.cuh has it.
# SPDX-License-Identifier: Apache-2.0
"""A random byte belongs to each score, a function of seed, offset, head, row and key: Philox4x32-7 (Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", 2011) gives those of sixteen scores at once. A score is kept where its byte is not below 256 p, so that p is a multiple of 1/256
(FlashAttention-2 spends a byte for each score too), and what is kept is multiplied by 1 / (1 - p) of that very p."""
from __future__ import annotations

import math

import torch
from torch import Tensor

from .._runtime.errors import InvalidArgument, Unsupported

_LOW = 0xFFFFFFFF
_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_BLOCK = 16  # rows and keys of a block, which has sixteen cells of sixteen scores


def dropped_of(dropout_p: float) -> int:
    """Of 256 weights, how many are dropped. Raises InvalidArgument where it is no probability, Unsupported where none or all would be."""
    if not 0 <= dropout_p <= 1:
        raise InvalidArgument(f"dropout_p is {dropout_p}: a probability is from 0 to 1")
    dropped = math.floor(256 * dropout_p + 0.5)
    if not 1 <= dropped <= 255:
        raise Unsupported(f"dropout_p of {dropout_p:g}: it is rounded to 256ths, from 1/256 to 255/256")
    return dropped


def drawn(like: Tensor) -> Tensor:
    """A seed and an offset, [2] of int64, by PyTorch's generator of the device: others in each replay of a CUDA graph."""
    return torch.randint(-2**63, 2**63 - 1, (2,), dtype=torch.int64, device=like.device)


def _product(a: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """Its upper and lower halves."""
    whole = a * multiplier  # of 64 bits, whatever their sign
    return (whole >> 32) & _LOW, whole & _LOW


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 bits, as int64 all of them."""
    (a, b, c, d), (x, y) = counter, key
    for _ in range(7):
        (first, low), (second, lower) = _product(a, _MULTIPLIERS[0]), _product(c, _MULTIPLIERS[1])
        a, b, c, d = second ^ b ^ x, lower, first ^ d ^ y, low
        x, y = (x + _WEYL[0]) & _LOW, (y + _WEYL[1]) & _LOW
    return a, b, c, d


def kept(random: Tensor, heads: Tensor, rows: int, keys: int, dropped: int) -> Tensor:
    """Whether each weight is kept: bool [heads, rows, keys] of the heads of such numbers (batch entry * heads + head), on their device."""
    seed, offset = random.unbind()
    blocks, of_keys = -(-rows // _BLOCK), -(-keys // _BLOCK)
    cell_rows, cell_keys = (torch.arange(4 * count, device=heads.device) for count in (blocks, of_keys))
    key = seed & _LOW, ((seed >> 32) + (offset >> 32)) & _LOW
    words = philox((cell_rows[:, None], cell_keys, heads[:, None, None], offset & _LOW), key)
    octets = torch.stack(torch.broadcast_tensors(*words), -1).view(torch.uint8).unflatten(-1, (4, 8))[..., :4]  # the lower four of each word
    found = (octets >= dropped).unflatten(1, (blocks, 4)).unflatten(3, (of_keys, 4)).unflatten(5, (2, 2)).unflatten(7, (2, 2))
    # [heads, blocks, a, blocks, b, row % 2, row / 8 % 2, key / 8 % 2, key % 2]
    return found.permute(0, 1, 6, 2, 5, 3, 7, 4, 8).reshape(len(heads), _BLOCK * blocks, _BLOCK * of_keys)[:, :rows, :keys]
