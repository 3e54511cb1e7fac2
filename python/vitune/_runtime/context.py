# python/vitune/_runtime/context.py -- The C interface as Python objects: a context, a description, what it answers.
# SPDX-License-Identifier: Apache-2.0
"""Works with device addresses (integers) and needs no PyTorch. vitune.h's comments are the contract."""
from __future__ import annotations

import ctypes
import dataclasses
import logging
import operator
import os
import weakref
from collections.abc import Callable, Sequence

from . import structs as _structs
from .errors import InvalidArgument, VituneError
from .library import check, library

_log = logging.getLogger("vitune")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which kernel serves a problem, from which row, and why. Times are microseconds."""

    outcome: str  #: "exact", "nearest", "default", or "transferred": the config of a winner on another GPU
    loaded: bool  #: a call of this problem needs nothing more
    compiled: bool  #: by this process; False: from a database
    low_confidence: bool  #: clocks or neighbours moved while the row was measured
    cold_us: float  #: of the row, on its own problem; 0: not measured on this kind of GPU
    warm_us: float
    predicted_us: float  #: of this problem; 0: not predicted
    max_error: float  #: of the row against fp64, absolute; negative: not known
    rms_error: float
    problem: str  #: canonical text of the problem that was asked (docs/problems.md)
    row: str  #: that of the row's problem; empty for "default"
    config: str  #: "kBlockN=104 kWarps=4 ..."
    kernel_key: str
    source: str  #: where the row is: "user", "site", "shipped"; empty for "default"
    reason: str  #: one sentence

    def __str__(self) -> str:
        timed = f", predicted {self.predicted_us:.1f} us" if self.predicted_us else ""
        return f"{self.outcome}{timed}: {self.reason}\n  {self.problem}\n  {self.config}"


@dataclasses.dataclass(frozen=True)
class ContextStats:
    """What a context has done so far: launches by how their kernel was found, and kernels."""

    exact_calls: int
    nearest_calls: int
    default_calls: int
    failed_calls: int
    problems: int
    kernels_loaded: int
    kernels_compiled: int
    rejected: int
    #: how often the databases were opened without the user's list of wrong kernels: default kernels only since
    without_block_list: int
    transferred_calls: int  #: launches of a config that won on another GPU, compiled for this one


#: Bounds of the integers of the C interface: ctypes takes any other number modulo their size, without a word.
_BOUNDS = {ctypes.c_int32: (-2**31, 2**31 - 1), ctypes.c_uint32: (0, 2**32 - 1), ctypes.c_int64: (-2**63, 2**63 - 1),
           ctypes.c_size_t: (0, 2**64 - 1)}


def _integer(name: str, value: object, kind: type) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} is {value!r}: it must be an integer") from None
    low, high = _BOUNDS[kind]
    if not low <= number <= high:
        raise InvalidArgument(f"{name} is {number}: it must be from {low} to {high}")
    return number


def _integers(name: str, values: Sequence[int], count: int) -> tuple[int, ...]:
    given = tuple(values)
    if len(given) != count:
        raise InvalidArgument(f"{name} has {len(given)} numbers: it must have {count}")
    return tuple(_integer(name, value, ctypes.c_int64) for value in given)


def _encoded(name: str, text: str) -> bytes:
    """The text for the C interface, where a zero byte ends it."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{name} is {text!r}: it must be a text")
    try:
        return _without_zero(name, text.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} is {text!r}: it is no text that UTF-8 can hold") from None


def _without_zero(name: str, encoded: bytes) -> bytes:
    if b"\0" in encoded:
        raise InvalidArgument(f"{name} is {encoded!r}: it must not have a zero byte")
    return encoded


def _text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_FIELDS = dict(_structs.Desc._fields_)
#: Element types by name, as fields of a description may have them.
_TYPES = {"dtype": {"bf16": _structs.BF16, "fp16": _structs.FP16},
          "bias_type": {"none": _structs.NONE, "bf16": _structs.BF16, "fp16": _structs.FP16, "fp32": _structs.FP32},
          "mask_type": {"none": _structs.NONE, "bool": _structs.BOOL}}


