# benchmarks/peers/tests/test_norms.py -- Norms: problems, operands, reference, peers that run here, a session.
# SPDX-License-Identifier: Apache-2.0
import io
import json
import math
import sys
import time
import types
import unittest
from unittest import mock

from .session_support import SessionCase, Timer
from .support import needs_library, needs_torch, torch

from peers import cli, table
from peers.engine import document, judge, precompile
from peers.engine.peer import Absent, Call, Refused, Settings
from peers.engine.problems import BadProblem, collect
from peers.rosters import ROSTERS, roster_of

NORMS = ROSTERS[1]
#: Every form that is compared, with odd extents.
TEXTS = (
    "norm bf16 m=37 d=96 weight bias",
    "norm fp16 m=5 d=1152 weight bias residual sum",
    "norm fp32 m=3 d=7 weight bias eps=0.25",
    "group_norm bf16 n=2 c=24 l=9 g=3 weight bias mish",
    "group_norm fp16 n=3 c=16 l=5 g=8 nhwc weight bias silu",
    "group_norm bf16 n=1 c=8 l=33 g=1 weight bias",
)

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


class Rounded:
    """The fp64 outputs in the problem's type, the norm and the sum times a factor each."""

    def __init__(self, name, factors=(1.0, 1.0), outcome=""):
        self.name, self.factors, self.outcome = name, factors, outcome

    def prepare(self, problem, t):
        values = NORMS.reference(problem, t).values.values()
        outputs = tuple(
            (x * factor).to(t.x.dtype) for x, factor in zip(values, self.factors)
        )
        return Call(lambda: outputs if len(outputs) > 1 else outputs[0], "c", self.outcome)


