# tests/catalogue/test_make_timm_calls.py -- What small models ask, as cmake/make_timm_calls.py writes it.
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))

try:
    import timm  # noqa: F401
    import torch
except ImportError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed")
import make_timm_calls as script  # noqa: E402

F = torch.nn.functional
MODELS = ("deit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "xcit_nano_12_p16_224")
LIBRARY = os.environ.get("VITUNE_TEST_LIBRARY")


def made(*models):
    command = [sys.executable, str(ROOT / "cmake" / "make_timm_calls.py"), "--date", "2026-01-02", "--library", str(LIBRARY)]
    return subprocess.run(command + [word for name in models for word in ("--model", name)], capture_output=True, text=True, timeout=500)


def calls(document, name, key, rows=None):
    """Text -> count; rows: of layers of few rows, or of many, alone."""
    entry = next(model for model in document["models"] if model["name"] == name)
    other = {script.OF_FEW_ROWS: script.OF_MANY_ROWS, script.OF_MANY_ROWS: script.OF_FEW_ROWS}.get(rows)
    return {document["texts"][place]: count for count, place, *when in entry.get(key, ()) if when != [other]}


@unittest.skipIf(LIBRARY is None, "VITUNE_TEST_LIBRARY names no libvitune")
class DocumentTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = made(*MODELS)
        if done.returncode:
            raise AssertionError(done.stderr)
        cls.made = json.loads(done.stdout)
        cls.shipped = json.loads((ROOT / "data" / "timm_calls.json").read_text(encoding="utf-8"))

    def test_a_compiled_vit_asks_for_layers_with_what_stands_around_them(self):
        self.assertEqual(calls(self.made, "deit_tiny_patch16_224", "compile", script.OF_FEW_ROWS), {
            "linear dtype m=196*images n=192 k=768 bias": 1,
            "linear dtype m=197*images n=576 k=192 norm=layer bias params=fp32": 1,
            "attention dtype b=1*images h=3 nq=197 nk=197 d=64 layout=packed": 11,
            "linear dtype m=197*images n=192 k=192 bias residual moments=32": 11,
            "linear dtype m=197*images n=768 k=192 norm=moments:32 eps=1e-06 bias act=gelu params=fp32": 11,
            "linear dtype m=197*images n=192 k=768 bias residual moments=32": 11,
            "linear dtype m=197*images n=576 k=192 norm=moments:32 eps=1e-06 bias params=fp32": 11,
            "attention dtype b=1*images h=3 nq=1 nk=197 d=64 q=@113472,64,0 k=@113472,64,576 v=@113472,64,576": 1,
            "linear dtype m=1*images n=192 k=192 bias residual=@37824 moments=32": 1,
            "linear dtype m=1*images n=768 k=192 norm=moments:32 eps=1e-06 bias act=gelu params=fp32": 1,
            "linear dtype m=1*images n=192 k=768 bias residual": 1,
            "linear dtype m=1*images n=1000 k=192 bias": 1,
        })

    def test_with_many_rows_norms_stay_in_front_of_layers(self):
        self.assertEqual(calls(self.made, "deit_tiny_patch16_224", "compile", script.OF_MANY_ROWS), {
            "linear dtype m=196*images n=192 k=768 bias": 1,
            "attention dtype b=1*images h=3 nq=197 nk=197 d=64 layout=packed": 11,
            "attention dtype b=1*images h=3 nq=1 nk=197 d=64 q=@113472,64,0 k=@113472,64,576 v=@113472,64,576": 1,
            "linear dtype m=1*images n=192 k=768 bias residual": 1,
            "linear dtype m=1*images n=1000 k=192 bias": 1,
            "linear dtype m=197*images n=576 k=192 bias": 12,
            "linear dtype m=197*images n=192 k=192 bias residual": 11,
            "linear dtype m=197*images n=768 k=192 bias act=gelu": 11,
            "linear dtype m=197*images n=192 k=768 bias residual": 11,
            "linear dtype m=1*images n=192 k=192 bias residual=@37824": 1,
            "linear dtype m=1*images n=768 k=192 bias act=gelu": 1,
        })

    def test_what_is_asked_beside_is_what_a_gpu_without_moments_and_lost_races_are_served_by(self):
        second = calls(self.made, "deit_tiny_patch16_224", "second", script.OF_FEW_ROWS)
        for words in ("n=768 k=192 norm=layer bias act=gelu params=fp32", "n=768 k=192 bias act=gelu", "n=192 k=192 bias residual",
                      "n=768 k=192 bias", "n=576 k=192 bias"):
            # In the last block one row an image is computed behind attention.
            self.assertIn(second.get(f"linear dtype m=197*images {words}"), (11, 12), words)

    def test_layers_around_windows_in_place_are_those_of_images(self):
        swin = calls(self.made, "swin_tiny_patch4_window7_224", "compile")
        self.assertEqual(swin[
            "window_attention dtype b=1*images image=14x14 window=7x7 shift=3x3 h=12 d=32 bias=dtype:4x12x49x49"], 3)
        self.assertFalse([text for text in swin if text.startswith("attention ")])
        self.assertTrue([text for text in swin if "n=288 k=96 norm=layer" in text])
        second = calls(self.made, "swin_tiny_patch4_window7_224", "second")
        self.assertIn("attention dtype b=64*images h=3 nq=49 nk=49 d=32 layout=packed bias=dtype:1x3x49x49", second)

    def test_a_step_of_training_asks_for_both_passes(self):
        layers = {"linear dtype m={m} n={n} k={k} bias params=fp32", "linear_weight_grad dtype m={m} n={n} k={k} bias out=fp32",
                  "linear dtype m={m} n={k} k={n} wt=@{k}"}
        # Of the last block's rows the class token's alone are used, but attention has them all.
        wanted = {text.format(m="197*images", n=n, k=k): count for text in layers for n, k, count in ((576, 192, 12), (192, 192, 11))}
        found = calls(self.made, "deit_tiny_patch16_224", "train")
        self.assertEqual({text: found.get(text) for text in wanted}, wanted)
        self.assertEqual(found["linear dtype m=197*images n=768 k=192 bias act=gelu params=fp32 aux"], 11)
        self.assertEqual(found["linear_weight_grad dtype m=196*images n=192 k=768 bias out=fp32"], 1)  # of the patches
        self.assertEqual(sum(count for text, count in found.items() if text.startswith("norm_backward ")), 25)
        second = calls(self.made, "deit_tiny_patch16_224", "train_second")
        self.assertTrue([text for text in second if "factor=197" in text])  # drop path's
        self.assertNotIn("train", next(model for model in self.made["models"] if model["name"] == "xcit_nano_12_p16_224"))

    def test_the_drop_in_asks_for_norms(self):
        self.assertEqual(calls(self.made, "deit_tiny_patch16_224", "drop_in"),
                         {"norm dtype m=197*images d=192 weight bias params=dtype x=@192 eps=1e-06": 25})

    def test_what_is_left_is_counted_with_the_reason(self):
        xcit = next(model for model in self.made["models"] if model["name"] == "xcit_nano_12_p16_224")
        self.assertEqual(xcit["outside"], [[12, "attention", "head size 196 is above 128"]])
        self.assertGreater(xcit["left"]["convolution"], 0)

    def test_it_is_what_is_shipped(self):
        if self.made["source"] != self.shipped["source"]:
            self.skipTest(f"{self.made['source']} here, and the data are of {self.shipped['source']}")
        for name in MODELS:
            for key in script.LISTS:
                for rows in (script.OF_FEW_ROWS, script.OF_MANY_ROWS):
                    self.assertEqual(calls(self.made, name, key, rows), calls(self.shipped, name, key, rows), f"{name} {key}")

    def test_a_model_that_is_not_catalogued_is_named(self):
        done = made("resnet18")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("resnet18", done.stderr)
        self.assertEqual(done.stdout, "")


class GeneralTextTest(unittest.TestCase):
    def test_numbers_that_grow_are_told_from_those_that_stay(self):
        n = script.IMAGES
        for text, general in ((f"norm bf16 m={197 * n} d=768 eps=1e-06", "norm dtype m=197*images d=768 eps=1e-06"),
                              (f"attention bf16 b={n} bias=bf16:{64 * n}x3x49x49", "attention dtype b=1*images bias=dtype:64*imagesx3x49x49"),
                              ("window_attention bf16 shift=0x3", "window_attention dtype shift=0x3"),
                              ("linear bf16 m=225 n=2 params=fp32", "linear dtype m=225 n=2 params=fp32")):
            self.assertEqual(script.general(text), general)

    def test_attention_that_does_not_grow_is_called_by_each_image(self):
        self.assertEqual(script.written({"attention bf16 b=49 h=2": 3, f"attention bf16 b={script.IMAGES} h=2": 1}),
                         [(3, "attention dtype b=49 h=2", script.EACH_IMAGE), (1, "attention dtype b=1*images h=2", script.ALWAYS)])

    def test_what_depends_on_the_rows_of_layers_is_told_from_what_does_not(self):
        few, many = {"linear bf16 m=1 n=2": 3, "linear bf16 m=1 n=2 norm=layer": 2}, {"linear bf16 m=1 n=2": 3, "linear bf16 m=1 n=4": 1}
        self.assertEqual(script.written(few, many), [
            (3, "linear dtype m=1 n=2", script.ALWAYS), (2, "linear dtype m=1 n=2 norm=layer", script.OF_FEW_ROWS),
            (1, "linear dtype m=1 n=4", script.OF_MANY_ROWS)])
        self.assertEqual(script.written({"linear bf16 m=1": 3}, {"linear bf16 m=1": 4}), [
            (3, "linear dtype m=1", script.OF_FEW_ROWS), (4, "linear dtype m=1", script.OF_MANY_ROWS)])
        with self.assertRaisesRegex(ValueError, "rows"):
            script.written({"attention bf16 b=49": 3}, {"attention bf16 b=49": 4})


class ForwardGraphTest(unittest.TestCase):
    def test_a_pass_is_written_with_the_names_that_dynamo_uses(self):
        def run(x, y):
            a, b = (x * 2).view(2, -1).chunk(2, -1)
            a = F.softmax(a @ b.transpose(0, 1) + y[:, :2], -1)
            a += b
            return torch.roll(a, 1, 0).contiguous().mean(-1)
        given = torch.randn(2, 4), torch.randn(2, 4)
        with torch.no_grad(), script.ForwardGraph() as recorded:
            run(*given)
        graphs = []

        def backend(module, inputs):
            graphs.append(module.graph)
            return module.forward
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(run, backend=backend, fullgraph=True)(*given)

        def steps(graph):
            """Each call with what its arguments are made of."""
            order = {node: place for place, node in enumerate(node for node in graph.nodes if node.op.startswith("call_"))}
            return [(node.op, str(getattr(node.target, "__name__", node.target)), [order.get(taken, "given") for taken in node.all_input_nodes],
                     tuple(node.meta["example_value"].shape)) for node in order if isinstance(node.meta.get("example_value"), torch.Tensor)]
        self.assertEqual(steps(recorded.graph), steps(graphs[0]))


if __name__ == "__main__":
    unittest.main()
