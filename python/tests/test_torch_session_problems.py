# python/tests/test_torch_session_problems.py -- What a session asks of a model file, beside what vitune.compile() asks of the model.
# SPDX-License-Identifier: Apache-2.0
"""Small models of timm's kinds, of one image (norms are folded) and of 32 (they are not). Nothing runs: the command binds the file, and
the backend looks at Dynamo's graph on the meta device, as if all were tuned and faster."""
import collections
import pathlib
import re
import tempfile
import unittest
import warnings
from unittest import mock

import vitune

from .support import FOLDER, needs_device, needs_torch, torch

try:
    import timm
except ImportError:
    timm = None
if torch is not None and timm is not None:
    from vitune._ops import attention as attention_ops
    from vitune._runtime import command as _command

    from .test_torch_asked import dynamo_graph, script

#: A model of each kind -> what makes it small, the pixels of a side, and patches that have positions.
MODELS = {"vit_base_patch16_224": ({"depth": 2, "embed_dim": 192, "num_heads": 3}, 224, 196),
          "deit3_small_patch16_224": ({"depth": 2, "embed_dim": 192, "num_heads": 3}, 224, 196),
          "swin_tiny_patch4_window7_224": ({"depths": (2, 2), "num_heads": (3, 6)}, 224, 0),
          "vit_small_patch14_dinov2": ({"depth": 2, "embed_dim": 192, "num_heads": 3, "img_size": 112}, 112, 64)}


def made(name):
    words, pixels, _ = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return timm.create_model(name, **words).eval().bfloat16(), (3, pixels, pixels)


def asked_by_compile(name, images, context):
    """Problem -> calls, of what vitune.compile() puts in."""
    with torch.device("meta"):
        model, size = made(name)
        graph, inputs = dynamo_graph(model, torch.empty(images, *size, dtype=torch.bfloat16))
    with mock.patch.object(attention_ops, "is_on_gpu", lambda tensor: True), torch.no_grad(), \
            mock.patch.object(attention_ops, "context_of", lambda device: script.STATES["all"]):
        report, _ = script.Backend().seen(graph, inputs)
    found = collections.Counter()
    for text, count in script.asked_of(report, True).items():
        found[context.query(vitune.Problem(text)).problem] += count
    return found


def asked_by_session(path, images):
    document = _command.run_json(["models", str(path), "--batch", str(images)], quiet=True)
    return collections.Counter({entry["problem"]: entry["calls"] for entry in document["problems"]})


def without_norms(asked):
    """The same, whatever form the norms before layers have; norms and copies, which are Inductor's in a compiled model, are left out."""
    found = collections.Counter()
    for text, count in asked.items():
        if text.split()[0] in ("norm", "map"):
            continue
        folded = " norm=" in text
        text = re.sub(r" moments=\d+| norm=\S+| eps=\S+", "", text)
        found[text.replace(" params=fp32", "") if folded else text] += count
    return found


def of_either_end(asked, rows):
    """The same without the words in which views of a file say more: the patches' layer, of so many rows, adds positions and leaves room
    for the class token, and the head reads that token's row where it lies."""
    found = collections.Counter()
    for text, count in asked.items():
        if f" m={rows} " in text:
            text = re.sub(r" residual| period=\d+| rows=\S+", "", text)
        found[re.sub(r" x=@\d+", "", text)] += count
    return found


@needs_torch
@unittest.skipIf(timm is None, "timm is not installed")
@needs_device
class SessionProblemsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.context = vitune.Context(0, database=FOLDER / "session_problems.db", shipped_database="")
        cls.addClassCleanup(cls.context.close)
        cls.paths = {}
        for name in MODELS:
            model, size = made(name)
            cls.paths[name] = pathlib.Path(folder.name) / f"{name}.safetensors"
            vitune.export(model, cls.paths[name], torch.zeros(1, *size, dtype=torch.bfloat16), check=False)

    def setUp(self):
        timm.layers.set_fused_attn(True, experimental=True)
        self.addCleanup(timm.layers.set_fused_attn, True)

    def both(self, name, images):
        return asked_by_compile(name, images, self.context), asked_by_session(self.paths[name], images)

    def test_layers_attention_and_their_epilogues_are_those_of_vitune_compile(self):
        for name in MODELS:
            for images in (1, 32):
                with self.subTest(name, images=images):
                    theirs, mine = (without_norms(asked) for asked in self.both(name, images))
                    rows = MODELS[name][2] * images
                    self.assertEqual(of_either_end(mine, rows), of_either_end(theirs, rows))

    def test_norms_of_few_rows_are_folded_by_moments_where_a_layer_wrote_them(self):
        for name in MODELS:
            with self.subTest(name):
                theirs, mine = ({text: count for text, count in asked.items() if "moments" in text} for asked in self.both(name, 1))
                # Reshapes between layers hide some from the patterns of vitune.compile.
                self.assertTrue(theirs)
                for text, count in theirs.items():
                    self.assertGreaterEqual(mine.get(text, 0), count, text)

    def test_a_norm_is_apart_where_no_single_layer_wrote_its_rows_and_where_rows_are_many(self):
        for name, images, count in (("vit_base_patch16_224", 1, 2), ("deit3_small_patch16_224", 1, 2), ("vit_small_patch14_dinov2", 1, 2),
                                    ("vit_base_patch16_224", 32, 4), ("deit3_small_patch16_224", 32, 4)):  # few: the class tokens of the last block
            with self.subTest(name, images=images):
                asked = asked_by_session(self.paths[name], images)
                self.assertEqual(sum(calls for text, calls in asked.items() if text.startswith("norm ")), count)


if __name__ == "__main__":
    unittest.main()
