# python/tests/test_torch_session.py -- vitune.Model and Session: a model file's pass beside the module that it was exported of.
# SPDX-License-Identifier: Apache-2.0
import pathlib
import tempfile
import unittest
import warnings

import vitune

from .support import DEVICE, FOLDER, from_bf16, needs_device, needs_torch, to_bf16, torch

if torch is not None:
    from .export_models import Classifier, drawn


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
        images = self.images(2)
        wanted = self.answer(one, images)
        DEVICE.write(two.buffer(0), to_bf16(images.float().flatten().tolist()))
        two.run([two.buffer(0)], [0])
        result = self.model.tensors(2)[1]
        mine = torch.tensor(from_bf16(DEVICE.download(two.buffer(1), result.bytes))).reshape(2, -1)
        self.assertTrue(torch.equal(mine, wanted))

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


if __name__ == "__main__":
    unittest.main()
