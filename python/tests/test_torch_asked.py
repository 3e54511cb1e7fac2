# python/tests/test_torch_asked.py -- What vitune.compile() asks of models of timm, beside what `vitune tune --model` would tune.
# SPDX-License-Identifier: Apache-2.0
"""Dynamo traces each model on the meta device and the backend looks at its graph; nothing is compiled further. The catalogue was
made of another recording of the pass (vitune/_export/forward_graph.py), for any number of images.

VITUNE_TEST_TABLE=1 prints a line for each model."""
import gc
import json
import os
import sys
import unittest
import warnings
from unittest import mock

import vitune

from .support import FOLDER, ROOT, needs_device, needs_torch, torch

try:
    import timm
except ImportError:
    timm = None
if torch is not None and timm is not None:
    sys.path.insert(0, str(ROOT / "cmake"))
    import make_timm_calls as script

    from torch._subclasses.fake_tensor import FakeTensorMode

    from vitune._compile.patterns import match as match_module
    from vitune._ops import attention as attention_ops
    from vitune._runtime import command as _command

#: A model of each kind -> for how many images, and how many different problems it asks of an empty database.
MODELS = {"vit_base_patch16_224": (32, 22), "deit3_small_patch16_224": (2, 35), "beit_base_patch16_224": (8, 20),
          "vit_large_patch14_dinov2": (1, 33), "vit_base_patch16_dinov3": (2, 19), "eva02_base_patch14_448": (2, 10),
          "vit_base_patch16_siglip_224": (4, 26), "vit_base_patch32_clip_224": (64, 22), "swin_tiny_patch4_window7_224": (32, 46),
          "swinv2_tiny_window8_256": (3, 38), "hiera_base_224": (8, 58), "twins_svt_small": (2, 70),
          "maxvit_tiny_tf_224": (2, 43), "pvt_v2_b2": (16, 38), "davit_tiny": (2, 49),
          "coatnet_0_rw_224": (8, 5), "crossvit_15_240": (2, 39), "cait_xxs24_224": (2, 36),
          "xcit_tiny_12_p16_224": (2, 23), "vit_tiny_r_s16_p8_384": (2, 30)}


#: For how many images, and with how few blocks, which ask as all of them do.
IN_TRAINING = {"vit_base_patch16_224": (64, {"depth": 2}), "deit3_small_patch16_224": (128, {"depth": 2}),
               "beit_base_patch16_224": (64, {"depth": 2}), "swin_tiny_patch4_window7_224": (128, {"depths": (2, 2, 2, 2)}),
               "vit_large_patch14_dinov2": (8, {"depth": 2})}


class Stop(Exception):
    """Of the backend, once it has the graph."""


def dynamo_graph(model, *inputs, trains=False):
    """The one graph that Dynamo makes of a model, and what it is given."""
    found = []

    def backend(module, given):
        found.append((match_module.copied(module.graph), list(given)))
        raise Stop

    torch._dynamo.reset()
    with torch.set_grad_enabled(trains), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.disable()  # which takes a quarter of the time, and finds nothing
        try:
            torch.compile(model, backend=backend, fullgraph=True, dynamic=False)(*inputs)
        except Exception as error:
            if not found:
                raise error
        finally:
            gc.enable()
    return found[0]


def model_graph(name, images):
    with torch.device("meta"):
        model = timm.create_model(name).eval().bfloat16()
        x = torch.empty(images, *model.pretrained_cfg["input_size"], dtype=torch.bfloat16)
    return dynamo_graph(model, x)


def step_graph(name, images, sizes):
    """Of the forward pass of a step under autocast, with drop path but in the first block."""
    with torch.device("meta"):
        model = timm.create_model(name, drop_path_rate=0.1, **sizes).train()
    with FakeTensorMode(), script.autocast():
        x = torch.empty(images, *model.pretrained_cfg["input_size"], device="cuda")
        return dynamo_graph(script.on_fake_gpu(model), x, trains=True)


def listed(name, images, *words):
    """What the command lists of a model: problem -> (calls, share of the pass, whether it is a second choice)."""
    document = _command.run_json(["models", "--problems", name, "--batch", str(images), *words], quiet=True)
    return {entry["problem"]: (entry["calls"], entry["share"], entry["second"]) for entry in document["problems"]
            if entry["model"] == name}


