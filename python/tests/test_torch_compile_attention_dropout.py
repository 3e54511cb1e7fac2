# python/tests/test_torch_compile_attention_dropout.py -- vitune.compile() on models with attention dropout: what is found, gradients, the race.
# SPDX-License-Identifier: Apache-2.0
"""As test_torch_compile_attention_train.py. PyTorch draws otherwise, so that models are compared with themselves: with the operators called in
eager mode after the same seed."""
import copy
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("attention that trains is not the operators' library's: once is enough")

import torch.nn.functional as F

from vitune._compile.patterns import attention_train
from vitune._ops import attention_dropout as dropout
from vitune._ops.order import ROWS

from . import test_torch_compile_train as linear_case, test_torch_compile_train_race as race_case
from .test_torch_compile_attention_train import Attends, plain, x_of
from .test_torch_compile_train import Checkpointed, OPS, autocast

PACKED, APART = OPS.attention_qkv_dropout_train.default, OPS.attention_dropout_train.default
P = 0.25


def drops(q, k, v, model, **words):
    return plain(q, k, v, model, dropout_p=P if model.training else 0.0, **words)


def written(q, k, v, model):
    """As timm has it, and CCT's authors."""
    weights = ((q @ k.transpose(-2, -1)) * 0.25).softmax(dim=-1)
    return F.dropout(weights, P, model.training) @ v


def operators(q, k, v, model, is_causal=False, scale=None):
    """What is put in."""
    if autocasts():
        q, k, v = (each.bfloat16() for each in (q, k, v))
    return dropout.attention_dropout_train(q, k, v, P, is_causal, scale, ROWS)[0]


def autocasts():
    return torch.is_autocast_enabled("cpu")


def step(model, x, seed=3, on=False):
    """Loss and gradients of a step after that seed."""
    model.zero_grad()
    torch.manual_seed(seed)
    with autocast(on):
        loss = model(x).float().square().mean()
    loss.backward()
    return loss.item(), {name.removeprefix("_orig_mod."): parameter.grad.clone() for name, parameter in model.named_parameters()}


class DropoutCase(linear_case.TrainCase):
    operator = "attention_train"

    def compile_fx(self, module, inputs, config_patches=None):
        graphs = [module, *linear_case.backend.checkpoints.bodies(module)]
        self.attends = [node.target for each in graphs for node in each.graph.nodes if node.target in (PACKED, APART)]
        return super().compile_fx(module, inputs, config_patches)

    def compiled(self, model, **words):
        torch._dynamo.reset()
        return vitune.compile(copy.deepcopy(model), **{"replace": ["attention_train"], "fullgraph": True, **words})

    def expect_operators(self, want, model, x, right=operators, bound=1e-5, on=False):
        """The compiled model gives what it gives with the operators in the place of its attention."""
        compiled = self.compiled(model)
        model.attend = right
        (loss, grads), (wanted, wants) = step(compiled, x, on=on), step(model, x, on=on)
        self.assertEqual(self.attends, want, vitune.report(compiled))
        self.assertLessEqual(abs(loss - wanted), bound * abs(wanted))
        for name, grad in wants.items():
            self.assertLessEqual((grads[name] - grad).norm().item(), bound * grad.norm().item() + 1e-12, name)
        return compiled