@needs_library
@needs_torch
class SessionTest(SessionCase):
    def setUp(self):
        super().setUp()
        self.use(NORMS, TEXTS)

    def test_pytorchs_peers_are_timed_and_judged_on_every_form(self):
        compile = torch.compile
        self.patch("torch.compile", side_effect=lambda f, **_: compile(f, backend="aot_eager"))
        vitune = Rounded("vitune", outcome="exact")
        with mock.patch.dict(sys.modules, {"liger_kernel": None}):
            found = self.run_session([vitune, Liger(), Compiled(), Eager()])
        self.assertEqual(found["peers"], ["vitune", "liger", "compiled", "eager"])
        self.assertEqual(found["objective"], "cold")
        self.assertIn("cannot be imported", found["absent"]["liger"])
        self.assertEqual((len(found["rows"]), found["unfinished"]), (len(TEXTS), []))
        for row in found["rows"]:
            with self.subTest(row["problem"]):
                self.assertEqual((row["failed"], row["refused"]), ({}, {}))
                self.assertEqual(list(row["us"]), ["vitune", "compiled", "eager"])
                for us in row["us"].values():
                    self.assertGreater(us["cold"], us["warm"])
                    self.assertEqual(us["python_done"], 12.0)
                self.assertEqual(row["memory"]["eager"], 4000)
                self.assertEqual(row["repeats"]["vitune"], {"calls": 100, "different": 0})
                for errors in row["err"].values():
                    self.assertEqual("sum" in errors, " sum" in row["problem"])
                    self.assertLess(errors["relative"], 0.01)
        self.assertLess(found["rows"][1]["err"]["eager"]["sum"]["relative"], 1e-3)

    def test_a_wrong_sum_has_no_time_though_the_norm_is_right(self):
        self.problems = self.problems[1:2]
        found = self.run_session([Rounded("vitune"), Rounded("quack", (1.0, 1.1)), Eager()])
        row = found["rows"][0]
        self.assertIn("'sum' is 0.1 from fp64", row["failed"]["quack"])
        self.assertNotIn("'out'", row["failed"]["quack"])
        self.assertEqual(list(row["us"]), ["vitune", "eager"])

    def test_a_sum_that_changes_from_call_to_call_is_counted(self):
        class Wavering(Rounded):
            def prepare(self, problem, t):
                out, total = super().prepare(problem, t).run()
                count = 0

                def run():
                    nonlocal count
                    count += 1
                    return out, total * (1.0 if count % 2 else 1.001)

                return Call(run, "", "exact")

        self.problems = self.problems[1:2]
        row = self.run_session([Wavering("vitune"), Eager()])["rows"][0]
        self.assertEqual(row["repeats"]["vitune"], {"calls": 100, "different": 50})

    def test_the_memory_of_both_outputs_is_poisoned_before_each_judged_call(self):
        self.problems = self.problems[1:2]
        self.run_session([Eager()])
        self.assertEqual(
            [call.args for call in self.poisoned.call_args_list], [((5 * 1152 * 2,), 255)] * 2
        )

    def test_poison_is_nan_in_every_type(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            poison = torch.full((8,), 255, dtype=torch.uint8).view(dtype)
            self.assertTrue(poison.isnan().all(), dtype)


@needs_library
@needs_torch
class ProgramTest(SessionCase):
    """The measuring and the compiling process, as the program starts them, on the CPU."""

    def setUp(self):
        super().setUp()
        self.use(NORMS, TEXTS)
        compile = torch.compile
        self.patch("peers.cli._sees_gpu", return_value=True)
        self.patch("torch.compile", side_effect=lambda f, **_: compile(f, backend="aot_eager"))
        self.patch("peers.engine.session.DeviceTimer", Timer)

    def worker(self, *words):
        texts = [word for text in TEXTS for word in ("--problem", text)]
        (self.folder / "excluded").write_text(
            json.dumps({TEXTS[0]: {"compiled": "failed: it died"}})
        )
        hidden = ["--worker", "--until", str(time.time() + 1000)]
        hidden += ["--excluded", str(self.folder / "excluded")]
        with mock.patch("sys.stdout"):
            status = cli.main([*texts, "--json", str(self.path), *words, *hidden])
        return status, document.read(self.path)

    def test_the_measuring_process_writes_a_row_per_problem(self):
        status, found = self.worker("--peers", "compiled,eager", "--seed", "7")
        self.assertEqual((status, found["unfinished"], found["objective"]), (0, [], "warm"))
        self.assertEqual([row["problem"] for row in found["rows"]], list(TEXTS))
        self.assertEqual(found["rows"][0]["failed"], {"compiled": "it died"})
        for row in found["rows"][1:]:
            self.assertEqual((list(row["us"]), row["failed"]), (["compiled", "eager"], {}))
        text = table.markdown(found)
        self.assertIn("compiled: it died", text)
        self.assertIn("vitune has no result: not asked for", text)

    def test_another_objective_is_written_down_and_an_unknown_one_refused(self):
        _, found = self.worker("--peers", "eager", "--objective", "cold")
        self.assertEqual(found["objective"], "cold")
        with mock.patch("sys.stderr", io.StringIO()) as said:
            self.assertEqual(cli.main(["--problem", TEXTS[0], "--objective", "hot"]), 2)
            self.assertEqual(cli.main(["--objective", "warm"]), 2)  # of attention
        self.assertIn("--objective hot: of norms", said.getvalue())
        self.assertIn("--objective warm: of attention", said.getvalue())

    def test_the_compiling_process_answers_for_each_task(self):
        def answer(peer, text):
            task = {"peer": peer, "problem": problem_of(text).as_json()}
            return precompile._first_call(task, NORMS, Settings())

        self.assertEqual(answer("compiled", TEXTS[3]), {})
        with mock.patch.dict(sys.modules, {"liger_kernel": None}):
            self.assertEqual(answer("liger", TEXTS[0]), {})  # absent: no verdict
        with mock.patch("torch.compile", side_effect=RuntimeError("no compiler")):
            self.assertEqual(answer("compiled", TEXTS[0]), {"failed": "RuntimeError: no compiler"})


if __name__ == "__main__":
    unittest.main()
