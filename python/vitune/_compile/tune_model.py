# python/vitune/_compile/tune_model.py -- vitune.tune(model, sample): compiles a model, tunes what it asks by its share of a pass, compiles again.
# SPDX-License-Identifier: Apache-2.0
"""What a model asks depends on what is tuned already: a layer that was fused asks as one call, one that was not as several, and the
layers around windows in place are those of images. So it is compiled, tuned and compiled again until it asks for nothing new, or the
time is up."""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional

import torch
from torch.utils._pytree import tree_leaves

from .._runtime import command as _command
from .._runtime.errors import InvalidArgument, VituneError
from . import backend, tune_progress

_PASSES, _FIRST_PASSES = 20, 3  # timed, and before
_LEAST_SECONDS = 3  # of a problem: less finds what a default has
_MOST_ROUNDS = 8


@dataclasses.dataclass(frozen=True)
class TunedProblem:
    """A problem that a winner serves since."""

    problem: str  #: its text
    share: float  #: of the time of the problems that were tuned together with it, as their floors predict
    us: float  #: of its winner, by the objective that was tuned for
    default_us: Optional[float]  #: of what served without a winner; None: it was not measured

    def __str__(self) -> str:
        before = f"{self.default_us:.1f} -> " if self.default_us else ""
        return f"{100 * self.share:5.1f} %  {before}{self.us:.1f} us  {self.problem}"


@dataclasses.dataclass(frozen=True, repr=False)
class ModelTuning:
    """What vitune.tune(model, sample) did. ``print`` it."""

    model: Any  #: compiled with the winners: call this one
    before_ms: float  #: median time of a pass (of train=True a step's forward and backward), compiled, before anything was tuned; on a GPU as a CUDA graph
    after_ms: float  #: the same afterwards
    tuned: tuple[TunedProblem, ...]  #: the largest share first, round by round
    untuned: tuple[str, ...]  #: problems that still have no winner
    failed: Mapping[str, str]  #: those of `untuned` that tuning found no winner for, and why
    seconds: float  #: that it took
    interrupted: bool  #: by Ctrl-C; what was tuned until then is kept

    @property
    def gain(self) -> float:
        """How many times as fast a pass is."""
        return self.before_ms / self.after_ms

    def __str__(self) -> str:
        state = ", interrupted" if self.interrupted else ""
        lines = [f"{self.before_ms:.3f} -> {self.after_ms:.3f} ms a pass ({self.gain:.2f}x): "
                 f"{tune_progress.problems_text(len(self.tuned))} tuned in "
                 f"{self.seconds:.0f} s{state}", *(f"  {problem}" for problem in self.tuned)]
        lines += [f"  not tuned: {problem}" + (f" ({self.failed[problem]})" if problem in self.failed else "")
                  for problem in self.untuned]
        if len(lines) == 1:
            lines.append("  nothing that it asks can be tuned: print(vitune.report(model)) says what serves it, or why nothing does")
        return "\n".join(lines)

    __repr__ = __str__


def seconds_of(budget: str | int | float | None) -> Optional[float]:
    """"60s", "2m", "1h" or a number of seconds; None: no limit. Raises InvalidArgument."""
    if budget is None:
        return None
    text = str(budget)
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], None)
    try:
        seconds = float(text if factor is None else text[:-1]) * (factor or 1.0)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgument(f"budget {budget!r}: give a time for the whole model, as '60s' or '5m'")
    return seconds


class Call:
    """A pass of the model on its sample: forward, or a step's forward and backward, which leaves no gradients behind."""

    def __init__(self, sample: Any, train: bool = False) -> None:
        self._train = train
        self._keywords = sample if isinstance(sample, dict) else {}
        self._arguments = () if sample is None or self._keywords is sample else sample if isinstance(sample, tuple) else (sample,)

    def __call__(self, model: Any) -> Any:
        with torch.set_grad_enabled(self._train):
            results = model(*self._arguments, **self._keywords)
        if self._train:
            self._backward(model, results)
        return results

    def _backward(self, model: Any, results: Any) -> None:
        parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
        wanted = [value for value in (*parameters, *tree_leaves((self._arguments, self._keywords)))
                  if isinstance(value, torch.Tensor) and value.requires_grad]
        ends = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not wanted or not ends:
            raise InvalidArgument("train=True, and nothing that the model gives has a gradient: give a model whose parameters require one")
        torch.autograd.grad(ends, wanted, [torch.ones_like(end) for end in ends], allow_unused=True)

    def __str__(self) -> str:
        values = (*self._arguments, *self._keywords.values())
        return ", ".join(f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}" if isinstance(each, torch.Tensor)
                         else type(each).__name__ for each in values)

    def device(self, model: Any) -> torch.device:
        """The first GPU among what it is of."""
        parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
        tensors = [value for value in (*self._arguments, *self._keywords.values(), *parameters) if isinstance(value, torch.Tensor)]
        return next((each.device for each in tensors if each.device.type == "cuda"), torch.device("cpu"))

    def median_ms(self, model: Any, device: torch.device) -> float:
        """Of a pass: on a GPU as a CUDA graph, since what Python takes to launch it varies by more than tuning gains. A pass that
        cannot be captured is timed as it is called."""
        if device.type != "cuda":
            return _median_ms(lambda: self(model), lambda: None)
        with torch.cuda.device(device):
            return _median_ms(self._captured(model) or (lambda: self(model)), torch.cuda.synchronize)

    def _captured(self, model: Any) -> Optional[Callable[[], None]]:
        """What replays a pass; None where it cannot be captured."""
        for _ in range(_FIRST_PASSES):
            self(model)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self(model)
        except (RuntimeError, VituneError):
            torch.cuda.synchronize()
            return None
        return graph.replay