class PatternTest(DropoutCase):
    def test_calls_are_found_with_their_projection(self):
        turned = Attends(lambda q, *rest: drops(q.sin(), *rest))
        for want, model in ((PACKED, Attends(drops)), (APART, Attends(drops, fused=False)), (APART, turned)):
            right = operators if model.attend is drops else lambda q, *rest: operators(q.sin(), *rest)
            self.expect_operators([want], model, x_of(), right)
        self.expect_operators([PACKED], Attends(drops), x_of(), bound=2e-2, on=True)
        self.expect_operators([PACKED], Attends(lambda *given: drops(*given, is_causal=True)), x_of(), lambda *given: operators(*given, is_causal=True))
        self.expect_operators([APART], Attends(lambda *given: drops(*given, enable_gqa=True), 4, 2, fused=False), x_of(width=32))

    def test_softmax_and_dropout_between_two_products_are_found(self):
        right = lambda *given: operators(*given, scale=0.25)  # noqa: E731
        compiled = self.expect_operators([PACKED], Attends(written), x_of(), right)
        self.assertIn("softmax and dropout between two products in training: replaced, forward and backward", str(vitune.report(compiled)))
        self.expect_operators([PACKED], Attends(written), x_of(), right, 3e-2, on=True)
        self.expect_operators([APART], Attends(lambda q, *rest: written(q.sin(), *rest)), x_of(), lambda q, *rest: right(q.sin(), *rest))
        # A number times q is a part of the scale, as timm's Swin has it.
        self.expect_operators([PACKED], Attends(lambda q, *rest: written(q * 4, *rest)), x_of(), lambda *given: operators(*given, scale=1.0))

    def test_each_step_draws_anew_and_evaluation_drops_nothing(self):
        compiled, x = self.compiled(Attends(drops)), x_of()
        losses = [step(compiled, x, seed)[0] for seed in (1, 2, 1)]
        self.assertEqual((losses[0] == losses[2], losses[0] == losses[1]), (True, False))
        compiled.eval()
        model = Attends(drops).eval()
        torch.testing.assert_close(compiled(x), model(x))

    def test_checkpointed_blocks_drop_the_same_when_they_run_again(self):
        class Kept(Checkpointed):
            def forward(self, x):
                return self.model(x) + 0 * x.sum()
        x, found = x_of(), []
        for make, depth in ((Kept, 1), (Checkpointed, 1), (Checkpointed, 2)):
            found.append(step(self.compiled(make(Attends(drops), depth)), x))
            self.assertEqual(set(self.attends), {PACKED})
        for loss, grads in found[1:]:
            self.assertEqual(loss, found[0][0])
            for name, grad in found[0][1].items():
                self.assertLessEqual((grads[name] - grad).norm().item(), 1e-5 * grad.norm().item() + 1e-12, name)

    def test_what_stays_is_told(self):
        mask = torch.zeros(5, 5)
        cases = {"in training: left as it is: dropout beside a mask": lambda *given: drops(*given, attn_mask=mask),
                 "not a bias that is learned": lambda q, k, v, model: F.dropout((q @ k.transpose(-2, -1) + mask).softmax(-1), P) @ v,
                 "are used elsewhere": lambda q, k, v, model: (lambda w: F.dropout(w, P) @ v + w.sum())((q @ k.transpose(-2, -1)).softmax(-1)),
                 "not as the graph has them": lambda q, k, v, model: F.dropout((q @ k.permute(0, 1, 3, 2)).softmax(-1), P) @ v,
                 "256ths": lambda q, k, v, model: plain(q, k, v, model, dropout_p=0.001)}
        for reason, attend in cases.items():
            with self.subTest(reason):
                compiled = self.compiled(Attends(attend))
                step(compiled, x_of())
                self.assertEqual(self.attends, [])
                if reason != "are used elsewhere":  # a product of weights that are used elsewhere is no attention at all
                    self.assertIn(reason, str(vitune.report(compiled)))


class RaceTest(DropoutCase, race_case.RaceCase):
    pattern = attention_train

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(dropout, "_answer", lambda x, ours, torchs: torchs())
        patch.start()
        self.addCleanup(patch.stop)

    def attention(self, report):
        return [call for call in report.calls if call.operator == "attention_train"]

    def test_answers_are_judged_by_the_formulas_and_not_by_another_draw(self):
        for attend in (drops, written):
            for fused in (True, False):
                report = self.report(Attends(attend, fused=fused), x_of(), replace=None)
                self.assertEqual([call.replaced for call in self.attention(report)], [True], report)
                ours, theirs = self.raced[-1]
                self.assertEqual([each.shape for each in ours], [each.shape for each in theirs])

    def test_a_mask_that_is_the_backward_passs_own_is_not_taken(self):
        right = dropout.backward_by_torch

        def of_another(dout, q, k, v, out, lse, choice, *words):
            return right(dout, q, k, v, out, lse, choice._replace(random=choice.random + 1), *words)
        # The operators' formula alone: on_some_heads() has the right one.
        with mock.patch.object(dropout, "backward_by_torch", mock.Mock(side_effect=lambda *given: (
                right if given[1].shape[:2] == (1, 1) else of_another)(*given))):
            report = self.report(Attends(drops), x_of(), replace=None)
        self.assertEqual([call.replaced for call in self.attention(report)], [False])
        self.assertIn("is off", str(report))

    def test_both_passes_are_asked(self):
        report = self.report(Attends(drops), x_of())
        forward = "bf16 b=2 h=2 nq=5 nk=5 d=8 q=@240,8,48 k=@240,8,48 v=@240,8,48 o=@80,8,16 dropout=0.25"
        want = [f"attention {forward} lse", f"attention_backward {forward} do=@80,8,16 dq=@240,8,48 dk=@240,8,48 dv=@240,8,48"]
        self.assertEqual([found.problem for found in self.attention(report)[0].selections], want)


class HeadsTest(unittest.TestCase):
    def test_only_the_first_and_the_last_head_are_computed_by_the_formulas(self):
        torch.manual_seed(0)
        q, k, v = torch.randn(3, 4, 9, 8), torch.randn(3, 2, 7, 8), torch.randn(3, 2, 7, 8)
        out, lse, random = dropout.attention_dropout_train(q, k, v, P, False, None, ROWS)
        dout = torch.randn_like(out)
        grads = dropout.attention_dropout_backward(dout, q, k, v, out, lse, random, P, False, None)
        ours, theirs = dropout.on_some_heads(q, k, v, dout, (out, lse, *grads), random, P, False, None)
        self.assertEqual([tuple(each.shape[:2]) for each in ours], [(1, 2), (1, 2), (1, 2), (1, 1), (1, 1)] * 2)
        for mine, right in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, right)
        self.assertTrue(torch.equal(ours[5], out[2:3, 2:4]))


if __name__ == "__main__":
    unittest.main()
