# python/vitune/__init__.py -- The package's face: attention on PyTorch's tensors, tuning, and the low-level Context.
# SPDX-License-Identifier: Apache-2.0
"""vitune: the fastest kernel for each attention, norm and linear layer of a vision transformer.

Importing needs neither a GPU, nor PyTorch, nor the library; what is missing is an error where it is used.
"""
from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Optional, overload

from ._runtime import command as _command
from ._runtime.context import (AttentionDesc, Context, ContextStats, Problem, ProblemTensor, Selection, bhnd_strides,
                               bnhd_strides, packed_strides)
from ._runtime.errors import (CommandError, InvalidArgument, LibraryNotFound, NoDevice, NotPrepared, TorchNotFound,
                              Unsupported, VituneError)
from ._runtime.library import command_path, library, use_library
from ._runtime.model import Model, Session
from ._runtime.structs import BF16, BOOL, FP16, FP32, NONE, VERSION

if TYPE_CHECKING:
    from torch import Tensor

__version__ = ".".join(map(str, VERSION))
__all__ = [
    "BF16", "BOOL", "FP16", "FP32", "NONE", "AttentionDesc", "CommandError", "Context", "ContextStats",
    "InvalidArgument", "LibraryNotFound", "Model", "NoDevice", "NotPrepared", "Problem", "ProblemTensor", "Selection", "Session", "TorchNotFound",
    "Unsupported", "VituneError", "attention", "attention_varlen", "benchmark", "bhnd_strides", "bnhd_strides", "command_path", "compile", "explain", "export",
    "exportable", "flash_attn_varlen_func", "fold_norm",
    "group_norm", "layer_norm", "library_version", "linear", "packed_strides", "prepare", "problem_text", "refresh", "report",
    "rms_norm", "train_step", "tune", "use_library", "window_attention",
]

_op: Any = None  # vitune._ops.attention, once PyTorch is needed
_norm: Any = None  # vitune._ops.norm and group_norm_ops, once a norm is
_group_norm: Any = None
_linear: Any = None  # vitune._ops.linear, once a linear layer is
_windows: Any = None  # vitune._ops.window_attention, once windows are
_packed: Any = None  # vitune._ops.packed_attention, once packed sequences are


def _load_op() -> Any:
    global _op
    try:
        _op = importlib.import_module("._ops.attention", __name__)
    except ImportError as reason:
        raise TorchNotFound(f"this needs PyTorch 2.5 or newer, which cannot be imported: {reason}") from reason
    return _op


def __getattr__(name: str) -> Any:
    if name in ("torch", "transformers", "patterns"):
        _load_op()
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'vitune' has no attribute '{name}'")


def _refuse_dropout(dropout_p: float) -> None:
    if isinstance(dropout_p, bool):  # a caller's is_causal
        raise InvalidArgument(f"dropout_p is {dropout_p}: as in scaled_dot_product_attention it comes before is_causal;"
                              f" say is_causal={dropout_p}")
    if not isinstance(dropout_p, (float, int)):
        raise InvalidArgument(f"dropout_p is of class {type(dropout_p).__name__}: a number is wanted, 0")
    if dropout_p:
        raise Unsupported(f"dropout_p is {dropout_p}: the kernels have no dropout; give 0 (a model that serves: model.eval())")


@overload
def attention(query: "Tensor", key: "Tensor", value: "Tensor", attn_mask: Optional["Tensor"] = None,
              dropout_p: float = 0.0, is_causal: bool = False, *, scale: Optional[float] = None, enable_gqa: bool = False,
              return_lse: Literal[False] = False) -> "Tensor": ...
@overload
def attention(query: "Tensor", key: "Tensor", value: "Tensor", attn_mask: Optional["Tensor"] = None,
              dropout_p: float = 0.0, is_causal: bool = False, *, scale: Optional[float] = None, enable_gqa: bool = False,
              return_lse: Literal[True]) -> "tuple[Tensor, Tensor]": ...
