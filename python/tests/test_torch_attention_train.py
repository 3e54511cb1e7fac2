# python/tests/test_torch_attention_train.py -- The operators of attention that trains: formulas, gradients, what libvitune is asked.
# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("attention that trains is not the operators' library's: once is enough")

import torch.nn.functional as F
from torch.autograd import gradcheck

from vitune._ops import attention as attention_ops, attention_training as training, problem_text
from vitune._ops.order import CONTIGUOUS, OF_Q, ROWS
from vitune._runtime.counters import counters

from . import torch_staged
from .test_torch_norm import launch_copies
from .test_torch_train import serves

KNOWS_GRADIENTS = serves("attention_backward bf16 b=1 h=1 n=8 d=8")


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()


def heads_of(b, h, n, d, dtype=torch.float64, lies="rows"):
    """[b, h, n, d] that lies [b, n, h, d], as it is, or with gaps."""
    if lies == "rows":
        return leaf(b, n, h, d, dtype=dtype).transpose(1, 2)
    return leaf(b, h, n, d, dtype=dtype) if lies == "heads" else leaf(b, n, h, d + 8, dtype=dtype).transpose(1, 2)[..., :d]


def eager(q, k, v, mask=None, is_causal=False, scale=None):
    if mask is not None and mask.dim() == 4 and 1 < mask.shape[0] < q.shape[0]:
        mask = mask.repeat(q.shape[0] // mask.shape[0], 1, 1, 1)
    group = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), mask, 0.0, is_causal, scale=scale)


def ours(q, k, v, mask=None, is_causal=False, scale=None, order=ROWS):
    return training.attention_train(q, k, v, mask, is_causal, scale, order)[0]


def a_mask(*shape):
    """With a key for each query."""
    return (torch.rand(*shape) < 0.6).index_fill(-1, torch.tensor([0]), True)


#: q's and k's heads, rows and head size; what else the call says.
CASES = {
    "plain": ((2, 2, 9, 9, 16), {}),
    "causal": ((2, 2, 9, 9, 16), {"is_causal": True}),
    "causal, fewer keys": ((1, 1, 9, 5, 8), {"is_causal": True}),
    "one query, another scale": ((2, 2, 1, 17, 24), {"scale": 0.3}),
    "more queries than keys": ((2, 2, 33, 7, 40), {}),
    "grouped heads": ((4, 2, 9, 9, 16), {}),
    "one head of keys, causal": ((3, 1, 8, 8, 16), {"is_causal": True}),
    "a mask": ((2, 2, 9, 9, 16), {"mask": lambda: a_mask(9, 9)}),
    "a mask of keys": ((2, 2, 9, 11, 16), {"mask": lambda: a_mask(2, 1, 1, 11)}),
    "a mask of windows": ((2, 2, 9, 9, 8), {"batch": 4, "mask": lambda: a_mask(2, 1, 9, 9)}),
}
#: Shapes of a bias beside [4, 2, 9, 11] scores, of which the last three share rows, keys or both.
BIASES = ((9, 11), (1, 2, 9, 11), (2, 9, 11), (4, 1, 9, 11), (4, 2, 9, 11), (2, 2, 9, 11), (4, 2, 1, 11), (1, 1, 9, 1), (1, 11))


def operands(sizes, batch=2, dtype=torch.float64, lies="rows"):
    heads, kv_heads, nq, nk, d = sizes
    return [heads_of(batch, heads, nq, d, dtype, lies), *(heads_of(batch, kv_heads, nk, d, dtype, lies) for _ in range(2))]


def case(name, dtype=torch.float64, lies="rows"):
    sizes, words = CASES[name]
    words = dict(words)
    given = operands(sizes, words.pop("batch", 2), dtype, lies)
    mask = words.pop("mask", lambda: None)()
    return given, mask, words


