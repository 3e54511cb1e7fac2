# python/tests/test_torch_compile_inputs.py -- Inputs of graphs that are replayed: where they lie when the graph runs, and which stay the caller's.
# SPDX-License-Identifier: Apache-2.0
import threading
import unittest
from unittest import mock

import vitune

from .support import needs_device, needs_torch, torch
from .test_torch_host import TorchTest

if torch is not None:
    import torch.nn.functional as F
    from torch import nn
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    from vitune._compile import backend


@needs_device
@needs_torch
class InputsTest(TorchTest):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.seen = []  # of each call of a graph: the addresses that it was given
        patch = mock.patch.object(backend, "compile_fx", self.compile_fx)
        patch.start()
        self.addCleanup(patch.stop)

    def compile_fx(self, module, inputs, config_patches):
        self.static = [bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))
                       for node in module.graph.find_nodes(op="placeholder")]

        def run(*given):
            self.seen.append([each.data_ptr() if isinstance(each, torch.Tensor) else each for each in given])
            return module(*given)
        return run

    def called(self, function, *calls, mode="reduce-overhead", **keywords):
        """What a function answers at each call, once it is compiled."""
        compiled = vitune.compile(function, mode=mode, **keywords)
        return [compiled(*given) for given in calls]

    def expect_the_callers(self, function, *given, **keywords):
        self.called(function, given, **keywords)
        self.assertEqual(self.seen[0], [each.data_ptr() for each in given])

    def test_they_are_copied_to_the_same_memory(self):
        for inference in (False, True):
            with self.subTest(inference=inference), torch.inference_mode(inference):
                self.setUp()
                first, second = torch.randn(4, 3), torch.randn(4, 3)
                got = self.called(lambda x: x * 2, (first,), (second,), (first,))
                for answer, x in zip(got, (first, second, first)):
                    self.assertTrue(torch.equal(answer, x * 2))
                self.assertEqual(self.static, [True])
                (place,), = set(map(tuple, self.seen))
                self.assertNotIn(place, (first.data_ptr(), second.data_ptr()))

    def test_strides_are_the_callers(self):
        x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
        answer, = self.called(lambda x: torch.tensor(x.stride()), (x,))
        self.assertEqual(tuple(answer), x.stride())

    def test_without_cuda_graphs_nothing_is_copied(self):
        for mode, options in ((None, None), ("default", None), ("reduce-overhead", {"triton.cudagraphs": False})):
            self.setUp()
            self.expect_the_callers(lambda x: x * 2, torch.randn(4), mode=mode, options=options)
        with torch._inductor.config.patch({"triton.cudagraphs": True}):
            self.called(lambda x: x * 2, (torch.randn(4),), mode=None)
        self.assertEqual(self.static, [True])

    def test_parameters_stay_where_they_are(self):
        layer, x = nn.Linear(4, 3), torch.randn(2, 4)
        with torch.no_grad():
            self.called(layer, (x,))
        (*given,), = self.seen
        self.assertEqual(len({*given} & {layer.weight.data_ptr(), layer.bias.data_ptr()}), 2)
        self.assertNotIn(x.data_ptr(), given)

    def test_what_others_see_afterwards_is_the_callers(self):
        def writes(x):
            x.add_(1)
            return x * 2

        def writes_a_view(x):
            x[0].mul_(3)
            return x * 2
        for function in (writes, writes_a_view, lambda x: x[1:], lambda x: x.contiguous()):
            self.setUp()
            self.expect_the_callers(function, torch.randn(4, 3))
        self.setUp()
        x, y = torch.randn(4), torch.randn(4)
        self.called(lambda x, y: (x * y, y.view(2, 2)), (x, y))
        (place, other), = self.seen
        self.assertNotEqual(place, x.data_ptr())
        self.assertEqual(other, y.data_ptr())

    def test_operators_of_others_change_the_callers(self):
        @torch.library.custom_op("vitune_test::count_up", mutates_args={"x"})
        def count_up(x: torch.Tensor) -> None:
            x += 1
        library = torch.library.Library("vitune_test_raw", "DEF")
        self.addCleanup(library._destroy)
        library.define("count_up(Tensor(a!) x) -> ()")
        library.impl("count_up", lambda x: None if x.add_(1) is x else None, "CompositeExplicitAutograd")
        for count in (count_up, torch.ops.vitune_test.count_up, torch.ops.vitune_test.count_up.default,
                      torch.ops.vitune_test_raw.count_up):
            self.setUp()
            self.expect_the_callers(lambda x, count=count: count(x) or x * 2, torch.zeros(4))
        self.setUp()
        x, mean, variance = torch.randn(3, 4), torch.zeros(4), torch.ones(4)
        self.called(lambda *given: F.batch_norm(*given, training=True) * 2, (x, mean, variance))
        (place, *others), = self.seen
        self.assertNotEqual(place, x.data_ptr())
        self.assertEqual(others, [mean.data_ptr(), variance.data_ptr()])

    def test_what_runs_graphs_of_its_own_may_do_anything(self):
        def either(x):
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))
        self.expect_the_callers(either, torch.randn(4))

    def test_a_cached_graph_changes_the_callers_too(self):
        x, want = torch.zeros(4), torch.zeros(4)
        with mock.patch.object(backend, "compile_fx", compile_fx), torch.no_grad(), torch._inductor.utils.fresh_cache():
            for _ in range(2):
                torch._dynamo.reset()
                compiled = vitune.compile(lambda x: x.add_(1) * 2, mode="reduce-overhead")
                for _ in range(2):
                    answer = compiled(x)
                    want += 1
                    self.assertTrue(torch.equal(x, want) and torch.equal(answer, want * 2))

    def test_a_tensor_that_was_written_before_is_static_all_the_same(self):
        x = torch.randn(4)
        x.add_(1).mul_(2)
        self.called(lambda x: x * 2, (x,))
        self.assertEqual(self.static, [True])

    def test_a_training_steps_are_the_callers(self):
        layer, x = nn.Linear(4, 3), torch.randn(2, 4)
        self.called(layer, (x,))
        self.assertIn(x.data_ptr(), self.seen[0])
        self.setUp()
        self.expect_the_callers(lambda x: (x * 2).detach(), torch.randn(4, requires_grad=True))

    def test_sizes_that_change_are_left_to_pytorch(self):
        self.called(lambda x: x * 2, (torch.randn(3, 4),), (torch.randn(5, 4),), dynamic=True)
        self.assertNotIn(True, self.static)

    def test_each_size_has_its_own(self):
        sizes = [(3,), (5,), (3,)]
        given = [(torch.randn(size),) for size in sizes]
        got = self.called(lambda x: x * 2, *given, dynamic=False)
        for answer, (x,) in zip(got, given):
            self.assertTrue(torch.equal(answer, x * 2))
        self.assertEqual(self.seen[0], self.seen[2])
        self.assertNotEqual(self.seen[0], self.seen[1])

    def test_memory_that_is_read_twice_or_begins_anywhere_is_left(self):
        self.expect_the_callers(lambda x: x * 2, torch.randn(4, 1).expand(4, 3))
        self.setUp()
        self.expect_the_callers(lambda x: x * 2, torch.randn(9)[1:])

    def test_what_another_graph_of_the_model_gave_is_not_copied(self):
        def model(x):
            y = x * 2
            torch._dynamo.graph_break()
            return y + 1
        x, again = torch.randn(4), torch.randn(4)
        got = self.called(model, (x,), (again,), fullgraph=False)
        self.assertTrue(torch.equal(got[1], again * 2 + 1))
        first, second, *_ = self.seen
        self.assertNotEqual(first, [x.data_ptr()])
        self.assertEqual(self.static, [False])  # of the second graph
        self.assertEqual(len(second), 1)

    def test_each_thread_has_its_own(self):
        compiled = vitune.compile(lambda x: x * 2, mode="reduce-overhead")
        x = torch.randn(4)
        compiled(x)
        thread = threading.Thread(target=compiled, args=(x,))
        thread.start()
        thread.join()
        self.assertEqual(len(set(map(tuple, self.seen))), 2)

    def test_they_are_static_inputs_of_inductor(self):
        seen = []

        def inner(module, inputs, **keywords):
            seen.append((len(inputs), list(torch._guards.TracingContext.get().fw_metadata.static_input_indices)))
            return compile_fx_inner(module, inputs, **keywords)
        compile = lambda module, inputs, config_patches: compile_fx(module, inputs, inner, config_patches)  # noqa: E731
        x = torch.randn(4)
        with mock.patch.object(backend, "compile_fx", compile), torch.no_grad(), torch._inductor.utils.fresh_cache():
            answer, again = self.called(lambda x: x * 2, (x,), (-x,))
        self.assertEqual(seen, [(1, [0])])
        self.assertTrue(torch.equal(answer, x * 2) and torch.equal(again, -x * 2))


if __name__ == "__main__":
    unittest.main()