def attention(query: "Tensor", key: "Tensor", value: "Tensor", attn_mask: Optional["Tensor"] = None,
              dropout_p: float = 0.0, is_causal: bool = False, *, scale: Optional[float] = None, enable_gqa: bool = False,
              return_lse: bool = False) -> Any:
    """Attention as torch.nn.functional.scaled_dot_product_attention computes it, of the same arguments, on CUDA tensors.

    query, key and value are q, k and v. q: [..., heads, nq, d]; k, v: [..., heads, nk, d]; ranks 2 to 5; bfloat16 or float16; d: 8 to 128 in steps of 8. Any
    strides will do whose last is 1; nothing is copied. Leading extents of 1 broadcast. enable_gqa: k and v may have
    fewer heads, a divisor of q's.
    attn_mask: bool (True: attend), float32 or q's type (added after scaling), broadcastable to [..., heads, nq, nk]; of rank 4
    its first extent may also be a divisor w of the batch (window masks): entry i % w belongs to batch entry i.
    dropout_p: 0, there is no dropout. is_causal: query i sees keys 0..i. scale: of q k^T, 1 / sqrt(d) if None.

    Returns [..., heads, nq, d], which lies in memory as the result of the backend that PyTorch would choose for these arguments:
    what q is a view of a projection for, ``out.transpose(1, 2).reshape(...)`` is free. With return_lse (out, lse), lse the natural
    log-sum-exp, fp32 [..., heads, nq], contiguous. Rows without any key give 0 and -inf. Runs on the current stream; the first call of a problem loads its kernel, so call once before
    you capture a CUDA graph.

    Where an input of rank 4 requires a gradient it has one, bias included; not of the log-sum-exp, nor a second one.

    Raises Unsupported (other devices, head sizes, gradients that it has not), InvalidArgument (contradictory shapes and types),
    NotPrepared (a new problem during a capture), LibraryNotFound, TorchNotFound, VituneError.
    """
    if dropout_p or type(dropout_p) is not float:
        _refuse_dropout(dropout_p)
    return (_op or _load_op()).attention(query, key, value, attn_mask, is_causal, scale, enable_gqa, return_lse)


def _load_norm() -> Any:
    global _norm, _group_norm
    _load_op()
    _norm = importlib.import_module("._ops.norm", __name__)
    _group_norm = importlib.import_module("._ops.group_norm", __name__)
    return _norm


def layer_norm(x: "Tensor", normalized_shape: Any, weight: Optional["Tensor"] = None, bias: Optional["Tensor"] = None,
               eps: float = 1e-5, *, residual: Optional["Tensor"] = None, return_sum: bool = False,
               return_statistics: bool = False, out_dtype: Any = None) -> Any:
    """torch.nn.functional.layer_norm of x, or of x + residual, on CUDA tensors, in one pass.

    x, residual: [..., *normalized_shape] of bfloat16, float16 or float32; weight, bias: normalized_shape, of one type, any of
    these. The product of normalized_shape is 8,192 at most. Sums are fp32, the variance is taken in a second pass, and
    x + residual is not rounded before it is normalised. out_dtype: of the result, x's if None.

    Returns the result; with return_sum also x + residual, of x's type; with return_statistics also mean and
    1 / sqrt(variance + eps), fp32, one for each row: as a tuple in this order. Contiguous. Inference only.
    Raises Unsupported, InvalidArgument, NotPrepared (a new problem during a capture), LibraryNotFound, VituneError.
    """
    return (_norm or _load_norm()).norm(x, normalized_shape, weight, bias, eps, residual, False, return_sum, return_statistics,
                                        out_dtype)


def rms_norm(x: "Tensor", normalized_shape: Any, weight: Optional["Tensor"] = None, eps: Optional[float] = None, *,
             bias: Optional["Tensor"] = None, residual: Optional["Tensor"] = None, return_sum: bool = False,
             return_statistics: bool = False, out_dtype: Any = None) -> Any:
    """torch.nn.functional.rms_norm of x, or of x + residual; all else as layer_norm(), but no mean. eps None: as PyTorch, the
    machine epsilon of x's type (of float32 for float16 and bfloat16)."""
    eps = (_norm or _load_norm()).RMS_EPS if eps is None else eps
    return (_norm or _load_norm()).norm(x, normalized_shape, weight, bias, eps, residual, True, return_sum, return_statistics,
                                        out_dtype)


