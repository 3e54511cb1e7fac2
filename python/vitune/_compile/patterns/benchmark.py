# python/vitune/_compile/patterns/benchmark.py -- vitune's operator beside what a model would call without it, timed where it is compiled.
# SPDX-License-Identifier: Apache-2.0
"""On tensors made up for it, of the types, sizes and strides that Dynamo saw. Host time does not count: both run as CUDA graphs."""
from __future__ import annotations

import contextlib
import contextvars
import gc
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

Run = Callable[[], Any]

MARGIN = 1.03  #: times that differ less are alike: a choice that changes from run to run would compile models anew
_FIRST_ROUNDS, _ROUNDS = 10, 7  # those that bring the GPU to its clocks, and those that count
_ROUND_US = 1000.0  # of calls in a row
_HOLD_CYCLES, _MOST_HOLDS = 1_000_000, 4  # the GPU's clock: half a millisecond, twice as many where that was too short
MOST_CALLS = 32  #: of one side in a row


#: Of Inductor, those that a graph is being compiled with.
options: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar("options", default={})


class Times(NamedTuple):
    """Microseconds of a call, its operands in the cache as far as they fit."""

    ours_us: float
    theirs_us: float
    rival: str = "PyTorch's"
    wrong: str = ""  #: why ours may not be taken however fast it is: its answers are others
    untimed: bool = False  #: no times, and ours is taken: see must_repeat()

    @property
    def lost(self) -> bool:
        return self.ours_us > MARGIN * self.theirs_us

    @property
    def won(self) -> bool:
        return self.untimed or MARGIN * self.ours_us < self.theirs_us

    def __str__(self) -> str:
        if self.untimed:
            return "not timed, since deterministic algorithms are asked for"
        return "not timed" if self.wrong else f"{self.ours_us:.1f} us here, {self.rival} {self.theirs_us:.1f}"


def can_race(device: torch.device) -> bool:
    """Whether times on it mean something: on a GPU, where nobody captures."""
    return device.type == "cuda" and torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing()


def must_repeat() -> bool:
    """Whether the next run of the same program must choose the same, so that it gives the same bits: times, which differ from run to run,
    decide nothing then, and what vitune can compute it computes."""
    own = options.get().get("deterministic")
    return torch.are_deterministic_algorithms_enabled() or bool(getattr(inductor_config, "deterministic", False) if own is None else own)


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Real tensors in the middle of compiling, without autocast or gradients."""
    with unset_fake_temporarily(), _disable_current_modes(), torch.no_grad(), torch.autocast("cuda", enabled=False), \
            torch.autocast("cpu", enabled=False):
        yield


_seeds = itertools.count()
GRADIENT_SEED = 1 << 40  #: of what both sides of a race are given as their result's gradient


def sample(like: Tensor, device: torch.device, seed: Optional[int] = None) -> Tensor:
    """Numbers around 0, or True, laid out as a tensor on no device. seed: None: others each time."""
    size = 1 + sum((extent - 1) * step for extent, step in zip(like.shape, like.stride())) if like.numel() else 0
    if like.dtype == torch.bool:
        flat = torch.ones(size, dtype=torch.bool, device=device)
    else:
        chance = torch.Generator(device).manual_seed(next(_seeds) if seed is None else seed)  # equal operands would hide which is which
        flat = torch.empty(size, dtype=like.dtype, device=device).normal_(generator=chance)
    return flat.as_strided(like.shape, like.stride())


def l2_bytes(device: torch.device) -> int:
    """0: nothing is known of it."""
    return getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) if device.type == "cuda" else 0


def race(ours: Run, theirs: Run, device: torch.device) -> Times:
    """Medians of rounds in turn, on a CUDA device, inside of apart(). Raises what the calls raise."""
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            replays = [_replay(run, stream) for run in (ours, theirs)]
            samples: list[list[float]] = [[], []]
            for _ in range(_FIRST_ROUNDS + _ROUNDS):
                for found, (replay, calls) in zip(samples, replays):
                    found.append(_held_us(replay, stream) / calls)
        torch.cuda.current_stream().wait_stream(stream)
    return Times(*(sorted(found[_FIRST_ROUNDS:])[_ROUNDS // 2] for found in samples))


def _us(run: Run, stream: torch.cuda.Stream, hold_cycles: int = 0) -> tuple[float, bool]:
    """Its time, and whether all was queued before the GPU began, which is held for so long."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if hold_cycles:
        torch.cuda._sleep(hold_cycles)
    begin.record(stream)
    run()
    end.record(stream)
    held = not begin.query()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3, held


