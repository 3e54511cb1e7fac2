# python/tests/test_torch_compile_norm_train_race.py -- Norms that train in vitune.compile(): the race, programs beside eager mode, the library on the emulated device.
# SPDX-License-Identifier: Apache-2.0
"""As test_torch_compile_norm_train.py."""
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("norms that train are not the operators' library's: once is enough")

import torch.nn.functional as F
from torch import nn

from vitune._compile.patterns import norm_train, subgraph
from vitune._ops import attention as attention_ops, decompositions, norm as norm_ops, norm_training as training

from . import test_torch_compile_train_race as race_case, test_torch_train_beside as beside
from .test_torch_compile_norm_train import ALONE, Block, D, DROPS, NormCase, x_of
from .test_torch_compile_train import OPS, serve_by_nearest, timm, vit
from .test_torch_norm import launch_staged as launch_norm_staged
from .test_torch_train import launch_staged, serves


class RaceTest(race_case.RaceCase):
    operator, pattern = "norm_train", norm_train

    def norms(self, report):
        return [call for call in report.calls if call.operator == "norm_train"]

    def test_both_sides_are_the_same_function_with_the_same_gradients(self):
        half = torch.bfloat16
        cases = ((Block(drops=True), True, [5, 6]), (Block(scale=True), True, [5, 7]), (Block(drops=True).bfloat16(), False, [5, 6]))
        for model, on, counts in cases:
            report = self.report(model, x_of(dtype=half if not on else torch.float32), on)
            self.assertEqual([call.replaced for call in self.norms(report)], [True] * 3)
            # Result, what x has from elsewhere, three gradients; norm and sum, gradients of both, of the parameters, and of the scale.
            self.assertEqual([len(ours) for ours, _ in self.raced[:2]], counts)
            for ours, theirs in self.raced:
                for mine, other in zip(ours, theirs, strict=True):
                    self.assertEqual((mine.shape, mine.dtype), (other.shape, other.dtype))
                    self.assertTrue(mine.isfinite().all() and mine.std() > 0.01)
                    self.assertLessEqual((mine - other).norm().item(), 0.02 * other.norm().item())
            self.assertIn("5.0 us here, Inductor's 10.0", str(report))

    def test_inductor_compiles_both_passes_and_makes_the_forward_pass_its_own(self):
        from torch._inductor.compile_fx import compile_fx
        seen = []

        def compiled(module, inputs, config_patches=None):
            from torch._inductor.custom_graph_pass import CustomGraphPass

            class Note(CustomGraphPass):
                def __call__(self, graph):
                    seen.append([str(node.target) for node in graph.nodes if node.op == "call_function"])

                def uuid(self):
                    return None
            return compile_fx(module, inputs, config_patches={**(config_patches or {}), "post_grad_custom_post_pass": Note()})
        with mock.patch.object(subgraph, "compile_fx", compiled):
            report = self.report(Block(drops=True, times=1), x_of())
        self.assertEqual([call.replaced for call in self.norms(report)], [True] * 2)
        for ours, theirs in self.raced:
            for mine, other in zip(ours, theirs, strict=True):
                self.assertLessEqual((mine - other).norm().item(), 0.02 * other.norm().item())
        names = {name for graph in seen for name in graph if name.startswith("vitune")}
        self.assertEqual(names, {"vitune.norm_backward.default"})

    def test_inductor_takes_them_apart_whether_it_compiled_something_before_or_not(self):
        from torch._inductor import decomposition
        operator = OPS.sum_norm_train.default
        for asked_before in (False, True):
            with self.subTest(asked_before), mock.patch.dict(decomposition.decompositions):
                decomposition.fast_random_decomps.cache_clear()
                self.addCleanup(decomposition.fast_random_decomps.cache_clear)
                del decomposition.decompositions[operator]
                if asked_before:
                    self.assertNotIn(operator, decomposition.select_decomp_table())
                decompositions.register()
                mine = decomposition.decompositions["of another"] = object()
                self.assertIs(decomposition.select_decomp_table()[operator], training.sum_norm_by_torch)
                self.assertEqual(decomposition.select_decomp_table().get("of another") is mine, not asked_before)

    def test_the_backward_pass_is_asked_and_kinds_are_raced_once(self):
        report = self.report(Block(drops=True), x_of())
        said = "bf16 m=10 d=24 weight bias params=fp32 x=fp32@24"
        want = [f"norm_backward {said} {more}stats" for more in ("", "residual second=bf16 factor=5 ", "second=bf16 factor=5 ")]
        self.assertEqual([call.selections[0].problem for call in self.norms(report)], want)
        self.assertEqual((self.asked, len(self.raced)), (want, 3))
        model = Block()
        model.norms[1].weight.requires_grad_(False)
        model.norms[2].bias.requires_grad_(False)
        self.report(model, x_of())
        self.assertIn("weight frozen bias", self.asked[1])
        self.assertNotIn(" bias", self.asked[2])
        if timm is not None:
            report = self.report(vit(init_values=None, depth=4, drop_path_rate=0.0), torch.randn(2, 3, 32, 32))
            self.assertEqual((sum(call.replaced for call in self.norms(report)), len(self.raced)), (9, 4))  # the first, two of the class token, all others

    def test_what_is_slower_or_cannot_be_timed_stays(self):
        self.lost = {1, 2, 3}
        report = self.report(Block(), x_of())
        self.assertEqual({call.replaced for call in self.norms(report)}, {False})
        self.assertIn("Inductor's was faster", self.norms(report)[0].reason)
        self.assertEqual(self.targets, [])
        self.lost, self.outcome = {2}, "default"
        report = self.report(Block(), x_of())
        self.assertEqual([call.replaced for call in self.norms(report)], [True, False, True])
        self.assertTrue(set(self.asked) <= set(report.untuned))
        with mock.patch.object(race_case.benchmark, "can_race", lambda device: False):
            report = self.report(Block(), x_of())
        self.assertIn("could not be timed", self.norms(report)[0].reason)

    def test_kernels_whose_answers_are_others_stay_out_however_fast(self):
        right = training.norm_backward_by_torch
        results = {name: (lambda *given, i=i, change=change: tuple(change(each) if j == i else each for j, each in enumerate(right(*given))))
                   for name, i, change in (("dx", 0, lambda t: t * 1.1), ("second", 1, lambda t: t.roll(1, 0)), ("dweight", 2, lambda t: -t),
                                           ("dbias", 3, lambda t: t * torch.nan), ("right", 0, lambda t: t))}
        for name, wrong in results.items():
            with self.subTest(name), mock.patch.object(training, "norm_backward_by_torch", wrong):
                report = self.report(Block(drops=True), x_of())
                self.assertEqual(self.norms(report)[1].replaced, name == "right")
                if name != "right":
                    self.assertRegex(self.norms(report)[1].reason, "its answers are not Inductor's: result [0-5] of 6 is off")

    def test_a_library_that_refuses_leaves_it_pytorchs(self):
        def refused(problem, device):
            raise vitune.Unsupported(f"'{problem}': d=24: it is too large")
        with mock.patch.object(norm_train, "selected", refused):
            report = self.report(Block(), x_of())
        self.assertEqual(self.targets, [])
        self.assertIn("too large", self.norms(report)[0].reason)

    def test_tune_of_a_model_that_trains_is_asked_for_its_norms(self):
        self.outcome = "default"
        report = self.report(Block(drops=True), x_of(), replace=None)
        self.assertEqual([text for text in report.untuned if text.startswith("norm_backward")], self.asked)


