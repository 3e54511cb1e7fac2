# python/vitune/_compile_renewal.py -- Prepared weights compared on the GPU with what they were made of, in every pass, and made anew there.
# SPDX-License-Identifier: Apache-2.0
"""Another library, or the replay of a CUDA graph, writes to parameters unseen by PyTorch. So one kernel goes in front of each pass, and
into graphs that are captured of it. A block of it has some rows of a prepared matrix:

- vectors (the norm's weight and bias, the layer's bias) are compared whole, by a hash;
- of each row of the matrix so many elements are computed again and compared with what is there, at places that move on with every pass,
  so that each element is compared once in ceil(columns / _CHUNK) passes.

Where one differs the block makes its rows anew, in the same pass, and asks all blocks to do so in the next, whatever they find.
"""
from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._compile_forms import TYPES, Form

_ROWS = 32  #: of a block
_CHUNK = 16  #: elements of a row in a pass: a sector of 32 bytes of 16-bit weights
_WIDE = 128  #: elements of a row that are made at once
_FIELDS = 15  #: of a form in the table
_SEEN = 3  #: words that a block keeps: the vectors' digest, the number of passes, the last request that it met

_TYPES = dict(zip(TYPES, (tl.bfloat16, tl.float16, tl.float32)))


def new_requests(device: torch.device) -> Tensor:
    """How often all blocks were asked to make their rows anew: of all forms that are to be renewed together."""
    return torch.ones(1, dtype=torch.int64, device=device)


