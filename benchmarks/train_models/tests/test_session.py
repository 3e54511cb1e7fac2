# benchmarks/train_models/tests/test_session.py -- A run on the CPU from the command line: rows on disk, failures, going on.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

from .support import needs, small

from models.watch import POISONED
from train_models import cli, document

try:
    import torch
    from models import row as models_row
    from models.clock import CpuClock
    from train_models import losses, row, sdpa, session, ways, zoo
except ImportError:
    torch = None


@needs("torch")
class SessionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path, self.built = pathlib.Path(folder.name) / "train_models.json", []
        eager = ways.BUILDS["eager"]
        for patch in (
            mock.patch.object(zoo, "build", self.build),
            mock.patch.object(row, "BUILDS", dict.fromkeys(ways.BUILDS, eager)),
            mock.patch.object(losses, "BUILDS", dict.fromkeys(ways.BUILDS, eager)),
            mock.patch.object(losses, "STEPS", 3),
            mock.patch.object(session, "MOST_SECONDS", 0.0),
            mock.patch.object(models_row, "BLOCK_MS", 0.0),
            mock.patch("vitune.torch.enabled", lambda **words: contextlib.nullcontext()),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def build(self, name, params, device):
        self.built.append(f"{name} {params}")
        if name == "broken":
            raise RuntimeError("no such model")
        model = small()
        return (model.bfloat16() if params == "bf16" else model), 4

    def start(self, models, *words):
        self.said = io.StringIO()
        with contextlib.redirect_stdout(self.said), contextlib.redirect_stderr(self.said):
            return cli.main(["--worker", "--device=cpu", f"--json={self.path}", f"--models={models}", *words])

    def main(self, models, *words):
        self.assertEqual(self.start(models, *words), 0, self.said.getvalue())
        return document.read(self.path)

    def test_every_row_is_in_the_document_with_its_name_and_fields(self):
        found = self.main("one:2,one:2:bf16,losses/two:4", "--ceilings=100,1")
        self.assertEqual([(r["model"], r["batch"], r["params"], r["mode"]) for r in found["rows"]],
                         [("one", 2, "amp", "called"), ("one", 2, "bf16", "called")])  # fmt: skip
        for each in found["rows"]:
            self.assertEqual(list(each)[:7], ["model", "batch", "params", "mode", "ms", "peak_gb", "kinds_us"])
            self.assertEqual(set(each["ms"]["compile_step_graph"]), {"ms", "low", "high"})
            self.assertEqual(set(each["floor_us"]), {"gemm", "activation", "optimizer"})
            self.assertEqual(each["sdpa"], {"order": None})
        self.assertEqual([(r["model"], r["steps"]) for r in found["losses"]], [("two", 3)])
        self.assertEqual((found["unfinished"], found["at_work"], found["command"]), ([], None, "train_models"))
        self.assertIn("one b2 bf16 called  eager", self.said.getvalue())

    def test_a_row_is_kept_where_its_floors_cannot_be_told(self):
        with mock.patch.object(session, "floor_us", side_effect=RuntimeError("an operator")):
            found = self.main("one:2", "--ceilings=100,1")["rows"][0]
        self.assertIn("eager", found["ms"])
        self.assertEqual(found["floor_failed"], "RuntimeError: an operator")

    def test_a_model_that_fails_says_why_and_the_others_go_on(self):
        found = self.main("broken:1,one:1,losses/broken:1")
        self.assertEqual(found["rows"][0]["failed"], {"": "RuntimeError: no such model"})
        self.assertIn("eager", found["rows"][1]["ms"])
        self.assertEqual(found["losses"][0]["failed"], {"": "RuntimeError: no such model"})

    def test_a_later_call_goes_on_with_what_is_missing(self):
        found = self.main("one:1,two:1", "--limit=-1")
        self.assertEqual((found["rows"], found["unfinished"]), ([], ["one b1 amp", "two b1 amp"]))
        self.main("one:1")
        found = self.main("one:1,two:1", "--resume")
        self.assertEqual(self.built, ["one amp", "two amp"])
        self.assertEqual((len(found["rows"]), found["unfinished"]), (2, []))

    def processes(self, *names):
        """Statuses of the processes that a watcher starts, until one ends by itself. Builds of these names lose the device, which the next
        process has again."""
        lost, statuses = [], []

        def build(training):
            lost.append(1)
            raise RuntimeError("CUDA error")

        def synchronize(clock):
            if lost:
                raise RuntimeError("CUDA error: unspecified launch failure")

        with mock.patch.object(CpuClock, "synchronize", synchronize), mock.patch.dict(row.BUILDS, dict.fromkeys(names, build)):
            while not statuses or statuses[-1] == POISONED:
                lost.clear()
                statuses.append(self.start("one:1,two:1", "--resume"))
        return statuses, document.read(self.path)

    def test_the_next_process_leaves_out_the_way_that_lost_the_device(self):
        why = "the device no longer answers: {} as called, prepared: RuntimeError: CUDA error: unspecified launch failure"
        statuses, found = self.processes("reduce", "vitune_step")
        for each in found["rows"]:
            self.assertEqual(each["failed"], {name: why.format(name) for name in ("compile_reduce", "vitune_train_step")})
            self.assertEqual(set(each["ms"]), {"eager", "compile_default", "compile_step_graph", "vitune_compile", "vitune_compile_training", "vitune_eager"})
        self.assertEqual((len(found["rows"]), statuses[:-1]), (2, [POISONED] * 4))
        self.assertEqual((found["unfinished"], found["at_work"], found["tries"], found["left_out"]), ([], None, {}, {}))

    def test_a_row_ends_where_too_many_ways_lose_the_device(self):
        statuses, found = self.processes("reduce", "vitune_step", "vitune")
        self.assertEqual(statuses, [POISONED] * 6 + [0])
        self.assertEqual([each["ms"] for each in found["rows"]], [{}, {}])
        self.assertIn("the device no longer answers: compile_reduce as called, prepared", found["rows"][0]["failed"][""])

    def test_processes_measure_shares_of_the_rows(self):
        found = self.main("one:1,two:1,three:1", "--shard=1/2")
        self.assertEqual([each["model"] for each in found["rows"]], ["two"])


@needs("torch")
class SdpaTest(unittest.TestCase):
    def test_the_fastest_order_is_kept_and_failures_told(self):
        def milliseconds():
            order = torch.compiler.config.cache_key_tag
            if order == "sdpa flash":
                raise RuntimeError("No available kernel")
            return {"sdpa cudnn": 2.0, "sdpa efficient": 1.0}[order]

        found = sdpa.fastest(milliseconds, CpuClock())
        self.assertEqual(found, {"order": "efficient", "ms": {"cudnn": 2.0, "efficient": 1.0},
                                 "failed": {"flash": "RuntimeError: No available kernel"}})  # fmt: skip
        self.assertEqual(torch.compiler.config.cache_key_tag, "")

    def test_an_order_holds_within_and_no_longer(self):
        before = torch._C._get_sdp_priority_order()
        with sdpa.preferring("cudnn"):
            self.assertEqual(torch._C._get_sdp_priority_order()[0], int(torch.nn.attention.SDPBackend.CUDNN_ATTENTION))
        with sdpa.preferring(None):
            self.assertEqual(torch._C._get_sdp_priority_order(), before)

        def fails():
            raise RuntimeError("no")

        self.assertIsNone(sdpa.fastest(fails, CpuClock())["order"])
        self.assertEqual(torch._C._get_sdp_priority_order(), before)

    def test_a_device_that_is_lost_ends_the_row_with_its_own_error(self):
        tried = []

        def fails():
            tried.append(torch.compiler.config.cache_key_tag)
            raise RuntimeError("No available kernel")

        lost = mock.Mock(synchronize=mock.Mock(side_effect=RuntimeError("CUDA error: an illegal memory access was encountered")))
        with self.assertRaisesRegex(models_row.Poisoned, "an illegal memory access"):
            sdpa.fastest(fails, lost)
        self.assertEqual(len(tried), 1)
