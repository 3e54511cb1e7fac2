# benchmarks/peers/tests/test_vitune_peers.py -- vitune's entries, on the emulated device.
# SPDX-License-Identifier: Apache-2.0
import ctypes
import dataclasses
import math
import os
import pathlib
import types
import unittest
from unittest import mock

from .session_support import MAPS
from .support import HAS_GPU, needs_library, needs_torch, torch

import vitune

if torch is not None:
    from peers.attention import operands
    from peers.attention.problem import Problem
    from peers.attention.reference import make_reference
    from peers.attention.vitune_peers import Vitune, VituneDefault
    from peers.engine.peer import Refused, Settings
    from peers.engine.problems import collect
    from peers.linear.vitune_peers import VituneDefault as VituneDefaultLinear
    from peers.map.operands import Operands as MapOperands
    from peers.map.vitune_peers import Vitune as VituneMap
    from peers.map.vitune_peers import VituneDefault as VituneDefaultMap
    from peers.norms.operands import Operands as NormOperands
    from peers.norms.vitune_peers import Vitune as VituneNorm
    from peers.norms.vitune_peers import VituneDefault as VituneDefaultNorm
    from peers.rosters import ROSTERS, roster_of

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


class AskedContext:
    """Stands for vitune.Context: writes a number of its own into each output, and remembers what it was asked."""

    made = []

    def __init__(self, device, **options):
        self.options, self.asked, self.addresses, self.size = options, [], [], 0
        AskedContext.made.append(self)

    def query(self, problem):
        self.asked.append(problem.text)
        if "m=3 " in problem.text:
            raise vitune.Unsupported("no kernel")
        outcome = "default" if options_are_empty(self.options) else "exact"
        return types.SimpleNamespace(config="kRows=1", outcome=outcome)

    def workspace_bytes(self, problem):
        return self.size

    def run(self, problem, addresses, workspace, workspace_bytes, stream):
        self.addresses.append((list(addresses), workspace, workspace_bytes, stream))
        for number, (one, address) in enumerate(zip(problem.tensors, addresses)):
            if one.given and one.output:
                ctypes.memset(address, number, one.bytes)


def options_are_empty(options):
    return options.get("on_miss") == "default"


class CallCase(unittest.TestCase):
    """Contexts are AskedContext."""

    def setUp(self):
        AskedContext.made.clear()
        stream = types.SimpleNamespace(cuda_stream=77)
        for target, value in (
            ("vitune.Context", AskedContext),
            ("torch.cuda.current_stream", lambda: stream),
        ):
            patcher = mock.patch(target, value)
            patcher.start()
            self.addCleanup(patcher.stop)


@needs_library
@needs_torch
class MapCallTest(CallCase):
    """What a context is asked for a map, and with which addresses."""

    def test_letters_have_their_places_and_views_of_one_storage_their_distance(self):
        roster = ROSTERS[6]
        text = "map n=4x8 a=bf16@16x1 b=bf16@16x1 x=mul(silu(a),b) out=bf16@24x1"
        problem = roster.problem({"problem": text})
        t = roster.operands(problem, "cpu")
        call = VituneMap(Settings(pathlib.Path("a.db"), "warm")).prepare(problem, t)
        (context,) = AskedContext.made
        self.assertEqual(context.options["objective"], "warm")
        self.assertEqual((context.asked, call.outcome), ([text], "exact"))
        out = call.run()
        addresses, *_ = context.addresses[-1]
        a, b = (tensor.data_ptr() for tensor in t.given)
        self.assertEqual(addresses, [a, b, *6 * [0], out.data_ptr()])
        self.assertEqual(b - a, 16)
        self.assertEqual((tuple(out.shape), out.stride()), ((4, 8), (24, 1)))
        self.assertEqual(out.view(torch.int16).unique().tolist(), [0x0808])
        self.assertNotEqual(call.run().data_ptr(), out.data_ptr())