class AttentionDesc(_structs.Desc):
    """An attention problem, ``vitune_attention_desc``: fields may be given by name and set later. Element types may be texts: "bf16".

    q, out [batch, heads, nq, d]; k, v [batch, kv_heads, nk, d]. Without strides all four are contiguous
    [batch, rows, heads, d] tensors.
    """

    def __init__(self, **fields: object) -> None:
        super().__init__(size=ctypes.sizeof(_structs.Desc), dtype=_structs.BF16, batch=1, heads=1, nq=1, nk=1, d=64)
        known = {name for name, _ in _structs.Desc._fields_} - {"size"}
        for name, value in fields.items():
            if name not in known:
                raise InvalidArgument(f"AttentionDesc has no field '{name}'; it has {', '.join(sorted(known))}")
            setattr(self, name, value)
        heads, kv_heads = self.heads, self.kv_heads or self.heads
        for name, count, rows in (("q", heads, self.nq), ("k", kv_heads, self.nk), ("v", kv_heads, self.nk),
                                  ("o", heads, self.nq)):
            if name not in fields:
                setattr(self, name, bnhd_strides(count, rows, self.d))

    def __setattr__(self, name: str, value: object) -> None:
        kind = _FIELDS.get(name)
        if isinstance(value, str) and name in _TYPES:
            value = _choice(name, value, _TYPES[name])
        if kind in _BOUNDS:
            value = _integer(name, value, kind)
        elif kind is not None and issubclass(kind, ctypes.Array):
            value = _integers(name, value, kind._length_)
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        try:
            return f"AttentionDesc.parse({self.text()!r})"
        except VituneError:  # no library, or no problem that it takes
            sizes = ", ".join(f"{name}={getattr(self, name)}" for name in ("dtype", "batch", "heads", "kv_heads", "nq", "nk", "d"))
            return f"AttentionDesc({sizes})"

    @classmethod
    def parse(cls, problem: str) -> "AttentionDesc":
        """The description of a text such as "bf16 b=32 h=12 n=197 d=64". Raises InvalidArgument, Unsupported."""
        desc = cls()
        check(library().vitune_problem_parse(_encoded("problem", problem), ctypes.byref(desc)))
        return desc

    def text(self) -> str:
        """The canonical text (docs/problems.md). Raises InvalidArgument, Unsupported."""
        buffer = ctypes.create_string_buffer(4096)
        check(library().vitune_problem_text(ctypes.byref(self), buffer, len(buffer), None))
        return buffer.value.decode()


@dataclasses.dataclass(frozen=True)
class ProblemTensor:
    """One tensor of a problem; extents and strides (in elements) outermost first."""

    name: str  #: "x", "residual", "out"
    given: bool  #: False: the problem does without it
    output: bool
    type: int  #: BF16, FP16, FP32, BOOL, U8 or I32
    alignment: int  #: of its pointer at least, in bytes
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int  #: from the pointer to one past the last element


def problem_tensor(found: _structs.TensorStruct) -> ProblemTensor:
    return ProblemTensor(found.name.decode(), bool(found.given), bool(found.output), found.type, found.alignment,
                         tuple(found.extents), tuple(found.strides), found.bytes)


class Problem:
    """A problem of any operator, by its text (docs/problems.md). Belongs to no context.

    Raises InvalidArgument, Unsupported.
    """

    def __init__(self, text: str) -> None:
        native, handle = library(), ctypes.c_void_p()
        check(native.vitune_problem_create(_encoded("problem", text), ctypes.byref(handle)))
        self.text = text
        self.handle = handle.value
        weakref.finalize(self, native.vitune_problem_destroy, handle.value).atexit = False
        count = ctypes.c_size_t()
        check(native.vitune_problem_tensors(self.handle, ctypes.byref(count)))
        self.tensors = tuple(self._tensor(native, place) for place in range(count.value))
        self.addresses = ctypes.c_void_p * count.value  #: the type of a call's addresses
        #: what its calls need by GPU, as far as it was asked: refreshes of the context by then, bytes of scratch memory
        self.workspaces: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"Problem({self.text!r})"

    def _tensor(self, native: ctypes.CDLL, place: int) -> ProblemTensor:
        found = _structs.TensorStruct(size=ctypes.sizeof(_structs.TensorStruct))
        check(native.vitune_problem_tensor(self.handle, place, ctypes.byref(found)))
        return problem_tensor(found)


