# python/tests/test_torch_model_file.py -- vitune.export(): what is written of a small model, the checks before it, what a pass leaves behind.
# SPDX-License-Identifier: Apache-2.0
"""No GPU: files are made and read by Python alone. Where the command is beside the library under test, its reader takes each of them too."""
import hashlib
import json
import struct
import threading
import unittest
from unittest import mock

import vitune

from .support import torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import nn

from vitune._compile.patterns import match, tree
from vitune._export import calls, export as export_module, file as model_file, forward_graph

from .export_models import Classifier, drawn
from .model_file_cases import Calls, FolderCase, kinds


class MeanOfTokens(nn.Module):
    def forward(self, tokens):
        return tokens.mean(1, keepdim=True)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, pixels, kept):
        return self.inner(pixels) * (kept.unsqueeze(-1) > 0.5 if kept.dtype != torch.bool else kept.unsqueeze(-1))


class Stateful(nn.Module):
    """Keeps what it computed, as models do with tables of positions."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.ones(8))
        self.register_buffer("count", torch.zeros(1))
        self.cache, self.seen = None, []

    def forward(self, x):
        if self.cache is None:
            self.cache = self.weight * 2
        self.seen.append(x.shape)
        return self.inner(x) * self.cache


class ExportTest(FolderCase):
    def test_a_vision_transformer_is_the_nodes_that_its_blocks_are(self):
        held, written = self.exported(Classifier(), torch.zeros(1, 3, 32, 32))
        # The patches' layer with the positions and the class token's map; q, k and v, attention, projection, two layers of the MLP,
        # twice; the last norm, in the head or before it.
        block = ["linear", "attention", "linear", "linear", "linear"]
        self.assertEqual(kinds(held), ["linear", "map", *block, *block, "norm", "linear"])
        self.assertEqual(written.nodes, 14)
        patches, token, projection = held.graph["nodes"][:3]
        self.assertEqual(patches["x"]["extents"], ["B", 4, 4, 3, 8, 8])
        self.assertEqual(patches["residual"]["of"], "positions")
        self.assertEqual(patches["out"]["of"], token["out"]["of"])
        self.assertEqual((projection["at"], projection["norm"]["kind"]), ("blocks.0.qkv", "layer"))
        self.assertEqual(held.graph["nodes"][5]["act"], "gelu")
        self.assertEqual(held.graph["nodes"][6]["residual"], held.graph["nodes"][5]["x"])
        self.assertEqual(held.graph["inputs"], [{"name": "pixels", "type": "bf16", "shape": ["B", 3, 32, 32]}])

    def test_rows_that_nothing_reads_are_not_computed(self):
        """Of the last block, behind its keys and values: all but the class token's, where it is read alone."""
        def rows_of_blocks(held):
            shapes = {value["name"]: value["shape"] for value in held.graph["values"]}
            outs = [node["out"] for node in held.graph["nodes"] if node["at"].startswith("blocks")]
            return [shapes[out["of"] if isinstance(out, dict) else out][1] for out in outs]
        model = Classifier()
        held, _ = self.exported(model, torch.zeros(1, 3, 32, 32))
        self.assertEqual(rows_of_blocks(held), [17] * 6 + [1] * 4)
        model.norm = MeanOfTokens()
        held, _ = self.exported(model, torch.zeros(1, 3, 32, 32))
        self.assertEqual(rows_of_blocks(held), [17] * 10)

    def test_weights_have_the_files_type_and_vectors_their_own(self):
        model = Classifier()
        held, _ = self.exported(model, torch.zeros(1, 3, 32, 32))
        own = dict(model.named_parameters())
        self.assertEqual(held.tensors["head.weight"].dtype, torch.bfloat16)
        self.assertTrue(torch.equal(held.tensors["head.weight"], own["head.weight"].to(torch.bfloat16)))
        self.assertEqual(held.tensors["head.bias"].dtype, torch.float32)
        self.assertEqual(held.tensors["blocks.0.norm1.weight"].dtype, torch.float32)
        held, _ = self.exported(Classifier().to(torch.bfloat16), torch.zeros(1, 3, 32, 32))
        self.assertEqual({tensor.dtype for tensor in held.tensors.values()}, {torch.bfloat16})

    def test_labels_are_one_text_for_each_number_of_the_result(self):
        names = [f"class {i}" for i in range(10)]
        self.exported(Classifier(), torch.zeros(1, 3, 32, 32), labels=iter(names))
        self.assertEqual(json.loads(model_file.read(self.path).metadata["vitune.labels"]), names)
        for labels, words in ((names[:9], "9 labels are given: the model has 1 results, of 10 numbers"), (range(10), "a list of texts"), (set(names), "not set"),
                              ("abcdefghij", "not str"), (dict.fromkeys(names), "not dict"), (3, "not int")):
            with self.assertRaisesRegex(vitune.InvalidArgument, words):
                self.exported(Classifier(), torch.zeros(1, 3, 32, 32), labels=labels)

    def test_the_file_is_safetensors_whose_digest_is_of_all_its_bytes(self):
        self.exported(Classifier(), torch.zeros(1, 3, 32, 32), license="mit", source="a test", preprocess={"size": [32, 32]})
        data = bytearray(self.path.read_bytes())
        length, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        metadata = header.pop("__metadata__")
        self.assertEqual((8 + length) % 8, 0)
        self.assertEqual(max(entry["data_offsets"][1] for entry in header.values()), len(data) - 8 - length)
        self.assertEqual([metadata[key] for key in ("vitune.format", "license", "source")], ["1", "mit", "a test"])
        self.assertEqual(json.loads(metadata["vitune.preprocess"]), {"size": [32, 32]})
        digest = metadata["vitune.digest"].encode()
        before = data[:8 + length].replace(digest, b"") + b" " * 64 + data[8 + length:]
        self.assertEqual(hashlib.sha256(before).hexdigest(), digest.decode())

    def test_the_same_model_gives_the_same_bytes(self):
        model = drawn(Classifier())
        vitune.export(model, self.path, torch.zeros(1, 3, 32, 32))
        first = self.path.read_bytes()
        vitune.export(model, self.path, torch.zeros(4, 3, 32, 32))
        self.assertEqual(self.path.read_bytes(), first)

    def test_a_model_is_left_as_it_was(self):
        model = drawn(Classifier())
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        hooks = len(nn.modules.module._global_forward_pre_hooks)
        vitune.export(model, self.path, torch.zeros(1, 3, 32, 32))
        self.assertEqual(len(nn.modules.module._global_forward_pre_hooks), hooks)
        self.assertTrue(all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()))

    def test_a_check_that_says_little_is_said(self):
        model = drawn(Calls(lambda self, x: x * 0 + self.weight))
        with self.assertWarnsRegex(UserWarning, "answers alike"):
            vitune.export(model, self.path, torch.zeros(1, 4, 8))

    def test_what_is_wrong_behind_a_parameter_near_zero_is_found(self):
        model = drawn(Calls(lambda self, x: x + self.weight * F.softplus(x)))
        nn.init.constant_(model.weight, 1e-7)  # LayerScale before training
        with mock.patch.dict(calls._HANDLERS, {"softplus": lambda at, node: calls._pointwise(at, node, "relu(a)", node.args[:1])}):
            with self.assertRaisesRegex(vitune.Unsupported, "differs from the model's by"):
                vitune.export(model, self.path, torch.zeros(1, 4, 8))
        vitune.export(model, self.path, torch.zeros(1, 4, 8))
        self.assertTrue((model_file.read(self.path).tensors["weight"] == torch.tensor(1e-7).to(torch.bfloat16)).all())

    def test_numbers_that_are_not_finite_pass_no_check(self):
        nan = torch.tensor([1.0, float("nan")])
        for found, wanted in ((nan, nan), (nan, nan * 0), (torch.ones(2), nan), (torch.ones(2), torch.tensor([1.0, float("inf")]))):
            self.assertEqual(export_module._difference(found, wanted), float("inf"))
        with mock.patch.dict(calls._UNARY, {"tanh": "mul(a,log(-1))"}), self.assertRaisesRegex(vitune.Unsupported, "by inf of the largest"):
            vitune.export(drawn(Calls(lambda self, x: x.tanh())), self.path, torch.zeros(1, 4, 8))
        with self.assertRaisesRegex(vitune.Unsupported, "own answer 'out' to random inputs is not finite"):
            vitune.export(drawn(Calls(lambda self, x: x.log())), self.path, torch.zeros(1, 4, 8))
        model = drawn(Calls(lambda self, x: x * self.weight))
        nn.init.constant_(model.weight, 1e6)
        vitune.export(model, self.path, torch.zeros(1, 4, 8))
        self.path.unlink()
        with self.assertRaisesRegex(vitune.Unsupported, "dtype='bf16'"):
            vitune.export(drawn(Calls(lambda self, x: x.abs() * self.wide, wide=1e6)), self.path, torch.zeros(1, 4, 8), dtype="fp16")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_inputs_that_are_no_floating_point_are_drawn_for_the_check(self):
        with mock.patch.dict(calls._BINARY, {"gt": "mul(a,0)"}), self.assertRaisesRegex(vitune.Unsupported, "differs from the model's by"):
            vitune.export(Masked().eval(), self.path, {"pixels": torch.zeros(1, 4, 8), "kept": torch.zeros(1, 4, dtype=torch.uint8)})
        for kept in (torch.uint8, torch.bool):
            self.exported(Masked(), {"pixels": torch.zeros(1, 4, 8), "kept": torch.zeros(1, 4, dtype=kept)})

    def test_an_input_of_a_type_that_no_file_has_is_an_error(self):
        for dtype in (torch.int64, torch.int32, torch.complex64):
            sample = {"pixels": torch.zeros(1, 4, 8), "kept": torch.zeros(1, 4, dtype=dtype)}
            for call in (vitune.exportable, lambda model, given: vitune.export(model, self.path, given)):
                with self.assertRaisesRegex(vitune.InvalidArgument, "the input 'kept' is of type"):
                    call(Masked().eval(), sample)

    def test_a_pass_leaves_nothing_in_the_model(self):
        model = drawn(Stateful())
        before = set(vars(model)), model.count.clone(), torch.get_rng_state()
        self.assertEqual(vitune.exportable(model, torch.zeros(1, 4, 8)), [])
        vitune.export(model, self.path, torch.zeros(1, 4, 8))
        self.assertEqual(set(vars(model)), before[0])
        self.assertIsNone(model.cache)
        self.assertEqual(model.seen, [])
        self.assertTrue(torch.equal(torch.get_rng_state(), before[2]))
        model(torch.zeros(2, 4, 8))
        counting = drawn(Calls(lambda self, x: x + self.wide.add_(1), wide=1.0))
        with self.assertRaisesRegex(vitune.Unsupported, "it changes a parameter or buffer"):
            vitune.export(counting, self.path, torch.zeros(1, 4, 8))
        self.assertTrue((counting.wide == 1).all())
        uncopied = Calls(lambda self, x: x)
        uncopied.lock = threading.Lock()
        self.assertIn("the model cannot be copied", str(vitune.exportable(uncopied.eval(), torch.zeros(1, 4, 8))[0]))

    def test_parameters_that_lie_in_one_storage_are_tensors_of_their_own(self):
        whole = torch.randn(16, 8)
        model = Calls(lambda self, x: F.linear(x, self.upper) + F.linear(x, self.lower))
        model.upper, model.lower = nn.Parameter(whole[:8]), nn.Parameter(whole[8:])
        held, _ = self.exported(model, torch.zeros(1, 4, 8))
        self.assertEqual({node["w"] for node in held.graph["nodes"] if node["op"] == "linear"}, {"inner.weight", "upper", "lower"})
        for name in ("upper", "lower"):
            self.assertTrue(torch.equal(held.tensors[name], dict(model.named_parameters())[name].to(torch.bfloat16)))

    def test_functions_of_pytorch_stay_as_they_are_while_a_pass_is_recorded(self):
        functions = {name: getattr(F, name) for name in dir(F) if name.startswith("has_torch_function")}
        seen, note = [], forward_graph.ForwardGraph._note

        def noted(self, value, node):
            seen.append({name: getattr(F, name) for name in functions})
            note(self, value, node)
        with mock.patch.object(forward_graph.ForwardGraph, "_note", noted):
            vitune.exportable(Calls(lambda self, x: F.normalize(x, dim=-1)).eval(), torch.zeros(1, 4, 8))
        self.assertGreater(len(seen), 3)
        self.assertTrue(all(each == functions for each in seen))