def _held_us(run: Run, stream: torch.cuda.Stream) -> float:
    """Without the host's time: launching a graph of 32 kernels takes it 100 us, three times as long for some kernels as for others,
    and models are launched while the GPU is at work on the pass before."""
    for hold in range(_MOST_HOLDS):
        us, held = _us(run, stream, _HOLD_CYCLES << hold)
        if held:
            break
    return us


def _replay(run: Run, stream: torch.cuda.Stream) -> tuple[Run, int]:
    """A graph of so many calls, at most MOST_CALLS."""
    run()  # what is made at the first call
    once = min(_us(run, stream)[0] for _ in range(2))
    calls = max(1, min(MOST_CALLS, int(_ROUND_US / max(once, 1.0))))
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="thread_local")  # torch.cuda.graph() collects garbage first: seconds in all
    try:
        for _ in range(calls):
            run()
    finally:
        graph.capture_end()
    graph.replay()
    return graph.replay, calls


def expect_devices_alive() -> None:
    """Raises a GPU's own error where one is lost for this process, as after a kernel that read outside of its memory. Every handler of
    errors of all kinds asks: going on would say of each later call that it failed."""
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        for index in range(torch.cuda.device_count()):
            if torch._C._cuda_hasPrimaryContext(index):
                torch.cuda.synchronize(index)


#: Difference of 16-bit results of the same numbers, summed in another order and rounded elsewhere: a few roundings.
_MOST_DIFFERENCE = 2**-5


def difference(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> str:
    """How far ours are from theirs; "": no further than rounding. Numbers near the end of a type are not compared."""
    for place, (mine, right) in enumerate(zip(ours, theirs, strict=True)):
        known = right.abs() < torch.finfo(right.dtype).max / 4
        far, size = (torch.linalg.vector_norm(torch.where(known, each, 0), dtype=torch.float64).item()
                     for each in (mine.float() - right.float(), right))
        if not far <= _MOST_DIFFERENCE * size:  # or NaN
            return f"result {place} of {len(theirs)} is off by {far / max(size, 1e-300):.2g} of its size"
        if right.dim() > 1 and right.numel() and _misses_a_slice(mine, right, known):
            return f"result {place} of {len(theirs)} is off in some of its rows or columns"
    return ""


def _misses_a_slice(mine: Tensor, right: Tensor, known: Tensor) -> bool:
    """Whether a row or a column is a quarter of its size away: what a tile at the edge is, is lost in the size of all."""
    gap, whole = (torch.where(known, each.float(), 0).square().reshape(-1, right.shape[-1]) for each in (mine.float() - right.float(), right))
    return any(bool((gap.sum(axis) > whole.sum(axis).clamp_min(whole.sum(axis).mean()) / 16).any()) for axis in (0, 1))


def measured(calls: Callable[[], tuple[Run, Run]], device: torch.device, compares: bool = False,
             judged: Optional[Callable[[], str]] = None) -> Optional[Times]:
    """The times of what `calls` makes, or that they are not to be taken (must_repeat()); None where they mean nothing or cannot be had: a
    model is compiled all the same. compares: whether both must give the same results, tensors all. judged: instead, where chance is among
    what decides them, why ours are wrong."""
    global _raced
    if not can_race(device):
        return None
    _raced = True
    try:
        with apart():
            ours, theirs = calls()
            wrong = judged() if judged is not None else difference(ours(), theirs()) if compares else ""
            if wrong or must_repeat():
                return Times(0.0, 0.0, wrong=wrong, untimed=not wrong)
            return race(ours, theirs, device)
    except Exception:  # out of memory, a kernel that cannot be captured ...
        expect_devices_alive()
        return None


_raced = False


def free() -> None:
    """Gives back the tensors of races: compiled functions refer to each other in circles, and Python looks for such seldom. Once per graph,
    since a look takes tenths of a second."""
    global _raced
    if _raced:
        _raced = False
        gc.collect()
