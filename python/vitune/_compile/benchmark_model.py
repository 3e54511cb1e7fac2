# python/vitune/_compile/benchmark_model.py -- vitune.benchmark(model, sample): a pass before and after, timed in turn.
# SPDX-License-Identifier: Apache-2.0
"""Each round calls every way a few times, so that what the machine does meanwhile meets all alike. A gain is the median of the rounds'
ratios; its interval is a bootstrap of that median."""
from __future__ import annotations

import dataclasses
import platform
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Optional

import torch

from .._runtime.errors import InvalidArgument
from .._runtime.structs import VERSION
from . import backend
from .tune_model import Call

EAGER, TORCH, VITUNE = "eager", "torch.compile", "vitune.compile"
_ROUNDS, _FIRST_PASSES = 30, 5
_LEAST_ROUND_SECONDS = 0.02  # of one way: the clock and the launch of the first pass weigh less than 1 % then
_RESAMPLES = 2000
_ENERGY_WINDOWS = 2


@dataclasses.dataclass(frozen=True)
class Gain:
    """How many times as fast vitune.compile is."""

    times: float  #: median of the rounds
    low: float  #: of the 95 % interval
    high: float

    def __str__(self) -> str:
        return f"{self.times:.2f}x [{self.low:.2f}, {self.high:.2f}]"


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What vitune.benchmark(model, sample) measured. ``print`` it."""

    ms: Mapping[str, float]  #: way -> median time of a pass as Python calls it: "eager", "torch.compile", "vitune.compile"
    gains: Mapping[str, Gain]  #: of vitune.compile over each other way
    differences: Mapping[str, float]  #: way -> rms of its answer minus eager's, over the rms of eager's
    joules: Mapping[str, float]  #: way -> of a pass, by NVML's counter; empty where there is none
    replaced: int  #: calls that vitune serves
    known: int  #: calls that it could serve by their kind
    title: str  #: model, sample, device and versions
    model: Any  #: compiled by vitune

    def __str__(self) -> str:
        lines = [self.title]
        for way, ms in self.ms.items():
            gain = f"   vitune.compile: {self.gains[way]}" if way in self.gains else f"   {self.replaced} of {self.known} known calls replaced"
            joules = f"  {self.joules[way]:8.3f} J" if way in self.joules else ""
            lines.append(f"  {way:14}  {ms:9.3f} ms{joules}{gain}")
        lines.append("  difference from eager's answer (rms): " + ", ".join(
            f"{way} {100 * value:.2f} %" for way, value in self.differences.items()))
        return "\n".join(lines)


def interval(ratios: list[float], seed: int = 0) -> Gain:
    """The median and its 95 % interval, by bootstrap."""
    draw = random.Random(seed)
    medians = sorted(_median(draw.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES))
    return Gain(_median(ratios), medians[int(0.025 * _RESAMPLES)], medians[int(0.975 * _RESAMPLES)])


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _tensors(answer: Any) -> list[torch.Tensor]:
    """Floating ones of what a model returns, in its order."""
    if isinstance(answer, torch.Tensor):
        return [answer] if answer.is_floating_point() else []
    if isinstance(answer, Mapping):
        answer = answer.values()
    elif not isinstance(answer, (tuple, list)):
        return []
    return [each for value in answer for each in _tensors(value)]


def answer_of(model: Any, call: Call) -> list[torch.Tensor]:
    """Copies: the next replay of a CUDA graph writes over its results. Raises InvalidArgument where nothing can be compared."""
    torch.compiler.cudagraph_mark_step_begin()
    found = [each.to(torch.float64, copy=True) for each in _tensors(call(model))]
    if not found:
        raise InvalidArgument("vitune.benchmark compares answers, and the model returns no floating-point tensor: give a function that does")
    return found


def difference(answer: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Rms of the difference over the rms of what is expected."""
    wrong = sum(float((a - b).square().sum()) for a, b in zip(answer, expected, strict=True))
    whole = sum(float(each.square().sum()) for each in expected)
    return (wrong / whole) ** 0.5 if whole else float(wrong > 0)


