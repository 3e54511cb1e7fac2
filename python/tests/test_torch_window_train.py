# python/tests/test_torch_window_train.py -- The operators of attention in windows that trains: formulas, gradients, what libvitune is asked.
# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("windows that train are not the operators' library's: once is enough")

from torch.autograd import gradcheck

from vitune._ops import attention as attention_ops, problem_text, window_attention as window_attention_ops
from vitune._ops import window_attention_training as training
from vitune._ops.window_attention import Windows, partitioned, reversed_
from vitune._runtime.counters import counters

from .test_torch_train import launch_staged, serves
from .test_torch_windows import CASES, launch_windows_staged, pixel_by_pixel

KNOWS_GRADIENTS = serves("window_attention_backward bf16 b=1 image=4x4 window=2x2 h=1 d=8")
OP, BACKWARD = torch.ops.vitune.window_attention_train, torch.ops.vitune.window_attention_backward
ROWS = 11  #: of tables
#: Kinds of the parameter that has the bias's gradient: none, one that all windows share, one of each, a table.
KINDS = ("frozen", "shared", "each", "table")


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()


class Call:
    """Operands of a call; eager mode's answer and the operator's."""

    def __init__(self, image, fields, bias_windows, padded, kind="table", interleaved=False, dtype=torch.float64, parameters=torch.float64,
                 bias_dtype=None, images=2, heads=2, d=16, scale=None):
        self.windows, self.interleaved, self.scale = Windows(*fields), interleaved, scale
        n = self.windows.window[0] * self.windows.window[1]
        self.qkv = leaf(images, *image, *((heads, 3) if interleaved else (3, heads)), d, dtype=dtype)
        self.padding = leaf(3, heads, d, dtype=parameters) if padded else None
        self.parameter = self.index = self.masks = None
        self.bias_dtype = bias_dtype or dtype
        if bias_windows:
            self.masks = torch.randn(bias_windows, 1, n, n, dtype=torch.float64).to(parameters)
            if kind == "table":
                self.parameter, self.index = leaf(ROWS, heads, dtype=parameters), torch.randint(0, ROWS, (n, n), dtype=torch.int32)
            else:
                self.parameter = leaf(bias_windows if kind == "each" else 1, heads, n, n, dtype=parameters).requires_grad_(kind != "frozen")

    @property
    def wanted(self):
        return [each for each in (self.qkv, self.parameter, self.padding) if each is not None and each.requires_grad]

    def bias_of(self, parameter):
        if parameter is None:
            return None
        shared = parameter if self.index is None else parameter[self.index.long()].permute(2, 0, 1).unsqueeze(0)
        return shared + self.masks

    def arguments(self):
        bias = None if self.parameter is None else self.bias_of(self.parameter.detach()).to(self.bias_dtype)
        filler = None if self.padding is None else self.padding.detach().to(self.qkv.dtype)
        parameter = self.parameter if self.parameter is not None and self.parameter.requires_grad else None
        return (self.qkv, self.windows.window, self.windows.shift, bias, parameter, None if parameter is None else self.index, self.padding,
                filler, self.scale, self.interleaved, *self.windows[2:])

    def ours(self):
        return OP(*self.arguments())

    def eager(self, qkv, bias, padding):
        """By PyTorch, all of whose steps have derivatives."""
        qkv = qkv.transpose(3, 4) if self.interleaved else qkv
        q, k, v = partitioned(qkv, self.windows, padding).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) * (q.shape[-1]**-0.5 if self.scale is None else self.scale)
        if bias is not None:
            scores = scores + bias.repeat(q.shape[0] // bias.shape[0], 1, 1, 1)
        return reversed_((scores.softmax(-1) @ v).transpose(1, 2), self.windows, qkv.shape[1:3])

    def right(self):
        """The answer in fp64 from the operands as they are read, and what its gradients are wanted of."""
        wide = [None if each is None else each.detach().double().requires_grad_(each.requires_grad)
                for each in (self.qkv, self.parameter, self.padding)]
        bias = self.bias_of(wide[1])
        bias = bias if bias is None else bias + (bias.detach().to(self.bias_dtype).double() - bias.detach())
        filler = wide[2] if wide[2] is None else wide[2] + (wide[2].detach().to(self.qkv.dtype).double() - wide[2].detach())
        return self.eager(wide[0], bias, filler), [each for each in wide if each is not None and each.requires_grad]


class GradientCase(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)

    def expect_right(self, call, bound, dout=None):
        out, (right, wide) = call.ours(), call.right()
        dout = torch.randn_like(out) if dout is None else dout
        grads, rights = torch.autograd.grad(out, call.wanted, dout), torch.autograd.grad(right, wide, dout.double())
        for mine, want, tensor in zip((out, *grads), (right, *rights), (out, *call.wanted), strict=True):
            self.assertEqual((mine.dtype, mine.shape, mine.is_contiguous()), (tensor.dtype, tensor.shape, True))
            self.assertLessEqual((mine - want).norm().item(), bound * want.norm().item())


@needs_torch
class FormulaTest(GradientCase):
    def test_the_answer_and_each_gradient_are_pytorchs_in_fp64(self):
        for case, kind, interleaved in itertools.product(CASES, KINDS, (False, True)):
            with self.subTest(case, kind=kind, interleaved=interleaved):
                call = Call(*case, kind, interleaved)
                self.expect_right(call, 1e-12)
                if not interleaved:
                    bias = call.bias_of(None if call.parameter is None else call.parameter.detach())
                    padding = call.padding if call.padding is None else call.padding.detach()
                    want = pixel_by_pixel(call.qkv.detach(), call.windows, bias, padding, None)
                    torch.testing.assert_close(call.ours().detach(), want)

    def test_each_gradient_is_that_of_differences(self):
        for interleaved in (False, True):
            call = Call((3, 5), ((2, 2), (1, 1)), 6, True, "table", interleaved, d=8, images=1, scale=0.6)

            def ours(qkv, parameter, padding):
                call.qkv, call.parameter, call.padding = qkv, parameter, padding
                return call.ours()
            self.assertTrue(gradcheck(ours, (call.qkv, call.parameter, call.padding)))

    def test_gradients_have_the_types_of_their_parameters_and_are_rounded_once(self):
        for dtype, wide in itertools.product((torch.bfloat16, torch.float16), (False, True)):
            bound = 2**-7 if dtype == torch.bfloat16 else 2**-10
            for kind, bias_dtype in (("table", dtype), ("shared", torch.float32), ("each", dtype)):
                call = Call((7, 10), ((4, 4), (2, 1)), 6, True, kind, False, dtype, torch.float32 if wide else dtype, bias_dtype)
                self.expect_right(call, bound)
            if wide:  # no rounding to 16 bits on the way
                (right, leaves), out = call.right(), call.ours()
                dout = torch.randn_like(out)
                for mine, want in zip(torch.autograd.grad(out, call.wanted[1:], dout), torch.autograd.grad(right, leaves[1:], dout.double())):
                    self.assertLessEqual((mine - want).norm().item(), 1e-5 * want.norm().item())

    def test_heads_may_share_a_bias(self):
        for kind in ("shared", "table"):
            call = Call((6, 8), ((3, 4), (1, 2)), 4, False, kind, heads=2)
            call.parameter = leaf(ROWS, 1) if kind == "table" else leaf(1, 1, 12, 12)
            self.expect_right(call, 1e-12)

    def test_what_wants_no_gradient_has_none(self):
        for wanted in range(3):
            call = Call((7, 10), ((4, 4), (2, 1)), 6, True)
            tensors = call.qkv, call.parameter, call.padding
            for place, tensor in enumerate(tensors):
                tensor.requires_grad_(place == wanted)
            with mock.patch.object(training, "window_attention_backward", mock.Mock(side_effect=training.window_attention_backward)) as backward:
                self.expect_right(call, 1e-12)
            self.assertEqual(backward.call_args.args[-2:], (0, ROWS if wanted == 1 else 0))
            self.assertEqual(backward.call_args.args[5] is None, wanted != 1)  # nor is the index kept

    def test_padding_that_an_image_does_not_need_has_a_gradient_of_zeros(self):
        call = Call((6, 8), ((3, 4),), 1, False)
        call.padding = leaf(3, 2, 16)
        grad, = torch.autograd.grad(call.ours().square().sum(), call.padding)
        self.assertEqual(grad.abs().sum().item(), 0.0)

    def test_rows_that_a_table_does_not_have_count_nowhere(self):
        call = Call((6, 8), ((3, 4),), 1, False)
        *rest, _ = call.arguments()
        index = call.index.clone()
        index[0, :3] = torch.tensor([-1, ROWS, 1 << 30])
        dout = torch.randn_like(call.ours())
        plain = (call.qkv.detach(), call.windows.window, call.windows.shift, rest[3].detach())
        got, want = (BACKWARD(dout, *plain, each, None, None, False, False, False, *wanted)[1] for each, wanted in (
            (index, (0, ROWS)), (None, (1, 0))))
        want[0, :, 0, :3] = 0
        right = torch.zeros(ROWS, 2, dtype=torch.float64).index_add_(0, index.flatten().long().clamp(0, ROWS - 1), want[0].flatten(1).t())
        torch.testing.assert_close(got, right)

    def test_no_image_has_gradients_of_zeros(self):
        call = Call((7, 10), ((4, 4), (2, 1)), 6, True, images=0)
        grads = torch.autograd.grad(call.ours().sum(), call.wanted)
        self.assertEqual([grad.shape for grad in grads], [tensor.shape for tensor in call.wanted])
        self.assertEqual(sum(grad.abs().sum().item() for grad in grads), 0.0)

    def test_compilers_see_what_they_compute(self):
        for case, kind, interleaved in ((CASES[3], "table", False), (CASES[1], "each", True), (CASES[5], "frozen", False)):
            call = Call(*case, kind, interleaved)
            torch.library.opcheck(OP.default, call.arguments())
            wanted = training.Wanted.of(call.parameter, call.index)
            given = [each if each is None else each.detach() for each in (call.qkv, call.arguments()[3], call.index, call.arguments()[7])]
            torch.library.opcheck(BACKWARD.default, (torch.randn_like(call.ours()), given[0], call.windows.window, call.windows.shift, *given[1:],
                                                     None, interleaved, *call.windows[2:], *wanted))

    def test_a_graph_that_is_kept_gives_the_same_bits_again_and_infinities_reach_gradients(self):
        call = Call((7, 10), ((4, 4), (2, 1)), 6, True, dtype=torch.float16, parameters=torch.float32)
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        out = call.ours()
        dout = torch.randn_like(out)
        first, again = (torch.autograd.grad(out, call.wanted, dout, retain_graph=True) for _ in range(2))
        self.assertTrue(all(map(torch.equal, first, again)))
        dout[1, 2, 3] = torch.inf
        self.assertFalse(any(grad.isfinite().all() for grad in torch.autograd.grad(out, call.wanted, dout)))

    def test_autocast_around_them_casts_nothing(self):
        call = Call((7, 10), ((4, 4), (2, 1)), 6, True, dtype=torch.float32, parameters=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            out = call.ours()
            grads = torch.autograd.grad(out.sum(), call.wanted)
        self.assertEqual({each.dtype for each in (out, *grads)}, {torch.float32})

    def test_second_derivatives_and_operands_that_contradict_each_other_are_refused_with_a_sentence(self):
        call = Call((6, 8), ((3, 4), (1, 2)), 4, False)
        first, = torch.autograd.grad(call.ours().square().sum(), call.qkv, create_graph=True)
        with self.assertRaisesRegex(vitune.Unsupported, "windows that trains has no second derivative"):
            torch.autograd.grad(first.square().sum(), call.qkv)
        given = call.arguments()
        for place, wrong, said in ((0, call.qkv[0], "it must be"), (1, (3, 4, 5), "3 numbers"), (3, given[3][:3], "bias of"), (3, None, "and no bias"),
                                   (4, leaf(ROWS, 3), "a table of"), (5, None, "parameter of"), (5, call.index.long(), "int32"),
                                   (5, call.index[:3], "an index of"), (6, leaf(3, 2, 16), "padding is given twice")):
            with self.subTest(said), self.assertRaisesRegex(vitune.InvalidArgument, said):
                OP(*given[:place], wrong, *given[place + 1:])


@needs_device
@needs_torch
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of windows")
class ServedTest(GradientCase):
    def setUp(self):
        super().setUp()
        self.asked = []

        def launch(problem, tensors):
            self.asked.append(problem.text)
            launch_staged(problem, tensors)
        for module, name, value in ((window_attention_ops, "launch", launch_windows_staged), (training, "launch", launch),
                                    (attention_ops, "is_on_gpu", lambda tensor: True)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        for plans in (window_attention_ops._plans, training._plans):
            plans.clear()
        vitune.torch.reset_stats()

    def test_gradients_are_right_of_each_kind_of_call(self):
        for place, (case, kind) in enumerate(zip(CASES, itertools.cycle(KINDS[::-1]))):
            dtype = (torch.bfloat16, torch.float16)[place % 2]
            parameters, bias_dtype = ((torch.float32, dtype), (dtype, dtype), (torch.float32, torch.float32))[place % 3]
            with self.subTest(case, kind=kind):
                self.expect_right(Call(*case, kind, place % 2 == 1, dtype, parameters, bias_dtype), 2**-6)
        self.assertEqual(len(self.asked), len(CASES))
        self.assertEqual(counters.fallbacks, {})

    def test_what_is_asked(self):
        cases = ((Call(*CASES[3], "table", dtype=torch.bfloat16, parameters=torch.float32),
                  "b=2 image=7x10 window=4x4 shift=2x1 h=2 d=16 padding bias=bf16:6x2x16x16 dtable=11"),
                 (Call(*CASES[1], "shared", True, torch.bfloat16, bias_dtype=torch.float32),
                  "b=2 image=6x8 window=3x4 shift=1x2 h=2 d=16 layout=interleaved bias=fp32:4x2x12x12 dbias=1x2x12x12"),
                 (Call(*CASES[1], "each", False, torch.bfloat16), "b=2 image=6x8 window=3x4 shift=1x2 h=2 d=16 bias=bf16:4x2x12x12 dbias"),
                 (Call(*CASES[6], "frozen", False, torch.bfloat16, scale=0.5), "b=2 image=8x6 window=4x2 h=2 d=16 grid scale=0.5 bias=bf16:1x2x8x8"))
        for call, want in cases:
            self.expect_right(call, 2**-6)
            canonical = attention_ops.context_of(0).query(vitune.Problem(self.asked[-1])).problem
            self.assertEqual(canonical, f"window_attention_backward bf16 {want}")

    def test_two_runs_give_the_same_bits_and_gradients_may_lie_as_they_like(self):
        call = Call((7, 10), ((4, 4), (2, 1)), 6, True, "table", dtype=torch.bfloat16, parameters=torch.float32)
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        out = call.ours()
        dout = torch.randn_like(out)
        grads = [torch.autograd.grad(out, call.wanted, given, retain_graph=True) for given in (
            dout, dout, dout.permute(4, 0, 3, 1, 2).contiguous().permute(1, 3, 4, 2, 0), torch.stack((dout, dout), -1)[..., 0])]
        for other in grads[1:]:
            self.assertTrue(all(map(torch.equal, grads[0], other)))
        self.expect_right(call, 2**-6, torch.ones((), dtype=out.dtype).expand(out.shape))

    def test_plans_of_calls_that_differ_are_kept_apart(self):
        calls = [Call(*case, kind, interleaved, dtype, parameters=torch.float32) for case, kind, interleaved, dtype in itertools.product(
            CASES, KINDS, (False, True), (torch.bfloat16, torch.float16)) if case[2] > (kind == "each") or kind == "frozen"]
        together, alone = [], []
        with mock.patch.object(training, "launch", lambda problem, tensors: self.asked.append(problem.text)), \
                mock.patch.object(training, "_forward", lambda qkv, bias, padding16, call: training.fake_output(qkv, call.interleaved)):
            for found, is_alone in ((together, False), (alone, True)):
                for call in calls:
                    if is_alone:
                        training._plans.clear()
                    self.asked.clear()
                    call.ours().sum().backward()
                    found += self.asked
        self.assertEqual(together, alone)
        self.assertEqual(len(set(alone)), len(calls))
        self.assertLess(len(calls), problem_text.MAX_PLANS)

    def test_a_refusal_is_pytorchs_answer_and_counted(self):
        call = Call((6, 8), ((3, 4), (1, 2)), 4, False, dtype=torch.bfloat16, parameters=torch.float32, d=12)
        with self.assertWarns(Warning):
            self.expect_right(call, 2**-6)
        self.assertEqual((sum(counters.fallbacks.values()), self.asked), (2, []))  # a head size that is no multiple of 8, in each pass


if __name__ == "__main__":
    unittest.main()