@needs_torch
@unittest.skipIf(timm is None, "timm is not installed")
@needs_device
class AskedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        source = json.loads((ROOT / "data" / "timm_calls.json").read_text(encoding="utf-8"))["source"]
        if not source.startswith(f"timm {timm.__version__},"):
            raise unittest.SkipTest(f"timm {timm.__version__} here, and the catalogue is of {source}")
        cls.context = vitune.Context(0, database=FOLDER / "asked.db", shipped_database="")
        cls.addClassCleanup(cls.context.close)
        timm.layers.set_fused_attn(True, experimental=True)
        cls.addClassCleanup(timm.layers.set_fused_attn, True)

    def setUp(self):
        patch = mock.patch.object(attention_ops, "is_on_gpu", lambda tensor: True)
        patch.start()
        self.addCleanup(patch.stop)

    def canonical(self, text):
        return self.context.query(vitune.Problem(text)).problem

    def asked_of_nothing_tuned(self, graph, inputs):
        """Every problem that is asked of an empty database."""
        with mock.patch.object(attention_ops, "context_of", lambda device: self.context), torch.no_grad():
            report, _ = script.Backend().seen(graph, inputs)
        return set(script.asked_of(report, False))

    def served_of_all_tuned(self, graph, inputs):
        """Problem -> calls, of what is put in once everything is tuned and faster."""
        recorder = script.STATES["all"]
        with mock.patch.object(attention_ops, "context_of", lambda device: recorder), torch.no_grad():
            report, _ = script.Backend().seen(graph, inputs)
        served = {}
        for text, count in script.asked_of(report, True).items():
            text = self.canonical(text)
            served[text] = served.get(text, 0) + count
        return served

    def row(self, name, images):
        """How many problems are asked of an empty database, those that are not listed, those that are listed with a share of the pass
        but serve nothing once all is tuned, and those that serve and are not listed so or not as often."""
        graph, inputs = model_graph(name, images)
        known = listed(name, images)
        asked = self.asked_of_nothing_tuned(graph, inputs)
        served = self.served_of_all_tuned(graph, inputs)
        first = {text: calls for text, (calls, _, second) in known.items() if not second}
        extra = {text: known[text][1] for text in first.keys() - served.keys()}
        # One that each image asks is one call of the graph.
        other = {text: calls for text, calls in served.items() if first.get(text) not in (calls, images * calls)}
        return len(asked), asked - known.keys(), extra, other

    def test_every_problem_that_is_asked_is_one_that_tune_takes_and_all_of_weight_is_asked(self):
        for name, (images, count) in MODELS.items():
            with self.subTest(name):
                asked, missing, extra, other = self.row(name, images)
                if os.environ.get("VITUNE_TEST_TABLE"):
                    print(f"{name:30} b{images:<3} {asked:3} asked, {len(missing)} missing, {100 * sum(extra.values()):.1f} % of the pass"
                          f" extra, {len(other)} other calls", file=sys.stderr, flush=True)
                self.assertEqual((missing, extra, other), (set(), {}, {}))
                self.assertEqual(asked, count)

    def test_models_whose_fused_attention_timm_leaves_off_ask_nothing_else(self):
        timm.layers.set_fused_attn(True, experimental=False)
        self.addCleanup(timm.layers.set_fused_attn, True, experimental=True)
        for name in ("swin_tiny_patch4_window7_224", "maxvit_tiny_tf_224", "davit_tiny", "coatnet_0_rw_224"):
            with self.subTest(name):
                images, count = MODELS[name]
                asked = self.asked_of_nothing_tuned(*model_graph(name, images))
                self.assertEqual((asked - listed(name, images).keys(), len(asked)), (set(), count))

    def test_every_problem_that_a_step_asks_is_one_that_tune_takes(self):
        for name, (images, sizes) in IN_TRAINING.items():
            with self.subTest(name):
                graph, inputs = step_graph(name, images, sizes)
                with mock.patch.object(attention_ops, "context_of", lambda device: self.context), script.autocast(), torch.enable_grad():
                    report, _ = script.Backend(trains=True, loses=True).seen(graph, inputs)
                asked = set(script.asked_of(report, False))
                if os.environ.get("VITUNE_TEST_TABLE"):
                    print(f"{name:30} b{images:<3} {len(asked):3} asked in training", file=sys.stderr, flush=True)
                self.assertEqual(asked - listed(name, images, "--as", "train").keys(), set())
                # Both passes of layers, patches and norms, and of windows: with and without a shift, but in the last stage.
                windows = 7 if name.startswith("swin") else 0
                for start, least in (("linear bf16 ", 8), ("linear_weight_grad bf16 ", 5), ("norm_backward bf16 ", 2),
                                     ("window_attention_backward bf16 ", windows)):
                    self.assertGreaterEqual(sum(text.startswith(start) for text in asked), least, start)

    def test_the_drop_in_asks_for_attention_and_norms_alone(self):
        known = listed("vit_base_patch16_224", 32, "--as", "drop-in")
        self.assertEqual({text: calls for text, (calls, _, _) in known.items()}, {
            "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed": 12, "norm bf16 m=6304 d=768 weight bias eps=1e-06": 25})


if __name__ == "__main__":
    unittest.main()
