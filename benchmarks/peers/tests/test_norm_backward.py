# benchmarks/peers/tests/test_norm_backward.py -- Gradients of norms: problems, operands, reference, peers that run here.
# SPDX-License-Identifier: Apache-2.0
import json
import sys
import types
import unittest
from unittest import mock

from .support import needs_library, needs_torch, torch

from peers.engine.peer import Absent, Refused
from peers.engine.problems import BadProblem, collect
from peers.rosters import ROSTERS, roster_of

BACKWARD = ROSTERS[7]
STREAM16 = "norm_backward bf16 m=36 d=24 weight bias residual"
STREAM32 = "norm_backward bf16 m=36 d=24 weight bias params=fp32 x=fp32 residual second=bf16"
WITH_FACTOR = "norm_backward bf16 m=36 d=24 weight bias params=fp32 x=fp32 residual second=bf16 factor=9 stats"
ALL32 = "norm_backward fp32 m=36 d=24 weight bias residual"

if torch is not None:
    import torch._dynamo  # not first where modules are patched: it cannot be imported twice
    from peers.norm_backward.torch_peers import Compiled, Eager, Liger, Quack


def problem_of(text, **more):
    return BACKWARD.problem({"problem": text, **more})


def prepared(text):
    torch.manual_seed(7)
    problem = problem_of(text)
    t = BACKWARD.operands(problem, "cpu")
    return problem, t, BACKWARD.reference(problem, t)


def by_autograd(problem, t):
    """In fp64, of a loss whose gradients are dy and, of x itself, the residual's."""
    x, weight, bias = (tensor.double().requires_grad_() for tensor in (t.x, t.weight, torch.zeros_like(t.weight)))
    normed = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, problem.eps)
    loss = (normed * t.dy.double()).sum() + (x * t.residual.double()).sum()
    dx, dweight, dbias = torch.autograd.grad(loss, (x, weight, bias))
    if not problem.has("second="):
        return dx, dweight, dbias
    second = dx if t.factor is None else (dx.view(4, 9, 24) * t.factor.double().view(4, 1, 1)).view(36, 24)
    return dx, second, dweight, dbias


@needs_library
class ProblemsTest(unittest.TestCase):
    def test_all_19_of_the_shipped_file_are_taken_with_their_canonical_texts_and_groups(self):
        roster, found = collect(roster_of, [], [BACKWARD.shipped])
        self.assertIs(roster, BACKWARD)
        self.assertEqual(len({one.name for one in found}), 19)
        written = [entry["problem"] for entry in json.loads(roster.shipped.read_text())["problems"]]
        self.assertEqual([one.text for one in found], written)
        self.assertEqual({one.group for one in found}, set(roster.groups))

    def test_words_come_in_one_order_and_what_says_the_default_is_left_out(self):
        problem = problem_of("norm_backward eps=1e-5 residual bias d=8 x=bf16 weight m=4 bf16 params=bf16")
        self.assertEqual(problem.text, "norm_backward bf16 m=4 d=8 weight bias residual")
        self.assertEqual((problem.dtype, problem.dtype_of("x"), problem.eps), ("bfloat16", "bfloat16", 1e-5))
        problem = problem_of(WITH_FACTOR + " eps=1e-6")
        self.assertEqual((problem.eps, problem.number("factor"), problem.dtype_of("second")), (1e-6, 9, "bfloat16"))

    def test_what_not_all_peers_have_a_form_of_is_refused_with_the_word(self):
        for word in ("frozen", "rms", "align=8", "dy=@32"):
            with self.subTest(word), self.assertRaisesRegex(BadProblem, word):
                problem_of(f"norm_backward bf16 m=4 d=8 weight bias residual {word}")
        with self.assertRaisesRegex(BadProblem, "write 'bias residual'"):
            problem_of("norm_backward bf16 m=4 d=8 weight")
        with self.assertRaisesRegex(BadProblem, "d="):
            problem_of("norm_backward bf16 m=4")


