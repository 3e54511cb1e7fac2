# benchmarks/peers/tests/test_vitune_peers.py -- vitune's two entries, on the emulated device.
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import types
import unittest
from unittest import mock

from .support import HAS_GPU, needs_library, needs_torch, torch

import vitune

if torch is not None:
    from peers.attention import operands
    from peers.attention.problem import Problem
    from peers.attention.reference import make_reference
    from peers.attention.vitune_peers import Vitune, VituneDefault
    from peers.engine.peer import Refused
    from peers.engine.problems import collect
    from peers.rosters import roster_of

EMULATED = "emulator" in os.environ.get("LD_LIBRARY_PATH", "")


def words_of(problem):
    return {
        "is_causal": bool(problem.desc.causal),
        "scale": problem.desc.scale or None,
        "enable_gqa": problem.kv_heads != problem.desc.heads,
    }


@needs_library
@needs_torch
class TextTest(unittest.TestCase):
    def test_the_tensors_of_every_shipped_problem_ask_that_very_problem(self):
        _, extra = collect(
            roster_of,
            [
                "fp16 b=2 h=4 hkv=2 n=40 d=32",
                "bf16 b=64 h=2 n=49 d=32 mask=bool:16x1x49x49",
                "bf16 b=2 h=3 n=50 d=64 scale=0.2",
                "bf16 b=1 h=2 n=33 d=32 bias=bf16:1x2x33x33@0,1320,40,1",
            ],
        )
        for problem in (*collect(roster_of, [])[1], *extra):
            with self.subTest(problem.text):
                t = operands.make_operands(problem, "meta")
                self.assertEqual(
                    vitune.problem_text(t.q, t.k, t.v, t.mask, **words_of(problem)), problem.text
                )

    def test_another_text_is_refused_and_not_measured_in_its_place(self):
        problem = Problem.of({"problem": "bf16 b=2 h=3 n=50 d=64"})
        t = operands.make_operands(problem, "meta")
        other = types.SimpleNamespace(problem="attention bf16 b=9", outcome="exact", config="c")
        with (
            mock.patch("vitune.explain", return_value=other),
            mock.patch("vitune.attention") as launch,
        ):
            with self.assertRaisesRegex(Refused, "b=9"):
                Vitune().prepare(problem, t)
            launch.assert_not_called()
        same = types.SimpleNamespace(problem=problem.text, outcome="nearest", config="kBlockN=8")
        with (
            mock.patch("vitune.explain", return_value=same),
            mock.patch("vitune.attention", return_value=7) as launch,
        ):
            call = Vitune().prepare(problem, t)
            self.assertEqual((call.run(), call.config, call.outcome), (7, "kBlockN=8", "nearest"))
            self.assertEqual(launch.call_args.args, (t.q, t.k, t.v, t.mask))

    def test_what_the_library_does_not_take_is_refused(self):
        problem = Problem.of({"problem": "bf16 b=2 h=3 n=50 d=64"})
        t = operands.make_operands(problem, "meta")
        with (
            mock.patch("vitune.explain", side_effect=vitune.Unsupported("no kernel")),
            self.assertRaisesRegex(Refused, "no kernel"),
        ):
            Vitune().prepare(problem, t)


class Memory:
    """PyTorch tensors in the emulated device's memory, which the host can reach."""

    def __init__(self):
        cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
        for status in (
            cuda.cuInit(0),
            cuda.cuDeviceGet(ctypes.byref(device), 0),
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
            cuda.cuCtxSetCurrent(context),
        ):
            assert status == 0, status
        self.cuda = cuda

    def moved(self, tensor):
        """The same values and strides in device memory."""
        storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        flat = self.empty(storage.numel(), tensor.dtype)
        flat.copy_(storage)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def empty(self, count, dtype):
        size, address = count * torch.empty(0, dtype=dtype).element_size(), ctypes.c_uint64()
        assert self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
        return torch.frombuffer((ctypes.c_char * size).from_address(address.value), dtype=dtype)


@needs_library
@needs_torch
@unittest.skipUnless(EMULATED or HAS_GPU, "neither a GPU nor the emulated device (LD_LIBRARY_PATH)")
class DefaultTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_the_default_kernel_of_an_empty_database_is_right(self):
        peer = VituneDefault()
        texts = (
            "fp16 b=2 h=2 n=37 d=72",
            "bf16 b=2 h=2 n=33 d=32 bias=bf16:1x2x33x33",
            "fp16 b=1 h=2 n=40 d=16 causal",
            "fp16 b=2 h=1 n=40 d=32 mask=bool:2x1x40x40 layout=bhnd",
        )
        for text in texts:
            with self.subTest(text):
                problem = Problem.of({"problem": text})
                t = operands.make_operands(problem, "cuda" if HAS_GPU else "cpu")
                call = self.prepared(peer, problem, t)
                self.assertEqual(call.outcome, "default")
                self.assertIn("kBlockN=", call.config)
                errors = make_reference(problem, t).errors(self.out)["out"]
                self.assertLess(errors.relative, 0.01)

    def prepared(self, peer, problem, t):
        """On the emulated device the operands move there, and torch.empty_strided() makes there."""
        if HAS_GPU:
            call = peer.prepare(problem, t)
            self.out = call.run()
            return call
        memory = Memory()
        moved = operands.Operands(
            *(None if x is None else memory.moved(x) for x in (t.q, t.k, t.v, t.mask, t.mask))
        )

        def empty_strided(shape, strides, dtype, device):
            span = 1 + sum((e - 1) * s for e, s in zip(shape, strides))
            return memory.empty(span, dtype).fill_(float("nan")).as_strided(shape, strides)

        stream = types.SimpleNamespace(cuda_stream=0)
        with (
            mock.patch("torch.empty_strided", empty_strided),
            mock.patch("torch.cuda.current_stream", return_value=stream),
        ):
            call = peer.prepare(problem, moved)
            self.out = call.run()
            memory.cuda.cuCtxSynchronize()
        return call
