# python/tests/test_torch_missed.py -- What is said where the operators' library is missing or cannot be loaded.
# SPDX-License-Identifier: Apache-2.0
import pathlib
import tempfile
import unittest
import warnings
from unittest import mock

import vitune

from .support import needs_library, needs_torch, torch

if torch is not None:
    from vitune._runtime import native


@needs_library
@needs_torch
class MissedTest(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.multiple(native, missing="", wanted="")
        patch.start()
        self.addCleanup(patch.stop)
        counters = vitune.torch.attention_ops.counters
        before = set(counters.warned)
        self.addCleanup(setattr, counters, "warned", before)

    def entered(self, **words):
        """Texts of the warnings of entering twice."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                with vitune.torch.enabled(**words):
                    pass
        return [str(warning.message) for warning in caught if warning.category is vitune.torch.FallbackWarning]

    def test_the_reason_is_the_version_the_place_or_the_loaders(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder) / native.NAME
            broken.write_bytes(b"no library")
            for version, path, reason in (("2.9.1+cu128", broken, "needs PyTorch 2.10 or newer, and this is 2.9.1"),
                                          ("2.11.0", None, "libvitune_torch.so is not beside libvitune.so.0"),
                                          ("2.11.0", broken, f"cannot load {broken}: ")):
                with self.subTest(reason), mock.patch.object(torch, "__version__", version), \
                        mock.patch.object(native, "_path", lambda path=path: path):
                    self.assertIsNone(native.load(lambda device: None))
                    self.assertIn(reason, native.missing)

    def test_entering_warns_once_unless_norms_were_not_wanted(self):
        native.missing = "of a test"
        self.assertEqual(self.entered(norms=False), [])
        self.assertEqual(self.entered(), ["LayerNorms stay PyTorch's and calls cost more host time without the operators' library: of a test"])

    def test_stats_say_it_whether_calls_were_made_or_not(self):
        self.assertEqual(vitune.torch.stats().missed, "")
        native.missing = "of a test"
        stats = vitune.torch.stats()
        self.assertRegex(str(stats), r"(?s)served .*\n  LayerNorms stay PyTorch's .*: of a test$")
        self.assertEqual((stats - stats).missed, stats.missed)


if __name__ == "__main__":
    unittest.main()
