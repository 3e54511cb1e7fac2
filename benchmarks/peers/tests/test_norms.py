# benchmarks/peers/tests/test_norms.py -- Norms: problems, operands, reference, peers that run here.
# SPDX-License-Identifier: Apache-2.0
import math
import sys
import types
import unittest
from unittest import mock

from .session_support import NORMS as TEXTS
from .support import needs_library, needs_torch, torch

from peers.engine import judge, precompile
from peers.engine.peer import Absent, Refused, Settings
from peers.engine.problems import BadProblem, collect
from peers.rosters import ROSTERS, roster_of

NORMS = ROSTERS[1]

if torch is not None:
    from peers.norms.torch_peers import Compiled, Eager, Liger, Quack


def problem_of(text, **more):
    return NORMS.problem({"problem": text, **more})


def by_hand(problem, t):
    """The outputs in fp64, by the formula of docs/problems.md, on rows of what is normalised together."""
    x, weight, bias = t.x.double(), t.weight.double(), t.bias.double()
    total = x if t.residual is None else x + t.residual.double()
    rows = total
    if problem.is_group:
        n, c, l = x.shape
        rows = total.reshape(n, problem.number("g"), -1)
        weight, bias = weight[:, None], bias[:, None]
    mean = rows.mean(-1, keepdim=True)
    variance = ((rows - mean) ** 2).mean(-1, keepdim=True)
    out = ((rows - mean) / (variance + problem.eps).sqrt()).reshape(x.shape) * weight + bias
    if problem.has("silu"):
        out = out / (1 + (-out).exp())
    if problem.has("mish"):
        out = out * ((1 + out.exp()).log()).tanh()
    return (out, total) if problem.has("sum") else out


@needs_library
class ProblemsTest(unittest.TestCase):
    def test_all_32_of_the_shipped_file_are_taken_with_names_groups_and_floors(self):
        roster, found = collect(roster_of, [], [NORMS.shipped])
        self.assertIs(roster, NORMS)
        self.assertEqual(len(found), 32)
        self.assertEqual({one.group for one in found}, {"norm", "add_norm", "group_norm"})
        self.assertTrue(all(one.floor_us > 0 for one in found))
        self.assertEqual({one.group for one in found if one.has("sum")}, {"add_norm"})

    def test_words_come_in_one_order_and_the_default_eps_is_left_out(self):
        for text, canonical in (
            ("norm d=8 bias weight m=4 bf16 eps=1e-05", "norm bf16 m=4 d=8 weight bias"),
            ("norm bf16 m=4 d=8 eps=1e-3 weight bias", "norm bf16 m=4 d=8 weight bias eps=1e-3"),
            (
                "group_norm silu fp16 l=4 g=2 c=8 n=1 bias nhwc weight",
                "group_norm fp16 n=1 c=8 l=4 g=2 nhwc weight bias silu",
            ),
        ):
            with self.subTest(text):
                problem = problem_of(text)
                self.assertEqual((problem.text, problem.name), (canonical, canonical))
                self.assertEqual(NORMS.problem(problem.as_json()), problem)
        self.assertEqual((problem_of(TEXTS[2]).eps, problem_of(TEXTS[0]).eps), (0.25, 1e-5))
        self.assertEqual(problem_of(TEXTS[1]).dtype, "float16")

    def test_what_not_all_peers_have_a_form_of_is_refused_with_the_word(self):
        for text, word in (
            ("norm bf16 m=4 d=8 weight bias rms", "rms"),
            ("norm bf16 m=4 d=8 weight bias stats", "stats"),
            ("norm bf16 m=4 d=8 weight bias residual", "residual sum"),
            ("norm bf16 m=4 d=8 weight", "weight and bias"),
            ("group_norm bf16 n=1 c=8 l=4 g=2 weight bias params=fp32", "params=fp32"),
            ("group_norm bf16 n=1 c=8 l=4 g=3 weight bias", "g"),
            ("norm bf16 m=4 weight bias", "d"),
        ):
            with self.subTest(text), self.assertRaisesRegex(BadProblem, word):
                problem_of(text)

    def test_compiles_that_share_kernels_are_in_one_group_and_nothing_is_lost(self):
        _, chosen = collect(roster_of, [], [NORMS.shipped])
        work = precompile.groups(NORMS, chosen, NORMS.compiled)
        tasks = [(task["peer"], task["problem"]["problem"]) for group in work for task in group]
        self.assertEqual(
            sorted(tasks), sorted((peer, one.text) for peer in NORMS.compiled for one in chosen)
        )
        for group in work:
            self.assertEqual(len({task["peer"] for task in group}), 1)
            if group[0]["peer"] == "compiled":
                self.assertEqual(len(group), 1)
        shared = [group for group in work if len(group) > 1 and group[0]["peer"] == "liger"]
        # ViT-B's four batches have one width, with and without a residual.
        self.assertEqual(max(map(len, shared)), 4)
        for group in shared:
            problems = [NORMS.problem(task["problem"]) for task in group]
            self.assertEqual(len({(one.number("d"), one.has("sum")) for one in problems}), 1)


