# python/vitune/_compile/patterns/renewal.py -- Folded parameters compared on the GPU with what they were made of, in every pass, and made anew there.
# SPDX-License-Identifier: Apache-2.0
"""Another library, or the replay of a CUDA graph, writes to parameters unseen by PyTorch. So a kernel compares in each pass, beside
the pass' own kernels: it is launched on a stream of its own at the first call of a linear layer, and the first call that reads what it
compared waits for it. The first form has a launch of its own, since it is waited for soon; the others have the time of a block of the
model. Graphs that are captured of a pass, the user's and PyTorch's, hold both. A block of the kernel has some rows of a matrix:

- vectors (the norm's weight and bias, the layer's bias) are compared whole, by a hash;
- of each row of the matrix so many elements are computed again and compared with what is there, at places that move on with every pass,
  so that each element is compared once in ceil(columns / _CHUNK) passes.

Where one differs the block makes its rows anew, in the same pass, and asks all blocks to do so in the next, whatever they find.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Optional

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._ops import linear as linear_ops
from .forms import Form

_ROWS = 256  #: of a block, one for each thread while it compares
_CHUNK = 8  #: elements of a row in a pass, two words of 64 bits
_WIDE = 1024  #: elements of a vector that are read at once
_PART, _STEP = 32, 32  #: rows and columns that are made at once: the fewer, the fewer registers every block holds
_WARPS = 8
_FIRST = 1  #: forms with a launch of their own
_FIELDS = 10  #: of a block in the table
_SEEN = 3  #: words that a block keeps: the vectors' digest, the number of passes, the last request that it met

_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


class _Launch:
    """The blocks of forms of the same types."""

    def __init__(self, forms: Sequence[Form], requests: Tensor) -> None:
        fields = [fields for form in forms for fields in _fields(form)]
        self._table = torch.tensor(fields, dtype=torch.int64, device=requests.device)
        self._seen = torch.zeros(len(fields), _SEEN, dtype=torch.int64, device=requests.device)
        self._requests, self._types = requests, [_TYPES[each] for each in forms[0].types]

    def __call__(self) -> None:
        _renew[(len(self._table),)](self._table, self._seen, self._requests, *self._types, ROWS=_ROWS, CHUNK=_CHUNK, WIDE=_WIDE,
                                    PART=_PART, STEP=_STEP, FIELDS=_FIELDS, SEEN=_SEEN, num_warps=_WARPS)


class _Group:
    """Forms that are compared together."""

    def __init__(self, forms: Sequence[Form], requests: Tensor) -> None:
        of_types: dict[tuple[torch.dtype, ...], list[Form]] = {}
        for form in forms:
            of_types.setdefault(form.types, []).append(form)
        self._launches = [_Launch(each, requests) for each in of_types.values()]
        self.matrices = {form.matrix.data_ptr() for form in forms}

    def launch(self) -> None:
        for launch in self._launches:
            launch()


class Renewal:
    """Compares some forms, of which the first is read first, with what they are made of, while a pass runs."""

    def __init__(self, forms: Sequence[Form], requests: Tensor) -> None:
        self.device = requests.device
        self._groups = [_Group(each, requests) for each in (forms[:_FIRST], forms[_FIRST:]) if each]
        self._stream = torch.cuda.Stream(requests.device)

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """A pass, on the current stream. Where its kernels are replayed, nothing is launched: they hold ours."""
        waiting: list[tuple[_Group, torch.cuda.Event]] = []
        is_launched = False

        def reaches(weight: Optional[Tensor]) -> None:
            nonlocal is_launched
            if not is_launched:
                is_launched = True
                waiting.extend(self._launch())
            address = None if weight is None else weight.data_ptr()
            for each in [each for each in waiting if address is None or address in each[0].matrices]:
                waiting.remove(each)
                torch.cuda.current_stream(self.device).wait_event(each[1])
        before, linear_ops.current.reaches = linear_ops.current.reaches, reaches
        try:
            yield
        finally:
            linear_ops.current.reaches = before
            if waiting:
                reaches(None)  # a capture must not end before what began in it

    def _launch(self) -> list[tuple[_Group, torch.cuda.Event]]:
        launched = []
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            for group in self._groups:
                group.launch()
                launched.append((group, self._stream.record_event()))
        return launched


def _fields(form: Form) -> list[list[int]]:
    """Those of each block: pointers, the numbers of rows and columns, the first row."""
    pointers = [0 if each is None else each.data_ptr() for each in form]
    return [[*pointers, *form.weight.shape, first] for first in range(0, form.weight.shape[0], _ROWS)]


@triton.jit
def _mixed(words, salt):
    """Words that say nothing of the ones they were made of: the finaliser of MurmurHash3."""
    mixed = words ^ (salt * 0x9E3779B1)
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35
    return (mixed ^ (mixed >> 16)).to(tl.uint64)


@triton.jit
def _vector(address, type: tl.constexpr, at, mask, absent):
    """Elements of a source that may not be there, as fp32."""
    return tl.load(address.to(tl.pointer_type(type)) + at, mask=mask & (address != 0), other=absent).to(tl.float32)


@triton.jit
def _words_of(values):
    """Bits, which differ where the values do."""
    return values.to(tl.int32, bitcast=True).to(tl.uint32, bitcast=True)


@triton.jit
def _element(words, place: tl.constexpr, type: tl.constexpr):
    """Of words of four."""
    return (words >> (16 * place)).to(tl.int16).to(type, bitcast=True)


@triton.jit
def _digest_of(form, rows, is_row, columns, NORM_WEIGHT: tl.constexpr, NORM_BIAS: tl.constexpr, BIAS: tl.constexpr, WIDE: tl.constexpr):
    """Of the vectors, as far as these rows are made of them."""
    norm_weight, norm_bias = tl.load(form + 1), tl.load(form + 2)
    biases = _words_of(_vector(tl.load(form + 3), BIAS, rows, is_row, 0.0))
    digests = tl.zeros([WIDE], tl.uint64)
    begin = columns * 0  # of its type
    while begin < columns:
        at = begin + tl.arange(0, WIDE)
        factors = _words_of(_vector(norm_weight, NORM_WEIGHT, at, at < columns, 0.0))
        addends = _words_of(_vector(norm_bias, NORM_BIAS, at, at < columns, 0.0))
        digests += _mixed(factors, at.to(tl.uint32)) + (_mixed(addends, at.to(tl.uint32)) << 21)
        begin += WIDE
    return (tl.sum(digests) + (tl.sum(_mixed(biases, rows.to(tl.uint32))) << 11)).to(tl.int64, bitcast=True)


@triton.jit
def _make(form, first, row_count, columns, NORM_WEIGHT: tl.constexpr, NORM_BIAS: tl.constexpr, BIAS: tl.constexpr,
          MATRIX: tl.constexpr, PART: tl.constexpr, STEP: tl.constexpr):
    """Some rows."""
    weight, matrix = tl.load(form).to(tl.pointer_type(MATRIX)), tl.load(form + 4).to(tl.pointer_type(MATRIX))
    norm_weight, norm_bias = tl.load(form + 1), tl.load(form + 2)
    total, sums_at = tl.load(form + 5).to(tl.pointer_type(tl.float32)), tl.load(form + 6)
    rows = first + tl.arange(0, PART)
    is_row = rows < row_count
    totals = _vector(tl.load(form + 3), BIAS, rows, is_row, 0.0)
    sums = tl.zeros([PART], tl.float32)
    left = columns * 0
    while left < columns:
        across = left + tl.arange(0, STEP)
        is_column = across < columns
        is_here = is_row[:, None] & is_column[None, :]
        at = rows[:, None] * columns.to(tl.int64) + across[None, :]
        values = tl.load(weight + at, mask=is_here, other=0.0).to(tl.float32)
        result = (values * _vector(norm_weight, NORM_WEIGHT, across, is_column, 1.0)[None, :]).to(MATRIX)
        tl.store(matrix + at, result, mask=is_here)
        sums += tl.sum(result.to(tl.float32), 1)
        totals += tl.sum(values * _vector(norm_bias, NORM_BIAS, across, is_column, 0.0)[None, :], 1)
        left += STEP
    tl.store(total + rows, totals, mask=is_row)
    tl.store(sums_at.to(tl.pointer_type(tl.float32)) + rows, sums, mask=is_row & (sums_at != 0))


@triton.jit
def _renew(table, seen, requests, NORM_WEIGHT: tl.constexpr, NORM_BIAS: tl.constexpr, BIAS: tl.constexpr, MATRIX: tl.constexpr,
           ROWS: tl.constexpr, CHUNK: tl.constexpr, WIDE: tl.constexpr, PART: tl.constexpr, STEP: tl.constexpr, FIELDS: tl.constexpr,
           SEEN: tl.constexpr):
    form = table + tl.program_id(0) * FIELDS
    seen += tl.program_id(0) * SEEN
    request = tl.load(requests)
    digest_before, passes, request_before = tl.load(seen), tl.load(seen + 1), tl.load(seen + 2)
    weight, matrix = tl.load(form).to(tl.pointer_type(tl.int64)), tl.load(form + 4).to(tl.pointer_type(tl.int64))
    norm_weight = tl.load(form + 1)
    row_count, columns, first = tl.load(form + 7).to(tl.int32), tl.load(form + 8).to(tl.int32), tl.load(form + 9).to(tl.int32)
    rows = first + tl.arange(0, ROWS)
    is_row = rows < row_count

    drawn = (passes.to(tl.int32) + rows) % (columns // CHUNK) * CHUNK
    wrong = tl.zeros([ROWS], tl.int32)
    for word in tl.static_range(CHUNK // 4):
        at = (rows * columns.to(tl.int64) + drawn) // 4 + word
        sample, there = tl.load(weight + at, mask=is_row, other=0), tl.load(matrix + at, mask=is_row, other=0)
        for place in tl.static_range(4):
            factors = _vector(norm_weight, NORM_WEIGHT, drawn + (4 * word + place), is_row, 1.0)
            made = (_element(sample, place, MATRIX).to(tl.float32) * factors).to(MATRIX).to(tl.int16, bitcast=True)
            wrong += (made != (there >> (16 * place)).to(tl.int16)).to(tl.int32)
    is_wrong = tl.sum(tl.where(is_row, wrong, 0)) > 0
    digest = _digest_of(form, rows, is_row, columns, NORM_WEIGHT, NORM_BIAS, BIAS, WIDE)
    tl.store(seen + 1, passes + 1)

    is_found, is_asked = is_wrong | (digest != digest_before), request != request_before
    if is_found & (not is_asked):
        tl.atomic_add(requests, 1)  # which this block, too, will meet in the next pass
    if is_found | is_asked:
        part = first * 1
        end = tl.minimum(first + ROWS, row_count)
        while part < end:
            _make(form, part, row_count, columns, NORM_WEIGHT, NORM_BIAS, BIAS, MATRIX, PART, STEP)
            part += PART
        tl.store(seen, digest)
        tl.store(seen + 2, request)
