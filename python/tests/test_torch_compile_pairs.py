# python/tests/test_torch_compile_pairs.py -- vitune.compile() on two linear layers around a norm: what is a pair, the race.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import operator
import unittest
from unittest import mock

import vitune

from .linear_cases import LinearCase, RaceCase, bf16
from .support import torch
from .test_torch_compile import served_by_nearest, vit, without_inductor

import torch.nn.functional as F
from torch import nn

from vitune._compile import backend
from vitune._compile.patterns import benchmark, every, linear as linear_pattern, subgraph
from vitune._ops import attention as attention_ops, linear as linear_ops

try:
    import timm
except ImportError:
    timm = None

OPERATORS = every.PATTERNS
PAIR = "linear and residual; layer_norm, linear and gelu"
ONE_BY_ONE = ["linear and residual", "layer_norm, linear and gelu"]


def with_pairs(case):
    patch = mock.patch.object(every, "PATTERNS", OPERATORS)
    patch.start()
    case.addCleanup(patch.stop)


class Block(nn.Module):
    """A projection with its residual, a norm and a layer with its activation: a pair."""

    def __init__(self, n=64, norm=None):
        super().__init__()
        self.proj, self.norm, self.fc = nn.Linear(24, n), norm or nn.LayerNorm(n, eps=1e-6), nn.Linear(n, 40)
        for parameter in self.norm.parameters():
            nn.init.normal_(parameter, 1.0, 0.3)
        self.bfloat16().eval()

    def forward(self, x, r):
        total = r + self.proj(x)
        return F.gelu(self.fc(self.norm(total))), total


