# python/tests/test_torch_session.py -- vitune.Model and Session: a model file's pass beside the module that it was exported of.
# SPDX-License-Identifier: Apache-2.0
import gc
import os
import json
import pathlib
import tempfile
import unittest
import warnings

import vitune

from .support import DEVICE, FOLDER, from_bf16, needs_device, needs_torch, to_bf16, torch

if torch is not None:
    from vitune._export import file as model_file

    from .export_models import Classifier, drawn

    class Groups(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.head = torch.nn.GroupNorm(4, 16), torch.nn.Linear(16, 8)

        def forward(self, x):
            return self.head(self.norm(x).mean((2, 3)))

    class Products(torch.nn.Module):
        """Attention of channels, whose head size has no kernel."""

        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(32, 96)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            return v @ (q.transpose(1, 2) @ k * 0.25).softmax(-1)

    class RmsChain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc1, self.fc2 = torch.nn.RMSNorm(64, 1e-5), torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)

        def forward(self, x):
            return x + self.fc2(torch.nn.functional.gelu(self.fc1(self.norm(x))))


def kinds_of(session):
    """The steps: their operators, and of layers whether they write or read moments."""
    found = []
    for _, problem in session.steps():
        words = problem.split()
        found.append("copy" if words[0] == "map" and "x=a" in words else words[0] + (
            " writes" if "moments=32" in words else " reads" if "norm=moments:32" in words else ""))
    return found


