# benchmarks/models/tests/test_whole.py -- Models as files beside compiled ones: what each way is given, what is skipped and why.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import ctypes
import io
import random
import sys
import types
import unittest
from unittest import mock

from .support import needs

from models import document, page, roster

try:
    import torch
    from models import cli, row, whole
    from models.clock import CpuClock
except ImportError:
    torch = None


class NamesTest(unittest.TestCase):
    def test_kinds_of_files_are_named_once_or_refused(self):
        self.assertEqual(roster.kinds_of_files("aoti,runner,aoti"), ("aoti", "runner"))
        self.assertEqual(roster.kinds_of_files("none"), ())
        for text in ("", "runner,", "tensorrt", "none,aoti"):
            with self.assertRaisesRegex(ValueError, "--files: '.*' is none of runner, aoti, onnxruntime"):
                roster.kinds_of_files(text)

    def test_a_session_that_fails_where_pytorch_does_not_is_a_failure_of_ours(self):
        rows = [{"model": "a", "batch": 1, "mode": "compiled", "ms": {"compile_default": {}}, "failed": {way: "x"}} for way in ("aoti", "runner")]
        self.assertEqual(document.ours_failed({"rows": rows, "plain": []}), ["a b1 compiled"])

    def test_the_page_has_their_table_only_where_they_were_measured(self):
        def figure(value):
            return {"ms": value, "low": value, "high": value}

        measured = {"model": "a", "batch": 8, "mode": "compiled", "failed": {},
                    "ms": {"runner": figure(0.5), "runner_graph": figure(0.4), "aoti": figure(1.25)},
                    "gains": [{"of": "runner", "over": "compile_max", "times": 2.0, "low": 1.9, "high": 2.1},
                              {"of": "runner", "over": "vitune_compile", "times": 1.1, "low": 1.0, "high": 1.2}]}  # fmt: skip
        table = page._files_table([measured])
        self.assertEqual(table[-1], "| `a` | 8 | 0.5 | 0.4 | 1.25 | - | - | 2.00 [1.90, 2.10] | 1.10 [1.00, 1.20] | - |")
        self.assertEqual(page._files_table([measured | {"ms": {"aoti": figure(1.0)}}]), [])


@needs("torch")
class FilesTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 8)).bfloat16().eval()
        self.images = torch.randn(2, 3, 4, 4).bfloat16()
        self.subject = row.subject_of(self.model, self.images)

    def measured(self, *kinds):
        files = whole.Files(self.model, self.images, CpuClock(), kinds)
        self.addCleanup(files.forget)
        race = row.Race(("aoti",), "runner", 0.0, random.Random(0), by_kind=False, more=(("runner", ("aoti",)),))
        with torch.inference_mode(), mock.patch.object(row, "BLOCK_MS", 0.0):
            return row.measure("compiled", self.subject, files.candidates(), CpuClock(), race) | files.says()

    @contextlib.contextmanager
    def a_library(self, export=lambda model, path, sample, check: None):
        """vitune with a session that copies the right answer to where it is asked for."""
        answer = self.model(self.images).detach().contiguous()
        self.asked = []

        def run(inputs, outputs, stream):
            self.asked.append((inputs, stream))
            ctypes.memmove(outputs[0], answer.data_ptr(), answer.numel() * answer.element_size())

        session = types.SimpleNamespace(run=run, bytes=lambda: (3 << 20, 1 << 19))
        model = types.SimpleNamespace(session=lambda batch: session if batch == len(self.images) else None)
        with mock.patch.multiple("vitune", create=True, export=export, Context=lambda device: None, Model=lambda path, context: model):
            yield

    @contextlib.contextmanager
    def a_package(self):
        held = {}

        def made(exported, package_path):
            held[package_path] = exported.module()
            return package_path

        with mock.patch.multiple(torch._inductor, aoti_compile_and_package=made, aoti_load_package=lambda path: held[path]):
            yield

    def test_a_session_and_a_package_stand_in_one_row_with_their_gains(self):
        with self.a_library(), self.a_package():
            found = self.measured("runner", "aoti")
        self.assertEqual(sorted(found["ms"]), ["aoti", "runner"])
        self.assertEqual(found["failed"], {})
        self.assertEqual([(each["of"], each["over"]) for each in found["gains"]], [("runner", "aoti")])
        self.assertEqual({inputs[0] for inputs, _ in self.asked}, {self.images.data_ptr()})
        self.assertEqual((found["files"]["runner"]["weights_mb"], found["files"]["runner"]["arena_mb"]), (3.0, 0.5))
        self.assertIn("seconds", found["files"]["aoti"])

    def test_the_file_is_made_of_the_weights_on_the_host_for_any_batch(self):
        given = []

        def export(model, path, sample, check):
            given.append((model is not self.model, next(model.parameters()).device.type, tuple(sample.shape), sample.dtype))

        with self.a_library(export):
            self.measured("runner")
        self.assertEqual(given, [(True, "cpu", (1, 3, 4, 4), torch.bfloat16)])

    def test_a_graph_without_a_gpu_is_skipped_by_name(self):
        with self.a_library():
            self.assertEqual(self.measured("runner")["skipped"], {"runner_graph": "a graph needs a GPU"})

    def test_a_model_that_no_file_holds_is_skipped_and_its_graph_with_it(self):
        import vitune

        def export(*_, **__):
            raise vitune.Unsupported("2 calls that a model file cannot hold:\nhead: cumsum")

        with self.a_library(export):
            found = self.measured("runner")
        self.assertEqual((found["failed"], found["ms"]), ({}, {}))
        self.assertEqual(found["skipped"], {"runner": "no model file: 2 calls that a model file cannot hold:",
                                            "runner_graph": "runner does not run"})  # fmt: skip

    def test_a_wrong_answer_of_a_session_fails_its_way_alone(self):
        with self.a_library(), self.a_package():
            right, self.model = self.model, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 8)).bfloat16().eval()
            with self.a_library():  # answers of other weights
                self.model = right
                found = self.measured("runner", "aoti")
        self.assertIn("wrong answer", found["failed"]["runner"])
        self.assertEqual(list(found["ms"]), ["aoti"])

    def test_onnx_runtime_is_skipped_where_it_or_its_cuda_provider_is_missing(self):
        with mock.patch.dict(sys.modules, {"onnxruntime": None}):
            self.assertEqual(self.measured("onnxruntime")["skipped"], {"onnxruntime": "onnxruntime is not installed"})
        without = types.SimpleNamespace(get_available_providers=lambda: ["CPUExecutionProvider"])
        with mock.patch.dict(sys.modules, {"onnxruntime": without}):
            self.assertIn("no CUDA provider", self.measured("onnxruntime")["skipped"]["onnxruntime"])
        present = types.SimpleNamespace(get_available_providers=lambda: ["CUDAExecutionProvider"])
        absent = mock.Mock(side_effect=ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript"))
        with mock.patch.dict(sys.modules, {"onnxruntime": present}), mock.patch.object(torch.onnx, "export", absent):
            self.assertIn("onnxscript is not installed", self.measured("onnxruntime")["skipped"]["onnxruntime"])

    def test_the_command_refuses_an_unknown_kind(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(cli.main(["--list", "--files=tensorrt"]), 2)
        self.assertIn("'tensorrt' is none of runner, aoti, onnxruntime", said.getvalue())


if __name__ == "__main__":
    unittest.main()