def group_norm(x: "Tensor", num_groups: int, weight: Optional["Tensor"] = None, bias: Optional["Tensor"] = None,
               eps: float = 1e-5, *, activation: Optional[str] = None) -> "Tensor":
    """torch.nn.functional.group_norm, then silu or mish if `activation` names one, on CUDA tensors, in one pass where it fits.

    x: [N, C, ...] of bfloat16, float16 or float32, contiguous or channels-last (others are copied first); weight, bias: [C] of
    one type, any of these. The result is not rounded before its activation. Returns x's shape in x's memory format.
    Inference only. Raises as layer_norm(), but a problem that is new in a capture is prepared there.
    """
    if _group_norm is None:
        _load_norm()
    return _group_norm.group_norm(x, num_groups, weight, bias, eps, activation)


def _load_linear() -> Any:
    global _linear
    _load_norm()
    _linear = importlib.import_module("._ops.linear", __name__)
    return _linear


def linear(x: "Tensor", weight: "Tensor", bias: Optional["Tensor"] = None, *, activation: Optional[str] = None,
           scale: Optional["Tensor"] = None, residual: Optional["Tensor"] = None, return_preactivation: bool = False,
           out_dtype: Any = None, mean: Optional["Tensor"] = None, rstd: Optional["Tensor"] = None,
           weight_sums: Optional["Tensor"] = None) -> Any:
    """residual + scale * activation(torch.nn.functional.linear(x, weight, bias)), on CUDA tensors, as one kernel's epilogue.

    x: [..., in_features], weight: [out_features, in_features], bfloat16 or float16, of one type; sums are fp32 and only the
    result is rounded. Rows of x may be strided, weight may be the transpose of a contiguous matrix. activation: "relu", "gelu"
    (by erf), "gelu_tanh", "quick_gelu" or "silu". bias, scale (LayerScale): [out_features] of one type. residual: of the
    result's type, its shape that of the result or the end of it: [197, 768] is added to each image (a position embedding).
    out_dtype: x's, or float32.
    mean, rstd: fp32, x's shape without its last extent: the layer is of (x - mean) * rstd, a LayerNorm's result that is never
    written; its weight and bias are in weight and bias, and weight_sums is given too, as fold_norm() makes all three. rstd alone: of
    x * rstd, an RMSNorm.

    Returns the result; with return_preactivation also the linear layer's, of x's type, before its activation, as a tuple.
    Contiguous. Inference only. Raises as layer_norm(), but a problem that is new in a capture is prepared there.
    """
    module = _linear or _load_linear()
    return module.linear(x, weight, bias, activation, scale, residual, return_preactivation, out_dtype,
                         module.Norm(mean, rstd, weight_sums))


def fold_norm(weight: "Tensor", bias: Optional["Tensor"] = None, norm_weight: Optional["Tensor"] = None,
              norm_bias: Optional["Tensor"] = None, *, dtype: Any = None) -> Any:
    """(weight, bias, weight_sums) of one linear layer in the place of a norm and the layer after it, as linear() takes them.

    weight: [out_features, in_features]; bias: [out_features]; norm_weight, norm_bias: [in_features], of one type. Computed in
    fp64 on weight's device: weight * norm_weight rounded to `dtype` (weight's if None), bias + weight norm_bias in fp32, and the
    sums of the rounded rows in fp32. They are made of what the parameters hold now. Raises InvalidArgument, Unsupported.
    """
    return (_linear or _load_linear()).fold_norm(weight, bias, norm_weight, norm_bias, dtype)


def window_attention(qkv: "Tensor", window: Any, *, shift: Any = 0, bias: Optional["Tensor"] = None,
                     padding: Optional["Tensor"] = None, scale: Optional[float] = None, interleaved: bool = False,
                     grid: bool = False, pads_first: bool = False) -> "Tensor":
    """Attention in the windows of images where they lie, on CUDA tensors: the roll, the padding and the partition before it, and
    their reverse behind it, are addresses of one call.

    qkv: [B, H, W, 3, heads, d], what a projection of [B, H, W, C] gives, bfloat16 or float16, contiguous (else it is copied); with
    interleaved [B, H, W, heads, 3, d]. window, shift: a number, or (rows, columns); images are rolled by -shift, cut into windows,
    and rolled back. grid: the pixels of a window are spread over the image, as in MaxViT. bias: [1 or windows, 1 or heads, n, n]
    of bfloat16, float16 or float32, n the pixels of a window: a relative position bias, and the shifted windows' masks in it.
    Where H or W is no multiple of the window's, images are padded at the bottom and to the right, after the roll, or before it with
    pads_first; padding: [3, heads, d], what q, k and v are there (the projection's bias), 0 if None. scale: 1 / sqrt(d) if None.

    Returns [B, H, W, heads, d]. Contiguous. Inference only. Raises as layer_norm().
    """
    global _windows
    if _windows is None:
        _load_norm()
        _windows = importlib.import_module("._ops.window_attention", __name__)
    return _windows.window_attention(qkv, window, shift, bias, padding, scale, interleaved, grid, pads_first)


