# python/tests/test_torch_eager_attention.py -- Attention that trains in eager mode while vitune is installed: gradients beside fp64, who is served.
# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest
from unittest import mock

import vitune

from .support import needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitune._dropin import training as training_dropin
from vitune._ops import attention as attention_ops, attention_autograd
from vitune._runtime import native

from .torch_cases import strides_that_matter
from .training_staged import BOUND, QKV_BACKWARD, TrainingTest, in_fp64, leaf

HALF = torch.bfloat16


def of_projection(qkv):
    return qkv.permute(2, 0, 3, 1, 4).unbind(0)


def attend(q, k, v, mask=None, **keywords):
    return F.scaled_dot_product_attention(q, k, v, mask, **keywords)


@needs_device
@needs_torch
class AttentionTest(TrainingTest):
    def _gradients(self, call, given, dtype=HALF):
        """Result and gradients, by vitune if it is installed and beside them those of fp64."""
        wanted = [tensor for tensor in given if tensor is not None and tensor.requires_grad]
        got = call(*given)
        dout = torch.randn_like(got)
        ours = torch.autograd.grad(got, wanted, dout)
        wide = in_fp64(given)
        want = call(*wide)
        theirs = torch.autograd.grad(want, [tensor for tensor in wide if tensor is not None and tensor.requires_grad], dout.double())
        self.assertEqual(got.dtype, dtype)
        self.expect_near(got, want, BOUND[dtype])
        for mine, right, of in zip(ours, theirs, wanted, strict=True):
            self.assertEqual((mine.dtype, mine.shape), (of.dtype, of.shape))
            self.expect_near(mine, right, 2 * BOUND[dtype])
        return ours

    def test_gradients_are_those_of_fp64(self):
        b, h, n, d = 2, 2, 11, 16
        allowed = torch.rand(b, 1, n, n) > 0.4
        allowed[..., 0] = True
        masks = {"": None, "bool": allowed, "bias of all": torch.randn(1, h, n, n).to(HALF).requires_grad_(),
                 "fp32 bias": torch.randn(n, n).requires_grad_(), "frozen bias": torch.randn(b, h, n, n).to(HALF)}
        cases = {f"projection {name}": (lambda qkv, mask: attend(*of_projection(qkv * 1), mask), (leaf(b, n, 3, h, d, dtype=HALF), mask))
                 for name, mask in masks.items()}
        cases |= {
            "apart": (attend, tuple(leaf(b, h, n, d, dtype=HALF) for _ in range(3))),
            "causal": (lambda q, k, v: attend(q, k, v, is_causal=True, scale=0.3), tuple(leaf(b, h, n, d, dtype=HALF) for _ in range(3))),
            "other keys": (attend, (leaf(b, h, 5, d, dtype=HALF), *(leaf(b, h, 9, d, dtype=HALF) for _ in range(2)))),
            "grouped": (lambda q, k, v: attend(q, k, v, enable_gqa=True), (leaf(b, 4, n, d, dtype=HALF), *(leaf(b, 2, n, d, dtype=HALF) for _ in range(2)))),
            "keys alone": (attend, (torch.randn(b, h, n, d).to(HALF), leaf(b, h, n, d, dtype=HALF), torch.randn(b, h, n, d).to(HALF))),
            "fp16": (attend, tuple(leaf(b, h, n, d, dtype=torch.float16) for _ in range(3))),
        }
        for name, (call, given) in cases.items():
            with self.subTest(name), vitune.torch.enabled(training=True):
                self._gradients(call, given, given[0].dtype)
                self.assertEqual(self.counts()[:2], (1, 1), name)  # fp64 is PyTorch's
                self.assertEqual(self.operators_asked(), ["attention_backward"])

    def test_views_of_a_projection_have_one_gradient_in_its_memory(self):
        def by(views):
            def call(x):
                whole = x * 1
                return attend(*views(whole))
            return call
        b, n, h, d = 2, 7, 2, 16
        ways = {
            "unbind": (lambda w: of_projection(w.view(b, n, 3, h, d)), True), "index": (lambda w: tuple(w.view(b, n, 3, h, d).permute(2, 0, 3, 1, 4)), True),
            "select": (lambda w: [w.view(b, n, 3, h, d).permute(2, 0, 3, 1, 4)[i] for i in range(3)], True),
            "chunk": (lambda w: [each.view(b, n, h, d).transpose(1, 2) for each in w.chunk(3, -1)], True),
            "k before q": (lambda w: [of_projection(w.view(b, n, 3, h, d))[i] for i in (1, 0, 2)], False),
            "normed q": (lambda w: [f(x) for f, x in zip((lambda q: q * 2, lambda k: k, lambda v: v), of_projection(w.view(b, n, 3, h, d)))], False),
            "one twice": (lambda w: [of_projection(w.view(b, n, 3, h, d))[i] for i in (0, 1, 1)], False),
        }
        for name, (views, one) in ways.items():
            with self.subTest(name), vitune.torch.enabled(training=True), \
                    mock.patch.object(*QKV_BACKWARD, mock.Mock(side_effect=getattr(*QKV_BACKWARD))) as whole:
                self._gradients(by(views), (leaf(b, n, 3 * h * d, dtype=HALF),))
                self.assertEqual(whole.call_count, one)

    def test_who_waits_for_a_gradient_of_a_view_has_it(self):
        class Hooked(torch.autograd.Function):
            seen = 0

            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, dy):
                Hooked.seen += 1
                return dy
        seen = []

        def hooked(views):
            views[1].register_hook(lambda grad: seen.append(grad))
            return views

        def kept(views):
            views[2].retain_grad()
            seen.append(views[2])
            return views
        x = leaf(2, 7, 3, 2, 16, dtype=HALF)
        for name, call in {"hook": lambda w: hooked(of_projection(w)), "retained": lambda w: kept(of_projection(w)),
                           "a node between": lambda w: of_projection(Hooked.apply(w)),
                           "detached": lambda w: of_projection(w.detach().requires_grad_())}.items():
            with self.subTest(name), vitune.torch.enabled(training=True):
                attend(*call(x * 1)).float().sum().backward()
        self.assertEqual((len(seen), Hooked.seen, self.counts()[0]), (2, 1, 4))
        self.assertIsNotNone(seen[1].grad)

    def test_results_lie_as_pytorchs(self):
        for order in ((0, 2, 1, 3), (0, 1, 2, 3)):
            q, k, v = (torch.randn(*(((2, 3, 8, 16)[i]) for i in order)).to(HALF).permute(*(order.index(i) for i in range(4))).requires_grad_()
                       for _ in range(3))
            for backend in ([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
                with self.subTest(order=order, backend=backend), sdpa_kernel(backend):
                    want = attend(q, k, v)
                    with vitune.torch.enabled(training=True):
                        got = attend(q, k, v)
                    self.assertEqual(strides_that_matter(got), strides_that_matter(want))
        with sdpa_kernel(SDPBackend.MATH), vitune.torch.enabled(training=True):
            attend(q, k, v).sum().backward()
        self.assertEqual(self.counts()[:2], (4, 1))

    def test_only_what_was_asked_for_is_served(self):
        q = leaf(1, 2, 4, 16, dtype=HALF)
        for training, captures, served in ((None, False, 0), (None, True, 1), (True, False, 1), (False, True, 0)):
            with self.subTest(training=training, captures=captures), vitune.torch.enabled(training=training):
                self.captures = captures
                attend(q, q, q).sum().backward()
                reasons = vitune.torch.stats().reasons
                self.assertEqual(self.counts()[:2], (served, 1 - served))
                self.assertEqual(list(reasons), [] if served else [training_dropin.OUTSIDE if training is None else training_dropin.OFF])
        self.captures = True
        long = leaf(1, 1, 2056, 8, dtype=HALF)
        with vitune.torch.enabled():
            attend(long, q.detach()[:, :1, :, :8], q.detach()[:, :1, :, :8])
        self.assertEqual(list(vitune.torch.stats().reasons), [training_dropin.TOO_LONG])

    def test_what_is_left_to_pytorch_has_its_results(self):
        q, k, v = (leaf(2, 3, 5, 16, dtype=HALF) for _ in range(3))
        cases = {
            "dropout": lambda: attend(q, k, v, dropout_p=0.5), "rank 3": lambda: attend(q[0], k[0], v[0]), "fp32": lambda: attend(*(t.float() for t in (q, k, v))),
            "head size": lambda: attend(*(t[..., :12] for t in (q, k, v))), "no key": lambda: attend(q, k[:, :, :0], v[:, :, :0]),
            "heads that are broadcast": lambda: attend(q, k[:, :1], v[:, :1]), "a batch that is broadcast": lambda: attend(q, k[:1], v[:1]),
            "vmap": lambda: torch.func.vmap(attend)(q, k, v), "grad": lambda: torch.func.grad(lambda q: attend(q, k.detach(), v.detach()).sum())(q.detach()),
        }
        for name, call in cases.items():
            with self.subTest(name):
                torch.manual_seed(2)
                want = call()
                torch.manual_seed(2)
                with vitune.torch.enabled(training=True):
                    got = call()
                self.assertTrue(torch.equal(got, want))
        self.assertEqual(self.counts()[0], 0)
        level = torch.autograd.forward_ad
        with vitune.torch.enabled(training=True), level.dual_level(), sdpa_kernel(SDPBackend.MATH):
            out = attend(*(level.make_dual(t.detach(), torch.ones_like(t)) for t in (q, k, v)))
            self.assertIsNotNone(level.unpack_dual(out).tangent)

    def test_what_libvitune_refuses_is_pytorchs(self):
        q = leaf(1, 2, 4, 16, dtype=HALF)

        def refuse(problem):
            raise vitune.Unsupported(f"'{problem.text}' has no kernel")
        with vitune.torch.enabled(training=True), mock.patch.object(type(attention_ops.context_of(0)), "workspace_bytes", staticmethod(refuse)):
            for _ in range(2):
                attend(q, q, q).sum().backward()
        self.assertEqual(self.counts()[:2], (0, 2))

    def test_a_negated_gradient_and_what_hooks_give_back_are_read_as_they_are(self):
        given = [leaf(2, 2, 7, 16, dtype=HALF) for _ in range(3)]
        dout = torch._neg_view(torch.randn(2, 2, 7, 16).to(HALF))

        def spread(tensor):
            wider = torch.empty(*tensor.shape, 2, dtype=tensor.dtype)
            wider[..., 0] = tensor
            return wider[..., 0]
        with vitune.torch.enabled(training=True):
            for _ in range(4):
                out = attend(*given)
                want = torch.autograd.grad(out, given, dout.resolve_neg(), retain_graph=True)
                for mine, right in zip(torch.autograd.grad(out, given, dout), want, strict=True):
                    self.expect_near(mine, right, 1e-6)
                with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, spread):
                    out = attend(*given)
                for mine, right in zip(torch.autograd.grad(out, given, dout), want, strict=True):
                    self.expect_near(mine, right, 1e-2)
            qkv = leaf(2, 7, 3, 2, 16, dtype=HALF)
            want, = torch.autograd.grad(attend(*of_projection(qkv * 1)), [qkv], dout)
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor.mT.contiguous().mT):
                out = attend(*of_projection(qkv * 1))
            self.expect_near(torch.autograd.grad(out, [qkv], dout)[0], want, 1e-2)

    def test_a_mode_around_the_backward_pass_alone_sees_it(self):
        given = [leaf(2, 2, 11, 16, dtype=HALF) for _ in range(3)]
        with vitune.torch.enabled(training=True):
            out = attend(*given)
        with FlopCounterMode(display=False) as counter:
            torch.autograd.grad(out, given, torch.ones_like(out))
        self.assertEqual(counter.get_total_flops(), 5 * 2 * 2 * 2 * 11 * 11 * 16)

    def test_views_whose_memory_is_another_are_no_projection(self):
        qkv = leaf(2, 11, 3, 2, 16, dtype=HALF)
        with vitune.torch.enabled(training=True):
            for change in (lambda whole, q: None, lambda whole, q: setattr(whole, "data", torch.zeros_like(whole)),
                           lambda whole, q: setattr(q, "data", of_projection(torch.zeros_like(whole))[0])):
                whole = qkv * 1
                q, k, v = of_projection(whole)
                change(whole, q)
                held = [tensor.detach().clone().requires_grad_() for tensor in (q, k, v)]
                dout = torch.randn(2, 2, 11, 16).to(HALF)
                mine, = torch.autograd.grad(attend(q, k, v), [qkv], dout)
                right = torch.stack([tensor.transpose(1, 2) for tensor in torch.autograd.grad(attend(*held), held, dout)], 2)
                self.expect_near(mine, right, 1e-2)
            with torch.no_grad():
                views = of_projection(qkv)
            leaves = [view.requires_grad_() for view in views]
            attend(*leaves).float().sum().backward()
            self.assertTrue(all(tensor.grad is not None for tensor in leaves))

    def test_switches_decide_where_a_result_lies_in_each_call(self):
        q = torch.randn(2, 11, 4, 16).to(HALF).transpose(1, 2).requires_grad_()
        k, v = (leaf(2, 2, 11, 16, dtype=HALF) for _ in range(2))
        for order in ((0, 1), (1, 0)):
            attention_autograd._answers.clear()
            for number in order:
                backends = ([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH],
                            [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])[number]
                with sdpa_kernel(backends):
                    right = attend(q, k, v, enable_gqa=True).stride()
                    with vitune.torch.enabled(training=True):
                        self.assertEqual(attend(q, k, v, enable_gqa=True).stride(), right)

    def test_several_gradients_at_once_are_pytorchs(self):
        x = leaf(1, 4, 3, 2, 16, dtype=HALF)
        several = torch.randn(3, 1, 2, 4, 16).to(HALF)
        for whole in (True, False):
            with vitune.torch.enabled(training=True):
                out = attend(*(each if whole else each * 1 for each in of_projection(x * 1)))
                got = torch.autograd.grad(out, x, several, is_grads_batched=True)[0]
            wide = x.detach().double().requires_grad_()
            want = torch.autograd.grad(attend(*of_projection(wide)), wide, several.double(), is_grads_batched=True)[0]
            self.expect_near(got, want, 0.05)

    def test_second_derivatives_are_refused_with_a_sentence(self):
        x = leaf(1, 4, 3, 2, 16, dtype=HALF)
        for whole in (True, False):
            with vitune.torch.enabled(training=True):
                out = attend(*(each if whole else each * 1 for each in of_projection(x * 1)))
                first = torch.autograd.grad(out.float().square().sum(), x, create_graph=True)[0]
                self.expect_near(first, torch.autograd.grad(attend(*of_projection(x.double())).square().sum(), x)[0], 0.05)
                with self.assertRaisesRegex(vitune.Unsupported, "no second derivative"):
                    torch.autograd.grad(first.float().sum(), x)

    def test_a_kept_graph_hooks_and_changes_in_place_are_as_pytorchs(self):
        x = leaf(1, 4, 3, 2, 16, dtype=HALF)
        packed = []
        with vitune.torch.enabled(training=True):
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: packed.append(tensor.shape) or tensor.clone(), lambda tensor: tensor):
                out = attend(*of_projection(x * 1))
            self.assertEqual(len(packed), 3)  # the projection, the result, the log-sum-exp
            first, again = (torch.autograd.grad(out.sum(), x, retain_graph=True)[0] for _ in range(2))
            self.assertTrue(torch.equal(first, again))
            out.sum().backward()
            with self.assertRaisesRegex(RuntimeError, "second time"):
                out.sum().backward()
            for changed in ("projection", "result"):
                whole = x * 1
                out = attend(*of_projection(whole))
                with torch.no_grad():
                    (whole if changed == "projection" else out).add_(1)
                with self.subTest(changed), self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    out.sum().backward()

    def test_the_operators_library_launches_later_calls_without_python(self):
        if attention_autograd._qkv_backward is None:
            self.skipTest("without the operators' library")
        qkv = leaf(2, 7, 3, 2, 16, dtype=HALF)
        counts = []
        with vitune.torch.enabled(training=True):
            for _ in range(4):
                before = native.loaded.remembered()
                F.layer_norm(attend(*of_projection(qkv * 1)).transpose(1, 2).reshape(2, 7, 32), (32,)).float().sum().backward()
                counts.append(native.loaded.remembered() - before)
        self.assertEqual(counts, [0, 0, 3, 3])  # the norm's two passes and attention's second

    def test_the_same_step_gives_the_same_bits_in_deterministic_mode(self):
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        x = leaf(2, 9, 3, 2, 16, dtype=HALF)
        bias = torch.randn(1, 2, 9, 9).to(HALF).requires_grad_()
        with vitune.torch.enabled(training=True):
            found = [torch.autograd.grad(attend(*of_projection(x * 1), bias).float().square().sum(), (x, bias)) for _ in range(2)]
        self.assertEqual(self.counts()[:2], (2, 0))
        self.assertTrue(all(map(torch.equal, *found)))

    def test_the_function_trains_by_itself(self):
        q, k, v = (leaf(1, 2, 5, 16, dtype=HALF) for _ in range(3))
        out, lse = vitune.attention(q, k, v, return_lse=True)
        ours = torch.autograd.grad(out.float().sum(), (q, k, v), retain_graph=True)
        wide = in_fp64((q, k, v))
        for mine, right in zip(ours, torch.autograd.grad(attend(*wide).sum(), wide)):
            self.expect_near(mine, right, 0.05)
        with self.assertRaisesRegex(vitune.Unsupported, "gradient of the log-sum-exp"):
            lse.sum().backward()
        with self.assertRaisesRegex(vitune.Unsupported, "torch.func"):
            torch.func.grad(lambda q: vitune.attention(q, k, v).sum())(q)
        with self.assertRaisesRegex(vitune.InvalidArgument, "dimensions"):
            vitune.attention(q[0], k[0], v[0])

    def test_plans_of_calls_that_differ_are_kept_apart(self):
        """Whatever may differ: each call is asked about alone."""
        x = leaf(2, 9, 3, 2, 16, dtype=HALF)
        bias = torch.randn(2, 2, 9, 9).to(HALF)
        masks = (None, bias, bias.detach().clone().requires_grad_(), bias[:1], bias.float(), bias > 0)
        asked = []
        with mock.patch.object(attention_autograd, "Problem", side_effect=lambda text: asked.append(text) or vitune.Problem(text)), \
                vitune.torch.enabled(training=True):
            for mask, whole, scale in itertools.product(masks, (True, False), (None, 0.5)):
                attend(*(each if whole else each * 1 for each in of_projection(x * 1)), mask, scale=scale)
        self.assertEqual(len(asked), len(set(asked)))
        self.assertEqual(len(asked), 2 * 2 * len(masks))


if __name__ == "__main__":
    unittest.main()