class RecordingTest(unittest.TestCase):
    def test_a_model_without_weights_is_looked_at_too(self):
        for dtype in (torch.bfloat16, torch.float32):
            for device in ("cpu", "meta"):
                with self.subTest(dtype=dtype, sample_on=device):
                    with torch.device("meta"):
                        model = Classifier()
                        model.register_buffer("scale", torch.ones(32, 1, 1))
                    model.register_forward_pre_hook(lambda module, given: (given[0] * module.scale.mean(0) * module.scale.amax(0),))
                    self.assertEqual(vitune.exportable(model.to(dtype).eval(), torch.zeros(1, 3, 32, 32, device=device)), [])

    def test_a_pattern_is_asked_at_its_operations_alone(self):
        class Picky(match.FusionPattern):
            name, wins, operations = "picky", False, ("softmax",)

            def place(self, node):
                raise AssertionError("asked where it has nothing")
        graph_of = torch.fx.symbolic_trace(Calls(lambda self, x: x + 1)).graph
        picky, any_one = Picky(), type("Any", (Picky,), {"operations": ()})()
        for node in graph_of.nodes:
            self.assertEqual(tree.beginning_at(node, [picky, any_one]), [any_one])

    def test_the_tolerance_is_what_the_rules_say(self):
        self.assertEqual(export_module.TOLERANCE, 1e-5)


if __name__ == "__main__":
    unittest.main()
