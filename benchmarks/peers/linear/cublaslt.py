# benchmarks/peers/linear/cublaslt.py -- cuBLASLt, tuned: the fastest of the algorithms that its heuristic puts first.
# SPDX-License-Identifier: Apache-2.0
"""The library that PyTorch has loaded, through ctypes, with all that its epilogues fuse: bias, ReLU, GELU's
tanh form, and a residual as the C of alpha A B + beta C.

cuBLAS is column-major: y^T [n, m] = W x^T, so the weight is its first operand and the bias runs along rows.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..engine.peer import Absent, Call, Refused, sentence
from .operands import Operands
from .problem import Problem

ALGORITHMS = 16  # of the heuristic, raced
WORKSPACE = 32 << 20

# Constants of cublasLt.h, cublas_api.h and library_types.h.
_COMPUTE_32F, _REAL_32F = 68, 0
_TYPES = {torch.float16: 2, torch.bfloat16: 14}
_TRANS_A, _EPILOGUE, _BIAS_POINTER, _MAX_WORKSPACE = 3, 7, 8, 1
_CONFIG = {"id": 0, "tile": 1, "split": 2, "swizzle": 4, "custom": 5, "stages": 6, "cluster": 8}
_PLAIN, _RELU, _BIAS, _GELU = 1, 2, 4, 32


class _Algorithm(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64 * 8)]


class _Heuristic(ctypes.Structure):
    _fields_ = [
        ("algorithm", _Algorithm),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


_P, _I, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_P,),
    "cublasLtMatmulDescCreate": (_P, _I, _I),
    "cublasLtMatmulDescSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulDescGetAttribute": (_P, _I, _P, _Z, _P),
    "cublasLtMatmulDescDestroy": (_P,),
    "cublasLtMatrixLayoutCreate": (_P, _I, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutGetAttribute": (_P, _I, _P, _Z, _P),
    "cublasLtMatrixLayoutDestroy": (_P,),
    "cublasLtMatmulPreferenceCreate": (_P,),
    "cublasLtMatmulPreferenceSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulPreferenceDestroy": (_P,),
    "cublasLtMatmulAlgoGetHeuristic": (*(_P,) * 7, _I, _P, _P),
    "cublasLtMatmulAlgoConfigGetAttribute": (_P, _I, _P, _Z, _P),
    "cublasLtMatmul": (*(_P,) * 14, _Z, _P),
}


class Failed(RuntimeError):
    """A status that is no success."""


class Library:
    """libcublasLt's entry points; each raises Failed for a status other than 0."""

    def __init__(self, library: Any = None) -> None:
        """library: an opened one; else the one that PyTorch is linked with. Raises Absent."""
        major = (torch.version.cuda or "13").split(".")[0]
        try:
            self._library = library or ctypes.CDLL(f"libcublasLt.so.{major}")
        except OSError as error:
            raise Absent(f"cuBLASLt cannot be opened: {sentence(error)}") from None
        for name, types in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = types, ctypes.c_int

    def call(self, name: str, *arguments: Any) -> None:
        """One entry point."""
        if len(arguments) != len(_SIGNATURES[name]):  # ctypes would pass what is over as 32 bits
            raise TypeError(f"{name} takes {len(_SIGNATURES[name])} arguments, not {len(arguments)}")
        status = getattr(self._library, name)(*arguments)
        if status:
            raise Failed(f"{name}: status {status}")

    def created(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """What a ...Create() gives."""
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made


@dataclasses.dataclass(frozen=True)
class Form:
    """A problem as one call of cuBLASLt."""

    epilogue: int
    beta: float  #: 1: the residual is added
    instead: str  #: the function if it is another one


def form_of(problem: Problem) -> Form:
    """How cuBLASLt does a problem. Raises Refused for what no epilogue of its does."""
    if problem.is_of_training:
        raise Refused("is called with W as [n, k] and a result of x's type here")
    if problem.has_norm:
        raise Refused("has no norm")
    if problem.has("scale"):
        raise Refused("has no factor for each column beside a bias")
    if problem.has("residual") and problem.period != problem.number("m"):
        raise Refused("has no residual that repeats")
    if problem.has("residual") and problem.activation:
        raise Refused("adds the residual before the activation")
    fused = {"": 0, "relu": _RELU, "gelu_tanh": _GELU, "gelu": _GELU}
    if problem.activation not in fused:
        raise Refused(f"has no {problem.activation}")
    epilogue = fused[problem.activation] | (_BIAS if problem.has("bias") else 0)
    instead = "GELU's tanh form" if problem.activation == "gelu" else ""
    return Form(epilogue or _PLAIN, 1.0 if problem.has("residual") else 0.0, instead)


class Product:
    """The descriptors of a problem on given operands. They live as long as the process: a graph may use them."""

    def __init__(self, library: Library, form: Form, t: Operands) -> None:
        self._library, self._t = library, t
        (m, k), n, kind = t.x.shape, t.weight.shape[0], _TYPES[t.x.dtype]
        self.shape, self._beta = (m, n), ctypes.c_float(form.beta)
        self._alpha = ctypes.c_float(1.0)
        self.description = library.created("cublasLtMatmulDescCreate", _COMPUTE_32F, _REAL_32F)
        self._set(_TRANS_A, ctypes.c_int32(1))
        self._set(_EPILOGUE, ctypes.c_uint32(form.epilogue))
        if t.bias is not None:
            self._set(_BIAS_POINTER, ctypes.c_void_p(t.bias.data_ptr()))
        layout = "cublasLtMatrixLayoutCreate"
        self.weight = library.created(layout, kind, k, n, t.weight.stride(0))
        self.x = library.created(layout, kind, k, m, t.x.stride(0))
        self.y = library.created(layout, kind, n, m, n)

    def _set(self, attribute: int, value: Any) -> None:
        self._library.call(
            "cublasLtMatmulDescSetAttribute",
            *(self.description, attribute, ctypes.byref(value), ctypes.sizeof(value)),
        )

    def algorithms(self, handle: Any) -> list[_Algorithm]:
        """The heuristic's first ones, best first."""
        preference = self._library.created("cublasLtMatmulPreferenceCreate")
        size = ctypes.c_size_t(WORKSPACE)
        self._library.call(
            "cublasLtMatmulPreferenceSetAttribute",
            *(preference, _MAX_WORKSPACE, ctypes.byref(size), ctypes.sizeof(size)),
        )
        found, count = (_Heuristic * ALGORITHMS)(), ctypes.c_int()
        try:
            self._library.call(
                "cublasLtMatmulAlgoGetHeuristic",
                *(handle, self.description, self.weight, self.x, self.y, self.y, preference),
                *(ALGORITHMS, ctypes.byref(found), ctypes.byref(count)),
            )
        except Failed as error:
            raise Refused(f"has no algorithm for this: {error}") from None
        finally:
            self._library.call("cublasLtMatmulPreferenceDestroy", preference)
        return [one.algorithm for one in found[: count.value] if one.state == 0]

    def run(self, handle: Any, algorithm: _Algorithm, workspace: torch.Tensor) -> torch.Tensor:
        """Launches on the current stream. Raises Failed."""
        t, y = self._t, torch.empty(self.shape, dtype=self._t.x.dtype, device=self._t.x.device)
        c = y if t.residual is None else t.residual
        self._library.call(
            "cublasLtMatmul",
            *(handle, self.description, ctypes.byref(self._alpha)),
            *(t.weight.data_ptr(), self.weight, t.x.data_ptr(), self.x),
            *(ctypes.byref(self._beta), c.data_ptr(), self.y, y.data_ptr(), self.y),
            *(ctypes.byref(algorithm), workspace.data_ptr(), WORKSPACE),
            torch.cuda.current_stream().cuda_stream,
        )
        return y

    def words(self, algorithm: _Algorithm) -> str:
        """The algorithm's attributes, for the reader."""
        words = []
        for name, attribute in _CONFIG.items():
            value, written = ctypes.c_int32(), ctypes.c_size_t()
            # Some have 16 bits.
            size = 2 if name == "cluster" else 4
            self._library.call(
                "cublasLtMatmulAlgoConfigGetAttribute",
                *(ctypes.byref(algorithm), attribute, ctypes.byref(value), size),
                ctypes.byref(written),
            )
            words.append(f"{name}={value.value}")
        return " ".join(words)


def milliseconds(run: Callable[[], Any], calls: int = 20) -> float:
    """Of some calls on the GPU, the least of three times."""
    for _ in range(3):
        run()
    times = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)  # the host is ahead when the first one begins
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times)