class _Ways:
    """The same model in several ways, on one sample."""

    def __init__(self, models: Mapping[str, Any], call: Call, device: torch.device) -> None:
        self._models, self._call, self._device = models, call, device
        self._calls = {way: self._calls_of_a_round(way) for way in models}

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _run(self, way: str, count: int) -> None:
        for _ in range(count):
            torch.compiler.cudagraph_mark_step_begin()
            self._call(self._models[way])
        self._wait()

    def _seconds(self, way: str, count: int) -> float:
        begin = time.perf_counter()
        self._run(way, count)
        return (time.perf_counter() - begin) / count

    def _calls_of_a_round(self, way: str) -> int:
        self._run(way, _FIRST_PASSES)
        return max(1, round(_LEAST_ROUND_SECONDS / self._seconds(way, 1)))

    def rounds(self, count: int) -> list[dict[str, float]]:
        """Seconds of a pass."""
        found = []
        for index in range(count):
            order = list(self._models) if index % 2 == 0 else list(reversed(self._models))
            found.append({way: self._seconds(way, self._calls[way]) for way in order})
        return found

    def joules(self, counter: Callable[[], float], seconds: float) -> dict[str, float]:
        """Of a pass: the median of windows in turn."""
        found: dict[str, list[float]] = {way: [] for way in self._models}
        for index in range(_ENERGY_WINDOWS):
            for way in found if index % 2 == 0 else reversed(found):
                found[way].append(self._window(way, counter, seconds))
        return {way: _median(windows) for way, windows in found.items()}

    def _window(self, way: str, counter: Callable[[], float], seconds: float) -> float:
        self._run(way, self._calls[way])
        begin, before, passes = time.perf_counter(), counter(), 0
        while time.perf_counter() - begin < seconds:
            self._run(way, self._calls[way])
            passes += self._calls[way]
        return (counter() - before) / passes


def energy_counter(device: torch.device) -> Optional[Callable[[], float]]:
    """Joules that the GPU took so far; None without the package nvidia-ml-py or where the GPU does not count."""
    if device.type != "cuda":
        return None
    try:
        import pynvml
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID("GPU-" + str(torch.cuda.get_device_properties(device).uuid))
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # noqa: BLE001 -- NVML's own errors have no common base before it is imported
        return None
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3


def _title(model: Any, call: Call, device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return f"{type(model).__name__} of {call}, on {name}; vitune {'.'.join(map(str, VERSION))}, torch {torch.__version__}"


def benchmark(model: Any, sample: Any, mode: Optional[str], energy_seconds: Optional[float]) -> Benchmark:
    """See vitune.benchmark()."""
    if backend.is_compiled(model):
        raise InvalidArgument("vitune.benchmark compiles the model itself: give it as it was before vitune.compile()")
    if isinstance(model, torch.nn.Module) and model.training:
        raise InvalidArgument("vitune.benchmark times inference and the model is in training mode: call model.eval() first")
    call = Call(sample)
    device = call.device(model)
    models = {EAGER: model, TORCH: torch.compile(model, mode=mode),
              VITUNE: backend.compile(model, mode, None, False, None, None, True)}
    answers = {way: answer_of(each, call) for way, each in models.items()}
    differences = {way: difference(answer, answers[EAGER]) for way, answer in answers.items() if way != EAGER}
    ways = _Ways(models, call, device)
    rounds = ways.rounds(_ROUNDS)
    counter = energy_counter(device) if energy_seconds else None
    calls = backend.report(models[VITUNE]).calls
    return Benchmark(
        ms={way: 1e3 * _median([each[way] for each in rounds]) for way in models},
        gains={way: interval([each[way] / each[VITUNE] for each in rounds]) for way in models if way != VITUNE},
        differences=differences, joules=ways.joules(counter, energy_seconds) if counter and energy_seconds else {},
        replaced=sum(each.replaced for each in calls), known=len(calls), title=_title(model, call, device), model=models[VITUNE])
