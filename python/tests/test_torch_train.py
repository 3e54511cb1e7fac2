# python/tests/test_torch_train.py -- The operators of linear layers that train: formulas, gradients, what libvitune is asked.
# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest
from unittest import mock

import vitune

from .support import DEVICE, OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("linear layers are not the operators' library's: once is enough")

import torch.nn.functional as F
from torch.autograd import gradcheck

from vitune._ops import attention as attention_ops, linear as linear_ops, problem_text, training
from vitune._runtime.counters import counters

from .test_torch_norm import launch_copies


def layer(x, weight, bias=None, activation=None, scale=None):
    """As eager mode's under autocast: the weight in x's type."""
    w16 = weight.detach().to(x.dtype)
    return training.linear_train(x, weight, w16, bias, scale) if activation is None else training.linear_act_train(x, weight, w16, bias, activation)


def mlp(x, first, bias, second, last, activation, scale=None):
    pre, out = layer(x, first, bias, activation)
    return training.act_linear_train(pre, out, second, second.detach().to(x.dtype), last, activation, scale)


def eager(x, first, bias, second, last, activation, scale=None):
    cast = lambda tensor: None if tensor is None else tensor.to(x.dtype)  # noqa: E731
    y = F.linear(training.activated(F.linear(x, cast(first), cast(bias)), activation), cast(second), cast(last))
    return y if scale is None else (y * scale).to(x.dtype)


def leaf(*shape, dtype=torch.float64):
    return (torch.randn(*shape, dtype=torch.float64) * 0.5).to(dtype).requires_grad_()


def operands(dtype=torch.float64, parameters=None):
    parameters = parameters or dtype
    return (leaf(2, 3, 5, dtype=dtype), leaf(7, 5, dtype=parameters), leaf(7, dtype=parameters), leaf(4, 7, dtype=parameters),
            leaf(4, dtype=parameters))