@needs_torch
class FormulaTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)

    def expect_eagers(self, given, mask, words, bound=1e-9, got=None):
        wanted = [tensor for tensor in (*given, mask) if tensor is not None and tensor.requires_grad]
        got, want = ours(*given, mask, **words) if got is None else got, eager(*given, mask, **words)
        dout = torch.randn_like(want)
        torch.testing.assert_close(got, want, rtol=bound, atol=bound)
        for mine, right, tensor in zip(*(torch.autograd.grad(each, wanted, dout) for each in (got, want)), wanted, strict=True):
            self.assertEqual((mine.shape, mine.dtype), (tensor.shape, tensor.dtype))
            torch.testing.assert_close(mine, right, rtol=bound, atol=bound)

    def test_each_gradient_is_pytorchs_in_fp64(self):
        for name in CASES:
            with self.subTest(name):
                self.expect_eagers(*case(name))

    def test_a_bias_of_every_broadcast_has_its_gradient(self):
        for shape in BIASES:
            with self.subTest(shape):
                self.expect_eagers(operands((2, 2, 9, 11, 16), 4), leaf(*shape), {})
                self.expect_eagers([t.detach() for t in operands((2, 2, 9, 11, 16), 4)], leaf(*shape), {})
        expanded = leaf(1, 1, 9, 11).expand(4, 2, 9, 11)
        self.expect_eagers(operands((2, 2, 9, 11, 16), 4), expanded, {})
        self.expect_eagers(operands((4, 2, 9, 11, 16), 4), leaf(1, 4, 9, 11), {"scale": 0.5})

    def test_each_gradient_is_that_of_differences(self):
        given = [heads_of(2, 2, 3, 8), heads_of(2, 1, 4, 8), heads_of(2, 1, 4, 8), leaf(2, 3, 4)]
        self.assertTrue(gradcheck(ours, given))
        qkv, bias = leaf(2, 3, 3, 2, 8), leaf(1, 2, 3, 3)
        self.assertTrue(gradcheck(lambda qkv, bias: training.attention_qkv_train(qkv, bias, False, None, ROWS)[0], (qkv, bias)))

    def test_a_projection_has_the_gradients_of_its_views_in_one(self):
        for words, bias in (({}, None), ({"is_causal": True}, None), ({"scale": 0.2}, leaf(1, 2, 5, 5))):
            qkv = leaf(2, 5, 3, 2, 8)
            got, lse = training.attention_qkv_train(qkv, bias, words.get("is_causal", False), words.get("scale"), ROWS)
            want = eager(*qkv.permute(2, 0, 3, 1, 4), bias, **words)
            dout = torch.randn_like(want)
            wanted = (qkv,) if bias is None else (qkv, bias)
            for mine, right in zip(*(torch.autograd.grad(each, wanted, dout) for each in (got, want))):
                torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-9)
            self.assertEqual((lse.shape, lse.requires_grad), ((2, 2, 5), False))

    def test_types_are_pytorchs_and_a_bias_of_fp32_has_a_gradient_of_fp32(self):
        for dtype, bias_type in itertools.product((torch.bfloat16, torch.float16), (None, torch.float32)):
            given, bias = operands((2, 2, 9, 9, 16), 4, dtype), leaf(1, 2, 9, 9, dtype=bias_type or dtype)
            out, lse = training.attention_train(*given, bias, False, None, ROWS)
            dout = torch.randn_like(out)
            grads = torch.autograd.grad(out, (*given, bias), dout)
            wide = [tensor.detach().double().requires_grad_() for tensor in (*given, bias)]
            right = eager(*wide)
            for mine, want, tensor in zip((out, *grads), (right, *torch.autograd.grad(right, wide, dout.double())), (out, *given, bias)):
                self.assertEqual((mine.dtype, mine.shape), (tensor.dtype, tensor.shape))
                self.assertLessEqual((mine - want).norm().item(), (2**-7 if dtype == torch.bfloat16 else 2**-10) * want.norm().item())
            self.assertEqual(lse.dtype, torch.float32)

    def test_rows_without_a_key_give_and_get_nothing(self):
        for bad in (torch.tensor([False]), torch.tensor([-torch.inf], dtype=torch.float64)):
            mask = a_mask(2, 1, 9, 9) if bad.dtype == torch.bool else torch.randn(2, 1, 9, 9, dtype=torch.float64)
            mask[0, :, 3] = bad
            given, _, _ = case("plain")
            out, lse = training.attention_train(*given, mask, False, None, ROWS)
            self.assertEqual((out[0, :, 3].abs().sum().item(), lse[0, 0, 3].item()), (0.0, -torch.inf))
            grads = torch.autograd.grad(out, given, torch.randn_like(out))
            self.assertTrue(all(grad.isfinite().all() for grad in grads))
            self.assertEqual(grads[0][0, :, 3].abs().sum().item(), 0.0)

    def test_no_rows_and_no_keys_have_gradients_of_zeros(self):
        for sizes in ((2, 2, 0, 4, 8), (2, 2, 4, 0, 8)):
            given = operands(sizes)
            out = ours(*given)
            grads = torch.autograd.grad(out.sum(), given)
            self.assertEqual([grad.shape for grad in grads], [tensor.shape for tensor in given])
            self.assertEqual(sum(grad.abs().sum().item() for grad in grads) + out.abs().sum().item(), 0.0)

    def test_what_wants_no_gradient_has_none(self):
        for wanted in range(4):
            given = [tensor.detach().requires_grad_(place == wanted) for place, tensor in enumerate((*operands((2, 2, 5, 5, 8)), leaf(2, 5, 5)))]
            with mock.patch.object(training, "attention_backward", mock.Mock(side_effect=training.attention_backward)) as backward:
                got, = torch.autograd.grad(ours(*given).square().sum(), given[wanted])
            self.assertEqual(backward.call_args.args[-1], wanted == 3)
            torch.testing.assert_close(got, *torch.autograd.grad(eager(*given).square().sum(), given[wanted]))

    def test_results_lie_as_they_are_asked_for_and_gradients_as_their_tensors(self):
        for lies, order in itertools.product(("rows", "heads", "gaps"), (ROWS, CONTIGUOUS, OF_Q)):
            with self.subTest(lies, order=order):
                given = operands((2, 2, 5, 7, 8), lies=lies)
                out = ours(*given, order=order)
                by_rows = order == ROWS or order == OF_Q and lies != "heads"
                self.assertTrue((out.transpose(1, 2) if by_rows else out).is_contiguous())
                found = training.attention_backward(torch.randn_like(out), *given, None, out, torch.zeros(2, 2, 5, dtype=torch.float64), False,
                                                    None, False)
                for grad in found[:3]:
                    self.assertTrue((grad if lies == "heads" else grad.transpose(1, 2)).is_contiguous())

    def test_compilers_see_what_they_compute(self):
        for name, order in (("plain", ROWS), ("grouped heads", OF_Q), ("a mask of windows", CONTIGUOUS)):
            given, mask, words = case(name)
            torch.library.opcheck(training.attention_train, (*given, mask, False, None, order))
            out, lse = (t.detach() for t in training.attention_train(*given, mask, False, None, order))
            torch.library.opcheck(training.attention_backward, (out, *(t.detach() for t in given), mask, out, lse, False, None, False))
        qkv, bias = leaf(2, 5, 3, 2, 8), leaf(2, 5, 5)
        torch.library.opcheck(training.attention_qkv_train, (qkv, bias, False, 0.3, ROWS))
        out, lse = (t.detach() for t in training.attention_qkv_train(qkv, bias, False, 0.3, ROWS))
        torch.library.opcheck(training.attention_qkv_backward, (out, qkv.detach(), bias.detach(), out, lse, False, 0.3, True))
        given = [*operands((2, 2, 5, 5, 8)), bias]
        torch.library.opcheck(training.attention_backward, (out, *(t.detach() for t in given), out, lse, False, 0.3, True))

    def test_a_graph_that_is_kept_gives_the_same_bits_again_and_infinities_reach_gradients(self):
        given = operands((2, 2, 5, 5, 8), dtype=torch.float16)
        out = ours(*given)
        dout = torch.randn_like(out)
        first, again = (torch.autograd.grad(out, given, dout, retain_graph=True) for _ in range(2))
        self.assertTrue(all(map(torch.equal, first, again)))
        dout[1, 0, 2, 3] = torch.inf
        self.assertFalse(any(grad.isfinite().all() for grad in torch.autograd.grad(out, given, dout)))

    def test_second_derivatives_and_operands_that_contradict_each_other_are_refused_with_a_sentence(self):
        given = operands((2, 2, 5, 5, 8))
        first, = torch.autograd.grad(ours(*given).square().sum(), given[0], create_graph=True)
        with self.assertRaisesRegex(vitune.Unsupported, "attention that trains has no second derivative"):
            torch.autograd.grad(first.square().sum(), given[1])
        qkv = leaf(2, 5, 3, 2, 8)
        first, = torch.autograd.grad(training.attention_qkv_train(qkv, None, False, None, ROWS)[0].square().sum(), qkv, create_graph=True)
        with self.assertRaisesRegex(vitune.Unsupported, "SDPBackend.MATH"):
            torch.autograd.grad(first.square().sum(), qkv)
        for wrong, said in ((lambda q, k, v: ours(q[0], k[0], v[0]), r"3, 3 and 3 dimensions"), (lambda q, k, v: ours(q, k[:1], v[:1]), "one batch"),
                            (lambda q, k, v: ours(q, k, v[:, :1]), "one shape"), (lambda q, k, v: ours(q, k[..., :4], v[..., :4]), "head size"),
                            (lambda q, k, v: ours(q, k, v, a_mask(5, 5), True), "exclude each other")):
            with self.assertRaisesRegex(vitune.InvalidArgument, said):
                wrong(*given)

    def test_autocast_around_them_casts_nothing(self):
        given = operands((2, 2, 5, 5, 8), dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            out = ours(*given)
            grads = torch.autograd.grad(out.sum(), given)
        self.assertEqual({each.dtype for each in (out, *grads)}, {torch.float32})

    def test_views_of_a_projection_are_told_from_others(self):
        qkv = leaf(2, 5, 3, 2, 8)
        whole, views = qkv * 1, lambda t: t.permute(2, 0, 3, 1, 4).unbind(0)  # noqa: E731
        q, k, v = views(whole)
        flat = whole.view(2, 5, 48)
        self.assertTrue(training.holds(whole, q, k, v) and training.holds(flat, q, k, v))
        wrongs = {"turned": (whole, k, q, v), "of another": (whole, q, k, views(qkv * 1)[2]), "a copy": (whole, q.contiguous(), k, v),
                  "a part": (whole, q[:, :1], k[:, :1], v[:, :1]), "heads outside": (whole, *qkv.view(2, 5, 2, 3, 8).permute(3, 0, 2, 1, 4)),
                  "larger": (torch.cat((whole, whole)), q, k, v)}
        for name, given in wrongs.items():
            with self.subTest(name):
                self.assertFalse(training.holds(*given))
        for is_one, change in ((True, lambda q: None), (False, lambda q: q.retain_grad()), (False, lambda q: q.register_hook(lambda g: g))):
            q, k, v = views(qkv * 1)
            change(q)
            self.assertEqual(training.projection_of(q, k, v) is not None, is_one)
        with torch.no_grad():
            self.assertIsNone(training.projection_of(*views(qkv * 1)))


def launch_staged(problem, tensors):
    launch_copies(tensors, 8, lambda pointers: run_with_workspace(problem, pointers))


def run_with_workspace(problem, pointers):
    from .support import DEVICE
    context = attention_ops.context_of(0)
    size = context.workspace_bytes(problem)
    context.run(problem, pointers, workspace=DEVICE.allocate(size) if size else 0, workspace_bytes=size)


@needs_device
@needs_torch
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of attention")
class ServedTest(unittest.TestCase):
    """By the library, on the emulated device."""

    def setUp(self):
        torch.manual_seed(8)
        self.asked = []

        def launch(problem, tensors):
            self.asked.append(problem.text)
            launch_staged(problem, tensors)
        for module, name, value in ((training, "launch", launch), (attention_ops, "launch", torch_staged.launch_staged),
                                    (attention_ops, "is_on_gpu", lambda tensor: True), (training, "_plans", problem_text.Plans())):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        before = dict(counters.fallbacks)
        self.addCleanup(lambda: counters.fallbacks.update(before))
        counters.fallbacks.clear()

    def expect_right(self, given, mask, words, dout=None, out=None):
        """Result and gradients are those of fp64, of the operands as they are."""
        wanted = [tensor for tensor in (*given, mask) if tensor is not None and tensor.requires_grad]
        out = ours(*given, mask, **words) if out is None else out
        dout = torch.randn_like(out) if dout is None else dout
        grads = torch.autograd.grad(out, wanted, dout)
        wide = {tensor: tensor.detach().double().requires_grad_(tensor.requires_grad) if tensor.dtype != torch.bool else tensor
                for tensor in (*given, mask) if tensor is not None}
        right = eager(*(None if tensor is None else wide[tensor] for tensor in (*given, mask)), **words)
        rights = torch.autograd.grad(right, [wide[tensor] for tensor in wanted], dout.double())
        for mine, want, tensor in zip((out, *grads), (right, *rights), (out, *wanted), strict=True):
            self.assertEqual((mine.dtype, mine.shape), (tensor.dtype, tensor.shape))
            # The gradient of a bias that all keys of a row share is 0, except for roundings of the result, which dout is multiplied by.
            least = dout.double().norm().item() / 8 if tensor is mask else 0.0
            self.assertLessEqual((mine - want).norm().item(), 2**-6 * max(least, want.norm().item()))
        self.assertEqual(counters.fallbacks, {})

    def test_gradients_are_right_of_each_kind_of_call(self):
        for place, name in enumerate(CASES):
            with self.subTest(name):
                self.expect_right(*case(name, (torch.bfloat16, torch.float16)[place % 2], ("rows", "heads", "gaps")[place % 3]))
        self.assertEqual(len(self.asked), len(CASES))

    def test_a_bias_of_every_broadcast_has_its_gradient(self):
        for shape, dtype in zip(BIASES, itertools.cycle((torch.float32, torch.bfloat16))):
            with self.subTest(shape):
                self.expect_right(operands((2, 2, 9, 11, 16), 4, torch.bfloat16), leaf(*shape, dtype=dtype), {})
        self.assertEqual(len(self.asked), len(BIASES))
        self.assertTrue(all(" dbias=" in text for text in self.asked))
        self.expect_right(operands((2, 2, 9, 11, 16), 4, torch.bfloat16), torch.randn(1, 2, 9, 11), {})
        self.assertNotIn("dbias", self.asked[-1])

    def test_a_projection_is_asked_for_with_packed_gradients(self):
        qkv, bias = leaf(2, 9, 3, 2, 16, dtype=torch.bfloat16), leaf(1, 2, 9, 9, dtype=torch.float32)
        out, _ = training.attention_qkv_train(qkv, bias, False, None, ROWS)
        dout = torch.randn_like(out)
        grads = torch.autograd.grad(out, (qkv, bias), dout)
        wide = [tensor.detach().double().requires_grad_() for tensor in (qkv, bias)]
        right = eager(*wide[0].permute(2, 0, 3, 1, 4), wide[1])
        for mine, want in zip((out, *grads), (right, *torch.autograd.grad(right, wide, dout.double()))):
            self.assertLessEqual((mine - want).norm().item(), 2**-6 * want.norm().item())
        self.assertTrue(grads[0].is_contiguous())
        canonical = attention_ops.context_of(0).query(vitune.Problem(self.asked[0])).problem
        self.assertEqual(canonical, "attention_backward bf16 b=2 h=2 nq=9 nk=9 d=16 layout=packed bias=fp32:1x2x9x9 dbias")

    def test_gradients_that_are_expanded_or_lie_differently_are_read_right(self):
        given = operands((2, 2, 9, 9, 16), 2, torch.bfloat16)
        shape, dtype = (2, 2, 9, 16), torch.bfloat16
        for dout in (torch.ones((), dtype=dtype).expand(shape), torch.randn(2, 2, 1, 16, dtype=dtype).expand(shape),
                     torch.randn(16, 9, 2, 2, dtype=dtype).permute(3, 2, 1, 0), torch.randn(2, 2, 9, 20, dtype=dtype)[..., 3:19],
                     torch.randn(shape, dtype=dtype)):
            self.expect_right(given, None, {}, dout)

    def test_plans_of_calls_that_differ_are_kept_apart(self):
        """A call among others asks what it asks alone."""
        calls = []
        for dtype, lies, words in itertools.product((torch.bfloat16, torch.float16), ("rows", "heads", "gaps"), (
                (None, False, None, False), (None, True, None, False), (None, False, 0.5, False), (a_mask(2, 1, 8, 8), False, None, False),
                (torch.randn(2, 8, 8), False, None, False), (torch.randn(2, 8, 8), False, None, True), (torch.randn(1, 8), False, None, True))):
            given = [tensor.detach() for tensor in operands((2, 2, 8, 8, 16), 2, dtype, lies)]
            mask, is_causal, scale, dbias = words
            calls.append((given[0], *given, mask, given[0], torch.zeros(2, 2, 8), is_causal, scale, dbias))
        together, alone = [], []
        with mock.patch.object(training, "launch", lambda problem, tensors: self.asked.append(problem.text)):
            for found, is_alone in ((together, False), (alone, True)):
                for call in calls:
                    if is_alone:
                        training._plans.clear()
                    self.asked.clear()
                    training.attention_backward(*call)
                    found += self.asked
        self.assertEqual(together, alone)
        self.assertEqual(len(set(alone)), len(calls))

    def test_a_refusal_is_pytorchs_answer_and_counted(self):
        given = operands((2, 2, 5, 5, 12), dtype=torch.bfloat16)
        with self.assertWarns(Warning):
            got = torch.autograd.grad(ours(*given).float().sin().sum(), given)
        for mine, right in zip(got, torch.autograd.grad(eager(*given).float().sin().sum(), given)):
            torch.testing.assert_close(mine, right, rtol=5e-2, atol=5e-2)
        self.assertEqual(sum(counters.fallbacks.values()), 2)  # a head size that is no multiple of 8, in each pass


if __name__ == "__main__":
    unittest.main()