@needs_library
@needs_torch
class ReferenceTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_operands_have_the_shapes_types_and_memory_of_the_text(self):
        for text in TEXTS:
            with self.subTest(text):
                problem = problem_of(text)
                t = NORMS.operands(problem, "cpu")
                self.assertEqual({str(x.dtype) for x in t.given}, {f"torch.{problem.dtype}"})
                columns = problem.number("c" if problem.is_group else "d")
                self.assertEqual((tuple(t.weight.shape), tuple(t.bias.shape)), 2 * ((columns,),))
                self.assertEqual(t.residual is not None, problem.has("residual"))
                shape = tuple(problem.number(key) for key in ("ncl" if problem.is_group else "md"))
                self.assertEqual(tuple(t.x.shape), shape)
                self.assertEqual(t.x.is_contiguous(), not problem.has("nhwc"))
                if problem.has("nhwc"):
                    self.assertTrue(t.x.transpose(1, 2).is_contiguous())

    def test_it_is_the_formula_in_fp64(self):
        for text in TEXTS:
            with self.subTest(text):
                problem = problem_of(text)
                t = NORMS.operands(problem, "cpu")
                errors = NORMS.reference(problem, t).errors(by_hand(problem, t))
                self.assertEqual(list(errors), ["out", "sum"] if problem.has("sum") else ["out"])
                self.assertLess(max(error.max for error in errors.values()), 1e-12)

    def test_one_wrong_element_is_the_largest_error_of_its_own_output(self):
        problem = problem_of("norm fp32 m=4 d=8 weight bias residual sum")
        t = NORMS.operands(problem, "cpu")
        out, total = by_hand(problem, t)
        total[3, 7] += 0.5
        errors = NORMS.reference(problem, t).errors((out, total))
        self.assertLess(errors["out"].max, 1e-12)
        self.assertAlmostEqual(errors["sum"].max, 0.5)
        self.assertAlmostEqual(errors["sum"].rms, 0.5 / math.sqrt(32))
        self.assertAlmostEqual(errors["sum"].relative, 0.5 / (t.x + t.residual).norm().item(), 5)

    def test_an_element_that_was_not_written_counts_as_wrong(self):
        problem = problem_of(TEXTS[3])
        t = NORMS.operands(problem, "cpu")
        out = by_hand(problem, t)
        out[1, 2, 3] = math.nan
        errors = NORMS.reference(problem, t).errors(out)["out"]
        self.assertEqual(errors.max, math.inf)
        self.assertIn("finite", judge.wrong(errors.relative))

    def test_an_output_that_is_missing_or_of_another_shape_is_an_error(self):
        problem = problem_of("norm fp32 m=4 d=8 weight bias residual sum")
        t = NORMS.operands(problem, "cpu")
        out, total = by_hand(problem, t)
        for output in (out, (out, total[:2]), (out, total, total)):
            with self.assertRaisesRegex(ValueError, r"\(4, 8\), \(4, 8\)"):
                NORMS.reference(problem, t).errors(output)

    def test_each_output_is_poisoned_whole(self):
        for text, sizes in ((TEXTS[0], [37 * 96 * 2]), (TEXTS[1], [5 * 1152 * 2] * 2)):
            problem = problem_of(text)
            self.assertEqual(NORMS.output_bytes(problem, NORMS.operands(problem, "cpu")), sizes)