def _selection(found: _structs.SelectionStruct) -> Selection:
    values = {field.name: _text(getattr(found, field.name)) for field in dataclasses.fields(Selection)}
    values["outcome"] = _structs.OUTCOMES.get(found.outcome, str(found.outcome))
    return Selection(**{name: bool(value) if name in ("loaded", "compiled", "low_confidence") else value
                        for name, value in values.items()})


def bnhd_strides(heads: int, rows: int, d: int) -> _structs.Strides:
    """Strides of a contiguous [batch, rows, heads, d] tensor, in elements."""
    return _structs.Strides(*_integers("strides", (rows * heads * d, d, heads * d), 3))


def bhnd_strides(heads: int, rows: int, d: int) -> _structs.Strides:
    """Strides of a contiguous [batch, heads, rows, d] tensor, in elements."""
    return _structs.Strides(*_integers("strides", (heads * rows * d, rows * d, d), 3))


def packed_strides(heads: int, rows: int, d: int) -> _structs.Strides:
    """Strides of q, k or v as views of one [batch, rows, 3, heads, d] tensor, in elements."""
    return bnhd_strides(3 * heads, rows, d)


_OPTIONS = dict(_structs.ContextOptions._fields_)


def _choice(name: str, value: str, choices: dict[str, int]) -> int:
    if value not in choices:
        raise InvalidArgument(f"{name} is '{value}': use {', '.join(choices)}")
    return choices[value]


def _path(name: str, value: str | os.PathLike[str] | None) -> bytes | None:
    return None if value is None else _without_zero(name, os.fsencode(value))


def log_to_logging(level: int, message: str) -> None:
    """Hands a message of the library to the logger "vitune"."""
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.ERROR, "%s", message)


def _destroy(native: ctypes.CDLL, handle: int, process: int, _callback: object) -> None:
    # CUDA does not survive a fork, and the library refuses there anyway.
    if os.getpid() == process:
        native.vitune_context_destroy(handle)