@needs_torch
@needs_device
class SessionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name) / "model.safetensors"
        cls.module = drawn(Classifier()).eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            vitune.export(cls.module, cls.path, torch.zeros(1, 3, 32, 32))
        cls.context = vitune.Context(0, database=FOLDER / "session.db", shipped_database="", log=lambda *_: None)
        cls.addClassCleanup(cls.context.close)
        cls.model = vitune.Model(cls.path, cls.context)

    def images(self, batch):
        return torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(batch)).bfloat16()

    def answer(self, session, images):
        """The result of a pass with the caller's own memory."""
        result = self.model.tensors(session.batch)[1]
        given = DEVICE.upload(to_bf16(images.float().flatten().tolist()))
        taken = DEVICE.upload(b"\xff" * result.bytes)
        session.run([given], [taken])
        return torch.tensor(from_bf16(DEVICE.download(taken, result.bytes))).reshape(session.batch, -1)

    def test_a_pass_is_that_of_the_module_for_any_batch(self):
        for batch in (1, 3):
            with self.subTest(batch=batch):
                images = self.images(batch)
                with torch.no_grad():
                    wanted = self.module(images.float())
                mine = self.answer(self.model.session(batch), images)
                self.assertEqual(mine.shape, wanted.shape)
                self.assertLess(float((mine - wanted).abs().max()), 0.03 * float(wanted.abs().max()))

    def test_graph_and_launches_one_by_one_give_the_same_bits_again_and_again(self):
        images, sessions = self.images(2), (self.model.session(2), self.model.session(2, graph=False))
        answers = [self.answer(session, images) for session in (*sessions, *sessions)]
        for other in answers[1:]:
            self.assertTrue(torch.equal(answers[0], other))

    def test_sessions_share_weights_and_buffers_need_no_copy(self):
        one = self.model.session(2)
        loaded, arena = one.bytes()
        two = self.model.session(2)
        self.assertEqual(two.bytes(), (loaded, arena))
        self.assertGreater(loaded, 0)
        self.assertFalse(two.refresh())  # nothing is new
        images = self.images(2)
        wanted = self.answer(one, images)
        DEVICE.write(two.buffer(0), to_bf16(images.float().flatten().tolist()))
        two.run([two.buffer(0)], [0])
        result = self.model.tensors(2)[1]
        mine = torch.tensor(from_bf16(DEVICE.download(two.buffer(1), result.bytes))).reshape(2, -1)
        self.assertTrue(torch.equal(mine, wanted))

    def test_norms_behind_layers_are_folded_by_moments_and_the_first_one_stays_apart(self):
        self.assertEqual(kinds_of(self.model.session(1)), [
            "copy", "linear", "map", "norm", "linear", "attention", "linear writes", "linear reads", "linear writes", "linear reads",
            "attention", "linear writes", "linear reads", "linear", "norm", "linear"])

    def test_fewer_images_than_the_batch_have_the_bits_of_their_own_rows(self):
        images, session = self.images(4), self.model.session(4)
        wanted = self.answer(session, images)
        result = self.model.tensors(4)[1]
        for count in (1, 3):
            given = DEVICE.upload(to_bf16(images[:count].float().flatten().tolist()))
            taken = DEVICE.upload(b"\xff" * result.bytes)
            session.run([given], [taken], images=count)
            found = torch.tensor(from_bf16(DEVICE.download(taken, result.bytes))).reshape(4, -1)
            self.assertTrue(torch.equal(found[:count], wanted[:count]))
            self.assertTrue(bool(found[count:].isnan().all()))
        for count in (0, 5):
            with self.assertRaisesRegex(vitune.VituneError, "takes 1 to that many"):
                session.run([0], [0], images=count)

    def test_all_of_a_tensor_that_is_no_multiple_of_the_batch_is_copied(self):
        shape = [[1, 1], 3]  # one row more than there are images
        graph = {"inputs": [{"name": "x", "type": "bf16", "shape": shape}], "outputs": [{"name": "o", "of": "t"}],
                 "values": [{"name": "t", "type": "bf16", "shape": shape}],
                 "nodes": [{"op": "map", "at": "one", "x": "add(a,1)", "a": "x", "out": "t"}]}
        path = self.path.with_name("odd.safetensors")
        model_file.write(path, {"w": torch.ones(1, dtype=torch.bfloat16)}, {"vitune.format": "1", "vitune.graph": json.dumps(graph)})
        session, images = vitune.Model(path, self.context).session(4), torch.arange(15.0)
        given, taken = DEVICE.upload(to_bf16(images.tolist())), DEVICE.upload(b"\xff" * 30)
        session.run([given], [taken])
        self.assertEqual(from_bf16(DEVICE.download(taken, 30)), (images + 1).tolist())

    def test_tensors_are_described_and_texts_are_read(self):
        given, result = self.model.tensors(5)
        self.assertEqual((given.extents, given.output, given.type), ((5, 3, 32, 32), False, vitune.BF16))
        self.assertEqual((result.extents[2:], result.output), ((5, self.module(torch.zeros(1, 3, 32, 32)).shape[1]), True))
        self.assertEqual(self.model.text("vitune.format"), "1")
        self.assertEqual(self.model.text("nothing"), "")

    def test_mistakes_are_said(self):
        session = self.model.session(1)
        for call, words in ((lambda: self.model.session(0), "batch 0"), (lambda: session.run([], [0]), "0 inputs are given"),
                            (lambda: session.buffer(9), "there is no tensor 9"),
                            (lambda: self.model.tensors(-1), "batch -1"),
                            (lambda: vitune.Model(self.path.parent / "absent", self.context), "absent")):
            with self.assertRaises(vitune.VituneError) as said:
                call()
            self.assertIn(words, str(said.exception))

    def test_a_model_whose_context_is_closed_is_refused(self):
        context = vitune.Context(0, database=FOLDER / "session.db", shipped_database="", log=lambda *_: None)
        model = vitune.Model(self.path, context)
        context.close()
        with self.assertRaisesRegex(vitune.VituneError, "destroyed|closed"):
            model.text("source")

    def test_a_model_that_outlives_its_context_leaves_no_file_open(self):
        def opened():
            places = (pathlib.Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
            return sum(os.path.realpath(place) == os.path.realpath(self.path) for place in places)
        before = opened()
        for _ in range(3):
            context = vitune.Context(0, database=FOLDER / "session.db", shipped_database="", log=lambda *_: None)
            model = vitune.Model(self.path, context)
            session = model.session(1)
            self.assertEqual(opened(), before + 1)
            context.close()
            del session, model, context
            gc.collect()
            self.assertEqual(opened(), before)


@needs_torch
@needs_device
class OtherNodesTest(unittest.TestCase):
    """Sessions of modules whose nodes the classifier has not."""

    def held(self, module, *shape):
        """The largest difference to the module in fp32, of its largest result; and the session."""
        module = drawn(module)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "model.safetensors"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            vitune.export(module, path, torch.zeros(1, *shape))
        context = vitune.Context(0, database=FOLDER / "session.db", shipped_database="", log=lambda *_: None)
        self.addCleanup(context.close)
        model = vitune.Model(path, context)
        images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        session, result = model.session(2), model.tensors(2)[1]
        given, taken = DEVICE.upload(to_bf16(images.float().flatten().tolist())), DEVICE.upload(b"\xff" * result.bytes)
        session.run([given], [taken])
        with torch.no_grad():
            wanted = module(images.float())
        mine = torch.tensor(from_bf16(DEVICE.download(taken, result.bytes))).reshape(wanted.shape)
        return float((mine - wanted).abs().max() / wanted.abs().max()), session

    def test_group_norms(self):
        error, session = self.held(Groups(), 16, 4, 4)
        self.assertLess(error, 0.03)
        self.assertIn("group_norm", kinds_of(session))

    def test_products_of_matrices(self):
        error, session = self.held(Products(), 12, 32)
        self.assertLess(error, 0.03)
        self.assertEqual(sum("x=mul(a,b) sum" in problem for _, problem in session.steps()), 2)

    def test_rms_norms_are_folded_by_statistics_of_rows(self):
        error, session = self.held(RmsChain(), 12, 64)
        self.assertLess(error, 0.03)
        self.assertEqual(sum("norm=rms" in problem for _, problem in session.steps()), 1)


if __name__ == "__main__":
    unittest.main()
