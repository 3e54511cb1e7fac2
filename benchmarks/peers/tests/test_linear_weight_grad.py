# benchmarks/peers/tests/test_linear_weight_grad.py -- Weight gradients: problems, operands, reference, peers that run here.
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

WEIGHT_GRADS = ROSTERS[3]
TEXTS = (
    "linear_weight_grad bf16 m=37 n=24 k=40 bias out=fp32",
    "linear_weight_grad fp16 m=30 n=20 k=12 dy=@24 x=@16",
    "linear_weight_grad bf16 m=1 n=5 k=7 bias",
)

if torch is not None:
    from peers.linear_weight_grad.torch_peers import Autocast, Compiled, Eager, Quack


def problem_of(text, **more):
    return WEIGHT_GRADS.problem({"problem": text, **more})


def operands_of(text):
    problem = problem_of(text)
    return problem, WEIGHT_GRADS.operands(problem, "cpu")


def on_the_cpu(a, b, out_dtype=None):
    """torch.mm with a type of the result, which the CPU does not have."""
    return a.float().mm(b.float()).to(out_dtype or a.dtype)


@needs_library
class ProblemsTest(unittest.TestCase):
    def test_all_27_of_the_shipped_file_are_taken_with_their_canonical_texts_and_groups(self):
        roster, found = collect(roster_of, [], [WEIGHT_GRADS.shipped])
        self.assertIs(roster, WEIGHT_GRADS)
        self.assertEqual(len({one.name for one in found}), 27)
        written = [entry["problem"] for entry in json.loads(roster.shipped.read_text())["problems"]]
        self.assertEqual([one.text for one in found], written)
        for one in found:
            m, n, k = (one.number(key) for key in "mnk")
            floor = 1e6 * max(2 * m * n * k / 790e12, (2 * m * (n + k) + 4 * n * k + 4 * n) / 4.3e12)
            self.assertAlmostEqual(one.floor_us, floor, delta=0.006, msg=one.name)
            self.assertEqual(one.group, "many" if m * n * k >= 1.4e10 else "few", one.name)

    def test_words_come_in_one_order_and_what_says_the_default_is_left_out(self):
        problem = problem_of("linear_weight_grad out=fp32 k=8 bias n=16 m=4 bf16 x=@8 dy=@24")
        self.assertEqual(problem.text, "linear_weight_grad bf16 m=4 n=16 k=8 bias dy=@24 out=fp32")
        self.assertEqual((problem.stride("dy"), problem.stride("x")), (24, 8))
        self.assertEqual((problem.dtype, problem.out_dtype, problem.has_bias), ("bfloat16", "float32", True))

    def test_what_not_all_peers_have_a_form_of_is_refused_with_the_word(self):
        for word in ("scale", "add", "align=8"):
            with self.subTest(word), self.assertRaisesRegex(BadProblem, word):
                problem_of(f"linear_weight_grad bf16 m=4 n=8 k=8 {word}")
        with self.assertRaisesRegex(BadProblem, "k"):
            problem_of("linear_weight_grad bf16 m=4 n=8")


@needs_library
@needs_torch
class PeersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_operands_and_references_are_those_of_the_text(self):
        for text in TEXTS:
            with self.subTest(text):
                problem, t = operands_of(text)
                m, n, k = (problem.number(key) for key in "mnk")
                self.assertEqual((tuple(t.dy.shape), tuple(t.x.shape)), ((m, n), (m, k)))
                self.assertEqual((t.dy.stride(0), t.x.stride(0)), (problem.stride("dy"), problem.stride("x")))
                reference = WEIGHT_GRADS.reference(problem, t)
                dw = torch.einsum("rn,rk->nk", t.dy.double(), t.x.double())
                outputs = (dw, t.dy.double().sum(0)) if problem.has_bias else dw
                for error in reference.errors(outputs).values():
                    self.assertLess(error.max, 1e-12)
                sizes = WEIGHT_GRADS.output_bytes(problem, t)
                self.assertEqual(len(sizes), 1 + problem.has_bias)

    def test_an_output_that_lacks_the_bias_or_is_transposed_is_refused(self):
        problem, t = operands_of(TEXTS[0])
        reference = WEIGHT_GRADS.reference(problem, t)
        dw, db = reference.values.values()
        with self.assertRaises(ValueError):
            reference.errors(dw)
        with self.assertRaises(ValueError):
            reference.errors((dw.T, db))
        self.assertEqual(reference.errors((dw, db * float("nan")))["db"].relative, float("inf"))

    def test_pytorchs_own_are_right_and_say_which_type_they_cannot_write(self):
        for text in TEXTS:
            problem, t = operands_of(text)
            reference = WEIGHT_GRADS.reference(problem, t)
            with self.subTest(text), mock.patch.object(torch, "mm", on_the_cpu):
                for peer in (Eager(), Autocast()):
                    try:
                        output = peer.prepare(problem, t).run()
                    except Refused:
                        self.assertEqual((peer.name, problem.dtype), ("autocast", problem.out_dtype))
                        continue
                    for name, error in reference.errors(output).items():
                        self.assertLess(error.relative, 0.01, (peer.name, name))

    def test_a_pytorch_without_products_into_fp32_is_refused(self):
        def old(a, b, **more):
            raise TypeError("mm() got an unexpected keyword argument 'out_dtype'")

        problem, t = operands_of(TEXTS[0])
        with mock.patch.object(torch, "mm", old), self.assertRaisesRegex(Refused, "product into fp32"):
            Eager().prepare(problem, t)

    def test_quack_is_asked_for_the_gradients_type_or_is_absent(self):
        problem, t = operands_of(TEXTS[0])
        broken = types.ModuleType("quack.gemm_interface")
        with mock.patch.dict(sys.modules, {"quack": types.ModuleType("quack"), "quack.gemm_interface": broken}):
            with self.assertRaisesRegex(Absent, "quack"):
                Quack().prepare(problem, t)
            broken.gemm = on_the_cpu
            with mock.patch.dict("os.environ"):
                output = Quack().prepare(problem, t).run()
        self.assertEqual(output[0].dtype, torch.float32)
        reference = WEIGHT_GRADS.reference(problem, t)
        self.assertLess(reference.errors(output)["dw"].relative, 1e-5)

    def test_the_formula_compiles(self):
        problem, t = operands_of("linear_weight_grad bf16 m=37 n=24 k=40 bias")
        with mock.patch.object(torch, "compile", lambda function, **_: function):
            output = Compiled().prepare(problem, t).run()
        reference = WEIGHT_GRADS.reference(problem, t)
        self.assertLess(max(error.relative for error in reference.errors(output).values()), 0.01)


if __name__ == "__main__":
    unittest.main()
