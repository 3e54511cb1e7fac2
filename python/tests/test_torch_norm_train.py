# python/tests/test_torch_norm_train.py -- The operators of norms that train: formulas, gradients, what libvitune is asked.
# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("norms that train are not the operators' library's: once is enough")

import torch.nn.functional as F
from torch.autograd import gradcheck

from vitune._ops import attention as attention_ops, norm as norm_ops, norm_training as training, problem_text
from vitune._runtime.counters import counters

from .test_torch_norm import launch_staged as launch_norm_staged
from .test_torch_train import launch_staged

EPS = 1e-5


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()


def operands(stream=torch.float64, branch=None, parameters=None, shape=(2, 3, 5)):
    """x, residual, weight, bias."""
    return (leaf(*shape, dtype=branch or stream), leaf(*shape, dtype=stream), leaf(shape[-1], dtype=parameters or stream),
            leaf(shape[-1], dtype=parameters or stream))


def factors(dtype=torch.float32):
    return torch.tensor([0.0, 1.25], dtype=dtype)


def eager(x, residual, factor, weight, bias, rms, out_dtype=None):
    """Sum and norm in the types that PyTorch gives them."""
    wide = torch.promote_types(torch.promote_types(x.dtype, residual.dtype), torch.float32)
    total = residual.to(wide) + (x.to(wide) if factor is None else x.to(wide) * factor.to(wide)[:, None, None])
    total = total.to(torch.promote_types(x.dtype, residual.dtype))
    return total, norm_of(total, weight, bias, rms).to(out_dtype or total.dtype)


def norm_of(x, weight, bias, rms):
    wide = torch.promote_types(x.dtype, torch.float32)
    cast = lambda tensor: None if tensor is None else tensor.to(wide)  # noqa: E731
    if rms:
        out = F.rms_norm(x.to(wide), x.shape[-1:], cast(weight), EPS)
        return out if bias is None else out + cast(bias)
    return F.layer_norm(x.to(wide), x.shape[-1:], cast(weight), cast(bias), EPS)