@needs_library
@needs_torch
class PeersTest(unittest.TestCase):
    def test_references_are_autograds_gradients(self):
        for text in (STREAM16, STREAM32, WITH_FACTOR, ALL32):
            with self.subTest(text):
                problem, t, reference = prepared(text)
                for name, error in reference.errors(by_autograd(problem, t)).items():
                    self.assertLess(error.max, 1e-11, name)
                sizes = BACKWARD.output_bytes(problem, t)
                self.assertEqual(len(sizes), len(reference.values))
                self.assertEqual(sizes[0], t.x.numel() * t.x.element_size())

    def test_an_output_that_lacks_the_residual_a_factor_or_an_output_is_told(self):
        problem, t, reference = prepared(WITH_FACTOR)
        dx, second, dweight, dbias = reference.values.values()
        self.assertGreater(reference.errors((dx - t.residual, second, dweight, dbias))["dx"].relative, 0.1)
        self.assertGreater(reference.errors((dx, dx, dweight, dbias))["second"].relative, 0.1)
        with self.assertRaises(ValueError):
            reference.errors((dx, dweight, dbias))

    def test_pytorchs_own_and_what_it_compiles_are_right(self):
        for text in (ALL32, ALL32 + " second=bf16", ALL32 + " second=bf16 factor=9"):
            problem, t, reference = prepared(text)
            with mock.patch.object(torch, "compile", lambda function, **_: function):
                for peer in (Eager(), Compiled()):
                    with self.subTest(text, peer=peer.name):
                        for name, error in reference.errors(peer.prepare(problem, t).run()).items():
                            self.assertLess(error.relative, 0.01 if name == "second" else 1e-5, name)

    def test_ligers_gradients_are_followed_by_one_sum_and_without_it_the_peer_is_absent(self):
        problem, t, reference = prepared(WITH_FACTOR)
        module = types.ModuleType("liger_kernel.ops.layer_norm")
        names = {name: types.ModuleType(name) for name in ("liger_kernel", "liger_kernel.ops")}
        with mock.patch.dict(sys.modules, {**names, module.__name__: module}):
            with self.assertRaisesRegex(Absent, "Liger"):
                Liger().prepare(problem, t)

            def backward(dy, x, weight, bias, mean, rstd):
                return torch.ops.aten.native_layer_norm_backward(
                    dy.to(x.dtype), x, [24], mean[:, None], rstd[:, None], weight, bias, [True] * 3
                )

            module.layer_norm_backward = backward
            with mock.patch.object(torch, "compile", lambda function, **_: function):
                output = Liger().prepare(problem, t).run()
        for name, error in reference.errors(output).items():
            self.assertLess(error.relative, 0.01, name)

    def test_quack_writes_both_gradients_in_one_kernel_and_refuses_what_it_lacks(self):
        def backward(x, weight, dy, rstd, dx, dw, db, given, total, mean, is_layernorm):
            self.assertTrue(is_layernorm)
            g, normed = dy.float() * weight, (x.float() - mean[:, None]) * rstd[:, None]
            own = rstd[:, None] * (g - g.mean(1, True) - normed * (g * normed).mean(1, True))
            for tensor in (dx, total):
                if tensor is not None:
                    tensor.copy_(own + given)
            for part, values in ((dw, dy.float() * normed), (db, dy.float())):
                part.copy_(values.view(3, 12, 24).sum(1))

        module = types.ModuleType("quack.rmsnorm")
        with mock.patch.dict(sys.modules, {"quack": types.ModuleType("quack"), "quack.rmsnorm": module}):
            with self.assertRaisesRegex(Absent, "quack"):
                Quack().prepare(*prepared(STREAM16)[:2])
            module._rmsnorm_bwd, module.get_sm_count = backward, lambda columns, device: 3
            for text in (STREAM16, STREAM32, ALL32):
                problem, t, reference = prepared(text)
                with self.subTest(text):
                    for name, error in reference.errors(Quack().prepare(problem, t).run()).items():
                        self.assertLess(error.relative, 0.01, name)
            for text, words in ((WITH_FACTOR, "factor"), (ALL32 + " second=fp32", "another type")):
                with self.subTest(text), self.assertRaisesRegex(Refused, words):
                    Quack().prepare(*prepared(text)[:2])


if __name__ == "__main__":
    unittest.main()