@needs_torch
class FormulaTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def test_each_gradient_is_that_of_differences(self):
        x, first, bias, second, last = operands()
        self.assertTrue(gradcheck(layer, (x, first, bias)))
        self.assertTrue(gradcheck(layer, (x, first)))
        self.assertTrue(gradcheck(layer, (x[0, 0].detach().requires_grad_(), first, bias)))
        for activation in training.ACTIVATIONS:
            with self.subTest(activation):
                self.assertTrue(gradcheck(lambda x, w, b: layer(x, w, b, activation), (x, first, bias)))
                self.assertTrue(gradcheck(lambda *all_: mlp(*all_, activation), (x, first, bias, second, last)))

    def test_a_layer_scale_has_its_gradient_without_the_rows_that_it_multiplies(self):
        x, first, bias, second, last = operands()
        scale = leaf(7)
        self.assertTrue(gradcheck(lambda x, w, b, s: layer(x, w, b, scale=s), (x, first, bias, scale)))
        self.assertTrue(gradcheck(lambda x, w, s: layer(x, w, scale=s), (x, first, scale)))
        self.assertTrue(gradcheck(lambda *all_: mlp(*all_[:5], "gelu", all_[5]), (x, first, bias, second, last, leaf(4))))
        y = layer(x, first, bias, scale=scale)
        kept = [tensor.shape for tensor in y.grad_fn.saved_tensors if tensor is not None]
        self.assertEqual(sorted(kept), sorted(tensor.shape for tensor in (x, first, bias, scale)))

    def test_a_layer_scale_is_as_far_from_fp64_as_eager_modes(self):
        for size in (1.0, 1e-5):  # as models are initialised
            with self.subTest(size):
                given = [t.detach().requires_grad_() for t in (
                    torch.randn(512, 64, dtype=torch.bfloat16), torch.randn(256, 64) / 8, torch.randn(256) / 8, torch.randn(64, 256) / 16, torch.randn(64) / 8)]
                scale = (size * torch.randn(64)).requires_grad_()
                wide = [t.detach().double().requires_grad_() for t in (*given, scale)]
                dy = torch.randn(512, 64, dtype=torch.bfloat16)

                def far(call, as_dy):
                    got = torch.autograd.grad(call(*given, "gelu", scale), (*given, scale), as_dy)
                    return [((mine.double() - right).norm() / right.norm()).item() for mine, right in zip(got, want)]
                want = torch.autograd.grad(eager(*wide[:5], "gelu", wide[5]), wide, dy.double())
                for mine, theirs in zip(far(mlp, dy), far(eager, dy)):
                    self.assertLessEqual(mine, 1.1 * theirs)

    def test_what_wants_no_gradient_is_not_computed(self):
        names = ("linear_input_grad", "linear_weight_grad", "linear_act_input_grad")
        for wanted in range(5):
            with self.subTest(wanted):
                given = [tensor.requires_grad_(i == wanted) for i, tensor in enumerate(t.detach() for t in operands())]
                with mock.patch.multiple(training, **{name: mock.Mock(side_effect=getattr(training, name)) for name in names}):
                    got = torch.autograd.grad(mlp(*given, "gelu").square().sum(), given[wanted])[0]
                    calls = [getattr(training, name).call_count for name in names]
                self.assertEqual(calls, [[1, 0, 1], [0, 1, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]][wanted])
                want = torch.autograd.grad(eager(*given, "gelu").square().sum(), given[wanted])[0]
                torch.testing.assert_close(got, want)

    def test_sixteen_bits_are_eager_modes_and_fp32_parameters_have_gradients_of_fp32(self):
        for dtype, parameters in ((torch.bfloat16, None), (torch.float16, None), (torch.bfloat16, torch.float32), (torch.float32, None)):
            for activation in training.ACTIVATIONS:
                with self.subTest(dtype=dtype, parameters=parameters, activation=activation):
                    given = operands(dtype, parameters)
                    got, want = mlp(*given, activation), eager(*given, activation)
                    self.assertTrue(torch.equal(got, want))  # on a CPU to the bit
                    dy = torch.randn_like(got)
                    ours, theirs = torch.autograd.grad(got, given, dy), torch.autograd.grad(want, given, dy)
                    bound = {torch.bfloat16: 2**-6, torch.float16: 2**-9, torch.float32: 2**-18}[dtype]
                    for mine, other, tensor in zip(ours, theirs, given):
                        self.assertEqual((mine.dtype, mine.shape), (tensor.dtype, tensor.shape))
                        self.assertLessEqual((mine - other).abs().max().item(), bound * max(1.0, other.abs().max().item()))

    def test_relu_has_eager_modes_signs_and_is_as_far_from_fp64(self):
        """Of fp32 parameters in 16 bits a few arguments of relu have another sign than in fp64: so in eager mode, and so here, to the bit.
        Beside operands as they are multiplied both are right."""
        for dtype, bound in ((torch.bfloat16, 2**-6), (torch.float16, 2**-9)):
            with self.subTest(dtype):
                given = [(torch.randn(*shape) * scale).to(kind).requires_grad_() for shape, scale, kind in (
                    ((197, 64), 1.0, dtype), ((256, 64), 1 / 8, torch.float32), ((256,), 0.1, torch.float32), ((64, 256), 1 / 16, torch.float32))]
                dy = torch.randn(197, 64, dtype=dtype)

                def grads(call, *of):
                    return torch.autograd.grad(call(*of, None, "relu"), of, dy.to(of[0].dtype))

                def far(got, want):
                    return [((mine.double() - right).norm() / right.norm()).item() for mine, right in zip(got, want)]
                ours, eagers = grads(mlp, *given), grads(eager, *given)
                of_parameters, of_operands = (grads(eager, *(t.detach().to(kind).double().requires_grad_() for t in given))
                                              for kind in (torch.float32, dtype))
                self.assertGreater(min(far(eagers, of_parameters)[:3]), bound)
                self.assertGreater(bound, 2 * max(far(ours, of_operands)))
                for mine, theirs in zip(far(ours, of_parameters), far(eagers, of_parameters)):
                    self.assertLessEqual(mine, 1.02 * theirs)

    def test_fp32_gradients_are_rounded_nowhere(self):
        x, weight = leaf(64, 5, dtype=torch.bfloat16), leaf(7, 5, dtype=torch.float32)
        dy = torch.randn(64, 7, dtype=torch.bfloat16)
        bias = leaf(7, dtype=torch.float32)
        dw, db = torch.autograd.grad(layer(x, weight, bias), (weight, bias), dy)
        torch.testing.assert_close(dw.double(), dy.double().t() @ x.detach().double(), rtol=2**-20, atol=2**-18)
        torch.testing.assert_close(db.double(), dy.double().sum(0), rtol=2**-20, atol=2**-18)

    def test_autocast_around_them_casts_nothing(self):
        given = operands(torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            got = mlp(*given, "gelu")
            grads = torch.autograd.grad(got.sum(), given)
        want = eager(*given, "gelu")
        self.assertTrue(torch.equal(got, want))
        for mine, other in zip(grads, torch.autograd.grad(want.sum(), given)):
            torch.testing.assert_close(mine, other)

    def test_compilers_see_what_they_compute(self):
        for dtype, parameters in ((torch.float32, None), (torch.bfloat16, torch.float32)):
            x, first, bias, second, last = operands(dtype, parameters)
            w16, v16 = first.detach().to(dtype), second.detach().to(dtype)
            for b in (bias, None):
                with self.subTest(dtype=dtype, bias=b is not None):
                    torch.library.opcheck(training.linear_train, (x, first, w16, b))
                    torch.library.opcheck(training.linear_act_train, (x, first, w16, b, "gelu"))
                    pre, out = (tensor.detach() for tensor in training.linear_act_train(x, first, w16, b, "gelu"))
                    torch.library.opcheck(training.act_linear_train, (pre.requires_grad_(), out, second, v16, None if b is None else last, "gelu"))
                    dy, scale = torch.randn(2, 3, 7, dtype=dtype), leaf(7, dtype=first.dtype)
                    torch.library.opcheck(training.linear_train, (x, first, w16, b, scale))
                    torch.library.opcheck(training.act_linear_train, (pre, out, second, v16, None if b is None else last, "gelu", scale[:4].detach()))
                    torch.library.opcheck(training.linear_scale_weight_grad,
                                          (dy, x.detach(), *(None if t is None else t.detach() for t in (first, b, scale))))
                    torch.library.opcheck(training.linear_input_grad, (dy, w16))
                    torch.library.opcheck(training.linear_weight_grad, (dy, x.detach(), first.dtype, b is not None))
                    dy = torch.randn(2, 3, 4, dtype=dtype)
                    torch.library.opcheck(training.linear_act_input_grad, (dy, v16, pre.detach(), "quick_gelu"))

    def test_transposed_and_strided_operands_have_contiguous_results(self):
        x, w = torch.randn(5, 2, 3).permute(1, 2, 0), torch.randn(5, 7).t()
        wide = torch.randn(2, 3, 14)[..., ::2]
        torch.library.opcheck(training.linear_train, (x, w, w, None))
        torch.library.opcheck(training.linear_act_train, (x, w, w, None, "silu"))
        torch.library.opcheck(training.linear_input_grad, (wide, w))
        torch.library.opcheck(training.linear_weight_grad, (wide, x, torch.float32, True))
        torch.library.opcheck(training.linear_act_input_grad, (wide, w, x, "relu"))

    def test_infinities_and_nans_reach_the_gradients(self):
        for value in (float("inf"), float("nan")):
            given = operands(torch.float16, torch.float32)
            dy = torch.zeros(2, 3, 4, dtype=torch.float16)
            dy[1, 2, 3] = value
            for grad in torch.autograd.grad(mlp(*given, "relu"), given, dy):
                self.assertFalse(grad.isfinite().all())

    def test_a_second_derivative_is_refused_with_a_sentence(self):
        given = operands()
        calls = {"x": (lambda: layer(given[0], given[1], given[2]), given[0]), "weight": (lambda: layer(given[0], given[1]), given[1]),
                 "two layers": (lambda: mlp(*given, "gelu"), given[0]),
                 "a scale": (lambda: layer(*given[:3], scale=given[2]), given[1])}
        for name, (call, wanted) in calls.items():
            with self.subTest(name):
                first = torch.autograd.grad(call().square().sum(), wanted, create_graph=True)[0]
                with self.assertRaisesRegex(vitune.Unsupported, "no second derivative"):
                    torch.autograd.grad(first.square().sum(), wanted)

    def test_no_rows_have_gradients_of_zeros(self):
        x, weight, bias = torch.empty(0, 5, requires_grad=True), leaf(7, 5, dtype=torch.float32), leaf(7, dtype=torch.float32)
        dx, dw, db = torch.autograd.grad(layer(x, weight, bias).sum(), (x, weight, bias))
        self.assertEqual((dx.shape, dw.abs().sum().item(), db.abs().sum().item()), (x.shape, 0.0, 0.0))


def launch_staged(problem, tensors):
    """What scratch.launch() does, with tensors of the CPU."""
    context = attention_ops.context_of(0)
    size = context.workspace_bytes(problem)
    scratch = DEVICE.upload(bytes(max(size, 1)))
    outputs = next(i for i, tensor in enumerate(problem.tensors) if tensor.output)
    launch_copies(tensors, outputs, lambda pointers: context.run(problem, pointers, workspace=scratch if size else 0,
                                                                 workspace_bytes=size))


def serves(problem):
    """Whether this library knows it: older ones know no gradients."""
    try:
        vitune.Problem(problem)
    except vitune.VituneError:
        return False
    return True


def edges_of_relu(dtype, device="cpu"):
    """Gradients, and arguments around 0 and at the ends, each beside each."""
    limits = torch.finfo(dtype)
    ends = torch.tensor([0.0, limits.smallest_normal, limits.tiny * limits.eps, 2**-20, 1.0, limits.max, float("inf")], dtype=dtype, device=device)
    pre = torch.cat((ends, -ends, ends.new_tensor([0.5, -0.5])))
    return ends.new_tensor([1.0, -2.0, 0.25, 0.0, -0.0, 3.0, -1.0, 8.0]).repeat(2)[:, None].expand(16, 16).contiguous(), pre.expand(16, 16).contiguous()


class KnownText:
    """In the place of a problem: its text, whether the library knows it or not."""

    def __init__(self, text):
        self.text = text


@needs_device
@needs_torch
class ServedTest(unittest.TestCase):
    """By the library, on the emulated device."""

    def setUp(self):
        torch.manual_seed(4)
        self.asked = []

        for module, name, value in ((linear_ops, "launch", self.launch), (training, "launch", self.launch),
                                    (attention_ops, "is_on_gpu", lambda tensor: True)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        before = dict(counters.fallbacks)
        self.addCleanup(lambda: counters.fallbacks.update(before))

    def launch(self, problem, tensors):
        self.asked.append(problem.text)
        launch_staged(problem, tensors)

    def grads(self, parameters, activation="gelu", dy=None, scaled=False):
        given = [t.detach().requires_grad_() for t in (torch.randn(2, 8, 16, dtype=torch.bfloat16), torch.randn(24, 16, dtype=parameters) / 4,
                                                       torch.randn(24, dtype=parameters), torch.randn(8, 24, dtype=parameters) / 5,
                                                       torch.randn(8, dtype=parameters))]
        scale = [torch.randn(8, dtype=parameters).requires_grad_()] if scaled else []
        got = mlp(*given, activation, *scale)
        dy = torch.randn_like(got) if dy is None else dy
        ours = torch.autograd.grad(got, (*given, *scale), dy)
        wide = [t.detach().double().requires_grad_() for t in (*given, *scale)]
        want = eager(*wide[:5], activation, *wide[5:])
        for mine, right in zip((got, *ours), (want, *torch.autograd.grad(want, wide, dy.double()))):
            self.assertLessEqual((mine.double() - right).abs().max().item(), 2**-5 * max(1.0, right.abs().max().item()))

    def test_what_is_asked_are_texts_and_the_answer_is_right_whoever_gives_it(self):
        for parameters in (torch.bfloat16, torch.float32):
            with self.subTest(parameters):
                self.asked.clear()
                self.grads(parameters)
                said = " params=fp32" if parameters == torch.float32 else ""
                out = " out=fp32" if parameters == torch.float32 else ""
                want = [f"linear bf16 m=16 n=24 k=16 bias act=gelu{said} aux", f"linear bf16 m=16 n=8 k=24 bias{said}"]
                backward = ["linear bf16 m=16 n=24 k=8 wt=@24 dact=gelu", f"linear_weight_grad bf16 m=16 n=8 k=24 bias{out}",
                            "linear bf16 m=16 n=16 k=24 wt=@16", f"linear_weight_grad bf16 m=16 n=24 k=16 bias{out}"]
                self.assertEqual(self.asked, want + [text for text in backward if serves(text)])

    @unittest.skipUnless(serves("linear bf16 m=8 n=8 k=8 dact=gelu"), "the library knows no gradients")
    def test_a_layer_scale_is_asked_for_with_its_gradient(self):
        for parameters in (torch.bfloat16, torch.float32):
            with self.subTest(parameters):
                self.asked.clear()
                self.grads(parameters, scaled=True)
                said, out = ("", "") if parameters == torch.bfloat16 else (" params=fp32", " out=fp32")
                self.assertEqual([self.asked[1], self.asked[3]], [f"linear bf16 m=16 n=8 k=24 bias scale{said}",
                                                                  f"linear_weight_grad bf16 m=16 n=8 k=24 bias scale{said}{out}"])

    @unittest.skipUnless(serves("linear bf16 m=8 n=8 k=8 dact=gelu"), "the library knows no gradients")
    def test_relus_gradient_is_0_where_its_stored_argument_is_not_above_0(self):
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype):
                dy, pre = edges_of_relu(dtype)
                got = training.linear_act_input_grad(dy, torch.eye(dy.shape[1], dtype=dtype), pre, "relu")
                # As autograd has it, whose layer keeps relu's result.
                self.assertTrue(torch.equal(got, torch.ops.aten.threshold_backward(dy, F.relu(pre), 0)))
                pre[0, 0] = float("nan")
                self.assertTrue(training.linear_act_input_grad(dy, torch.eye(dy.shape[1], dtype=dtype), pre, "relu")[0, 0].isnan())

    @unittest.skipUnless(serves("linear bf16 m=8 n=8 k=8 dact=gelu wt"), "the library knows no gradients")
    def test_square_weights_are_multiplied_by_as_they_lie(self):
        dy, pre, x, weight = (torch.randn(16, 16, dtype=torch.bfloat16) for _ in range(4))
        for weights in ((weight, weight.t()), (weight.t(), weight)):  # of one shape and the same steps, the second by the first one's plan
            with mock.patch.object(training, "_plans", problem_text.Plans()), mock.patch.object(linear_ops, "_plans", problem_text.Plans()):
                for w16 in weights:
                    for name, got, want in (
                            ("dact", training.linear_act_input_grad(dy, w16, pre, "silu"), training.activation_grad(dy @ w16, pre, "silu")),
                            ("dx", training.linear_input_grad(dy, w16), dy @ w16), ("y", training.linear_train(x, w16, w16, None), x @ w16.t()),
                            ("y of act", training.linear_act_train(x, w16, w16, None, "relu")[0], x @ w16.t())):
                        with self.subTest(name):
                            torch.testing.assert_close(got, want, atol=0.1, rtol=0.02)

    def test_operands_that_lie_differently_are_different_problems(self):
        """Of square matrices, whose shapes tell nothing: a call among others asks what it asks alone."""
        def layouts(dtype):
            square, wide = torch.randn(16, 16, dtype=dtype), torch.randn(16, 40, dtype=dtype)
            return square, square.t(), wide[:, :16], wide[:, 8:24], wide[:, 1:17], square[:1].expand(16, 16), square[:, :1].expand(16, 16)
        calls = []
        for dtype in (torch.bfloat16, torch.float16):
            given = layouts(dtype)
            for dy, w16 in itertools.product(given, repeat=2):
                calls += [(training.linear_input_grad, dy, w16), (training.linear_train, dy, w16, w16, None), (training.linear_train, dy, w16, w16, w16[0])]
                calls += [(training.linear_weight_grad, dy, w16, out, bias) for out in (dtype, torch.float32) for bias in (False, True)]
                calls += [(training.linear_scale_weight_grad, dy, w16, pre, bias, w16[0]) for pre in given for bias in (None, w16[0])]
                calls += [(training.linear_act_input_grad, dy, w16, pre, activation) for pre in given for activation in ("relu", "gelu")]
        order = torch.randperm(len(calls)).tolist()
        together, alone = {}, {}
        with mock.patch.object(training, "Problem", KnownText), mock.patch.object(linear_ops, "Problem", KnownText), \
                mock.patch.object(linear_ops, "launch", self.note), mock.patch.object(training, "launch", self.note):
            for found, is_alone in ((together, False), (alone, True)):
                training._plans.clear(), linear_ops._plans.clear()
                for place in order:
                    if is_alone:
                        training._plans.clear(), linear_ops._plans.clear()
                    self.asked.clear()
                    calls[place][0](*calls[place][1:])
                    found[place], = self.asked
        self.assertEqual(together, alone)
        self.assertGreater(len(set(alone.values())), 100)
        training._plans.clear(), linear_ops._plans.clear()

    def note(self, problem, tensors):
        self.asked.append(problem.text)

    @unittest.skipUnless(serves("linear bf16 m=8 n=8 k=8 dact=gelu wt"), "the library knows no gradients")
    def test_gradients_that_are_expanded_or_turned_round_are_read_right(self):
        shape = (2, 8, 8)
        for name, dy in (("sum", torch.ones((), dtype=torch.bfloat16).expand(shape)), ("a row", torch.randn(8, dtype=torch.bfloat16).expand(shape)),
                         ("mean of tokens", torch.randn(2, 1, 8, dtype=torch.bfloat16).expand(shape)),
                         ("turned", torch.randn(8, 8, 2, dtype=torch.bfloat16).permute(2, 1, 0)),
                         ("sliced", torch.randn(2, 8, 24, dtype=torch.bfloat16)[..., 3:11])):
            with self.subTest(name):
                self.assertEqual(dy.shape, shape)
                self.grads(torch.float32, dy=dy)

    def test_a_refusal_is_pytorchs_answer_and_counted(self):
        def refuse(text):
            raise vitune.Unsupported(f"'{text}' is not known")
        counters.fallbacks.clear()
        with mock.patch.object(training, "Problem", refuse), mock.patch.object(training, "_plans", problem_text.Plans()), self.assertWarns(Warning):
            self.grads(torch.float32)
        self.assertEqual(sum(counters.fallbacks.values()), 3)  # two of weights, one of an activation
        self.assertEqual(len(self.asked), 3)


if __name__ == "__main__":
    unittest.main()