class PairTest(LinearCase):
    def setUp(self):
        super().setUp()
        with_pairs(self)

    def calls(self, model, x=None, r=None, **keywords):
        """Those of linear layers that were replaced, after the answers were compared with the model's."""
        x, r = bf16(2, 5, 24) if x is None else x, bf16(2, 5, 64) if r is None else r
        torch._dynamo.reset()
        with torch.no_grad():
            want = [value.clone() for value in model(x.clone(), r.clone())]
            got, report = self.compiled(model, x.clone(), r.clone(), **{"replace": ["linear"], **keywords})
        for ours, theirs in zip(got, want):
            self.expect_close(ours, theirs, 0.06)
        self.assertFalse(any(graph.error for graph in report.graphs), report)
        return [call.call for call in report.calls if call.operator == "linear" and call.replaced]

    def test_two_layers_around_a_norm_are_a_pair(self):
        self.assertEqual(self.calls(Block()), [PAIR])
        ops = torch.ops.vitune
        self.assertEqual(without_inductor.calls, [ops.linear_with_moments_or_torch.default, operator.getitem, operator.getitem,
                                                  ops.linear_by_moments_or_torch.default])
        self.assertEqual(self.launched, ["linear bf16 m=10 n=64 k=24 bias residual moments=32",
                                         "linear bf16 m=10 n=40 k=64 norm=moments:32 eps=1e-06 bias act=gelu params=fp32"])

    def test_what_follows_them_is_their_epilogue(self):
        class Ends(Block):
            def forward(self, x, r):
                total = F.dropout(F.silu(self.proj(x)) * self.norm.weight, 0.0, True) + r
                return self.fc(self.norm(total)) * self.fc.bias, total
        self.assertEqual(self.calls(Ends()), ["linear, silu, LayerScale and residual; layer_norm, linear and LayerScale"])

        class Bare(Block):
            def forward(self, x, r):
                return F.linear(self.norm(self.proj(x)), self.fc.weight), r
        self.assertEqual(self.calls(Bare()), ["linear; layer_norm and linear"])

    def test_the_residual_of_the_second_may_be_the_firsts_result(self):
        class Residual(Block):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(64, 64).bfloat16()

            def forward(self, x, r):
                total = r + self.proj(x)
                return total + self.fc(self.norm(total)), r
        self.assertEqual(self.calls(Residual()), ["linear and residual; layer_norm, linear and residual"])

    def test_a_result_that_is_used_later_is_given_too(self):
        class Later(Block):
            def forward(self, x, r):
                total = r + self.proj(x)
                y = F.gelu(self.fc(self.norm(total)))
                return y.sum(-1, keepdim=True) * 0 + total.relu(), total
        self.assertEqual(self.calls(Later()), [PAIR])

    def test_each_layer_is_of_one_pair(self):
        class Three(Block):
            def __init__(self):
                super().__init__()
                self.fc, self.last = nn.Linear(64, 64).bfloat16(), nn.Linear(64, 16).bfloat16()

            def forward(self, x, r):
                y = self.fc(self.norm(r + self.proj(x)))
                return self.last(F.layer_norm(y, (64,))), y
        self.assertEqual(self.calls(Three()), ["linear and residual; layer_norm and linear", "layer_norm and linear"])

    def test_what_is_no_pair_is_looked_at_layer_by_layer(self):
        class Twice(Block):  # of its norm
            def forward(self, x, r):
                total = r + self.proj(x)
                normed = self.norm(total)
                return F.gelu(self.fc(normed)), normed

        class Between(Block):  # its result is used before the second layer's is there
            def forward(self, x, r):
                total = r + self.proj(x)
                seen = torch.sigmoid(total)
                return F.gelu(self.fc(self.norm(total))), seen

        class Changed(Block):
            def forward(self, x, r):
                total = r + self.proj(x)
                normed = self.norm(total)
                r.mul_(2)
                return F.gelu(self.fc(normed)), r

        class Weight(Block):  # what is normalised is no rows of x
            def forward(self, x, r):
                return F.linear(r[0], self.norm(self.proj(x[0]))), r

        class Wide(Block):
            def forward(self, x, r):
                total = r + self.proj(x)
                return F.gelu(F.linear(F.layer_norm(total, (64,)).bfloat16(), self.fc.weight)), total
        apart, rms = ["linear and residual", "linear and gelu"], ["linear and residual", "rms_norm, linear and gelu"]
        cases = {"norm used twice": (Twice(), None, apart), "used in between": (Between(), None, ONE_BY_ONE),
                 "changed in between": (Changed(), None, ONE_BY_ONE), "weight": (Weight(), None, ["linear", "linear"]),
                 "columns": (Block(56), bf16(2, 5, 56), ONE_BY_ONE), "rms_norm": (Block(norm=nn.RMSNorm(64)), None, rms),
                 "sum in fp32": (Wide(), torch.randn(2, 5, 64), apart)}
        for name, (model, r, left) in cases.items():
            with self.subTest(name):
                self.assertEqual(self.calls(model, r=r), left)

    def test_of_many_rows_there_is_none(self):
        with mock.patch.object(linear_pattern, "_MOST_FOLDED", 9):
            self.assertEqual(self.calls(Block()), ["linear and residual", "linear and gelu"])

    def test_under_autocast_there_is_none(self):
        model = Block().float()
        with torch.autocast("cpu", torch.bfloat16):
            calls = self.calls(model, torch.randn(2, 5, 24), torch.randn(2, 5, 64))
        self.assertEqual(calls, ["linear and residual (autocast)", "linear and gelu (autocast)"])

    def test_of_weights_that_are_no_parameters_it_says_so(self):
        weight = bf16(40, 64, scale=0.2)
        first = nn.Linear(24, 64).bfloat16()

        def call(x, r, weight):
            return F.linear(F.layer_norm(r + first(x), (64,)), weight)
        with torch.no_grad():
            _, report = self.compiled(call, bf16(2, 24), bf16(2, 64), weight, replace=["linear"])
        refused, *left = [call for call in report.calls if call.operator == "linear"]
        self.assertEqual((refused.replaced, refused.reason), (False, "its weights are no parameters of the model"))
        self.assertEqual([(call.call, call.replaced) for call in left], [("linear and residual", True), ("linear", True)])

    def test_where_no_kernel_writes_moments_nothing_is_told(self):
        def selected(problem, device):
            if "moments" in problem:
                raise vitune.Unsupported("of the test")
            return served_by_nearest(vitune.Problem(problem), device)
        with mock.patch.object(linear_pattern, "selected", selected), torch.no_grad():
            _, report = self.compiled(Block(), bf16(2, 24), bf16(2, 64), replace=["linear"])
        self.assertEqual([call.call for call in report.calls if call.operator == "linear"], ONE_BY_ONE)

    def test_a_call_without_a_kernel_is_pytorchs_where_the_model_runs(self):
        with mock.patch.object(linear_ops, "launch", side_effect=vitune.Unsupported("of the test")), self.assertWarns(
                vitune.torch.FallbackWarning):
            self.assertEqual(self.calls(Block()), [PAIR])
        self.assertEqual(vitune.torch.stats().reasons, {"of the test": 2})

    def test_another_batch_is_the_same_graph(self):
        model = Block()
        compiled = vitune.compile(model, fullgraph=True, dynamic=True, replace="linear")
        with torch.no_grad():
            for batch in (2, 3, 7):
                x, r = bf16(batch, 5, 24), bf16(batch, 5, 64)
                for ours, theirs in zip(compiled(x, r), model(x, r)):
                    self.expect_close(ours, theirs, 0.06)
        graph, = vitune.report(compiled).graphs
        self.assertEqual([call.call for call in graph.calls if call.replaced], [PAIR])

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_blocks_of_models(self):
        dinov2 = timm.create_model("vit_small_patch14_dinov2", img_size=28, depth=2, init_values=0.5).eval()
        for first, model, size in (("linear and residual", vit(), 32), ("linear, LayerScale and residual", dinov2, 28)):
            with self.subTest(first):
                calls = self.fused(model.bfloat16(), bf16(2, 3, size, size), bound=0.06)
                self.assertEqual([call for call in calls if not call.replaced], [])
                names = [call.call for call in calls if "patch" not in call.call and call.call != "linear"]
                self.assertEqual(names, ["layer_norm and linear", f"{first}; layer_norm, linear and gelu",
                                         f"{first}; layer_norm and linear", f"{first}; layer_norm, linear and gelu", first])

    def test_both_kernels_are_in_the_key_of_inductors_cache(self):
        digests = []

        def inductor(module, inputs, config_patches):
            digests.append(config_patches["post_grad_custom_post_pass"].uuid())
            return without_inductor(module, inputs)
        nearest = linear_pattern.selected
        for changed in (" moments=", "norm=moments", "nothing"):
            def selected(problem, device, changed=changed):
                found = nearest(problem, device)
                return dataclasses.replace(found, kernel_key="another" if changed in problem else "one")
            with mock.patch.object(backend, "compile_fx", inductor), mock.patch.object(linear_pattern, "selected", selected):
                self.assertEqual(self.calls(Block()), [PAIR])
        self.assertEqual(len(set(digests)), 3)


