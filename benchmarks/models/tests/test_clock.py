# benchmarks/models/tests/test_clock.py -- A pass as a graph: of the stream that it was run on before, by the captures of the peers' program.
# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from .support import needs

try:
    import torch
    from models import clock
except ImportError:
    torch = None


@needs("torch")
class CudaClockTest(unittest.TestCase):
    def test_a_capture_is_of_the_stream_of_the_first_passes_and_owns_what_it_uses(self):
        calls, graph = mock.Mock(), mock.Mock()
        calls.capture.return_value = graph, "answer"
        with mock.patch.object(torch, "cuda"), mock.patch.object(clock, "capture", calls):
            replay, answer = clock.CudaClock().capture("a pass")
            side = torch.cuda.Stream.return_value
        self.assertEqual(calls.mock_calls, [mock.call.warm("a pass", side, 2), mock.call.capture("a pass", side)])
        self.assertEqual((replay, answer), (graph.replay, "answer"))