@needs_torch
class FormulaTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def test_each_gradient_is_that_of_differences(self):
        x, residual, weight, bias = operands()
        for rms, (w, b) in itertools.product((False, True), ((weight, bias), (weight, None), (None, bias), (None, None))):
            with self.subTest(rms=rms, weight=w is not None, bias=b is not None):
                self.assertTrue(gradcheck(lambda x, *_: training.norm_train(x, w, b, EPS, rms, None)[0], (x, w, b)))
                for factor, seen in itertools.product((None, factors(torch.float64)), (slice(2), slice(1), slice(1, 2))):
                    self.assertTrue(gradcheck(lambda x, r, *_: training.sum_norm_train(x, r, factor, w, b, EPS, rms, None)[seen],
                                              (x, residual, w, b)))
        row = x[0, 0].detach().requires_grad_()
        self.assertTrue(gradcheck(lambda x, w, b: training.norm_train(x, w, b, EPS, False, None)[0], (row, weight, bias)))

    def test_types_of_results_and_gradients_are_eager_modes_and_numbers_nearly(self):
        half, wide = torch.bfloat16, torch.float32
        for stream, branch, parameters, out in ((wide, wide, wide, None), (half, half, half, None), (torch.float16, torch.float16, wide, wide),
                                                (wide, half, wide, half), (wide, half, wide, None), (wide, wide, wide, half)):
            for rms, factor in itertools.product((False, True), (None, factors())):
                with self.subTest(stream=stream, branch=branch, parameters=parameters, out=out, rms=rms, drops=factor is not None):
                    x, residual, weight, bias = given = operands(stream, branch, parameters, (2, 7, 64))
                    total, got, mean, rstd = training.sum_norm_train(x, residual, factor, weight, bias, EPS, rms, out)
                    want = eager(x, residual, factor, weight, bias, rms, out)
                    dy = [torch.randn_like(each) for each in want]
                    ours, theirs = (torch.autograd.grad(each, given, dy) for each in ((total, got), want))
                    bound = 2**-6 if half in (stream, branch, out) else 2**-9 if stream == torch.float16 else 2**-18
                    for mine, right in zip((total, got, *ours), (*want, *theirs), strict=True):
                        self.assertEqual((mine.dtype, mine.shape), (right.dtype, right.shape))
                        self.assertLessEqual((mine - right).abs().max().item(), bound * max(1.0, right.abs().max().item()))
                    self.assertEqual([each.requires_grad for each in (total, got, mean, rstd)], [True, True, False, False])
                    self.assertEqual((mean.shape, rstd.shape, rstd.dtype), ((0,) if rms else (2, 7), (2, 7), torch.float32))

    def test_what_wants_no_gradient_has_none_and_is_not_asked_for(self):
        for wanted in range(4):
            with self.subTest(wanted):
                given = [tensor.requires_grad_(i == wanted) for i, tensor in enumerate(t.detach() for t in operands(torch.float32, torch.bfloat16))]
                with mock.patch.object(training, "norm_backward", mock.Mock(side_effect=training.norm_backward)) as backward:
                    results = training.sum_norm_train(given[0], given[1], factors(), *given[2:], EPS, False, torch.bfloat16)
                    got = torch.autograd.grad(sum(each.float().square().sum() for each in results[:2] if each.requires_grad), given[wanted])[0]
                *_, factor, second, parameters, dweight, dbias = backward.call_args.args
                self.assertEqual((factor is not None, second, dweight, dbias),
                                 (wanted == 0, torch.bfloat16 if wanted == 0 else None, wanted == 2, wanted == 3))
                want = eager(given[0], given[1], factors(), *given[2:], False, torch.bfloat16)
                want = torch.autograd.grad(sum(each.float().square().sum() for each in want if each.requires_grad), given[wanted])[0]
                torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)

    def test_results_that_nobody_uses_have_no_gradient_to_add(self):
        x, residual, weight, bias = operands(torch.float32, torch.bfloat16)
        with mock.patch.object(training, "norm_backward", mock.Mock(side_effect=training.norm_backward)) as backward:
            total, got, *_ = training.sum_norm_train(x, residual, factors(), weight, bias, EPS, False, None)
            dx, dresidual = torch.autograd.grad(total.sum(), (x, residual), retain_graph=True)
            self.assertEqual(backward.call_count, 0)
            torch.testing.assert_close(dx, factors().bfloat16()[:, None, None].expand(2, 3, 5))
            self.assertTrue(torch.equal(dresidual, torch.ones(2, 3, 5)))
            self.assertEqual(torch.autograd.grad(total.sum(), weight, retain_graph=True, allow_unused=True), (None,))
            torch.autograd.grad(got.sum(), x)
            self.assertIsNone(backward.call_args.args[5])

    def test_a_graph_that_is_kept_gives_the_same_bits_again_and_gradients_add_up(self):
        given = operands(torch.float32, torch.bfloat16)
        total, got, *_ = training.sum_norm_train(given[0], given[1], factors(), *given[2:], EPS, False, torch.bfloat16)
        dy = torch.randn_like(total), torch.randn_like(got)
        first, again = (torch.autograd.grad((total, got), given, dy, retain_graph=True) for _ in range(2))
        self.assertTrue(all(map(torch.equal, first, again)))
        for _ in range(2):
            torch.autograd.backward((total, got), dy, retain_graph=True)
        self.assertTrue(all(torch.equal(tensor.grad, 2 * right) for tensor, right in zip(given, first)))
        # Summands of one type have one tensor for both gradients: what is added to one must not reach the other.
        x, residual, *parameters = operands(torch.float32)
        total, got, *_ = training.sum_norm_train(x, residual, None, *parameters, EPS, False, None)
        got.sum().backward()
        before = residual.grad.clone()
        x.grad.add_(1)
        self.assertTrue(torch.equal(residual.grad, before))

    def test_statistics_of_rows_far_from_zero_are_exact(self):
        x = (torch.randn(4, 96) + 1000).requires_grad_()
        weight, bias = leaf(96, dtype=torch.float32), leaf(96, dtype=torch.float32)
        dy = torch.randn(4, 96)
        ours = torch.autograd.grad(training.norm_train(x, weight, bias, EPS, False, None)[0], (x, weight, bias), dy)
        wide = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
        for mine, right in zip(ours, torch.autograd.grad(norm_of(*wide, False), wide, dy.double())):
            self.assertLessEqual((mine.double() - right).abs().max().item(), 2**-12 * right.abs().max().item())

    def test_compilers_see_what_they_compute(self):
        for stream, branch, parameters in ((torch.float32, torch.float32, torch.float32), (torch.float32, torch.bfloat16, torch.float32)):
            x, residual, weight, bias = operands(stream, branch, parameters)
            for rms, factor in itertools.product((False, True), (None, factors())):
                with self.subTest(branch=branch, rms=rms, drops=factor is not None):
                    torch.library.opcheck(training.norm_train, (residual, weight, None if rms else bias, EPS, rms, torch.bfloat16))
                    torch.library.opcheck(training.sum_norm_train, (x, residual, factor, weight, None if rms else bias, EPS, rms, None))
                    mean, rstd = (None if rms else torch.randn(2, 3)), torch.rand(2, 3)
                    for rest in ((None, None, None, True, True), (residual.detach(), factor, torch.bfloat16, False, True)):
                        added, of_second, second, dw, db = rest
                        torch.library.opcheck(training.norm_backward, (torch.randn(2, 3, 5, dtype=torch.bfloat16), residual.detach(), mean, rstd,
                                                                       weight.detach(), added, of_second, second, torch.float32, dw, db))

    def test_transposed_and_strided_operands_have_contiguous_results(self):
        x, residual = torch.randn(5, 2, 3).permute(1, 2, 0), torch.randn(2, 3, 10)[..., ::2]
        weight, bias = torch.randn(10)[::2], torch.randn(5, 2)[:, 0]
        torch.library.opcheck(training.norm_train, (x, weight, bias, EPS, False, None))
        torch.library.opcheck(training.sum_norm_train, (x, residual, None, weight, bias, EPS, True, torch.bfloat16))
        torch.library.opcheck(training.norm_backward, (residual, x, torch.randn(3, 2).t(), torch.rand(2, 6)[:, ::2], weight, x, None, None,
                                                       torch.float32, True, True))
        given = [tensor.requires_grad_() for tensor in (x, residual, weight, bias)]
        both = training.sum_norm_train(x, residual, None, weight, bias, EPS, False, None)[1], eager(x, residual, None, weight, bias, False)[1]
        for mine, right in zip(*(torch.autograd.grad(each.square().sum(), given) for each in both)):
            torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)

    def test_infinities_and_nans_reach_the_gradients(self):
        for value in (float("inf"), float("nan")):
            given = operands(torch.float16, None, torch.float32)
            dy = torch.zeros(2, 3, 5, dtype=torch.float16)
            dy[1, 2, 3] = value
            for grad in torch.autograd.grad(training.sum_norm_train(given[0], given[1], None, *given[2:], EPS, False, None)[1], given, dy):
                self.assertFalse(grad.isfinite().all())

    def test_what_has_no_gradient_is_refused_with_a_sentence(self):
        x, residual, weight, bias = operands()
        first = torch.autograd.grad(training.norm_train(x, weight, bias, EPS, False, None)[0].square().sum(), x, create_graph=True)[0]
        with self.assertRaisesRegex(vitune.Unsupported, "no second derivative"):
            torch.autograd.grad(first.square().sum(), x)
        with self.assertRaisesRegex(vitune.Unsupported, "gradient of the factor"):
            training.sum_norm_train(x, residual, factors().requires_grad_(), weight, bias, EPS, False, None)
        with self.assertRaisesRegex(vitune.Unsupported, "must have one type"):
            training.norm_train(x, weight, bias.float(), EPS, False, None)
        with self.assertRaisesRegex(vitune.InvalidArgument, "one number for each sample"):
            training.sum_norm_train(x, residual, torch.ones(3), weight, bias, EPS, False, None)

    def test_no_rows_have_gradients_of_zeros(self):
        x, residual = (torch.empty(0, 3, 5, requires_grad=True) for _ in range(2))
        weight, bias = leaf(5, dtype=torch.float32), leaf(5, dtype=torch.float32)
        total, got, *_ = training.sum_norm_train(x, residual, torch.ones(0), weight, bias, EPS, False, None)
        dx, dweight, dbias = torch.autograd.grad((total.sum() + got.sum()), (x, weight, bias))
        self.assertEqual((dx.shape, dweight.abs().sum().item(), dbias.abs().sum().item()), (x.shape, 0.0, 0.0))

    def test_autocast_around_them_casts_nothing(self):
        given = operands(torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            results = training.sum_norm_train(given[0], given[1], None, *given[2:], EPS, False, None)[:2]
            grads = torch.autograd.grad(sum(each.sum() for each in results), given)
        want = eager(*given[:2], None, *given[2:], False)
        for mine, other in zip((*results, *grads), (*want, *torch.autograd.grad(sum(each.sum() for each in want), given))):
            self.assertEqual(mine.dtype, other.dtype)
            torch.testing.assert_close(mine, other)


@needs_device
@needs_torch
class ServedTest(unittest.TestCase):
    """By the library, on the emulated device."""

    def setUp(self):
        torch.manual_seed(6)
        self.asked = []

        def launch(problem, tensors):
            self.asked.append(problem.text)
            launch_staged(problem, tensors)

        def launch_norm(problem, tensors):
            self.asked.append(problem.text)
            launch_norm_staged(problem, tensors)
        for module, name, value in ((training, "launch", launch), (norm_ops, "launch", launch_norm),
                                    (attention_ops, "is_on_gpu", lambda tensor: True), (training, "_plans", problem_text.Plans()),
                                    (norm_ops, "_plans", problem_text.Plans())):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        before = dict(counters.fallbacks)
        self.addCleanup(lambda: counters.fallbacks.update(before))
        counters.fallbacks.clear()

    def expect_right(self, given, factor, rms, out, dy=None):
        """Results and gradients are those of fp64, of the operands as they are."""
        x, residual, weight, bias = given
        total, got, *_ = training.sum_norm_train(x, residual, factor, weight, bias, EPS, rms, out)
        dy = [torch.randn_like(each) if gradient is None else gradient for each, gradient in zip((total, got), dy or (None, None))]
        wanted = [tensor for tensor in given if tensor is not None and tensor.requires_grad]
        ours = torch.autograd.grad((total, got), wanted, dy)
        wide = {tensor: tensor.detach().double().requires_grad_() for tensor in given if tensor is not None}
        w, b = (None if tensor is None else wide[tensor] for tensor in (weight, bias))
        want = eager(wide[x], wide[residual], None if factor is None else factor.double(), w, b, rms)
        theirs = torch.autograd.grad(want, [wide[tensor] for tensor in wanted], [each.double() for each in dy])
        for mine, right in zip((total, got, *ours), (*want, *theirs), strict=True):
            self.assertLessEqual((mine.double() - right).abs().max().item(), 2**-6 * max(1.0, right.abs().max().item()))
        self.assertEqual(counters.fallbacks, {})

    def test_what_is_asked_are_texts_and_the_answer_is_right(self):
        half, wide = torch.bfloat16, torch.float32
        cases = [
            ((wide, half, wide), factors(), False, half, "bf16 m=16 d=32 weight bias params=fp32 x=fp32@32 residual second=bf16 factor=8 stats"),
            ((wide, half, wide), None, False, half, "bf16 m=16 d=32 weight bias params=fp32 x=fp32@32 residual second=bf16 stats"),
            ((wide, wide, wide), factors(), False, half, "bf16 m=16 d=32 weight bias params=fp32 x=fp32@32 residual second=fp32 factor=8 stats"),
            ((wide, wide, wide), None, False, None, "fp32 m=16 d=32 weight bias params=fp32 x=fp32@32 residual stats"),
            ((half, half, half), factors(), False, None, "bf16 m=16 d=32 weight bias params=bf16 x=bf16@32 residual second=bf16 factor=8 stats"),
            ((half, half, half), None, True, None, "bf16 m=16 d=32 rms weight params=bf16 x=bf16@32 residual stats")]
        for types, factor, rms, out, text in cases:
            with self.subTest(text):
                self.asked.clear()
                x, residual, weight, bias = operands(*types, (2, 8, 32))
                self.expect_right((x, residual, weight, None if rms else bias), factor, rms, out)
                self.assertEqual(self.asked[-1], f"norm_backward {text}")
                self.assertRegex(self.asked[0], "^norm .* stats")

    def test_frozen_parameters_and_norms_alone_are_served(self):
        x, residual, weight, bias = operands(torch.float32, torch.bfloat16, torch.float32, (2, 8, 32))
        self.expect_right((x, residual, weight.detach(), bias.detach()), None, False, torch.bfloat16)
        self.assertIn(" frozen ", self.asked[-1])
        self.expect_right((x.detach(), residual, weight, bias), factors(), False, torch.bfloat16)
        self.assertNotIn("factor", self.asked[-1])
        self.expect_right((x, residual, None, None), None, False, None)
        self.assertNotIn("params", self.asked[-1])
        out = training.norm_train(x, weight, None, EPS, True, torch.float32)[0]
        dx, dweight = torch.autograd.grad(out.square().sum(), (x, weight))
        wide = [tensor.detach().double().requires_grad_() for tensor in (x, weight)]
        for mine, right in zip((dx, dweight), torch.autograd.grad(norm_of(*wide, None, True).square().sum(), wide)):
            self.assertLessEqual((mine.double() - right).norm().item(), 2**-7 * right.norm().item())
        self.assertEqual(counters.fallbacks, {})

    def test_gradients_and_rows_that_lie_differently_are_read_right(self):
        shape, half = (2, 8, 32), torch.bfloat16
        for name, dy in (("sum", torch.ones((), dtype=half).expand(shape)), ("a row", torch.randn(32, dtype=half).expand(shape)),
                         ("mean of tokens", torch.randn(2, 1, 32, dtype=half).expand(shape)),
                         ("turned", torch.randn(32, 8, 2, dtype=half).permute(2, 1, 0)), ("sliced", torch.randn(2, 8, 72, dtype=half)[..., 3:35])):
            for parameters in (half, torch.float32):
                with self.subTest(name, parameters=parameters):
                    given = operands(torch.float32, half, parameters, shape)
                    self.expect_right(given, factors(), False, half, (None, dy))
                    self.expect_right(given, None, False, half, (torch.randn(32, 2, 8).permute(1, 2, 0), dy))
        wide = torch.randn(2, 8, 80)
        given = (wide[..., 5:37].detach().requires_grad_(), wide[..., 40:72].detach().requires_grad_(), *operands(torch.float32, shape=shape)[2:])
        self.expect_right(given, factors(), False, half)

    def test_plans_of_calls_that_differ_are_kept_apart(self):
        """One set of operands, all that may differ otherwise: each call asks what it asks alone."""
        dy, x, residual = (torch.randn(2, 8, 32) for _ in range(3))
        weight, mean, rstd = torch.randn(32), torch.randn(2, 8), torch.rand(2, 8)
        calls = [(dy, x, m, rstd, w, r, f if s else None, s, torch.float32, dw and w is not None, db) for m, w, r, f, s, dw, db in itertools.product(
            (mean, None), (weight, None), (residual, None), (factors(), torch.ones(16), None), (torch.bfloat16, torch.float32, None), (False, True),
            (False, True))]
        together, alone = [], []
        with mock.patch.object(training, "launch", lambda problem, tensors: self.asked.append(problem.text)):
            for found, is_alone in ((together, False), (alone, True)):
                for call in calls:
                    if is_alone:
                        training._plans.clear()
                    self.asked.clear()
                    training.norm_backward(*call)
                    found += self.asked
        self.assertEqual(together, alone)
        self.assertGreater(len(set(alone)), 100)

    def test_a_refusal_is_pytorchs_answer_and_counted(self):
        def refuse(text):
            raise vitune.Unsupported(f"'{text}' is not known")
        given = operands(torch.float32, torch.bfloat16, torch.float32, (2, 8, 32))
        with mock.patch.object(training, "Problem", refuse), self.assertWarns(Warning):
            total, got, *_ = training.sum_norm_train(given[0], given[1], factors(), *given[2:], EPS, False, torch.bfloat16)
            ours = torch.autograd.grad(got.float().sum(), given)
        theirs = torch.autograd.grad(eager(*given[:2], factors(), *given[2:], False, torch.bfloat16)[1].float().sum(), given)
        for mine, right in zip(ours, theirs):
            torch.testing.assert_close(mine, right, rtol=2e-2, atol=2e-2)
        self.assertEqual(sum(counters.fallbacks.values()), 1)


if __name__ == "__main__":
    unittest.main()