def fastest(
    candidates: Sequence[Any],
    call_of: Callable[[Any], Callable[[], Any]],
    time: Callable[[Callable[[], Any]], float],
) -> Any:
    """The candidate of the least time; those that fail are passed over. Raises Refused if all do."""
    times: list[tuple[float, int]] = []
    reason = "has no algorithm for this"
    for place, candidate in enumerate(candidates):
        try:
            times.append((time(call_of(candidate)), place))
        except Exception as error:  # whatever a library raises
            reason = f"none of its {len(candidates)} algorithms runs: {sentence(error)}"
    if not times:
        raise Refused(reason)
    return candidates[min(times)[1]]


class CublasLt:
    """Tuned as nvmath and others tune it: the heuristic's algorithms, timed, the fastest taken."""

    name = "cublaslt"

    def __init__(self) -> None:
        self._library: Library | None = None
        self._handle: Any = None
        self._workspace: Any = None

    def _open(self, device: Any) -> Library:
        if self._library is None:
            library = Library()
            self._handle = library.created("cublasLtCreate")
            self._workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
            self._library = library
        return self._library

    def prepare(self, problem: Problem, operands: Operands) -> Call:
        """Races the algorithms. Raises Absent, Refused."""
        form = form_of(problem)
        product = Product(self._open(operands.x.device), form, operands)
        handle, workspace = self._handle, self._workspace
        algorithm = fastest(
            product.algorithms(handle),
            lambda one: lambda: product.run(handle, one, workspace),
            milliseconds,
        )
        return Call(
            lambda: product.run(handle, algorithm, workspace),
            product.words(algorithm),
            provider="cuBLASLt",
            instead=form.instead,
        )
