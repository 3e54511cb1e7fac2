# python/tests/test_torch_model_file.py -- vitune.export(): what is written of small models, what is refused and why, the interpreter, expressions.
# SPDX-License-Identifier: Apache-2.0
"""No GPU: files are made and read by Python alone. Where the command is beside the library under test, its reader takes each of them too."""
import hashlib
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import threading
import unittest
import warnings
from unittest import mock

import vitune

from .support import needs_torch, torch

if torch is not None:
    import torch.nn.functional as F
    from torch import nn

    from vitune._compile.graph import match, tree
    from vitune._export import calls, export as export_module, expression, file as model_file, forward_graph, graph, interpret

    from .export_models import Classifier, drawn

try:
    import timm
except ImportError:
    timm = None
try:
    import transformers
except ImportError:
    transformers = None
try:
    import torchvision
except ImportError:
    torchvision = None


#: The command beside the library under test, whose reader is to take every file that is written here.
COMMAND = next((str(path) for path in [pathlib.Path(os.environ.get("VITUNE_TEST_LIBRARY", "")).parent / "vitune"] if path.is_file()), None)


def kinds(held):
    return [node["op"] for node in held.graph["nodes"]]


class FolderCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "model.safetensors"

    def exported(self, model, sample, **words):
        """The file of a model, and what export() said of it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            written = vitune.export(drawn(model), self.path, sample, **words)
        self.assertLess(written.error, 1e-5)
        self.assertLess(written.rounding, 0.05)
        if COMMAND is not None:
            read = subprocess.run([COMMAND, "models", str(self.path), "--batch", "3", "--json"], capture_output=True, text=True, timeout=300,
                                  env={**os.environ, "VITUNE_DB": str(self.folder / "vitune.db")}, check=False)
            self.assertEqual(read.returncode, 0, read.stderr)
            self.assertEqual(sum(json.loads(read.stdout)["kinds"].values()), written.nodes)
        return model_file.read(self.path), written


class MeanOfTokens(nn.Module if torch is not None else object):
    def forward(self, tokens):
        return tokens.mean(1, keepdim=True)


@needs_torch
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


if torch is not None:
    class Calls(nn.Module):
        """Any function of x [B, 4, 8], behind a layer."""

        def __init__(self, function, wide=None):
            """wide: a buffer `wide` of eight such numbers."""
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.weight = nn.Parameter(torch.ones(8))
            self.function = function
            if wide is not None:
                self.register_buffer("wide", torch.full((8,), wide))

        def forward(self, x):
            return self.function(self, self.inner(x))

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

    def constant_changed(self, x):
        factor = torch.ones(8) * 2
        first = x * factor
        factor.add_(1)
        return first + x * factor

    def constant_seen_changed(self, x):
        factor = torch.ones(8) * 2
        part = factor[:4]
        factor.add_(1)
        return x[..., :4] * part

    def in_windows(x, heads, size):
        """Attention of [B, heads, windows, tokens, size], of which not every two dimensions lie one behind the other."""
        qkv = x.repeat(1, 2, 6).reshape(-1, 4, 2, 3, heads, size).permute(3, 0, 4, 2, 1, 5)
        return F.scaled_dot_product_attention(*qkv.unbind(0)).flatten(1)[:, None, :8]

    def part_written(self, x):
        x[:, 0] += 1
        return x

    def view_kept(self, x):
        old = x[:, 0]
        x += 1
        return x.sum(1) + old

    def in_place(self, x):
        x += 1
        x.mul_(2)
        return x[:, 0] + x[:, 1]

    #: Calls that lower, and are checked by the exporter itself.
    HELD = {
        "arithmetic": lambda self, x: (x * 2 - x / 3 + 1 - x).abs().sqrt() * torch.rsqrt(x.square() + 1) + (2 - x) + 1 / (x.exp() + 2),
        "alpha": lambda self, x: torch.add(x, self.weight, alpha=3) - torch.sub(x, x * x, alpha=0.5) + torch.rsub(x, x * x, alpha=5),
        "softplus": lambda self, x: F.softplus(x, beta=2) + F.softplus(x, 0.5, 40) + F.softplus(x * 1e4) + F.mish(x * 1e4),
        "truths": lambda self, x: x * ((x > 0) & ~(x > 1) | (x < -1)) + x.bool() * 2.0 + x * torch.logical_not(x < 0.1),
        "a constant that is changed": constant_changed,
        "integers": lambda self, x: x * torch.arange(300, 308) + torch.tensor(7),
        "odd heads": lambda self, x: F.scaled_dot_product_attention(x[:, :, None, :4], x[:, :, None, 4:], x[:, :, None, :6], scale=0.3)
        .flatten(2).repeat(1, 1, 2)[..., :8] + F.scaled_dot_product_attention(x[..., :4], x[..., :4], x[..., 4:], x[:, :, :4]).repeat(1, 1, 2),
        "products": lambda self, x: torch.bmm(x @ x.transpose(1, 2), x) + x.matmul(x[:, :1].transpose(1, 2)) + F.linear(x, x[0, :3])[..., :1],
        "convolutions": lambda self, x: F.conv2d(x.reshape(-1, 2, 4, 4), self.inner.weight.reshape(4, 2, 2, 4)[:, :, :, :3], self.weight[:4], 1, 1)
        .flatten(1)[:, None, :8] + F.conv1d(x, self.inner.weight.reshape(16, 4)[:, :, None][:8], None, 2).mean(1, keepdim=True)[..., :1],
        "convolutions in groups": lambda self, x: F.conv2d(x.reshape(-1, 4, 4, 2), self.inner.weight.reshape(8, 2, 2, 2), self.weight, 1, 1, 1, 2)
        .mean((2, 3))[:, None] + F.conv2d(x.reshape(-1, 4, 4, 2), self.inner.weight[:4].reshape(8, 1, 2, 2), self.weight, 2, 1, 2, 4).flatten(1)[:, None, :8],
        "pools": lambda self, x: F.max_pool2d(x.reshape(-1, 2, 4, 4), 3, 2, 1).flatten(1)[:, None] + F.avg_pool2d(
            x.reshape(-1, 2, 4, 4), 3, 2, 1, count_include_pad=False).flatten(1)[:, None] + F.avg_pool2d(x.reshape(-1, 2, 4, 4), 2).flatten(1)[:, None]
        + F.adaptive_avg_pool2d(x.reshape(-1, 2, 4, 4), 2).flatten(1)[:, None] + F.avg_pool2d(x.reshape(-1, 2, 4, 4), 3, 2, 1).flatten(1)[:, None],
        "interpolations": lambda self, x: F.interpolate(x.reshape(-1, 2, 4, 4), (3, 5), mode="bicubic").flatten(2).mean(1, keepdim=True) + F.interpolate(
            x.reshape(-1, 2, 4, 4), scale_factor=(0.75, 1.25), mode="bilinear", antialias=True).flatten(2).mean(1, keepdim=True) + F.interpolate(
                x.reshape(-1, 2, 4, 4), scale_factor=2)[:, :1, :3, :5].flatten(2),
        "attention of five dimensions": lambda self, x: in_windows(x, 2, 8) + in_windows(x, 1, 16),
        "groups": lambda self, x: F.group_norm(x.reshape(-1, 8, 4), 2, self.weight, self.weight, 1e-3).reshape(x.shape) + F.silu(
            F.group_norm(x.reshape(-1, 8, 2, 2), 1).reshape(x.shape)),
        "choices": lambda self, x: torch.where(x > 0.5, x, x * x).clamp(-1, 2).masked_fill(x <= -1, 3.0) + torch.maximum(x, self.weight),
        "comparisons": lambda self, x: x * (x >= 0.1) * (x < 5) * (x != 7) + (x == 0.25) * 3.0,
        "activations": lambda self, x: F.silu(x) + F.gelu(x, approximate="tanh") + F.hardswish(x) + F.relu6(x) + F.elu(x) + F.softplus(x)
        + F.leaky_relu(x, 0.1) + F.mish(x) + F.hardsigmoid(x) + F.glu(x, 2).repeat(1, 1, 2) + F.hardtanh(x),
        "powers": lambda self, x: x ** 2 + x.abs().pow(0.5) + (x * x + 1) ** -0.5 + x.pow(3),
        "reductions": lambda self, x: x.mean(1) + x.sum((1,)) + x.amax(1) + x.mean((1, 2), keepdim=True)[:, 0] + x.var(1),
        "variance": lambda self, x: x.var(-1, unbiased=False, keepdim=True) * x + torch.var(x, 2, correction=1).unsqueeze(-1),
        "softmax": lambda self, x: x.softmax(1) + F.softmax(x, -1) * torch.softmax(x, dim=1),
        "normalised": lambda self, x: F.normalize(x, dim=-1) + x / x.norm(dim=1, keepdim=True),
        "pieces": lambda self, x: torch.cat([x[:, :1], x * 2, torch.stack([x[:, 1], x[:, 2]], 1)], 1).roll((1, 2), (1, 2)),
        "stacked": lambda self, x: torch.stack([x, x * 2], -1).flatten(2) + torch.stack([x, x], 2).reshape(x.shape[0], 4, 16),
        "padded": lambda self, x: F.pad(x, (1, 2, 0, 1), value=0.5)[:, 1:, 2:] + F.pad(x, (-1, 0))[:, :, :1],
        "repeated": lambda self, x: x.repeat(1, 2, 1).reshape(x.shape[0], 2, 4, 8).sum(1) + x.repeat_interleave(2, dim=1)[:, ::2],
        "picked": lambda self, x: x[:, [3, 1, 2]] + x.index_select(1, torch.tensor([0, 1, 0])) + x.flip(1)[:, :3],
        "in place": in_place,
        "views": lambda self, x: (x.permute(2, 0, 1).contiguous().transpose(0, 1) + 1).flatten(1).unflatten(1, (8, 4)).mT,
        "constants": lambda self, x: x + F.interpolate(self.weight.reshape(1, 1, 2, 4), (4, 8), mode="bicubic")[0] + torch.arange(8) * 0.25,
        "filled": lambda self, x: x + torch.zeros_like(x) + x.new_ones(4, 8) + torch.ones_like(x[:, :1]) * 0.5,
        "a copy that no view says": lambda self, x: F.linear((x[..., :6].unflatten(-1, (2, 3)) * 2).mT.reshape(-1, 4, 6), self.inner.weight[:, :6]),
        "matrix": lambda self, x: x @ self.inner.weight + torch.addmm(self.weight, x[:, 0], self.inner.weight)[:, None],
        "two norms": lambda self, x: F.layer_norm(x, (8,)) + F.rms_norm(x, (8,), self.weight, 1e-3),
        "images": lambda self, x: F.adaptive_avg_pool2d(x.reshape(x.shape[0], 2, 4, 4), 1).flatten(1),
    }
    #: Calls that do not, with the reason.
    REFUSED = {
        "no node of a model file": lambda self, x: x.cumsum(1),
        "a part of a tensor": part_written,
        "as it was before": view_kept,
        "a weight that depends on the input": lambda self, x: F.linear(x, x[0, :, :8], self.weight[:4]),
        "with a vector": lambda self, x: x @ x[0, 0],
        "random numbers": lambda self, x: x + torch.rand(8),
        "in place is read as it was before": constant_seen_changed,
        "not known: ['out']": lambda self, x: torch.exp(x, out=torch.empty_like(x)),
        "a softplus with beta 1 and threshold 1": lambda self, x: F.softplus(x, 1, 1),
        "arithmetic of truth values": lambda self, x: x * ((x > 0) + (x > 1)),
        "logic of what is no truth value": lambda self, x: x * torch.logical_and(x, x),
        "a cast to uint8": lambda self, x: x * x.to(torch.uint8),
        "a layer of type float32": lambda self, x: F.linear(x.float(), self.inner.weight.float()),
        "type float32: operands": lambda self, x: x.float() @ self.inner.weight.float(),
        "layer of type": lambda self, x: F.conv2d(x.float()[:, None], self.weight.float().reshape(2, 1, 2, 2), None, 2),
        "a product of type float32": lambda self, x: x.float() @ x.float().transpose(1, 2),
        "a power of 2.5": lambda self, x: x.abs() ** 2.5,
        "a norm over 2 dimensions": lambda self, x: F.layer_norm(x, (4, 8)),
        "padding by mode reflect": lambda self, x: F.pad(x, (1, 1), mode="reflect"),
        "an index that depends on the input": lambda self, x: x[:, x[0, :, 0].argsort()],
        "recorded without values": lambda self, x: x if x.sum() > 0 else -x,
        "with a head size of 4": lambda self, x: F.scaled_dot_product_attention(x[:, :, :4], x[:, :, :4], x[:, :, :4], is_causal=True),
        "a filter that depends on the input": lambda self, x: F.conv2d(x[:, None], x[:2, None, :2, :2]),
        "reach beyond the image": lambda self, x: F.max_pool2d(x[:, None], 3, 2, ceil_mode=True),
        "places of the greatest": lambda self, x: F.max_pool2d(x[:, None], 2, return_indices=True)[0],
        "windows of different sizes": lambda self, x: F.adaptive_avg_pool2d(x[:, None], 3),
    }


@needs_torch
class CallsTest(FolderCase):
    def test_calls_are_nodes_that_compute_the_same(self):
        for name, function in HELD.items():
            with self.subTest(name):
                self.exported(Calls(function), torch.zeros(1, 4, 8))

    def test_pointwise_calls_one_after_the_other_are_one_map(self):
        held, _ = self.exported(Calls(HELD["powers"]), torch.zeros(1, 4, 8))
        self.assertEqual(kinds(held), ["linear", "map"])

    def test_every_call_that_cannot_be_held_is_said_with_its_module(self):
        model = nn.ModuleDict({"a": Calls(REFUSED["no node of a model file"]), "b": Calls(lambda self, x: x.cumprod(1))})
        model.forward = lambda x: model["b"](model["a"](x))
        found = vitune.exportable(model.eval(), torch.zeros(1, 4, 8))
        self.assertEqual([(each.module, each.call) for each in found], [("a", "cumsum of [2, 4, 8]"), ("b", "cumprod of [2, 4, 8]")])
        with self.assertRaisesRegex(vitune.Unsupported, "2 calls that a model file cannot hold:\na: cumsum of .*\nb: cumprod of "):
            vitune.export(model, self.path, torch.zeros(1, 4, 8))
        self.assertFalse(self.path.exists())

    def test_each_reason_is_a_sentence(self):
        for reason, function in REFUSED.items():
            with self.subTest(reason), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = vitune.exportable(Calls(function).eval(), torch.zeros(1, 4, 8))
                self.assertIn(reason, "\n".join(map(str, found)))
                with self.assertRaises(vitune.Unsupported):
                    vitune.export(Calls(function).eval(), self.path, torch.zeros(1, 4, 8))

    def test_a_batch_that_does_not_grow_evenly_is_refused(self):
        found = vitune.exportable(Calls(lambda self, x: x.reshape(x.shape[0], -1)[:, :x.shape[0] ** 2]).eval(), torch.zeros(1, 4, 8))
        self.assertRegex(str(found[0]), "no a \\+ b B|does not grow evenly")

    def test_what_is_no_sample_or_result_is_an_error(self):
        model = Classifier().eval()
        with self.assertRaisesRegex(vitune.InvalidArgument, "model.eval"):
            vitune.export(Classifier().train(), self.path, torch.zeros(1, 3, 32, 32))
        with self.assertRaisesRegex(vitune.InvalidArgument, "a sample is needed"):
            vitune.export(model, self.path)
        with self.assertRaisesRegex(vitune.InvalidArgument, "a sample is a tensor"):
            vitune.export(model, self.path, 3)
        with self.assertRaisesRegex(vitune.InvalidArgument, "no result logits; it has out"):
            vitune.export(model, self.path, torch.zeros(1, 3, 32, 32), outputs=["logits"])
        with self.assertRaisesRegex(vitune.InvalidArgument, "'int8'"):
            vitune.export(model, self.path, torch.zeros(1, 3, 32, 32), dtype="int8")


@needs_torch
class ModelsTest(FolderCase):
    """Small models of the libraries that people have them from."""

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_timms_models(self):
        from timm.models import beit, eva, swin_transformer, swin_transformer_v2, vision_transformer
        small = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 2, "num_classes": 10}
        windows = {"patch_size": 4, "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4), "num_classes": 10}
        vit = vision_transformer.VisionTransformer
        models = {
            "class token": (vit(**small), 32, {}), "registers, LayerScale, another size": (
                vit(**small, init_values=0.1, reg_tokens=2, dynamic_img_size=True), 40, {}),
            "pooled by attention": (vit(**small, global_pool="map", class_token=False), 32, {}),
            "pooled, q and k normalised": (vit(**small, global_pool="avg", class_token=False, qk_norm=True), 32, {}),
            "rotary embedding, SwiGLU": (eva.Eva(**small, swiglu_mlp=True, ref_feat_shape=(4, 4)), 32, {}),
            "relative bias": (beit.Beit(**small, use_rel_pos_bias=True, use_abs_pos_emb=False, init_values=0.1), 32, {}),
            "windows": (swin_transformer.SwinTransformer(img_size=56, window_size=7, **windows), 56, {"window_attention": 4}),
            "padded windows": (swin_transformer.SwinTransformer(img_size=64, window_size=7, **windows), 64, {"window_attention": 4}),
            "cosine windows": (swin_transformer_v2.SwinTransformerV2(img_size=32, window_size=4, **{**windows, "depths": (2,), "num_heads": (2,)}),
                               32, {"attention": 2})}
        for name, (model, size, wanted) in models.items():
            with self.subTest(name):
                held, _ = self.exported(model, torch.zeros(1, 3, size, size))
                for kind, count in wanted.items():
                    self.assertEqual(kinds(held).count(kind), count)

    @unittest.skipIf(transformers is None, "transformers is not installed")
    def test_transformers_models_by_the_names_of_their_results(self):
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "image_size": 32, "patch_size": 8}
        models = {
            "logits": transformers.ViTForImageClassification(transformers.ViTConfig(**sizes)),
            "pooler_output": transformers.Dinov2Model(transformers.Dinov2Config(**sizes)),
            "last_hidden_state": transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**sizes))}
        for output, model in models.items():
            with self.subTest(output):
                held, _ = self.exported(model, {"pixel_values": torch.zeros(1, 3, 32, 32)}, outputs=[output])
                self.assertEqual([each["name"] for each in held.graph["outputs"]], [output])
                self.assertEqual(held.graph["inputs"][0]["name"], "pixel_values")

    @unittest.skipIf(torchvision is None, "torchvision is not installed")
    def test_torchvisions_models(self):
        models = {32: torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=64, mlp_dim=128,
                                                           num_classes=10),
                  56: torchvision.models.SwinTransformer(patch_size=[4, 4], embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=[7, 7],
                                                         num_classes=10)}
        for size, model in models.items():
            with self.subTest(type(model).__name__):
                self.exported(model, torch.zeros(1, 3, size, size))


@needs_torch
class InterpreterTest(unittest.TestCase):
    def answer(self, nodes, batch, **tensors):
        """The result of nodes of x [B, 4], of the tensor x there."""
        x = tensors.pop("x")
        shape = ["B", *x.shape[1:]]
        document = {"inputs": [{"name": "x", "type": "fp32", "shape": shape}], "outputs": [{"name": "out", "of": "t0"}],
                    "values": [{"name": "t0", "type": "fp32", "shape": shape}], "nodes": nodes}
        return interpret.Interpreter(document, tensors, batch).run({"x": x})["out"]

    def test_a_reduction_keeps_the_dimensions_before_those_it_is_over(self):
        x = torch.randn(3, 4, 5)
        for by, wanted in (("sum", x.sum(1)), ("mean", x.mean(1)), ("max", x.amax(1))):
            node = {"op": "map", "at": "", "x": "mul(a,2)", "by": by, "over": 1, "y": "add(r,1)",
                    "a": {"of": "x", "extents": ["B", 5, 4], "strides": [20, 1, 5]},
                    "out": {"of": "t0", "extents": ["B", 5], "strides": [20, 1]}}
            found = self.answer([node], 3, x=x)
            torch.testing.assert_close(found.reshape(3, 20)[:, :5], wanted * 2 + 1)
            self.assertTrue(found.reshape(3, 20)[:, 5:].isnan().all())  # nobody wrote there

    def test_attention_has_rows_without_keys_masks_and_fewer_heads(self):
        q, k, v = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
        mask = torch.rand(1, 1, 3, 5) > 0.4
        mask[..., 0, :] = False
        found = interpret._attend(q, k, v, torch.where(mask, 0.0, float("-inf")), False, 0.3)
        wanted = F.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True)
        torch.testing.assert_close(found[:, :, 1:], wanted[:, :, 1:])
        self.assertTrue((found[:, :, 0] == 0).all())
        square = interpret._attend(q, q, q, None, True, None)
        torch.testing.assert_close(square, F.scaled_dot_product_attention(q, q, q, is_causal=True))

    def test_products_and_group_norms(self):
        x = torch.randn(3, 4, 6)
        product = {"op": "matmul", "at": "", "scale": 0.5, "a": "x", "b": {"of": "x", "extents": ["B", 6, 4], "strides": [24, 1, 6]},
                   "out": {"of": "t0", "extents": ["B", 4, 4], "strides": [24, 6, 1]}}
        torch.testing.assert_close(self.answer([product], 3, x=x)[..., :4], x @ x.transpose(1, 2) * 0.5)
        norm = {"op": "group_norm", "at": "", "x": "x", "groups": 2, "eps": 1e-3, "act": "silu", "out": "t0"}
        torch.testing.assert_close(self.answer([norm], 3, x=x), F.silu(F.group_norm(x, 2, eps=1e-3)))

    def test_numbers_grow_with_the_batch(self):
        for number, batch, wanted in ((3, 7, 3), ("B", 7, 7), ("12*B", 7, 84), ([5, 2], 7, 19)):
            self.assertEqual(graph.at_batch(number, batch), wanted)
        for a, b in ((3, 0), (0, 1), (0, 12), (5, 2), (-4, 3)):
            self.assertEqual([graph.at_batch(graph.affine(a, b), batch) for batch in (1, 9)], [a + b, a + 9 * b])
        self.assertEqual(graph.grown({"x": [2, 7]}, {"x": [3, 7]}, (2, 3)), {"x": ["B", 7]})
        for first, second in (({"x": 1}, {"y": 1}), ([1], [1, 2]), ("a", "b"), (True, False)):
            with self.assertRaises(vitune.Unsupported):
                graph.grown(first, second, (2, 3))

    def test_expressions_are_read_and_never_run(self):
        x = torch.tensor([0.5, -2.0])
        torch.testing.assert_close(expression.evaluated("where(lt(a,0),mul(a,1e-05),add(a,b))", {"a": x, "b": x}), torch.tensor([1.0, -2e-5]))
        for text in ("", "add(a)", "add(a,b,c)", "i", "inf", "__import__('os')", "a;b", "add(a,b", "neg(" * 33 + "a" + ")" * 33, "0x10", "a b", "1.e5", "1E5", "1.2.3", ".5"):
            with self.assertRaises(vitune.Unsupported, msg=text):
                expression.parsed(text)

    def test_views_that_no_six_dimensions_say_are_refused(self):
        view = graph.View("x", 0, (2, 3, 1, 4, 5, 6, 7), graph.dense((2, 3, 1, 4, 5, 6, 7)))
        self.assertEqual(graph.merged([view])[0].extents, (2, 3, 4, 5, 6, 7))
        crossed = view.ordered((0, 6, 2, 4, 1, 5, 3))._replace(extents=(2, 7, 2, 5, 3, 6, 4))
        with self.assertRaisesRegex(vitune.Unsupported, "7 dimensions"):
            graph.merged([crossed])


@needs_torch
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
