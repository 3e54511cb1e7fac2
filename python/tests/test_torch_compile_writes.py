# python/tests/test_torch_compile_writes.py -- A compiled model's next answer is eager's after any write to a parameter: a table of ways to write.
# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

import vitune

from .linear_cases import LinearCase, Mlp, bf16
from .support import needs_torch, torch
from .test_torch_gpu import needs_gpu

from torch import nn

from vitune._compile import backend, folded_parameters, watch

from .weight_writes import WAYS, Target, patterns, without_distribution

try:
    import peft
except ImportError:
    peft = None


def expect_answers_of(test, compiled, model, x):
    """The next answer, beside eager's."""
    got, want = compiled(x), model(x)
    scale = want.float().abs().max()
    test.assertLess((got.float() - want.float()).abs().max() / scale, 0.02)


class WritesCase:
    """A model compiled anew for each way, which writes to it in each pattern."""

    def each_way(self, device, sees):
        for name, way in WAYS.items():
            if device in way.devices and way.sees == sees:
                with self.subTest(name), torch.no_grad(), without_distribution():
                    torch._dynamo.reset()
                    self.way = name
                    self.run_way(way, device)


class KnownWritesTest(LinearCase, WritesCase):
    """On the emulated device: PyTorch counts there as on a GPU, but for foreach calls, which the dispatcher tells of on both."""

    def run_way(self, way, device):
        model, x = Mlp(), bf16(2, 5, 32)
        target = Target(model, model.layer, "weight")
        compiled = vitune.compile(model, fullgraph=True, replace="linear")
        expect_answers_of(self, compiled, model, x)
        self.assertTrue(backend._backends[compiled].store._made)
        for pattern, new in patterns(target.parameter.detach()).items():
            with self.subTest(self.way, pattern=pattern):
                stale = model(x)
                way.write(target, new)
                self.assertGreater((model(x) - stale).abs().max(), 0.02 * stale.abs().max())  # else nothing is shown
                for _ in range(2):
                    expect_answers_of(self, compiled, model, x)

    def test_what_pytorch_runs_is_known_without_comparing(self):
        with mock.patch.object(folded_parameters.FoldCache, "compare", lambda *_: None):
            self.each_way("cpu", True)

    def test_what_nobody_tells_is_found_by_comparing(self):
        self.each_way("cpu", False)

    def test_what_nobody_tells_of_vectors_is_found(self):
        for module, name in (("layer", "bias"), ("norm", "weight"), ("norm", "bias")):
            with self.subTest(module, name=name), torch.no_grad():
                torch._dynamo.reset()
                model, x = Mlp(), bf16(2, 5, 32)
                compiled = vitune.compile(model, fullgraph=True, replace="linear")
                expect_answers_of(self, compiled, model, x)
                vector = getattr(getattr(model, module), name)
                vector.detach().view(torch.int16).numpy()[7] = torch.tensor([9.0]).bfloat16().view(torch.int16).item()
                expect_answers_of(self, compiled, model, x)

    @unittest.skipIf(peft is None, "peft is not installed")
    def test_adapters_are_merged_unmerged_and_switched(self):
        model, x = nn.Sequential(Mlp()), bf16(2, 5, 32)
        adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["layer"], r=4, init_lora_weights=False))
        adapted.add_adapter("other", peft.LoraConfig(target_modules=["layer"], r=4, init_lora_weights=False))
        adapted = adapted.bfloat16().eval()
        adapted.merge_adapter(["default"])
        with torch.no_grad(), mock.patch.object(folded_parameters.FoldCache, "compare", lambda *_: None):
            compiled = vitune.compile(adapted, replace="linear")
            for change in (lambda: None, adapted.unmerge_adapter, lambda: adapted.merge_adapter(["other"]), adapted.unmerge_adapter,
                           lambda: adapted.merge_adapter(["default"])):
                change()
                for _ in range(2):
                    expect_answers_of(self, compiled, adapted, x)

    def test_reading_data_makes_nothing_anew_and_costs_no_memory(self):
        model, x = Mlp(), bf16(2, 5, 32)
        compiled = vitune.compile(model, fullgraph=True, replace="linear")
        made = []
        put = folded_parameters._Made._put
        with torch.no_grad(), mock.patch.object(folded_parameters._Made, "_put", lambda self, *given: (made.append(self), put(self, *given))):
            compiled(x)
            self.assertEqual(len(made), 1)
            for _ in range(1000):
                model.layer.weight.data.norm()
            compiled(x)
            memory = watch.watch._memories[model.layer.weight.untyped_storage()._cdata]
            self.assertLess(len(memory.counters), 100)
            self.assertEqual(len(made), 1)
            model.layer.weight.data.neg_()
            expect_answers_of(self, compiled, model, x)
            self.assertEqual(len(made), 2)

    def test_where_too_many_tensors_share_a_weight_it_is_made_anew_each_time(self):
        model, x = Mlp(), bf16(2, 5, 32)
        with torch.no_grad(), mock.patch.object(watch, "_MANY_COUNTERS", 4), mock.patch.object(watch, "_MOST_COUNTERS", 8):
            compiled = vitune.compile(model, fullgraph=True, replace="linear")
            expect_answers_of(self, compiled, model, x)
            kept = [model.layer.weight.data for _ in range(20)]
            expect_answers_of(self, compiled, model, x)
            kept[-1].neg_()
            with mock.patch.object(folded_parameters.FoldCache, "compare", lambda *_: None):
                expect_answers_of(self, compiled, model, x)