def _load_packed() -> Any:
    global _packed
    if _packed is None:
        _load_norm()
        _packed = importlib.import_module("._ops.packed_attention", __name__)
    return _packed


@overload
def attention_varlen(q: "Tensor", k: "Tensor", v: "Tensor", cu_seqlens_q: "Tensor", cu_seqlens_k: Optional["Tensor"] = None,
                     max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, *, scale: Optional[float] = None,
                     is_causal: bool = False, return_lse: Literal[False] = False) -> "Tensor": ...
@overload
def attention_varlen(q: "Tensor", k: "Tensor", v: "Tensor", cu_seqlens_q: "Tensor", cu_seqlens_k: Optional["Tensor"] = None,
                     max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, *, scale: Optional[float] = None,
                     is_causal: bool = False, return_lse: Literal[True]) -> "tuple[Tensor, Tensor]": ...
def attention_varlen(q: "Tensor", k: "Tensor", v: "Tensor", cu_seqlens_q: "Tensor", cu_seqlens_k: Optional["Tensor"] = None,
                     max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, *, scale: Optional[float] = None,
                     is_causal: bool = False, return_lse: bool = False) -> Any:
    """Attention of sequences of differing lengths whose tokens follow each other, on CUDA tensors; each attends to itself.

    q: [tokens, heads, d], k and v: [tokens, kv_heads, d], bfloat16 or float16, views of a projection among them (rows that do not begin
    at multiples of 16 bytes are copied). cu_seqlens_q: int32 [sequences + 1] on the same GPU: where each sequence begins, and the last
    one's end; sequences may be empty. cu_seqlens_k: where each one's keys do; None: as its queries. Offsets are read on the device alone:
    a captured graph may be replayed with others. max_seqlen_q, max_seqlen_k: no sequence may be longer (of one that is, the rest is left
    out without a word); None: any length, which may choose a slower kernel. is_causal: the last query is level with the last key. scale: 1 / sqrt(d) if None.

    Returns [tokens, heads, d], with return_lse also the log-sum-exp, float32 [heads, tokens]. Rows of no sequence are left as they are
    in fresh memory; a query without keys gives 0 and -inf. Offsets that fall or lie beyond the tokens give wrong rows, and never touch
    memory outside of the tensors. Inference only. Raises as layer_norm().
    """
    return _load_packed().attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, scale, is_causal, return_lse)


def flash_attn_varlen_func(q: "Tensor", k: "Tensor", v: "Tensor", cu_seqlens_q: "Tensor", cu_seqlens_k: "Tensor", max_seqlen_q: int,
                           max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
                           window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional["Tensor"] = None,
                           deterministic: bool = False, return_attn_probs: bool = False, block_table: Optional["Tensor"] = None) -> "Tensor":
    """attention_varlen() by the signature of flash-attn's function, to be imported in its place. Dropout, a sliding window, a cap of
    scores, slopes, pages and probabilities to return are refused; results are the same from call to call, deterministic or not."""
    return _load_packed().flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p,
                                                 softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs, block_table)


def _load_compile() -> Any:
    _load_norm()
    try:
        return importlib.import_module("._compile.backend", __name__)
    except ImportError as reason:
        raise TorchNotFound(f"vitune.compile needs a newer PyTorch, whose Inductor takes passes of others: {reason}") from reason


