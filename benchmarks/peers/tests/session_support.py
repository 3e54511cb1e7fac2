# benchmarks/peers/tests/session_support.py -- A session on the CPU: CUDA and the timer are invented.
# SPDX-License-Identifier: Apache-2.0
import pathlib
import random
import tempfile
import time
import unittest
from unittest import mock

from .support import torch

from peers.engine import document

if torch is not None:
    from peers.engine import session

#: Every form of a norm that is compared, with odd extents.
NORMS = (
    "norm bf16 m=37 d=96 weight bias",
    "norm fp16 m=5 d=1152 weight bias residual sum",
    "norm fp32 m=3 d=7 weight bias eps=0.25",
    "group_norm bf16 n=2 c=24 l=9 g=3 weight bias mish",
    "group_norm fp16 n=3 c=16 l=5 g=8 nhwc weight bias silu",
    "group_norm bf16 n=1 c=8 l=33 g=1 weight bias",
)

#: Every word that is compared of a linear layer, with odd extents.
LINEARS = (
    "linear bf16 m=37 n=24 k=40 bias act=gelu",
    "linear fp16 m=30 n=40 k=20 bias x=@24 w=@24 residual period=15",
    "linear bf16 m=12 n=56 k=64 bias scale residual",
    "linear bf16 m=29 n=16 k=96 norm=layer bias act=gelu_tanh",
    "linear fp16 m=5 n=7 k=9",
    "linear fp16 m=8 n=16 k=8 act=silu residual",
    "linear bf16 m=8 n=16 k=8 act=relu scale",
    "linear bf16 m=8 n=16 k=8 act=quick_gelu",
)

#: Forms of maps, small: those of data/map_problems.json that differ, then what else texts may say.
MAPS = (
    "map n=5x16 a=bf16@32x1 b=bf16@32x1 x=mul(silu(a),b) out=bf16@40x1",
    "map n=3x4 over=7 a=bf16@32x7+1 b=bf16@0x7+1 x=add(mul(a,0.125),b) softmax out=bf16",
    "map n=3x4 over=9 a=bf16@40x9+1 x=mul(a,a) mean y=rsqrt(add(r,1e-06)) out=fp32",
    "map n=2x3x5x4 a=bf16@150x8x24x2 b=bf16@150x8x24x2 c=fp32@0x0x4x1 d=fp32@0x0x4x1 x=sub(mul(a,c),mul(b,d)) out=bf16@60x20x4x1",
    "map n=3x3x8 a=u8@24x1x3 b=fp32@0x1x0 c=fp32@0x1x0 x=mul(sub(div(a,255),b),c) out=bf16",
    "map n=2x2x2x3x4x4 a=bf16@192x32x4x64x8x1 x=a out=bf16",
    "map n=3x8 over=5 a=bf16@48x1+8 x=a mean out=bf16",
    "map n=3x4 over=5x6 a=fp16@120x1+24x4 b=bool@0x1+0x0 x=where(b,a,sub(0.5,a)) max y=mul(r,2) out=fp16@8x1",
    "map n=3x2 over=4x5 a=fp32@40x20+5x1 x=exp(a) softmax out=fp32",
    "map n=6 over=11 a=fp32 x=gelu_tanh(a) sum out=fp32",
)


class Timer:
    """10 microseconds and a little for everyone, half of it warm."""

    def __init__(self, lose=None):
        self.chance, self.lose, self.captured = random.Random(1), lose, []

    def empty_us(self):
        return {"cold": 3.0, "warm": 0.5}

    def cold_round(self, names, calls):
        if self.lose:
            raise RuntimeError(self.lose)
        return {name: 10.0 + self.chance.random() for name in names}

    def warm_round(self, names, calls):
        return {name: 5.0 for name in names}

    def capture(self, name, call, cold_us):
        self.captured.append(name)
        if name == "flex":
            raise RuntimeError("cannot be captured")

    def python_call(self, call, cold_us):
        return 4.0, 12.0

    def forget(self):
        pass


class SessionCase(unittest.TestCase):
    """Runs sessions over self.problems of self.roster, on the CPU, into self.path."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "peers.json"
        full = torch.full
        for target, value in (
            ("synchronize", None),
            ("empty_cache", None),
            ("reset_peak_memory_stats", None),
            ("memory_allocated", 1000),
            ("max_memory_allocated", 5000),
        ):
            self.patch(f"torch.cuda.{target}", return_value=value)
        self.patch("peers.engine.device.describe", return_value=({"name": "none"}, {"torch": "x"}))
        self.poisoned = self.patch(
            "torch.full", side_effect=lambda *a, **k: full(*a, **{**k, "device": "cpu"})
        )

    def use(self, roster, texts):
        """Takes these problems, named p0, p1 and so on."""
        self.roster, make = roster, roster.operands
        self.patch(
            f"{type(roster).__module__}.{type(roster).__name__}.operands",
            side_effect=lambda problem: make(problem, "cpu"),
        )
        self.problems = [
            roster.problem({"problem": text, "name": f"p{i}"}) for i, text in enumerate(texts)
        ]

    def patch(self, *words, **keywords):
        patcher = mock.patch(*words, **keywords)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def run_session(self, peers, excluded=None, seconds=1000.0, resume=False, timer=None):
        """The document of a session of these peers."""
        made = session.Session(
            self.roster,
            peers,
            self.path,
            session.Journal(self.folder / "now"),
            excluded or {},
            5,
            timer or Timer(),
            objective="cold",
        )
        made.begin(resume)
        with mock.patch("sys.stdout"):
            made.run(self.problems, time.time() + seconds)
        return document.read(self.path)
