# python/tests/test_torch_benchmark.py -- vitune.benchmark(model, sample): what it times, compares, refuses and prints.
# SPDX-License-Identifier: Apache-2.0
import sys
import types
import unittest
from unittest import mock

import vitune

from .support import needs_device, needs_torch, torch
from .test_torch_tune import UntunedModelCase, attention

if torch is not None:
    from torch import nn

    from vitune._compile import backend, benchmark_model


@needs_device
@needs_torch
class BenchmarkTest(UntunedModelCase):
    def setUp(self):
        super().setUp()
        for module, name, value in ((torch, "compile", self.compiled), (benchmark_model, "_ROUNDS", 4), (benchmark_model, "_LEAST_ROUND_SECONDS", 0.001)):
            self.replace(module, name, value)

    compile_as_torch = staticmethod(torch.compile) if torch is not None else None

    def compiled(self, model, **options):
        """torch.compile without Inductor, which needs minutes here."""
        return self.compile_as_torch(model, **{"backend": "eager", **{key: value for key, value in options.items() if key == "backend"}})

    def test_all_ways_are_timed_and_answers_compared(self):
        model, x = attention()
        result = vitune.benchmark(model.eval(), x)
        self.assertEqual(list(result.ms), ["eager", "torch.compile", "vitune.compile"])
        self.assertTrue(all(ms > 0 for ms in result.ms.values()))
        self.assertEqual(list(result.gains), ["eager", "torch.compile"])
        for gain in result.gains.values():
            self.assertLessEqual(gain.low, gain.times)
            self.assertLessEqual(gain.times, gain.high)
        self.assertEqual(result.differences["torch.compile"], 0.0)
        self.assertLess(result.differences["vitune.compile"], 0.02)
        self.assertEqual((result.known, dict(result.joules)), (2, {}))
        text = str(result)
        for words in ("Attention of bfloat16 [2, 3, 7, 64]", "of 2 known calls replaced", "difference from eager's answer", "vitune.compile: "):
            self.assertIn(words, text)
        torch.testing.assert_close(result.model(x), model(x), atol=0.03, rtol=0.03)

    def test_a_wrong_answer_is_seen(self):
        model, x = attention()
        with mock.patch.object(backend, "compile", lambda model, *rest: lambda x: model(x) + 1):
            with mock.patch.object(backend, "report", lambda compiled: types.SimpleNamespace(calls=())):
                result = vitune.benchmark(model.eval(), x)
        self.assertGreater(result.differences["vitune.compile"], 0.2)

    def test_what_cannot_be_timed_is_refused_with_a_way_out(self):
        model, x = attention()
        for given, words in ((model.train(), "call model.eval"), (vitune.compile(model), "before vitune.compile"),
                             (lambda x: None, "returns no floating-point tensor")):
            with self.subTest(words), self.assertRaisesRegex(vitune.InvalidArgument, words):
                vitune.benchmark(given, x)

    def test_joules_are_of_a_pass(self):
        model, x = attention()
        taken = iter(range(0, 100000, 7))
        with mock.patch.object(benchmark_model, "energy_counter", lambda device: lambda: float(next(taken))):
            result = vitune.benchmark(model.eval(), x, energy_seconds=0.01)
            self.assertEqual(list(result.joules), list(result.ms))
            self.assertTrue(all(0 < joules <= 7 for joules in result.joules.values()))
            self.assertIn(" J", str(result))
            self.assertEqual(dict(vitune.benchmark(model, x, energy_seconds=0).joules), {})


@needs_torch
class FiguresTest(unittest.TestCase):
    def test_an_interval_holds_the_median_and_narrows_with_the_spread(self):
        even = benchmark_model.interval([1.5] * 20)
        self.assertEqual((even.low, even.times, even.high), (1.5, 1.5, 1.5))
        spread = benchmark_model.interval([1.0 + 0.01 * index for index in range(21)])
        self.assertAlmostEqual(spread.times, 1.1)
        self.assertTrue(1.0 < spread.low < 1.1 < spread.high < 1.2)

    def test_answers_are_compared_whatever_holds_them(self):
        class Two(nn.Module):
            def forward(self, x):
                return {"logits": x, "rest": (x * 2, [torch.arange(3)]), "none": None}
        found = benchmark_model.answer_of(Two(), benchmark_model.Call(torch.ones(2, 3)))
        self.assertEqual([each.shape for each in found], [(2, 3), (2, 3)])
        self.assertEqual(benchmark_model.difference(found, found), 0.0)
        self.assertAlmostEqual(benchmark_model.difference([found[0] * 1.01, found[1] * 1.01], found), 0.01)

    def test_without_nvml_there_are_no_joules(self):
        self.assertIsNone(benchmark_model.energy_counter(torch.device("cpu")))
        with mock.patch.dict(sys.modules, {"pynvml": None}):
            self.assertIsNone(benchmark_model.energy_counter(torch.device("cuda")))


if __name__ == "__main__":
    unittest.main()
