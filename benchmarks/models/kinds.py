# benchmarks/models/kinds.py -- What a kernel of a model does, read off its name: GEMM, attention, norm ...
# SPDX-License-Identifier: Apache-2.0
"""Knows no PyTorch. Names are those that a profiler gives, of cuBLAS, cuDNN, flash attention, ATen, Inductor and vitune."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

#: In the order of tables. "other" is element-wise work that is none of the others, pooling and reductions.
KINDS = ("gemm", "attention", "norm", "activation", "copies", "convolution", "other")

#: Functions by the words in their names.
ACTIVATIONS = r"gelu|silu|swish|relu|sigmoid|tanh|mish|elu|softplus|glu(?!e)|clamp|hardtanh"
_COPIES = r"copy|catarray|(?<!un)roll|_pad|pad_|fill|index_|indexselect|gather|scatter|transpose|permute|rescale_qkv"

#: The first that fits. A library's GEMM may be called after its activation, and a cuDNN attention after fprop.
_RULES = [
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("copies", r"^\[?mem(cpy|set)|rescale_qkv"),
        ("norm", r"^vitune_(group_)?norm"),
        ("gemm", r"^vitune_linear"),
        ("attention", r"sdpa|flash|fmha|attention|mha_|softmax"),
        ("convolution", r"fprop|dgrad|wgrad|convol|conv[123]d|[_:]conv_|implicit_gemm|winograd|n(chw|hwc)ton(chw|hwc)|im2col|vol2col"),
        ("gemm", r"nvjet|gemm|gemv|cublas|cutlass|xmma|tensorop|split_?k"),
        ("norm", r"(layer|batch|group|rms)_?norm|bn_fw|rowwisemoments|computefusedparams"),
        ("activation", ACTIVATIONS),
        ("copies", _COPIES),
    )
]

#: triton_<what it is>_fused_<operators of ATen>_<number>; "tem" is a template: a matrix product, convolution or attention.
_INDUCTOR = re.compile(r"^triton_(?P<form>[a-z_]+?)_fused_(?P<words>\w*)$")
_NORMS = r"(layer|group|batch|rms)_norm|rsqrt|var_mean"
_PRODUCTS = r"(^|_)(add|b|badd)?mm(_|$)|(^|_)(linear|matmul|addmv|mv)(_|$)"
_ARITHMETIC = r"(^|_)(i?add|i?mul|sub|div|mean|sum|pow|sqrt|exp|neg|where|amax|max|min|avg|pool2d|lerp|masked)(_|$)"
_INDUCTOR_RULES = [
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("norm", _NORMS),
        ("attention", r"softmax"),
        ("activation", ACTIVATIONS),
        ("convolution", r"convolution"),  # the bias, or another layout for it
        ("other", _ARITHMETIC),
        ("gemm", _PRODUCTS),  # a product that became a reduction, or its bias
        ("copies", ""),
    )
]


def _of_inductor(form: str, words: str) -> str:
    if form == "tem":
        return "attention" if "attention" in words else "convolution" if "convolution" in words else "gemm"
    # An operand that is laid out for attention: the kernel does nothing else of it.
    words = re.sub(r"_?scaled_dot_product_\w*?attention(_for_cpu)?", "", words)
    return next(kind for kind, pattern in _INDUCTOR_RULES if pattern.search(words))


def kind_of(kernel: str) -> str:
    """One of KINDS."""
    made = _INDUCTOR.match(kernel)
    if made:
        return _of_inductor(made["form"], made["words"])
    return next((kind for kind, pattern in _RULES if pattern.search(kernel)), "other")


_NOISE = re.compile(r"^void |at::native::|\(anonymous namespace\)::")


def short_name(kernel: str, letters: int) -> str:
    """So many letters of a name that say most."""
    return _NOISE.sub("", kernel)[:letters]


def by_kind(kernels: Iterable[tuple[str, float]], kinds: Sequence[str] = KINDS,
            kind_of: Callable[[str], str] = kind_of) -> dict[str, float]:
    """Microseconds of each of `kinds` that is there, of (name, microseconds)."""
    found: dict[str, float] = {}
    for name, us in kernels:
        kind = kind_of(name)
        found[kind] = found.get(kind, 0.0) + us
    return {kind: round(found[kind], 2) for kind in kinds if kind in found}