def compile(model: Any = None, *, mode: Optional[str] = None, dynamic: Optional[bool] = None, fullgraph: bool = False,
            options: Optional[dict[str, Any]] = None, replace: Optional[Iterable[str]] = None, prepared_weights: bool = True,
            training: Optional[bool] = None) -> Any:
    """torch.compile of a model or function, with vitune's operators where they are known to be faster; the rest is
    Inductor's. Without a model it is a decorator.

    mode, dynamic, fullgraph, options: as of torch.compile ("reduce-overhead" and "max-autotune" replay CUDA graphs); mode and
    options may be given together.
    replace: the names of the operators that may be put in, without asking whether they are faster. None: attention, window_attention,
    packed_attention, linear, linear_train, norm_train, attention_train and window_attention_train, each call only if a tuned kernel
    serves it and it is not slower when both are timed on the GPU while the model is compiled. The others are norm and group_norm.
    Those in training need no tuned kernel: forward and backward together must give the same answers and be faster. All else stays
    as it is: nothing is refused. report() says what was done.
    prepared_weights: norms may be folded into the layers after them, whose weights are then kept in a second form. It is made anew when
    a parameter changes: before the next call if PyTorch wrote it, in the pass itself if nobody tells (docs/python.md). False: not folded.
    training: whether layers, norms and attention that need a gradient may be replaced. None: in modes with CUDA graphs, in train_step(),
    where `replace` names them, and elsewhere if these places take the GPU so long that a step waits for it and not for the host.
    Raises InvalidArgument for an operator that does not exist.
    """
    if model is None:
        return lambda function: compile(function, mode=mode, dynamic=dynamic, fullgraph=fullgraph, options=options, replace=replace,
                                        prepared_weights=prepared_weights, training=training)
    return _load_compile().compile(model, mode, dynamic, fullgraph, options, replace, prepared_weights, training)


def train_step(model: Any, loss: Callable[..., Any], optimizer: Any, *, scaler: Any = None,
               clip: float | Callable[[list[Tensor]], Any] | None = None, accumulate: int = 1, compile: Optional[bool] = None,
               capture: bool = True, hooks: bool = False) -> Any:
    """A step of training as one call, and on a GPU as one CUDA graph: ``step = vitune.train_step(...)``, ``loss = step(images, labels)``.

    loss: called with the model and with what the step is called with, as ``lambda model, images, labels:
    F.cross_entropy(model(images), labels)``; gives the loss, or a tuple that begins with it. optimizer: on a GPU one that counts and
    reads its rate there: AdamW, Adam, NAdam, RAdam, Adamax, ASGD, Adadelta or RMSprop with capturable=True, SGD with fused=True. Schedulers set
    its rate as usual. scaler: a torch.amp.GradScaler; its optimizer is fused. clip: the largest norm of the gradients of model.parameters(),
    or a function of these parameters that changes their gradients. accumulate: calls that make a step; the gradients are those of the mean
    of their losses. compile: by vitune.compile(model, dynamic=False); None: on a GPU, where the model is not compiled yet. capture:
    False takes plain steps on a GPU too. hooks: of the model, its parameters and the optimizer run in a capture and never again; False
    refuses them.

    A step does what zero_grad(set_to_none=True), forward, backward, clipping and the optimizer's step do; gradients go to the parameters of the
    model and the optimizer and to nothing else. Per shape of batches the first 3 calls are plain steps, then one graph is captured;
    what it has addresses or constants of is looked at before each replay, and after a change it is captured anew. Without a CUDA GPU
    all steps are plain. step.report() says what is captured, what is not and why; step.reset() captures anew.

    Raises InvalidArgument for what is no model, loss, optimizer ..., Unsupported with all reasons why these cannot be one graph, and with
    the way out, before the first step; both from step() for what only a call shows.
    """
    _load_compile()
    return importlib.import_module("._train.step", __name__).train_step(model, loss, optimizer, scaler, clip, accumulate, compile, capture, hooks)


def report(compiled: Any) -> Any:
    """What vitune.compile() made of a model so far: graphs and their calls, what serves each, or why it was left to Inductor.

    compiled: what compile() returned. Raises InvalidArgument for anything else.
    """
    return _load_compile().report(compiled)


def benchmark(model: Any, sample: Any, *, mode: Optional[str] = None, energy_seconds: float = 5.0) -> Any:
    """What vitune.compile() gains for a model as it is called with `sample`: ``print(vitune.benchmark(model, images))``.

    model: as it is before compile(), in eval mode; sample: its argument, a tuple of its arguments, or a dict of keywords. mode: of both
    torch.compile and vitune.compile. Passes of eager, torch.compile and vitune.compile are timed in turn, as Python calls them. Returns an object with
    the times (ms), the gains with 95 % intervals, how far answers are from eager's, and joules of a pass where NVML counts them (package
    nvidia-ml-py), in two windows of energy_seconds for each way; 0 leaves them out. Raises InvalidArgument.
    """
    _load_compile()
    return importlib.import_module("._compile.benchmark_model", __name__).benchmark(model, sample, mode, energy_seconds)


