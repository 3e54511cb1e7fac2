# tests/catalogue/test_make_timm_calls.py -- The traced calls of small models, as cmake/make_timm_calls.py writes them.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))

try:
    import make_timm_calls as script
    import torch
except ImportError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed")

F = torch.nn.functional
MODELS = ("mobilevit_xxs", "deit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "twins_svt_small")


def calls(document, name):
    """Text -> count."""
    entry = next(model for model in document["models"] if model["name"] == name)
    return {document["texts"][place]: count for count, place in entry["calls"]}


def traced(function, *shapes):
    """The texts of what `function` calls on tensors of these shapes, in fp32."""
    with torch.no_grad(), script.Log() as log:
        function(*[torch.empty(shape, device="meta") for shape in shapes])
    return log.texts()


class DocumentTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        command = [sys.executable, str(ROOT / "cmake" / "make_timm_calls.py"), "--date", "2026-01-02"]
        done = subprocess.run(command + [word for name in MODELS for word in ("--model", name)], capture_output=True,
                              text=True, timeout=250)
        if done.returncode:
            raise AssertionError(done.stderr)
        cls.made = json.loads(done.stdout)
        cls.shipped = json.loads((ROOT / "data" / "timm_calls.json").read_text(encoding="utf-8"))

    def test_a_vit_is_written_call_by_call(self):
        self.assertEqual(calls(self.made, "deit_tiny_patch16_224"), {
            "convolution dtype n=1*images c=3 k=192 size=224x224 filter=16x16 stride=16x16 bias": 1,
            "norm dtype m=197*images d=192 weight bias eps=1e-06": 1,
            "linear dtype m=197*images n=576 k=192 bias": 12,
            "linear dtype m=197*images n=192 k=192 bias": 12,
            "norm dtype m=197*images d=192 weight bias residual sum eps=1e-06": 23,
            "linear dtype m=197*images n=768 k=192 bias": 12,
            "linear dtype m=197*images n=192 k=768 bias": 12,
            "norm dtype m=197*images d=192 weight bias residual eps=1e-06": 1,
            "linear dtype m=1*images n=1000 k=192 bias": 1,
        })

    def test_attention_in_windows_is_written_as_it_would_be_in_place(self):
        found = {name: {text: count for text, count in calls(self.made, name).items() if text.startswith("window_attention ")}
                 for name in MODELS}
        self.assertEqual(found["deit_tiny_patch16_224"], {})
        self.assertEqual(len(found["swin_tiny_patch4_window7_224"]), 7)
        self.assertEqual(found["swin_tiny_patch4_window7_224"][
            "window_attention dtype b=1*images image=14x14 window=7x7 shift=3x3 h=12 d=32 bias=dtype:4x12x49x49"], 3)
        self.assertEqual(found["twins_svt_small"]["window_attention dtype b=1*images image=14x14 window=7x7 h=8 d=32"], 5)

    def test_it_is_what_is_shipped(self):
        if self.made["source"] != self.shipped["source"]:
            self.skipTest(f"{self.made['source']} here, and the data are of {self.shipped['source']}")
        for name in MODELS:
            self.assertEqual(calls(self.made, name), calls(self.shipped, name), name)

    def test_a_model_that_is_not_catalogued_is_named(self):
        command = [sys.executable, str(ROOT / "cmake" / "make_timm_calls.py"), "--date", "2026-01-02", "--model", "resnet18"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("resnet18", done.stderr)
        self.assertEqual(done.stdout, "")


class ScalingTest(unittest.TestCase):
    def test_numbers_that_grow_are_told_from_those_that_stay(self):
        self.assertEqual(script.scaled("norm m=394 d=768", "norm m=591 d=768"), "norm m=197*images d=768")
        self.assertEqual(script.scaled("linear m=225 k=2", "linear m=225 k=2"), "linear m=225 k=2")
        self.assertEqual(script.scaled("norm eps=1e-06", "norm eps=1e-06"), "norm eps=1e-06")

    def test_what_grows_otherwise_is_an_error(self):
        for fewer, more in (("m=2", "m=4"), ("m=5", "m=5 rms"), ("m=3", "m=5"), ("d=1", "m=1")):
            with self.assertRaises(ValueError):
                script.scaled(fewer, more)


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


class ResidualTest(unittest.TestCase):
    def test_a_norm_of_a_sum_has_a_residual(self):
        self.assertEqual(traced(lambda a, b: F.layer_norm(a + b, (8,)), (4, 8), (4, 8)), ["norm fp32 m=4 d=8 residual"])

    def test_a_sum_that_is_used_again_is_written(self):
        def block(a, b):
            total = (a + b).reshape(2, 2, 8)
            return F.layer_norm(total, (8,)) * total
        self.assertEqual(traced(block, (4, 8), (4, 8)), ["norm fp32 m=4 d=8 residual sum"])

    def test_other_sums_are_none(self):
        for name, function in (
            ("a row for all", lambda a, b: F.layer_norm(a + b[0], (8,))),
            ("a permuted sum", lambda a, b: F.layer_norm((a + b).t(), (4,))),
            ("two norms of one sum", lambda a, b: [F.layer_norm(c, (8,)) for c in [a + b] * 2]),
        ):
            with self.subTest(name):
                for text in traced(function, (4, 8), (4, 8)):
                    self.assertNotIn("residual", text)

    def test_rows_that_lie_apart_have_their_distance(self):
        self.assertEqual(traced(lambda a: F.layer_norm(a[:, 0], (8,)), (4, 5, 8)), ["norm fp32 m=4 d=8 x=@40"])


class CallTest(unittest.TestCase):
    def test_each_function_has_its_words(self):
        for function, shapes, text in (
            (lambda x, w: F.rms_norm(x, (8,), w, 1e-6), [(4, 8), (8,)], "norm fp32 m=4 d=8 rms weight"),
            (lambda x: F.group_norm(x, 2), [(3, 4, 5, 6)], "group_norm fp32 n=3 c=4 l=30 g=2"),
            (lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=4), [(2, 4, 9, 9), (4, 1, 3, 3)],
             "convolution fp32 n=2 c=4 k=4 size=9x9 filter=3x3 stride=2x2 padding=1x1 groups=4"),
            (lambda x: x.softmax(dim=-1), [(2, 3, 7)], "softmax fp32 m=6 d=7"),
            (lambda x: F.softmax(x, dim=-1), [(2, 3, 7)], "softmax fp32 m=6 d=7"),
            (lambda a, b: a @ b, [(2, 3, 4, 5), (2, 3, 5, 6)], "matmul fp32 b=6 m=4 n=6 k=5"),
            (lambda a, b: torch.bmm(a, b), [(3, 4, 5), (3, 5, 6)], "matmul fp32 b=3 m=4 n=6 k=5"),
        ):
            with self.subTest(text):
                self.assertEqual(traced(function, *shapes), [text])


if __name__ == "__main__":
    unittest.main()