def new_seen(form: Form) -> Tensor:
    """What the blocks of a form keep from pass to pass."""
    return torch.zeros(-(-form.weight.shape[0] // _ROWS), _SEEN, dtype=torch.int64, device=form.matrix.device)


def _fields(form: Form, seen: Tensor) -> list[int]:
    pointers = [0 if each is None else each.data_ptr() for each in (*form, seen)]
    vectors = (form.norm_weight, form.norm_bias, form.bias)
    steps = [*form.weight.stride(), *(0 if each is None else each.stride(0) for each in vectors)]
    return [*pointers, *form.weight.shape, *steps]


_captured: list["Renewal"] = []  #: whose memory graphs of others read for as long as they are replayed, which nobody tells


class Renewal:
    """One launch for each combination of types among some forms."""

    def __init__(self, forms: Sequence[tuple[Form, Tensor]], requests: Tensor) -> None:
        """forms: each with what new_seen() gave for it."""
        self._requests, self._forms = requests, [(form.matrix, form.total, form.sums, seen) for form, seen in forms]
        groups: dict[tuple[torch.dtype, ...], list[tuple[Form, Tensor]]] = {}
        for form, seen in forms:
            groups.setdefault(form.types, []).append((form, seen))
        self._launches = [(*_tables(group, requests.device), [_TYPES[each] for each in types]) for types, group in groups.items()]

    def __call__(self) -> None:
        """On the current stream, also while that is captured."""
        device = self._requests.device.index
        with contextlib.nullcontext() if torch.cuda.current_device() == device else torch.cuda.device(device):
            if torch.cuda.is_current_stream_capturing():
                _captured.append(self)
            self._launch()

    def _launch(self) -> None:
        for blocks, table, types in self._launches:
            _renew[(blocks.shape[0],)](blocks, table, self._requests, *types, ROWS=_ROWS, CHUNK=_CHUNK, WIDE=_WIDE,
                                       FIELDS=_FIELDS, SEEN=_SEEN, num_warps=4)


def _tables(group: Sequence[tuple[Form, Tensor]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Form and first row of each block; the forms' pointers and sizes."""
    blocks = [(place, row) for place, (form, _) in enumerate(group) for row in range(0, form.weight.shape[0], _ROWS)]
    fields = [_fields(form, seen) for form, seen in group]
    return torch.tensor(blocks, dtype=torch.int32, device=device), torch.tensor(fields, dtype=torch.int64, device=device)


@triton.jit
def _mixed(words, salt):
    """Words that say nothing of the ones they were made of: the finaliser of MurmurHash3."""
    mixed = words.to(tl.uint64) ^ salt.to(tl.uint64)
    mixed = (mixed ^ (mixed >> 33)) * 0xFF51AFD7ED558CCD
    mixed = (mixed ^ (mixed >> 33)) * 0xC4CEB9FE1A85EC53
    return mixed ^ (mixed >> 33)


@triton.jit
def _vector(form, field: tl.constexpr, step_field: tl.constexpr, type: tl.constexpr, at, mask, absent):
    """Elements of a source that may not be there, as fp32."""
    address, step = tl.load(form + field), tl.load(form + step_field)
    return tl.load(address.to(tl.pointer_type(type)) + at * step, mask=mask & (address != 0), other=absent).to(tl.float32)


@triton.jit
def _words_of(values):
    """Bits, which differ where the values do."""
    return values.to(tl.int32, bitcast=True).to(tl.uint32, bitcast=True)


@triton.jit
def _renew(blocks, table, requests, WEIGHT: tl.constexpr, NORM_WEIGHT: tl.constexpr, NORM_BIAS: tl.constexpr, BIAS: tl.constexpr,
           MATRIX: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, WIDE: tl.constexpr, FIELDS: tl.constexpr,
           SEEN: tl.constexpr):
    block = blocks + 2 * tl.program_id(0)
    form = table + tl.load(block) * FIELDS
    first = tl.load(block + 1)
    weight = tl.load(form).to(tl.pointer_type(WEIGHT))
    matrix = tl.load(form + 4).to(tl.pointer_type(MATRIX))
    total_at, sums_at = tl.load(form + 5), tl.load(form + 6)
    seen = tl.load(form + 7).to(tl.pointer_type(tl.int64)) + first // ROWS * SEEN
    row_count, columns = tl.load(form + 8), tl.load(form + 9)
    row_step, column_step = tl.load(form + 10), tl.load(form + 11)
    rows = first + tl.arange(0, ROWS)
    is_row = rows < row_count

    digests = tl.zeros([WIDE], tl.uint64)
    begin = columns * 0  # of its type
    while begin < columns:
        at = begin + tl.arange(0, WIDE)
        inside = at < columns
        factors = _vector(form, 1, 12, NORM_WEIGHT, at, inside, 0.0)
        addends = _vector(form, 2, 13, NORM_BIAS, at, inside, 0.0)
        digests += _mixed(_words_of(factors), at.to(tl.uint64) << 34) + _mixed(_words_of(addends), (at.to(tl.uint64) << 34) + (1 << 32))
        begin += WIDE
    biases = _vector(form, 3, 14, BIAS, rows, is_row, 0.0)
    digest = tl.sum(digests) + tl.sum(_mixed(_words_of(biases), (rows.to(tl.uint64) << 34) + (2 << 32)))
    digest = digest.to(tl.int64, bitcast=True)

    passes = tl.load(seen + 1)
    chunks = (columns + CHUNK - 1) // CHUNK
    at = ((passes + rows) % chunks * CHUNK)[:, None] + tl.arange(0, CHUNK)[None, :]
    inside = is_row[:, None] & (at < columns)
    sample = tl.load(weight + rows[:, None].to(tl.int64) * row_step + at * column_step, mask=inside, other=0.0).to(tl.float32)
    factors = _vector(form, 1, 12, NORM_WEIGHT, at, inside, 1.0)
    made = (sample * factors).to(MATRIX).to(tl.int16, bitcast=True)
    there = tl.load(matrix + rows[:, None].to(tl.int64) * columns + at, mask=inside, other=0.0).to(tl.int16, bitcast=True)
    wrong = tl.sum(tl.sum(((made != there) & inside).to(tl.int32), 1), 0)
    tl.store(seen + 1, passes + 1)

    request = tl.load(requests)
    is_asked = request != tl.load(seen + 2)
    is_found = (wrong > 0) | (digest != tl.load(seen))
    if is_found & (not is_asked):
        tl.atomic_add(requests, 1)  # which this block, too, will meet in the next pass
    if is_found | is_asked:
        totals = biases
        sums = tl.zeros([ROWS], tl.float32)
        begin = columns * 0
        while begin < columns:
            at = begin + tl.arange(0, WIDE)
            inside = is_row[:, None] & (at < columns)[None, :]
            values = tl.load(weight + rows[:, None].to(tl.int64) * row_step + (at * column_step)[None, :], mask=inside, other=0.0)
            values = values.to(tl.float32)
            factors = _vector(form, 1, 12, NORM_WEIGHT, at, at < columns, 1.0)
            addends = _vector(form, 2, 13, NORM_BIAS, at, at < columns, 0.0)
            result = (values * factors[None, :]).to(MATRIX)
            tl.store(matrix + rows[:, None].to(tl.int64) * columns + at[None, :], result, mask=inside)
            sums += tl.sum(result.to(tl.float32), 1)
            totals += tl.sum(values * addends[None, :], 1)
            begin += WIDE
        tl.store(total_at.to(tl.pointer_type(tl.float32)) + rows, totals, mask=is_row & (total_at != 0))
        tl.store(sums_at.to(tl.pointer_type(tl.float32)) + rows, sums, mask=is_row & (sums_at != 0))
        tl.store(seen, digest)
        tl.store(seen + 2, request)