def _load_export() -> Any:
    _load_compile()
    return importlib.import_module("._export.export", __name__)


def export(model: Any, path: Any, sample: Any = None, *, outputs: Optional[Iterable[str]] = None, dtype: str = "bf16", check: bool = True,
           source: Optional[str] = None, license: Optional[str] = None, preprocess: Any = None,
           labels: Optional[Iterable[str]] = None) -> Any:
    """Writes a model's forward pass and its weights into one file, which is data and never code (docs/model_file.md). Needs no GPU.

    model: in eval mode. sample: what it is called with, a tensor [B, ...] or a dict of such tensors by the model's argument names;
    None: images of the size that a timm model says. Only shapes and types of it count, and the first dimension is the batch, which the
    file leaves open. outputs: names of the results of a model that answers with several (transformers), all of them if None. dtype:
    "bf16" or "fp16", in which the file's weights are and the graph computes. check: run the file, as it was read back, by the reference
    interpreter, and compare with the model, both in fp32. source, license: texts that the file carries; preprocess: a dict; labels: the
    names of the classes, one for each number of the one result, which `vitune run` prints.

    Returns what was written: path, nodes, bytes, error (of the check) and rounding (of the weights as stored). Raises Unsupported with
    every call that a file cannot hold, or where the check fails; InvalidArgument for a sample or result that is none.
    """
    metadata = {"source": source, "license": license, "vitune.preprocess": preprocess, "vitune.labels": labels}
    return _load_export().export(model, path, sample, None if outputs is None else list(outputs), dtype, check, metadata)


def exportable(model: Any, sample: Any = None, *, outputs: Optional[Iterable[str]] = None) -> Any:
    """What keeps export() from writing a model: a list of calls with module, call and reason; empty, if nothing does. Arguments as
    export(). Computes nothing of size: a model on the meta device will do."""
    return _load_export().exportable(model, sample, None if outputs is None else list(outputs))


def problem_text(query: "Tensor", key: "Tensor", value: "Tensor", attn_mask: Optional["Tensor"] = None,
                 dropout_p: float = 0.0, is_causal: bool = False, *, scale: Optional[float] = None, enable_gqa: bool = False,
                 return_lse: bool = False) -> str:
    """The problem that such a call asks, as text (docs/problems.md): what `vitune tune` takes.

    Reads shapes, strides and types only, of tensors on any device, meta included. Where views do not fold it is the
    problem of one image. Raises as attention().
    """
    _refuse_dropout(dropout_p)
    return (_op or _load_op()).problem_text(query, key, value, attn_mask, is_causal, scale, enable_gqa, return_lse)


def explain(query: "Tensor", key: "Tensor", value: "Tensor", attn_mask: Optional["Tensor"] = None,
            dropout_p: float = 0.0, is_causal: bool = False, *, scale: Optional[float] = None, enable_gqa: bool = False,
            return_lse: bool = False) -> Selection:
    """Which kernel would serve such a call, from which row, and why. Launches nothing. Raises as attention()."""
    _refuse_dropout(dropout_p)
    return (_op or _load_op()).explain(query, key, value, attn_mask, is_causal, scale, enable_gqa, return_lse)


def prepare(model: Any, sample: Any = None, **keywords: Any) -> Any:
    """Runs one forward pass, so that every kernel that `model` needs is loaded: before timing, serving or a capture.

    sample: its argument, a tuple of its arguments, or a dict of keywords, on the GPU, of the shapes to come. The pass runs
    inside vitune.torch.enabled() and torch.no_grad(). Returns what the pass did as vitune.torch.Stats, and warns if it asked for nothing.
    """
    drop_in = __getattr__("torch")
    before = drop_in.stats()
    drop_in.run_sample(model, sample, keywords)
    done = drop_in.stats() - before
    if done.served == done.fallbacks == 0:
        warnings.warn(f"vitune.prepare: {drop_in.NOTHING_ASKED}", drop_in.FallbackWarning, stacklevel=2)
    return done