class Norms(nn.Module):
    """Norms under the names of the layers that the programs of test_torch_train_beside.py have."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.fc1, self.fc2 = nn.LayerNorm(D), nn.LayerNorm(D)
        for norm in (self.fc1, self.fc2):
            nn.init.normal_(norm.weight)

    def forward(self, x):
        return self.fc2(x + F.gelu(self.fc1(x)))


class BesideTest(beside.BesideTest):
    """Those programs, of norms."""

    #: Of models of their own, which have no norms, and of types that norms do not take. Of a bias that changed PyTorch's backward pass wants
    #: nothing but its old version, and ours nothing; PyTorch's layer_norm has no forward derivative while it is compiled.
    OTHERS = ("autocast that the model turns on and off", "a layer used twice", "tied square weights", "tied square weights under autocast",
              "parts of a weight", "autocast of fp32 and a weight of bf16", "autocast of bf16 and a bias of fp16", "a bias changed between layers",
              "selective checkpoint", "a bias changed before backward", "torch.func.jvp within")

    def setUp(self):
        super().setUp()
        cases = {name: case for name, case in beside.CASES.items() if name not in self.OTHERS}
        patch = mock.patch.multiple(beside, Mlp=Norms, CASES=cases)
        patch.start()
        self.addCleanup(patch.stop)

    def compiles(self, model):
        self.made.append(vitune.compile(model, replace=["norm_train"]))
        return self.made[-1]


@needs_device
class ServedTest(NormCase):
    def setUp(self):
        super().setUp()
        serve_by_nearest(self, norm_train, training, launch_staged, norm_ops, launch_norm_staged)

    @unittest.skipUnless(serves("norm_backward bf16 m=8 d=8"), "the library knows no gradients of norms")
    def test_a_step_asks_the_library_for_what_was_asked_when_it_was_compiled(self):
        for norm, words in ((nn.LayerNorm, "layer_norm"), (nn.RMSNorm, "rms_norm")):
            self.asked.clear()
            calls = self.expect_calls([call.replace("layer_norm", words) for call in (ALONE, DROPS, DROPS)], Block(norm=norm, drops=True), x_of(),
                                      2e-2, on=True)
            canonical = [attention_ops.context_of(0).query(vitune.Problem(text)).problem for text in self.asked]
            self.assertEqual(sorted(canonical), sorted(call.selections[0].problem for call in calls))


if __name__ == "__main__":
    unittest.main()