@needs_library
@needs_torch
class PeersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_pytorchs_own_kernels_are_right(self):
        for text in TEXTS:
            problem = problem_of(text)
            t = NORMS.operands(problem, "cpu")
            errors = NORMS.reference(problem, t).errors(Eager().prepare(problem, t).run())
            with self.subTest(text):
                self.assertLess(max(error.relative for error in errors.values()), 0.01)

    def test_the_formula_is_compiled_whole_with_all_of_its_tuning(self):
        asked, compile = [], torch.compile

        def compiled(function, **options):
            asked.append(options)
            return compile(function, backend="aot_eager", fullgraph=options["fullgraph"])

        with mock.patch.object(torch, "compile", compiled):
            for text in TEXTS:
                problem = problem_of(text)
                t = NORMS.operands(problem, "cpu")
                with torch.no_grad():
                    out = Compiled().prepare(problem, t).run()
                errors = NORMS.reference(problem, t).errors(out)
                with self.subTest(text):
                    self.assertLess(max(error.relative for error in errors.values()), 0.01)
        options = {"fullgraph": True, "dynamic": False, "mode": "max-autotune-no-cudagraphs"}
        self.assertEqual(asked, [options] * len(TEXTS))

    def test_compiling_ahead_keeps_no_choice_that_was_made_on_a_busy_gpu(self):
        from torch._inductor import config

        seen = []
        problem = problem_of(TEXTS[0])
        with mock.patch.object(
            torch, "compile", lambda f, **_: seen.append(config.autotune_local_cache) or f
        ):
            t = NORMS.operands(problem, "cpu")
            NORMS.compile_ahead("compiled", problem, t, Settings())
            Compiled().prepare(problem, t)
        self.assertEqual(seen, [False, True])

    def test_packages_are_called_by_their_forms_and_refuse_what_they_have_none_for(self):
        plain, added, group = (problem_of(TEXTS[i]) for i in (0, 1, 3))

        def layer_norm_forward(x, weight, bias, eps):
            return (torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps), None)

        def rmsnorm_fwd(x, weight, out, bias, rstd, mean, residual, total, eps, is_layer_norm):
            self.assertEqual((rstd, mean, is_layer_norm), (None, None, True))
            if residual is not None:
                x = x + residual
                total.copy_(x)
            out.copy_(layer_norm_forward(x, weight, bias, eps)[0])

        modules = {
            "liger_kernel": types.ModuleType("liger_kernel"),
            "liger_kernel.ops": types.ModuleType("liger_kernel.ops"),
            "liger_kernel.ops.layer_norm": types.SimpleNamespace(
                layer_norm_forward=layer_norm_forward
            ),
            "quack": types.ModuleType("quack"),
            "quack.rmsnorm": types.SimpleNamespace(_rmsnorm_fwd=rmsnorm_fwd),
        }
        with mock.patch.dict(sys.modules, modules):
            for peer, takes, refuses in (
                (Liger(), (plain,), (added, group)),
                (Quack(), (plain, added), (group,)),
            ):
                for problem in takes:
                    t = NORMS.operands(problem, "cpu")
                    errors = NORMS.reference(problem, t).errors(peer.prepare(problem, t).run())
                    self.assertLess(max(error.relative for error in errors.values()), 0.01)
                for problem in refuses:
                    with self.subTest(peer.name), self.assertRaises(Refused):
                        peer.prepare(problem, NORMS.operands(problem, "cpu"))

    def test_a_package_that_is_not_installed_is_absent(self):
        for peer, module in ((Liger(), "liger_kernel"), (Quack(), "quack")):
            with (
                mock.patch.dict(sys.modules, {module: None}),
                self.assertRaisesRegex(Absent, "cannot be imported"),
            ):
                peer.prepare(problem_of(TEXTS[0]), None)

    def test_peers_come_in_the_order_of_tables(self):
        found = NORMS.peers(["eager", "vitune", "quack"], Settings())
        self.assertEqual([peer.name for peer in found], ["vitune", "quack", "eager"])
        everyone = NORMS.peers(NORMS.names, Settings())
        self.assertEqual(tuple(peer.name for peer in everyone), NORMS.names)


if __name__ == "__main__":
    unittest.main()
