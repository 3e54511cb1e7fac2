# python/tests/test_torch_compile_race.py -- The race of linear layers in vitune.compile(): both sides, which weights, what is told of it.
# SPDX-License-Identifier: Apache-2.0
import gc
import unittest
import weakref
from unittest import mock

import vitune

from .linear_cases import Mlp, RaceCase, Tail, bf16
from .support import needs_device, needs_torch, torch
from .test_torch_compile import served_by_nearest, vit, without_inductor

import torch.nn.functional as F
from torch import nn

from vitune._compile import backend
from vitune._compile.patterns import benchmark, linear as linear_pattern, subgraph
from vitune._ops import attention as attention_ops

try:
    import timm
except ImportError:
    timm = None


@needs_device
@needs_torch
class RaceTest(RaceCase):
    def test_both_sides_are_the_same_function_of_finite_numbers(self):
        cases = {"epilogue": (Tail(lambda y, r, g: r + F.gelu(y) * g), bf16(2, 5, 24), bf16(2, 5, 40)),
                 "positions": (Tail(lambda y, r, g: r + y), bf16(2, 5, 24), bf16(1, 5, 40)), "plain": (Tail(lambda y, r, g: y * 1),
                                                                                                       bf16(2, 24), bf16(2, 40)),
                 "patches": (nn.Conv2d(3, 16, 4, 4).bfloat16(), bf16(2, 3, 8, 12))}
        for name, (model, *arguments) in cases.items():
            with self.subTest(name):
                call = self.race_of(model, *arguments)
                self.assertTrue(call.replaced, call)
                ours, theirs = self.raced[-1]
                self.assertTrue(ours.isfinite().all() and ours.std() > 0.05)
                self.assertEqual((ours.shape, ours.dtype), (theirs.shape, theirs.dtype))
                torch.testing.assert_close(ours, theirs, atol=0.1, rtol=0.1)
                self.assertIn("5.0 us here, Inductor's 10.0", str(call))

    def test_a_norm_of_the_sum_is_in_the_race_on_both_sides(self):
        class Before(Tail):
            def __init__(self):
                super().__init__(None)
                self.norm = nn.LayerNorm(40).bfloat16()

            def forward(self, x, r):
                total = r + self.layer(x)
                return self.norm(total) * total
        graphs = []

        def compile_fx(module, *arguments, **keywords):
            graphs.append([node.target for node in module.graph.nodes if node.op == "call_function"])
            return without_inductor(module, *arguments, **keywords)
        call = self.race_of(Before(), bf16(2, 5, 24), bf16(2, 5, 40), compile_fx=compile_fx)
        self.assertEqual((call.call, call.replaced), ("linear and residual", True))
        self.assertEqual([F.layer_norm in graph for graph in graphs], [True, True])
        torch.testing.assert_close(*self.raced[0], atol=0.1, rtol=0.1)

    def test_a_sum_before_a_folded_norm_is_in_the_race_on_both_sides(self):
        class After(Mlp):
            def forward(self, x, r):
                total = torch.add(x, r)
                return total, super().forward(total), super().forward(x)
        graphs = []

        def compile_fx(module, *arguments, **keywords):
            graphs.append([node.target for node in module.graph.nodes if node.op == "call_function"])
            return without_inductor(module, *arguments, **keywords)
        self.race_of(After(), bf16(2, 5, 32), bf16(2, 5, 32), compile_fx=compile_fx)
        # The same layer twice: what stands before its norm makes two races of it.
        self.assertEqual([torch.add in graph for graph in graphs], [True, True, False, False])
        self.assertEqual(len(self.raced), 2)
        ours, theirs = self.raced[0]
        self.assertEqual((ours.shape, ours.dtype, bool(ours.isfinite().all())), (theirs.shape, theirs.dtype, True))

    def test_what_a_race_leaves_in_circles_is_freed_with_the_graph(self):
        class Circle:
            pass
        left = []

        def race(ours, theirs, device):
            circle = Circle()
            circle.itself, circle.sides = circle, (ours, theirs)
            left.append(weakref.ref(circle))
            gc.collect()  # it is an old object now, as in a compilation that takes minutes: Dynamo looks for young ones
            return benchmark.Times(5.0, 10.0)
        gc.disable()
        try:
            with mock.patch.object(benchmark, "race", race):
                self.race_of(Tail(lambda y, r, g: r + F.gelu(y) * g), bf16(2, 5, 24), bf16(2, 5, 40))
            self.assertTrue(left)
            self.assertFalse([each() for each in left if each() is not None])
        finally:
            gc.enable()

    def test_weights_come_in_turn_so_that_l2_has_none_of_them(self):
        x, weight, size = bf16(4, 64), bf16(32, 64), 32 * 64 * 2
        for l2_bytes, count in ((0, 1), (size, 3), (100 * size, benchmark.MOST_CALLS)):
            found = subgraph.turns([x, weight, 7], [False, True, False], l2_bytes)
            self.assertEqual(len({taken[1].data_ptr() for taken in found}), count)
            self.assertTrue(all(taken[0] is x and torch.equal(taken[1], weight) and taken[2] == 7 for taken in found))
        self.assertEqual(len(subgraph.turns([x], [False], size)), 1)

    def test_a_folded_norm_is_raced_with_its_statistics(self):
        call = self.race_of(Mlp(), bf16(2, 5, 32))
        self.assertEqual((call.call, call.replaced), ("layer_norm, linear and gelu", True))
        ours, theirs = self.raced[0]  # of weights that are not folded of one another: only what is launched can be compared
        self.assertEqual((ours.shape, ours.dtype, bool(ours.isfinite().all())), (theirs.shape, theirs.dtype, True))

    def test_the_next_smaller_one_is_tried_where_one_loses(self):
        call = self.race_of(Mlp(), bf16(2, 5, 32), lost=(1, 2))
        self.assertEqual((call.call, call.replaced), ("layer_norm and linear", True))
        self.assertEqual([(one.call, one.replaced) for one in call.tried],
                         [("layer_norm, linear and gelu", False), ("linear and gelu", False)])
        self.assertIn("Inductor's was faster when both were timed here", str(call))
        call = self.race_of(Mlp(), bf16(2, 5, 32), lost=(1, 2, 3, 4))
        self.assertEqual((call.call, call.replaced, len(call.tried)), ("layer_norm, linear and gelu", False, 3))

    def test_what_is_as_fast_is_not_worth_a_change(self):
        for ours, replaced, said in ((9.6, True, ""), (9.8, False, "Inductor's was as fast"), (10.1, False, "Inductor's was faster")):
            with mock.patch.object(benchmark, "race", lambda *runs, us=ours: benchmark.Times(us, 10.0)):
                call = self.race_of(Tail(lambda y, r, g: F.gelu(y)), bf16(2, 24), bf16(2, 40))
            self.assertEqual((call.call, call.replaced), ("linear and gelu", replaced))
            self.assertIn(said, call.reason)

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_every_layer_of_a_model_can_be_raced(self):
        models = {"vit": (vit(), bf16(2, 3, 32, 32)), "autocast": (vit(), torch.randn(2, 3, 32, 32)),
                  "dinov2": (timm.create_model("vit_small_patch14_dinov2", img_size=28, depth=1).eval(), bf16(2, 3, 28, 28))}
        for name, (model, x) in models.items():
            for dynamic in (None, True) if name == "vit" else (None,):
                with self.subTest(name, dynamic=dynamic), torch.autocast("cpu", torch.bfloat16, enabled=name == "autocast"):
                    torch._dynamo.reset()
                    backend._times.clear()
                    model = model.to(x.dtype)
                    with torch.no_grad(), mock.patch.object(subgraph, "compile_fx", without_inductor):
                        got, report = self.compiled(model, x, dynamic=dynamic)
                        self.expect_close(got, model(x), 0.06)
                    calls = [call for call in report.calls if call.operator == "linear"]
                    self.assertEqual([call for call in calls if call.times is None], [])
                    self.assertGreaterEqual(sum(call.replaced for call in calls), 5)
                    self.assertTrue(all(ours.shape == theirs.shape for ours, theirs in self.raced))

    def test_autocasts_rival_casts_its_weights(self):
        model, x, r = Tail(lambda y, r, g: F.gelu(y)).float(), torch.randn(2, 24), torch.randn(2, 40)
        with torch.autocast("cpu", torch.bfloat16):
            call = self.race_of(model, x, r)
        ours, theirs = self.raced[0]
        self.assertEqual((call.call, ours.dtype, theirs.dtype), ("linear and gelu (autocast)", torch.bfloat16, torch.bfloat16))

    def test_inductor_compiles_both_sides_inside_of_a_compilation(self):
        from torch._inductor.compile_fx import compile_fx
        compiled = []

        def counted(module, *arguments, **keywords):
            compiled.append(keywords["config_patches"])
            return compile_fx(module, *arguments, **keywords)
        call = self.race_of(Mlp(), bf16(2, 5, 32), compile_fx=counted)
        self.assertTrue(call.replaced, call)
        self.assertEqual([patches["triton.cudagraphs"] for patches in compiled], [False, False])
        self.assertEqual(len(self.raced), 1)

    def test_what_nobody_could_time_stays_as_it_is(self):
        with mock.patch.object(benchmark, "can_race", lambda device: False):
            call = self.race_of(Mlp(), bf16(2, 5, 32))
        self.assertEqual((call.replaced, len(self.raced)), (False, 0))
        self.assertIn("replace=[..., 'linear'] puts it in all the same", call.reason)

    def test_what_was_never_tuned_is_named_one_size_at_a_time(self):
        model, x = Mlp(), bf16(2, 5, 32)
        tuned = set()

        def selected(problem, device):
            found = attention_ops.context_of(device).query(vitune.Problem(problem))
            return served_by_nearest(vitune.Problem(problem), device) if found.problem in tuned else found
        with mock.patch.object(linear_pattern, "selected", selected):
            names = []
            for _ in range(3):
                torch._dynamo.reset()
                self.lost, self.raced = {1, 2, 3}, []
                with torch.no_grad(), mock.patch.object(subgraph, "compile_fx", without_inductor):
                    _, report = self.compiled(model, x)
                untuned = [problem for problem in report.untuned if problem.startswith("linear")]
                names += untuned
                tuned.update(untuned)
        self.assertEqual([name.split(" k=32 ")[1] for name in names],
                         ["norm=layer bias act=gelu params=fp32", "bias act=gelu", "norm=layer bias params=fp32"])


if __name__ == "__main__":
    unittest.main()