class PairRaceTest(RaceCase):
    def setUp(self):
        super().setUp()
        with_pairs(self)
        self.model, self.x, self.r = Block(), bf16(2, 5, 24), bf16(2, 5, 64)

    def linear_calls(self, *lost, model=None, **keywords):
        report = self.report_of_race(model or self.model, self.x, self.r, lost=lost, **keywords)
        return [call for call in report.calls if call.operator == "linear"]

    def test_both_layers_are_one_race(self):
        class After(Block):
            def forward(self, x, r):
                y, total = super().forward(x, r)
                return F.layer_norm(y, (40,)), y, total
        graphs = []

        def compile_fx(module, *arguments, **keywords):
            graphs.append([node.target for node in module.graph.nodes if node.op == "call_function"])
            graphs[-1].append(len(module.graph.find_nodes(op="output")[0].all_input_nodes))
            return without_inductor(module, *arguments, **keywords)
        call, = self.linear_calls(model=After(), compile_fx=compile_fx)
        self.assertEqual((call.call, call.replaced, call.times.theirs_us, len(self.raced)), (PAIR, True, 10.0, 2))
        for ours, theirs in self.raced:
            torch.testing.assert_close(ours, theirs, atol=0.1, rtol=0.1)  # of the first layer; the second's weights are made up
        ops = torch.ops.vitune
        self.assertEqual(graphs[0], [ops.linear_with_moments_or_torch.default, operator.getitem, operator.getitem,
                                     ops.linear_by_moments_or_torch.default, F.layer_norm, 3])
        self.assertEqual((graphs[1].count(F.linear), graphs[1].count(F.layer_norm), graphs[1][-1]), (2, 2, 3))
        self.assertEqual([node for node in graphs[3] if node is ops.linear_or_torch.default], [ops.linear_or_torch.default] * 2)
        self.assertIn(call.further[0].problem, str(call))

    def test_layers_of_a_pair_that_loses_are_raced_one_by_one(self):
        pair, *layers = self.linear_calls(1, 2)
        self.assertEqual((pair.call, pair.replaced, [each.call for each in pair.tried]),
                         (PAIR, False, ["linear and residual; layer_norm and linear"]))
        self.assertIn("Inductor's was faster when both were timed here", pair.reason)
        self.assertEqual([(call.call, call.replaced) for call in layers], [(name, True) for name in ONE_BY_ONE])

    def test_a_pair_that_its_layers_own_calls_beat_is_none(self):
        layers = self.linear_calls(2, 4)  # the second race of each pair is the one beside them
        self.assertEqual([(call.call, call.replaced) for call in layers[1:]], [(name, True) for name in ONE_BY_ONE])
        self.assertIn("a call for each layer was faster when both were timed here", layers[0].reason)
        self.assertEqual([each.replaced for each in layers[0].tried], [False])

    def test_layers_that_were_never_tuned_alone_are_no_rival(self):
        nearest = linear_pattern.selected

        def selected(problem, device):
            found = nearest(problem, device)
            return found if "moments" in problem else dataclasses.replace(found, outcome="default")
        with mock.patch.object(linear_pattern, "selected", selected):
            call, = self.linear_calls()
        self.assertEqual((call.call, call.replaced, len(self.raced)), (PAIR, True, 1))

    def test_the_next_smaller_one_is_tried_first(self):
        pair, = self.linear_calls(1)
        self.assertEqual((pair.call, pair.replaced, [each.call for each in pair.tried]),
                         ("linear and residual; layer_norm and linear", True, [PAIR]))

    def test_another_kernel_of_either_is_another_race(self):
        nearest, keys = linear_pattern.selected, set()
        for changed in ("nothing", " moments=", "norm=moments"):
            def selected(problem, device, changed=changed):
                return dataclasses.replace(nearest(problem, device), config="another" if changed in problem else "one")
            with mock.patch.object(linear_pattern, "selected", selected):
                self.linear_calls()
            keys.update(backend._times)
        self.assertEqual(len(keys), 3)

    def test_what_was_never_tuned_is_named_of_both(self):
        tuned = set()

        def selected(problem, device):
            found = attention_ops.context_of(device).query(vitune.Problem(problem))
            return served_by_nearest(vitune.Problem(problem), device) if found.problem in tuned else found
        with mock.patch.object(linear_pattern, "selected", selected):
            report = self.report_of_race(self.model, self.x, self.r)
            first = [problem for problem in report.untuned if "moments" in problem]
            self.assertEqual(first, ["linear bf16 m=10 n=64 k=24 bias residual moments=32",
                                     "linear bf16 m=10 n=40 k=64 norm=moments:32 eps=1e-06 bias act=gelu params=fp32"])
            self.assertIn("never tuned", report.calls[0].reason)
            tuned.add(first[0])
            report = self.report_of_race(self.model, self.x, self.r)
            self.assertEqual([problem for problem in report.untuned if "moments" in problem], first[1:])
            tuned.add(first[1])
            self.assertEqual([call.call for call in self.linear_calls() if call.replaced], [PAIR])

    def test_inductor_compiles_both_sides_inside_of_a_compilation(self):
        from torch._inductor.compile_fx import compile_fx
        call, = self.linear_calls(compile_fx=compile_fx)
        self.assertEqual((call.call, call.replaced, len(self.raced)), (PAIR, True, 2))
        for both in self.raced:
            torch.testing.assert_close(*both, atol=0.1, rtol=0.1)

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_every_pair_of_a_model_can_be_raced(self):
        model, x = vit().bfloat16(), bf16(2, 3, 32, 32)
        for dynamic in (None, True):
            torch._dynamo.reset()
            backend._times.clear()
            without = mock.patch.object(subgraph, "compile_fx", without_inductor)
            with self.subTest(dynamic=dynamic), without, torch.no_grad():
                got, report = self.compiled(model, x, dynamic=dynamic)
                self.expect_close(got, model(x), 0.06)
                pairs = [call for call in report.calls if ";" in call.call]
                self.assertEqual([(call.replaced, call.times is None) for call in pairs], [(True, False)] * 3)

    def test_what_nobody_could_time_stays_as_it_is(self):
        with mock.patch.object(benchmark, "can_race", lambda device: False):
            calls = self.linear_calls()
        self.assertEqual([call.replaced for call in calls], [False] * 3)
        self.assertIn("replace=[..., 'linear'] puts it in all the same", calls[0].reason)


if __name__ == "__main__":
    unittest.main()
