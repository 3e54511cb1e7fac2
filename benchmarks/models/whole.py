# benchmarks/models/whole.py -- A model as one file: vitune's session, AOTInductor's package, ONNX Runtime.
# SPDX-License-Identifier: Apache-2.0
"""Each is made of the model as it is, loaded again, and called from Python; `_graph`: the same call captured once and replayed."""

from __future__ import annotations

import contextlib
import copy
import functools
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .roster import FILES as KINDS
from .row import Candidate, Prepared, Skipped

RUNNER, AOTI, ONNX = KINDS
_PROVIDER = "CUDAExecutionProvider"


def graph_of(way: str) -> str:
    """The name of the same, captured."""
    return f"{way}_graph"


#: What a session is compared with beside the best of torch.compile's modes.
COMPARED = ((RUNNER, ("vitune_compile",)), (graph_of(RUNNER), (graph_of(AOTI),)), (RUNNER, (ONNX,)))


class Files:
    """The ways of one model for one batch. What they hold is given back by forget()."""

    def __init__(self, model: nn.Module, images: Tensor, clock: Any, kinds: tuple[str, ...] = KINDS) -> None:
        self._model, self._images, self._clock, self._kinds = model, images, clock, kinds
        self._folder = tempfile.TemporaryDirectory(prefix="vitune_models_")
        self._calls: dict[str, Callable[[], Tensor]] = {}
        self._says: dict[str, Any] = {}

    def candidates(self) -> dict[str, Candidate]:
        makers = {RUNNER: self._runner, AOTI: self._aoti, ONNX: self._onnx}
        found: dict[str, Callable[[], Prepared]] = {}
        for kind in self._kinds:
            found[kind] = functools.partial(self._called, kind, makers[kind])
            if kind != ONNX:  # its graph is its own
                found[graph_of(kind)] = functools.partial(self._captured, kind)
        return {name: Candidate(contextlib.nullcontext, prepare) for name, prepare in found.items()}

    def says(self) -> dict[str, Any]:
        """What the row tells beside times."""
        return {"files": self._says} if self._says else {}

    def forget(self) -> None:
        self._calls.clear()
        self._folder.cleanup()

    def _path(self, name: str) -> str:
        return str(pathlib.Path(self._folder.name) / name)

    def _called(self, kind: str, make: Callable[[], Callable[[], Tensor]]) -> Prepared:
        with torch.inference_mode(False), torch.no_grad():
            began = time.monotonic()
            call = make()
        call()
        self._clock.synchronize()
        self._says.setdefault(kind, {})["seconds"] = round(time.monotonic() - began, 1)
        memory, answer = self._clock.peak(lambda: call().clone())
        self._calls[kind] = call
        return Prepared(call, answer, self._memory_mb(kind, memory))

    def _captured(self, kind: str) -> Prepared:
        if kind not in self._calls:
            raise Skipped(f"{kind} does not run")
        if "graph" not in self._clock.modes:
            raise Skipped("a graph needs a GPU")
        memory, (replay, answer) = self._clock.peak(lambda: self._clock.capture(self._calls[kind]))
        answer.fill_(float("nan"))  # what the replay does not write stays so
        replay()
        self._clock.synchronize()
        return Prepared(replay, answer.clone(), self._memory_mb(kind, memory))

    def _memory_mb(self, kind: str, by_torch: float | None) -> float | None:
        """PyTorch counts what it has allocated, which a session's values are not."""
        return self._says[kind].get("arena_mb", by_torch)

    # --- each way: a call that gives the answer

    def _runner(self) -> Callable[[], Tensor]:
        import vitune

        path = self._path("model.safetensors")
        sample = torch.zeros(1, *self._images.shape[1:], dtype=self._images.dtype)
        try:
            vitune.export(copy.deepcopy(self._model).cpu(), path, sample, check=False)
        except vitune.Unsupported as reason:
            raise Skipped(f"no model file: {reason}".splitlines()[0]) from reason
        model = vitune.Model(path, vitune.Context(self._images.device.index or 0))
        session = model.session(len(self._images))
        answer = torch.empty_like(self._model(self._images))
        inputs, outputs = [self._images.data_ptr()], [answer.data_ptr()]
        weights, arena = session.bytes()
        self._says[RUNNER] = {"weights_mb": round(weights / 2**20, 1), "arena_mb": round(arena / 2**20, 1)}

        def call() -> Tensor:
            session.run(inputs, outputs, stream=torch.cuda.current_stream().cuda_stream if answer.is_cuda else 0)
            return answer

        return call

    def _aoti(self) -> Callable[[], Tensor]:
        exported = torch.export.export(self._model, (self._images,), strict=False)
        path = torch._inductor.aoti_compile_and_package(exported, package_path=self._path("model.pt2"))
        loaded = torch._inductor.aoti_load_package(path)
        return lambda: loaded(self._images)

    def _onnx(self) -> Callable[[], Tensor]:
        runtime = self._onnxruntime()
        import numpy

        path, images = self._path("model.onnx"), self._images.half()
        model = copy.deepcopy(self._model).half()  # its CUDA provider has few kernels for bf16
        try:
            torch.onnx.export(model, (images,), path, input_names=["images"], output_names=["answer"], dynamo=True)
        except ModuleNotFoundError as reason:
            raise Skipped(f"{reason.name} is not installed, which torch.onnx needs") from reason
        device = images.device.index or 0
        session = runtime.InferenceSession(path, providers=[(_PROVIDER, {"device_id": device, "enable_cuda_graph": "1"})])
        if session.get_providers()[0] != _PROVIDER:
            raise Skipped("onnxruntime's CUDA provider does not load here")
        answer = torch.empty_like(self._model(self._images), dtype=torch.float16)
        binding = session.io_binding()
        bind = {"device_type": "cuda", "device_id": device, "element_type": numpy.float16}
        binding.bind_input(name="images", shape=tuple(images.shape), buffer_ptr=images.data_ptr(), **bind)
        binding.bind_output(name="answer", shape=tuple(answer.shape), buffer_ptr=answer.data_ptr(), **bind)

        def call() -> Tensor:
            session.run_with_iobinding(binding)  # waits for its own stream
            return answer

        return call

    @staticmethod
    def _onnxruntime() -> Any:
        try:
            import onnxruntime
        except ImportError as reason:
            raise Skipped("onnxruntime is not installed") from reason
        if _PROVIDER not in onnxruntime.get_available_providers():
            raise Skipped("this onnxruntime has no CUDA provider: onnxruntime-gpu has one")
        return onnxruntime