class Context:
    """A context of libvitune on one GPU. Any number of threads may use it; close() must be the last call.

    device: ordinal as the driver counts. database: path, None as docs/environment.md says;
    shipped_database: read-only layer below it, "" for none. objective: "cold" or "warm".
    on_miss: "environment", "nearest", "default", "compile" or "error". on_busy: "wait" or "default".
    refresh_seconds: > 0: a thread looks for new winners that often. lock_wait_ms: how long a database
    that another process writes to is waited for; 0: 250. trust_owner: > 0: a database may also be this user's.
    log: called with (level 0 to 3, message), from any thread; it must not call the context.
    Raises NoDevice without a driver or GPU, LibraryNotFound without the library.
    """

    def __init__(self, device: int = 0, *, database: str | os.PathLike[str] | None = None,
                 shipped_database: str | os.PathLike[str] | None = None, objective: str = "cold",
                 on_miss: str = "environment", on_busy: str = "wait", read_only: bool = False,
                 no_compile: bool = False, check_pointers: bool = False, refresh_seconds: int = 0,
                 lock_wait_ms: int = 0, trust_owner: int = 0,
                 log: Callable[[int, str], None] = log_to_logging) -> None:
        self._native = library()
        self._callback = _structs.LogCallback(
            lambda _user, level, message: log(level, message.decode("utf-8", "replace")))
        numbers = {name: _integer(name, value, _OPTIONS[name]) for name, value in (
            ("device", device), ("read_only", read_only), ("no_compile", no_compile), ("check_pointers", check_pointers),
            ("refresh_seconds", refresh_seconds), ("lock_wait_ms", lock_wait_ms), ("trust_owner", trust_owner))}
        options = _structs.ContextOptions(
            size=ctypes.sizeof(_structs.ContextOptions),
            objective=_choice("objective", objective, _structs.OBJECTIVE),
            on_miss=_choice("on_miss", on_miss, _structs.ON_MISS),
            on_busy=_choice("on_busy", on_busy, _structs.ON_BUSY), database=_path("database", database),
            shipped_database=_path("shipped_database", shipped_database), log=self._callback, **numbers)
        created = ctypes.c_void_p()
        check(self._native.vitune_context_create(ctypes.byref(options), ctypes.byref(created)))
        #: The ordinal of the GPU.
        self.device = device
        #: How often it took over new winners.
        self.refreshes = 0
        self._handle = created.value
        self._forward = self._native.vitune_attention_forward
        # The callback must live as long as the handle: the finalizer holds it.
        self._finalizer = weakref.finalize(self, _destroy, self._native, created.value, os.getpid(), self._callback)

    def __repr__(self) -> str:
        return f"<vitune.Context on GPU {self.device}{', closed' if self._handle is None else ''}>"

    def close(self) -> None:
        """Ends the context. Graphs that captured its launches must not be replayed afterwards."""
        self._handle = None
        self._finalizer()

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, desc: AttentionDesc) -> None:
        """Finds and loads the kernel of a problem, so that a later call only launches."""
        check(self._native.vitune_prepare(self._handle, ctypes.byref(desc)))

    def forward(self, desc: AttentionDesc, q: int, k: int, v: int, out: int, *, bias: int | None = None,
                mask: int | None = None, lse: int | None = None, stream: int = 0) -> None:
        """Launches attention on `stream` (a cudaStream_t as an integer; 0: the default stream).

        All pointers are device addresses. bias, mask and lse are given exactly where `desc` has them.
        Raises InvalidArgument, Unsupported, NotPrepared (while the stream is captured), VituneError.
        """
        check(self._forward(self._handle, ctypes.byref(desc), q, k, v, bias, mask, out, lse, None, 0, stream))

    def run(self, problem: Problem, addresses: Sequence[int], *, workspace: int = 0, workspace_bytes: int = 0,
            stream: int = 0) -> None:
        """Launches a problem of any operator on `stream` (a cudaStream_t as an integer; 0: the default stream).

        addresses: one per tensor of the problem, on the device; 0 where it is not given, and the last ones may be left out
        then. workspace: address and size of scratch memory where workspace_bytes() says that calls need some. Raises as
        forward().
        """
        if len(addresses) > len(problem.tensors):
            raise InvalidArgument(f"{len(addresses)} addresses are given: calls of this problem have "
                                  f"{len(problem.tensors)} tensors, with 0 for those that are not given")
        if workspace_bytes < 0:
            raise InvalidArgument(f"workspace_bytes is {workspace_bytes}: it must not be negative")
        check(self._native.vitune_run(self._handle, problem.handle, problem.addresses(*addresses), len(addresses),
                                      workspace, workspace_bytes, stream))

    def workspace_bytes(self, problem: AttentionDesc | Problem) -> int:
        """The scratch memory that calls of the problem need, in bytes, mostly 0. Prepares it."""
        size = ctypes.c_size_t()
        if isinstance(problem, Problem):
            check(self._native.vitune_workspace_bytes_text(self._handle, problem.text.encode(), ctypes.byref(size)))
        else:
            check(self._native.vitune_workspace_bytes(self._handle, ctypes.byref(problem), ctypes.byref(size)))
        return size.value

    def query(self, desc: AttentionDesc | Problem) -> Selection:
        """Says which kernel would serve a problem. Loads and launches nothing."""
        found = _structs.SelectionStruct(size=ctypes.sizeof(_structs.SelectionStruct))
        if isinstance(desc, Problem):
            check(self._native.vitune_query_text(self._handle, desc.text.encode(), ctypes.byref(found)))
        else:
            check(self._native.vitune_query(self._handle, ctypes.byref(desc), ctypes.byref(found)))
        return _selection(found)

    def stats(self) -> ContextStats:
        """What the context has done so far."""
        found = _structs.StatsStruct(size=ctypes.sizeof(_structs.StatsStruct))
        check(self._native.vitune_context_stats(self._handle, ctypes.byref(found)))
        return ContextStats(*(getattr(found, field.name) for field in dataclasses.fields(ContextStats)))

    def refresh(self) -> int:
        """Takes over new winners; returns the number of problems that are now served by another kernel."""
        changed = ctypes.c_int32()
        check(self._native.vitune_context_refresh(self._handle, ctypes.byref(changed)))
        self.refreshes += 1
        return changed.value

    def flush(self) -> None:
        """Writes to the user's database what was missed: `vitune tune --from-misses` reads it."""
        check(self._native.vitune_context_flush(self._handle))