@needs_library
@needs_torch
class NormCallTest(CallCase):
    """What a context is asked for a norm, and with which addresses."""

    def prepared(self, peer, text):
        problem = ROSTERS[1].problem({"problem": text})
        t = ROSTERS[1].operands(problem, "cpu")
        return t, peer.prepare(problem, t)

    def test_each_tensor_has_its_place_and_the_norm_comes_before_the_sum(self):
        peer = VituneNorm(Settings(pathlib.Path("a.db"), "warm"))
        t, call = self.prepared(peer, "norm bf16 m=4 d=8 weight bias residual sum")
        self.assertEqual((call.config, call.outcome), ("kRows=1", "exact"))
        (context,) = AskedContext.made
        self.assertEqual(
            context.options, {"objective": "warm", "database": pathlib.Path("a.db").resolve()}
        )
        out, total = call.run()
        addresses, workspace, size, stream = context.addresses[-1]
        # x, residual, weight, bias, out, sum, second, mean, rstd
        inputs = [x.data_ptr() for x in (t.x, t.residual, t.weight, t.bias)]
        outputs = [out.data_ptr(), total.data_ptr()]
        self.assertEqual(addresses, [*inputs, *outputs, 0, 0, 0])
        self.assertEqual((workspace, size, stream), (0, 0, 77))
        self.assertEqual(out.view(torch.uint8).unique().tolist(), [4])
        self.assertEqual(total.view(torch.uint8).unique().tolist(), [5])
        self.assertNotEqual(call.run()[0].data_ptr(), out.data_ptr())

    def test_a_call_that_needs_scratch_memory_gets_it(self):
        peer = VituneNorm(Settings())
        self.prepared(peer, "norm bf16 m=4 d=8 weight bias")
        AskedContext.made[0].size = 4096
        t, call = self.prepared(
            peer, "group_norm bf16 n=2 c=8 l=4 g=2 nhwc weight bias silu"
        )
        out = call.run()
        self.assertEqual((out.shape, out.stride()), (t.x.shape, t.x.stride()))
        addresses, workspace, size, _ = AskedContext.made[0].addresses[-1]
        self.assertEqual(len(AskedContext.made), 1)
        self.assertEqual(addresses[-1], out.data_ptr())
        self.assertNotIn(workspace, (0, *addresses))
        self.assertEqual(size, 4096)

    def test_what_the_library_does_not_take_is_refused(self):
        with self.assertRaisesRegex(Refused, "no kernel"):
            self.prepared(VituneNorm(Settings()), "norm bf16 m=3 d=8 weight bias")

    def test_the_default_is_asked_of_an_empty_database_and_nothing_else_passes_for_it(self):
        peer = VituneDefaultNorm(Settings(pathlib.Path("a.db"), "warm"))
        _, call = self.prepared(peer, "norm bf16 m=4 d=8 weight bias")
        self.assertEqual(call.outcome, "default")
        (context,) = AskedContext.made
        self.assertEqual((context.options["shipped_database"], "objective" in context.options), ("", False))
        self.assertFalse(pathlib.Path(context.options["database"]).exists())
        with (
            mock.patch(f"{__name__}.options_are_empty", return_value=False),
            self.assertRaisesRegex(RuntimeError, "'exact'"),
        ):
            self.prepared(peer, "norm bf16 m=4 d=8 weight bias")


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

    def test_the_default_norms_of_an_empty_database_are_right(self):
        peer, roster = VituneDefaultNorm(Settings()), ROSTERS[1]
        for text in (
            "norm bf16 m=37 d=96 weight bias",
            "norm fp16 m=5 d=768 weight bias residual sum",
            "group_norm bf16 n=2 c=24 l=9 g=3 weight bias mish",
            "group_norm fp16 n=3 c=16 l=5 g=8 nhwc weight bias silu",
        ):
            with self.subTest(text):
                problem = roster.problem({"problem": text})
                t = roster.operands(problem, "cuda" if HAS_GPU else "cpu")
                call, out = self.prepared_norm(peer, problem, t)
                self.assertEqual(call.outcome, "default")
                for error in roster.reference(problem, t).errors(out).values():
                    self.assertLess(error.relative, 0.01)

    def test_the_default_linear_layers_of_an_empty_database_are_right(self):
        peer, roster = VituneDefaultLinear(Settings()), ROSTERS[2]
        for text in (
            "linear bf16 m=9 n=24 k=40 norm=layer bias act=gelu",
            "linear fp16 m=30 n=16 k=20 bias x=@24 scale residual period=15",
        ):
            with self.subTest(text):
                problem = roster.problem({"problem": text})
                t = roster.operands(problem, "cuda" if HAS_GPU else "cpu")
                call, out = self.prepared_linear(peer, problem, t)
                self.assertEqual((call.outcome, call.provider), ("default", "vitune"))
                error = roster.reference(problem, t).errors(out)["out"]
                self.assertLess(error.relative, 0.01)

    def prepared_linear(self, peer, problem, t):
        """As prepared(); torch.empty() makes the output and the scratch memory."""
        if HAS_GPU:
            call = peer.prepare(problem, t)
            return call, call.run()
        memory, usual = Memory(), torch.empty
        moved = dataclasses.replace(
            t,
            **{
                one.name: memory.moved(getattr(t, one.name))
                for one in dataclasses.fields(t)
                if getattr(t, one.name) is not None
            },
        )

        def empty(*shape, dtype, device=None):
            if device is None:
                return usual(*shape, dtype=dtype)
            shape = shape[0] if isinstance(shape[0], tuple) else shape
            flat = memory.empty(math.prod(shape), dtype)
            return flat.fill_(float("nan") if dtype.is_floating_point else 0).view(shape)

        stream = types.SimpleNamespace(cuda_stream=0)
        with (
            mock.patch("torch.empty", empty),
            mock.patch("torch.cuda.current_stream", return_value=stream),
        ):
            call = peer.prepare(problem, moved)
            out = call.run()
            memory.cuda.cuCtxSynchronize()
        return call, out

    def test_the_default_maps_of_an_empty_database_are_right(self):
        peer, roster = VituneDefaultMap(Settings()), ROSTERS[6]
        for text in MAPS:
            with self.subTest(text):
                problem = roster.problem({"problem": text})
                t = roster.operands(problem, "cuda" if HAS_GPU else "cpu")
                call, out = self.prepared_map(peer, problem, t)
                self.assertEqual((call.outcome, out.stride()), ("default", problem.out.strides))
                error = roster.reference(problem, t).errors(out)["out"]
                self.assertLess(error.relative, 0.01)

    def prepared_map(self, peer, problem, t):
        """As prepared()."""
        if HAS_GPU:
            call = peer.prepare(problem, t)
            return call, call.run()
        memory, storages, moved = Memory(), {}, {}
        for letter, tensor in t.by_letter.items():  # views of one storage stay such
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in storages:
                flat = torch.empty(0, dtype=tensor.dtype).set_(storage)
                storages[storage.data_ptr()] = memory.moved(flat)
            base = storages[storage.data_ptr()]
            moved[letter] = base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

        def empty_strided(shape, strides, dtype, device):
            span = 1 + sum((e - 1) * s for e, s in zip(shape, strides))
            return memory.empty(span, dtype).fill_(float("nan")).as_strided(shape, strides)

        stream = types.SimpleNamespace(cuda_stream=0)
        with (
            mock.patch("torch.empty_strided", empty_strided),
            mock.patch("torch.cuda.current_stream", return_value=stream),
        ):
            call = peer.prepare(problem, MapOperands(moved))
            out = call.run()
            memory.cuda.cuCtxSynchronize()
        return call, out

    def prepared_norm(self, peer, problem, t):
        """As prepared(); torch.empty_like() makes the outputs."""
        if HAS_GPU:
            call = peer.prepare(problem, t)
            return call, call.run()
        memory = Memory()
        tensors = (t.x, t.weight, t.bias, t.residual)
        moved = NormOperands(*(None if x is None else memory.moved(x) for x in tensors))

        def empty_like(x):
            flat = memory.empty(x.numel(), x.dtype).fill_(float("nan"))
            return flat.as_strided(x.shape, x.stride())

        stream = types.SimpleNamespace(cuda_stream=0)
        with (
            mock.patch("torch.empty_like", empty_like),
            mock.patch("torch.cuda.current_stream", return_value=stream),
        ):
            call = peer.prepare(problem, moved)
            out = call.run()
            memory.cuda.cuCtxSynchronize()
        return call, out