def refresh(compiled: Any = None) -> int:
    """Takes over what was tuned since; returns the number of problems that are now served by another kernel.

    compiled: what compile() returned: what it prepared of its weights is made anew, in place. Changes in place and new parameters are
    seen without it, at the next call; those through ``.data`` or by collectives, and before a CUDA graph of your own is replayed, are not.
    """
    if compiled is not None:
        _load_compile().refresh(compiled)
    return 0 if _op is None else sum(context.refresh() for context in _op.contexts())


def _tune_of_model(given: tuple, sample: Any, options: dict[str, Any], problem_budget: str | int | None, quiet: bool, train: bool) -> Any:
    """tune() of a model."""
    foreign = [name for name in ("model", "batch", "dtype", "way", "operator", "preset", "file", "from_misses") if options[name]]
    if len(given) > 2 or foreign or len(given) == 2 and sample is not None:
        raise InvalidArgument("vitune.tune(model, sample) takes a model, its sample and how to tune; not "
                              + (", ".join(foreign) or "further arguments: several go as a tuple"))
    _load_compile()
    budget, options["budget"] = options["budget"], problem_budget
    return importlib.import_module("._compile.tune_model", __name__).tune(given[0], given[1] if len(given) == 2 else sample, budget, options,
                                                                 refresh, quiet, train)


def tune(*problems: Any, sample: Any = None, model: str | Iterable[str] | None = None, batch: int | Iterable[int] | None = None,
         dtype: str | None = None, way: str | None = None, operator: str | Iterable[str] | None = None, preset: str | Iterable[str] | None = None,
         file: str | os.PathLike[str] | None = None, from_misses: bool = False, device: str | int | None = None,
         budget: str | int | None = None, effort: str | None = None, objective: str | None = None,
         database: str | os.PathLike[str] | None = None, fresh: bool = False, jobs: int | None = None,
         problem_budget: str | int | None = None, quiet: bool = False, train: bool = False) -> Any:
    """Tunes a model, or problems; this process then serves the new winners. Progress is on stderr unless `quiet`.

    ``vitune.tune(module, sample, budget="60s")``: a PyTorch model, or what compile() returned, as it is asked for with `sample`: its
    argument, a tuple of its arguments, or a dict of keywords. It is compiled, what no winner serves is tuned, kernels with the largest
    share of a pass first, and it is compiled again, until it asks for nothing new or the time is up: budget is of all problems together,
    problem_budget of each. Every compiled model of the process compiles again at its next call. Returns an object that says what was gained,
    whose `model` is the compiled one. Ctrl-C ends it and keeps what is there. train: a pass is a step's forward and backward, of the sum of
    what the model gives, in the mode (train() or eval()) that it is in; gradients that are there stay as they are.

    ``vitune.tune("bf16 b=32 h=12 n=197 d=64", ...)``: runs `vitune tune` and returns its JSON document. problems: texts, also what
    problem_text() gave. model, batch, dtype: those of a model of timm; way: as "compile", "train" or "drop-in" asks them; operator: of
    these operators alone ("attention", ["attention", "norm"]). budget: per problem, a time ("30s") or a number of trials; effort in
    its place: "quick", "normal", "thorough". The other options are the command's (`vitune tune --help`). Nothing said: ViT-B/16.

    Raises InvalidArgument, CommandError with the exit code, VituneError where there is no command.
    """
    options = dict(model=model, batch=batch, dtype=dtype, way=way, operator=operator, preset=preset, file=file,
                   from_misses=from_misses, device=device, budget=budget, effort=effort, objective=objective, database=database,
                   fresh=fresh, jobs=jobs)
    if problems and not isinstance(problems[0], str):
        return _tune_of_model(problems, sample, options, problem_budget, quiet, train)
    if sample is not None or problem_budget is not None or train:
        raise InvalidArgument("sample, problem_budget and train belong to a model: vitune.tune(model, sample)")
    words = _command.tune_arguments(problems, **options)
    document = _command.run_json(["tune", *words], quiet)
    refresh()
    return document


def library_version() -> tuple[int, int, int]:
    """(major, minor, patch) of the library that is loaded. Raises LibraryNotFound."""
    number = library().vitune_version()
    return number // 10000, number // 100 % 100, number % 100
