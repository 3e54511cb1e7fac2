# python/tests/test_torch_scratch.py -- Scratch memory of launches: asked for once, given anew where a refresh changed what is needed.
# SPDX-License-Identifier: Apache-2.0
import types
import unittest
from unittest import mock

from .support import needs_torch, torch

from vitune._runtime.errors import InvalidArgument

if torch is not None:
    from vitune._ops import attention as attention_ops, scratch


class FakeContext:
    """Needs `needed` bytes for each call, as a context does whose winner may be replaced at any time."""

    device = -1  # what tensors of the CPU say

    def __init__(self, needed):
        self.needed, self.refreshes, self.asked, self.given = needed, 0, 0, []

    def workspace_bytes(self, problem):
        self.asked += 1
        return self.needed

    def run(self, problem, addresses, *, stream, workspace, workspace_bytes):
        if workspace_bytes < self.needed or (self.needed and not workspace):
            raise InvalidArgument(f"the call needs {self.needed} bytes of workspace and was given {workspace_bytes}")
        self.given.append(workspace_bytes)


@needs_torch
class ScratchTest(unittest.TestCase):
    def setUp(self):
        self.context, self.problem = FakeContext(64), types.SimpleNamespace(text="", workspaces={})
        for name, value in (("context_of", lambda device: self.context), ("_stream", lambda device: 0)):
            patch = mock.patch.object(attention_ops, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def launch(self):
        scratch.launch(self.problem, (torch.zeros(1), None))

    def test_the_size_is_asked_for_once(self):
        for _ in range(3):
            self.launch()
        self.assertEqual((self.context.given, self.context.asked), ([64] * 3, 1))

    def test_a_refresh_asks_anew(self):
        for needed in (0, 256):
            self.launch()
            self.context.needed = needed
            self.context.refreshes += 1
        self.launch()
        self.assertEqual(self.context.given, [64, 0, 256])

    def test_a_winner_of_another_threads_refresh_gets_what_it_needs(self):
        self.launch()
        self.context.needed = 256
        self.launch()
        self.assertEqual(self.context.given, [64, 256])

    def test_a_call_that_is_wrong_in_itself_is_not_tried_again(self):
        self.launch()
        with mock.patch.object(self.context, "run", side_effect=InvalidArgument("x is no address")) as run:
            with self.assertRaises(InvalidArgument):
                self.launch()
        self.assertEqual(run.call_count, 1)


if __name__ == "__main__":
    unittest.main()