@needs_torch
@needs_gpu
class WritesGpuTest(unittest.TestCase, WritesCase):
    """Called, and as a graph of the user's."""

    def run_way(self, way, device):
        for captured in (False, True):
            with self.subTest(self.way, captured=captured):
                torch._dynamo.reset()
                self.run_once(way, captured)

    def run_once(self, way, captured):
        model = Mlp(768, 3072).cuda()
        x = torch.randn(8, 197, 768, device="cuda", dtype=model.layer.weight.dtype)
        target = Target(model, model.layer, "weight")
        compiled = vitune.compile(model, fullgraph=True, replace="linear")
        for _ in range(2):
            expect_answers_of(self, compiled, model, x)
        self.assertTrue(backend._backends[compiled].store._made)
        run = self.captured(compiled, x) if captured else compiled
        target.after_capture = lambda: run(x)
        for pattern, new in patterns(target.parameter.detach()).items():
            with self.subTest(self.way, pattern=pattern):
                address = target.parameter.data_ptr()
                stale = model(x)
                way.write(target, new)
                self.assertGreater((model(x) - stale).abs().max(), 0.02 * stale.abs().max())
                if captured and target.parameter.data_ptr() != address:
                    break  # a graph reads the memory that was there when it was captured, eager's too
                # For an element that nobody told of, each pass compares one in columns / 8.
                for _ in range(768 // 8 if pattern == "an element" and (captured or not way.sees) else 0):
                    run(x)
                for _ in range(2):
                    expect_answers_of(self, run, model, x)

    def captured(self, compiled, x):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = compiled(x)

        def run(_):
            graph.replay()
            return out
        return run

    def test_what_pytorch_runs_is_known(self):
        self.each_way("cuda", True)

    def test_what_nobody_tells_is_found_in_the_same_pass(self):
        self.each_way("cuda", False)

    def test_foreach_calls_that_count_no_version_are_known_for_certain(self):
        """In one element, which comparing would find in some pass."""
        model = Mlp(768, 3072).cuda()
        x = torch.randn(8, 197, 768, device="cuda", dtype=torch.bfloat16)
        compiled = vitune.compile(model, fullgraph=True, replace="linear")
        with torch.no_grad():
            expect_answers_of(self, compiled, model, x)
            for name in ("foreach lerp", "AveragedModel", "data.copy_", "an optimizer, fused", "versions set back"):
                with self.subTest(name):
                    target = Target(model, model.layer, "weight")
                    expect_answers_of(self, compiled, model, x)
                    WAYS[name].write(target, patterns(target.parameter.detach())["an element"])
                    expect_answers_of(self, compiled, model, x)

    def test_nothing_is_made_again_on_the_device_where_nothing_changed(self):
        model = Mlp(768, 3072).cuda()
        x = torch.randn(8, 197, 768, device="cuda", dtype=torch.bfloat16)
        compiled = vitune.compile(model, fullgraph=True, replace="linear")
        with torch.no_grad():
            for _ in range(3):
                compiled(x)
            store = backend._backends[compiled].store
            before = [requests.item() for requests in store._requests.values()]
            for _ in range(200):
                compiled(x)
        self.assertEqual([requests.item() for requests in store._requests.values()], before)


if __name__ == "__main__":
    unittest.main()