def _median_ms(run: Callable[[], None], wait: Callable[[], None]) -> float:
    samples = []
    for _ in range(_FIRST_PASSES + _PASSES):
        begin = time.perf_counter()
        run()
        wait()
        samples.append(time.perf_counter() - begin)
    return 1e3 * sorted(samples[_FIRST_PASSES:])[_PASSES // 2]


def asked(compiled: Any) -> collections.Counter:
    """Problem -> how often the compiled model asks it, of those that no winner serves."""
    return collections.Counter(problem for call in backend.report(compiled).calls for problem in dict.fromkeys(call.untuned))


@contextlib.contextmanager
def problem_file(counts: Mapping[str, int]) -> Iterator[str]:
    """A file of problems that says how often a pass asks each, which tells the command its share."""
    with tempfile.TemporaryDirectory(prefix="vitune-") as folder:
        path = pathlib.Path(folder) / "model.json"
        path.write_text(json.dumps({"schema": 1, "problems": [{"problem": text, "calls": count} for text, count in counts.items()]}))
        yield os.fspath(path)


class Tuning:
    """One run of tune()."""

    def __init__(self, compiled: Any, call: Call, deadline: Optional[float], words: list[str], refresh: Callable[[], Any],
                 progress: tune_progress.Progress) -> None:
        self._compiled, self._call, self._deadline, self._words = compiled, call, deadline, words
        self._refresh, self._progress = refresh, progress
        self.tuned: list[TunedProblem] = []
        self.failed: dict[str, str] = {}
        self.interrupted = False

    def run(self) -> None:
        """Rounds, until nothing is asked that was not tried, or the time is up."""
        for _ in range(_MOST_ROUNDS):
            known = {each.problem for each in self.tuned} | self.failed.keys()
            counts = {text: count for text, count in asked(self._compiled).items() if text not in known}
            if not counts or self.interrupted or self._is_over():
                return
            done = len(self.tuned) + len(self.failed)
            self._round(counts)
            if len(self.tuned) + len(self.failed) == done:
                return
            self.compile_again()

    def compile_again(self) -> None:
        self._progress.say("compiling again with what was tuned")
        self._refresh()
        torch._dynamo.reset()
        self._call(self._compiled)

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _round(self, counts: Mapping[str, int]) -> None:
        self._progress.begin(len(counts))
        with problem_file(counts) as path:
            words = ["tune", "--from", path, *self._words, *self._limit(len(counts)), "--jsonl", "--quiet"]
            lines = _command.Lines(words, self._deadline)
            with contextlib.closing(lines.read()) as results:
                for line in results:
                    self._take(line["result"])
        self.interrupted = lines.interrupted

    def _limit(self, count: int) -> list[str]:
        """An equal part of the time for each problem, so that the first does not take that of all."""
        if self._deadline is None or "--effort" in self._words or "--budget" in self._words:
            return []
        return ["--budget", f"{max(_LEAST_SECONDS, int((self._deadline - time.monotonic()) / count))}s"]

    def _take(self, result: Mapping[str, Any]) -> None:
        winner = result["winner"]
        if winner is None:
            self.failed[result["problem"]] = result["message"]
        else:
            us = winner[winner["objective"]]["median_us"]
            self.tuned.append(TunedProblem(result["problem"], result.get("share", 0.0), us, winner.get("default_us")))
        self._progress.done(result.get("share", 0.0), result["problem"])


def tune(model: Any, sample: Any, budget: str | int | float | None, options: dict[str, Any],
         refresh: Callable[[], Any], quiet: bool, train: bool = False) -> ModelTuning:
    """See vitune.tune(). options: of the command, by the names of tune_arguments()."""
    begin = time.monotonic()
    seconds = seconds_of(budget)
    call = Call(sample, train)
    device = call.device(model)
    compiled = model if backend.is_compiled(model) else backend.compile(model, None, None, False, None, None, True, train or None)
    if device.type == "cuda" and options.get("device") is None:
        options["device"] = device.index or 0
    progress = tune_progress.Progress(quiet, None if seconds is None else begin + seconds)
    progress.say("compiling the model, to see what it asks")
    call(compiled)
    before = call.median_ms(compiled, device)
    tuning = Tuning(compiled, call, None if seconds is None else begin + seconds, _command.tune_arguments((), **options), refresh,
                    progress)
    try:
        tuning.run()
    except KeyboardInterrupt:  # while it compiled
        tuning.interrupted = True
        tuning.compile_again()
    finally:
        progress.end()
    after = call.median_ms(compiled, device) if tuning.tuned else before
    return ModelTuning(compiled, before, after, tuple(tuning.tuned), tuple(asked(compiled)), dict(tuning.failed),
                       time.monotonic() - begin, tuning.interrupted)
