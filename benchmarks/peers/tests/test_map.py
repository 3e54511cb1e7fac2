# benchmarks/peers/tests/test_map.py -- Maps: problems, operands, reference, peers that run here.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import math
import unittest
from unittest import mock

from .session_support import MAPS as TEXTS
from .session_support import SessionCase
from .support import TRITON_MISSING, needs_library, needs_torch, torch

from peers import table
from peers.engine import judge, precompile
from peers.engine.peer import Call, Settings
from peers.engine.problems import BadProblem, collect
from peers.map import expression
from peers.rosters import ROSTERS, roster_of

MAPS = ROSTERS[6]
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "uint8": 1, "bool": 1}

if torch is not None:
    from peers.map import operands
    from peers.map.torch_peers import Compiled, CompiledDefault, Eager


def problem_of(text, **more):
    return MAPS.problem({"problem": text, **more})


def operands_of(text):
    problem = problem_of(text)
    return problem, MAPS.operands(problem, "cpu")


def relative(problem, t, output):
    return MAPS.reference(problem, t).errors(output)["out"].relative


class ExpressionTest(unittest.TestCase):
    def test_words_letters_and_constants_become_a_tree(self):
        for text, tree in (
            ("a", "a"),
            ("add(a,mul(b,0.5))", ("add", "a", ("mul", "b", 0.5))),
            ("where(lt(a,-1.5),c,gelu_tanh(h))", ("where", ("lt", "a", -1.5), "c", ("gelu_tanh", "h"))),
            ("div(a,255)", ("div", "a", 255.0)),
        ):
            with self.subTest(text):
                self.assertEqual(expression.read(text), tree)

    def test_constants_are_those_of_fp32(self):
        word, letter, constant = expression.read("add(r,1e-06)")
        self.assertEqual((word, letter), ("add", "r"))
        self.assertNotEqual(constant, 1e-6)
        self.assertAlmostEqual(constant, 1e-6, delta=1e-13)

    def test_roots_and_logarithms_need_positive_data(self):
        for text, needs in (("rsqrt(add(r,1))", True), ("mul(a,log(b))", True), ("exp(a)", False), ("a", False)):
            with self.subTest(text):
                self.assertIs(expression.needs_positive(expression.read(text)), needs)


@needs_library
class ProblemsTest(unittest.TestCase):
    def test_all_12_of_the_shipped_file_are_taken_with_canonical_texts_groups_and_floors(self):
        roster, found = collect(roster_of, [], [MAPS.shipped])
        self.assertIs(roster, MAPS)
        self.assertEqual(len({one.name for one in found}), 12)
        written = [entry["problem"] for entry in json.loads(roster.shipped.read_text())["problems"]]
        self.assertEqual([one.text for one in found], written)
        for one in found:
            with self.subTest(one.name):
                self.assertEqual(one.group, "reduced" if one.reduction else "points")
                shape = one.extents + one.over
                size = BYTES[one.out.dtype] * math.prod(one.out_extents)
                for tensor in one.operands.values():
                    own = (extent for extent, stride in zip(shape, tensor.strides) if stride)
                    size += BYTES[tensor.dtype] * math.prod(own)
                self.assertAlmostEqual(one.floor_us, size / 4.3e6, delta=0.006)

    def test_what_a_text_says_is_read_whole(self):
        one = problem_of("map n=3x4 over=7 a=u8@0x7+1 b=bf16 x=add(mul(a,0.125),b) softmax y=neg(r) out=fp16@64x8+1 align=2")
        self.assertEqual((one.extents, one.over, one.out_extents), ((3, 4), (7,), (3, 4, 7)))
        self.assertEqual((one.reduction, one.x[0], one.y), ("softmax", "add", ("neg", "r")))
        a, b = one.operands.values()
        self.assertEqual((a.dtype, a.strides), ("uint8", (0, 7, 1)))
        self.assertEqual((b.dtype, b.strides), ("bfloat16", (28, 7, 1)))
        self.assertEqual((one.out.dtype, one.out.strides), ("float16", (64, 8, 1)))
        mean = problem_of("map n=3x4 over=7x2 a=bf16 x=a mean out=fp32")
        self.assertEqual((mean.out_extents, mean.out.strides, mean.y), ((3, 4), (4, 1), "r"))
        self.assertEqual(mean.operands["a"].strides, (56, 14, 2, 1))

    def test_words_come_in_one_order_and_what_says_the_default_is_left_out(self):
        problem = problem_of("map out=bf16@8x1 mean align=16 y=r x=a a=bf16@40x1+8 over=5 n=3x8", name="mine", group="g", floor_us=1.5)
        self.assertEqual(problem.text, "map n=3x8 over=5 a=bf16@40x1+8 x=a mean out=bf16")
        self.assertEqual(MAPS.problem(problem.as_json()), problem)
        self.assertEqual(problem_of("map n=3x8 a=bf16@8x1 x=a out=bf16@16x1").text, "map n=3x8 a=bf16 x=a out=bf16@16x1")

    def test_what_the_library_does_not_take_is_refused_with_its_sentence(self):
        for text, words in (
            ("map n=4 a=bf16 x=cube(a) out=bf16", "cube"),
            ("map n=4 a=bf16 x=a out=u8", "out=u8"),
            ("map n=4 x=a out=bf16", "a="),
            ("map n=4 a=bf16 x=a sum out=bf16", "over="),
        ):
            with self.subTest(text), self.assertRaisesRegex(BadProblem, words):
                problem_of(text)

    def test_each_problem_is_compiled_by_each_compiled_peer_once(self):
        _, chosen = collect(roster_of, [], [MAPS.shipped])
        work = precompile.groups(MAPS, chosen, MAPS.compiled)
        self.assertEqual([len(group) for group in work], 24 * [1])


@needs_library
@needs_torch
class OperandsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_they_have_the_shapes_strides_and_types_of_the_text(self):
        _, shipped = collect(roster_of, [], [MAPS.shipped])
        for problem in (*map(problem_of, TEXTS), *shipped):
            with self.subTest(problem.text), mock.patch.object(operands, "_random", self.empty):
                t = MAPS.operands(problem, "cpu")
                self.assertEqual(list(t.by_letter), list(problem.operands))
                for letter, tensor in problem.operands.items():
                    mine = t.by_letter[letter]
                    self.assertEqual(str(mine.dtype), f"torch.{tensor.dtype}")
                    self.assertEqual(tuple(mine.shape), problem.extents + problem.over)
                    self.assertEqual(mine.stride(), tensor.strides)
                out = operands.make_out(problem, "cpu")
                self.assertEqual((tuple(out.shape), out.stride()), (problem.out_extents, problem.out.strides))
                self.assertEqual(MAPS.output_bytes(problem, t), [out.untyped_storage().nbytes()])

    @staticmethod
    def empty(size, dtype, device, positive):
        return torch.empty(size, dtype=dtype, device=device)

    def test_operands_that_a_model_has_as_views_of_one_tensor_are_such_views(self):
        _, shipped = collect(roster_of, [], [MAPS.shipped])
        shared = {}
        for problem in shipped:
            found = operands.places(problem)
            if any(offset for _, offset in found.values()):
                shared[problem.name] = {letter: place for letter, place in found.items() if letter in "ab"}
            else:
                self.assertEqual([storage for storage, _ in found.values()], list(range(len(found))))
        self.assertEqual(
            shared,
            {
                "SwiGLU": {"a": (0, 0), "b": (0, 2048)},
                "RoPE, neighbours": {"a": (0, 0), "b": (0, 1)},
                "RoPE, halves": {"a": (0, 0), "b": (0, 32)},
            },
        )

    def test_views_are_those_that_a_model_writes(self):
        problem, t = operands_of("map n=5x16 a=bf16@32x1 b=bf16@32x1 x=mul(silu(a),b) out=bf16")
        a, b = t.given
        whole = a.as_strided((5, 32), (32, 1))
        self.assertTrue(torch.equal(torch.cat((a, b), 1), whole))
        problem, t = operands_of("map n=5x16 a=bf16@32x2 b=bf16@32x2 x=sub(a,b) out=bf16")
        whole = t.by_letter["a"].as_strided((5, 32), (32, 1))
        self.assertTrue(torch.equal(t.by_letter["b"], whole[:, 1::2]))

    def test_there_are_as_many_in_a_storage_as_its_gap_has_room_for_and_pointers_keep_their_alignment(self):
        def where(words, more=""):
            given = " ".join(f"{letter}={word}" for letter, word in zip("abcd", words))
            x = "a"
            for letter in "bcd"[: len(words) - 1]:
                x = f"add({x},{letter})"
            return list(operands.places(problem_of(f"map n=5x16 {given} x={x} out=bf16{more}")).values())

        self.assertEqual(where(3 * ["bf16@48x1"]), [(0, 0), (0, 16), (0, 32)])
        self.assertEqual(where(4 * ["bf16@48x1"]), [(0, 0), (0, 16), (0, 32), (1, 0)])
        self.assertEqual(where(2 * ["bf16@40x2"]), [(0, 0), (0, 1)])
        self.assertEqual(where(2 * ["bf16@31x1"]), [(0, 0), (1, 0)])  # too narrow
        self.assertEqual(where(2 * ["bf16@8x1"]), [(0, 0), (1, 0)])  # rows overlap
        self.assertEqual(where(2 * ["bf16@0x1"]), [(0, 0), (1, 0)])
        self.assertEqual(where(["bf16@48x1", "fp16@48x1", "bf16@64x1", "bf16@48x1"]), [(0, 0), (1, 0), (2, 0), (0, 16)])

    def test_data_is_positive_where_numbers_must_be(self):
        _, t = operands_of("map n=500 a=fp32 b=u8 c=bool x=add(log(a),mul(b,c)) out=fp32")
        a, b, c = t.given
        self.assertGreater(a.min().item(), 0)
        self.assertGreater(b.unique().numel(), 100)
        self.assertEqual(c.unique().numel(), 2)


def by_hand(text, t):
    """The result of some of TEXTS in fp64."""
    v = {letter: tensor.double() for letter, tensor in t.by_letter.items()}
    a, b, c, d = (v.get(letter) for letter in "abcd")
    if "softmax" in text:
        e = (a * 0.125 + b).exp()
        return e / e.sum(-1, keepdim=True)
    if "rsqrt" in text:
        return 1 / ((a * a).sum(-1) / a.shape[-1] + 1e-6).sqrt()
    if "silu" in text:
        return a / (1 + (-a).exp()) * b
    if "255" in text:
        return (a / 255 - b) * c
    return a * c - b * d


@needs_library
@needs_torch
class PeersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_the_reference_is_the_expression_in_fp64(self):
        for text in TEXTS[:5]:
            with self.subTest(text):
                problem, t = operands_of(text)
                self.assertLess(relative(problem, t, by_hand(text, t)), 1e-8)

    def test_one_wrong_element_is_the_largest_error_and_one_not_written_is_wrong(self):
        problem, t = operands_of(TEXTS[0])
        out = by_hand(TEXTS[0], t)
        out[4, 15] += 0.5
        errors = MAPS.reference(problem, t).errors(out)["out"]
        self.assertAlmostEqual(errors.max, 0.5)
        self.assertAlmostEqual(errors.rms, 0.5 / math.sqrt(80))
        out[0, 0] = math.nan
        self.assertIn("finite", judge.wrong(relative(problem, t, out)))
        with self.assertRaisesRegex(ValueError, r"\(4, 16\) for \(5, 16\)"):
            MAPS.reference(problem, t).errors(out[:4])

    def test_pytorchs_own_kernels_are_right_of_each_form_and_write_the_strides(self):
        for text in TEXTS:
            with self.subTest(text):
                problem, t = operands_of(text)
                call = Eager().prepare(problem, t)
                out, again = call.run(), call.run()
                self.assertEqual(out.stride(), problem.out.strides)
                self.assertLess(relative(problem, t, out), 0.02)
                self.assertNotEqual(out.data_ptr(), again.data_ptr())

    def test_all_words_are_known_with_constants_in_any_place(self):
        arguments = {"add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "lt": 2, "where": 3}
        one = ("neg abs exp log sqrt rsqrt sin cos tanh sigmoid erf relu gelu gelu_tanh quick_gelu silu hardswish").split()
        self.assertEqual({*arguments, *one}, {*operands._INFIX, *operands._FUNCTIONS})
        for word, count in {**arguments, **{word: 1 for word in one}}.items():
            for place in range(count + 1):  # behind the last: no constant
                written = ["abc"[i] if i != place else "0.75" for i in range(count)]
                letters = sorted({letter for letter in written if letter.isalpha()}) or ["a"]
                call = f"{word}({','.join(written)})"
                x = call if any(letter.isalpha() for letter in written) else f"add(a,{call})"
                given = " ".join(f"{letter}=fp32" for letter in letters)
                problem, t = operands_of(f"map n=64 {given} x={x} out=fp32")
                with self.subTest(x):
                    self.assertLess(relative(problem, t, Eager().prepare(problem, t).run()), 1e-5)

    def test_the_expression_is_compiled_whole_in_fp32_in_both_modes(self):
        asked, compile = [], torch.compile

        def compiled(function, **options):
            asked.append(options)
            return compile(function, backend="aot_eager", fullgraph=options["fullgraph"])

        with mock.patch.object(torch, "compile", compiled), torch.no_grad():
            for peer in (Compiled(), CompiledDefault()):
                for text in TEXTS:
                    problem, t = operands_of(text)
                    out = peer.prepare(problem, t).run()
                    with self.subTest(text):
                        self.assertEqual(out.stride(), problem.out.strides)
                        self.assertLess(relative(problem, t, out), 0.004)
        modes = len(TEXTS) * ["max-autotune-no-cudagraphs"] + len(TEXTS) * ["default"]
        self.assertEqual(asked, [{"fullgraph": True, "dynamic": False, "mode": mode} for mode in modes])

    def test_all_of_the_tuning_has_coordinate_descent(self):
        options = torch._inductor.list_mode_options(Compiled.mode)
        self.assertIs(options["coordinate_descent_tuning"], True)
        self.assertIs(options["max_autotune"], True)

    def test_compiling_ahead_keeps_no_choice_that_was_made_on_a_busy_gpu(self):
        from torch._inductor import config

        seen = []
        problem, t = operands_of(TEXTS[0])
        with mock.patch.object(torch, "compile", lambda f, **_: seen.append(config.autotune_local_cache) or f):
            for name in MAPS.compiled:
                MAPS.compile_ahead(name, problem, t, Settings())
            Compiled().prepare(problem, t)
        self.assertEqual(seen, [False, False, True])

    def test_more_kernels_than_one_are_a_remark(self):
        from torch._inductor import metrics

        problem, t = operands_of(TEXTS[0])
        for count, config, remark in ((1, "1 kernel", ""), (3, "3 kernels", "3 kernels a call, and not one")):

            def compiled(function, **_):
                metrics.generated_kernel_count += count
                return function

            with mock.patch.object(torch, "compile", compiled):
                call = Compiled().prepare(problem, t)
            self.assertEqual((call.config, call.remark), (config, remark))

    def test_peers_come_in_the_order_of_tables(self):
        everyone = MAPS.peers(MAPS.names[::-1], Settings())
        self.assertEqual(tuple(peer.name for peer in everyone), MAPS.names)


@needs_library
@needs_torch
class InductorTest(unittest.TestCase):
    """Inductor itself, which makes C++ here and Triton on a GPU."""

    def setUp(self):
        torch.manual_seed(11)

    def test_compiled_expressions_agree(self):
        from torch._inductor import cpp_builder

        try:
            cpp_builder.get_cpp_compiler()
        except Exception as missing:
            self.skipTest(str(missing))
        for text in (TEXTS[0], TEXTS[1], TEXTS[4]):
            problem, t = operands_of(text)
            with self.subTest(text), torch.no_grad():
                call = CompiledDefault().prepare(problem, t)
                out = call.run()
                self.assertEqual(out.stride(), problem.out.strides)
                self.assertLess(relative(problem, t, out), 0.004)
                self.assertRegex(call.config, "^[1-9][0-9]* kernels?$")

    @unittest.skipIf(TRITON_MISSING.startswith("No module"), TRITON_MISSING)
    def test_a_map_is_one_kernel_of_triton_that_writes_the_strided_result(self):
        """The kernels of a GPU are written here, and not run: its scheduler is told that there is one."""
        from torch._inductor import config
        from torch._inductor.codegen.common import get_scheduling_for_device

        launched = []

        class Kernel:
            def __init__(self, name):
                self.run = lambda *arguments, **_: launched.append(name)

        fixed = {
            "torch._inductor.async_compile.AsyncCompile.triton": lambda self, name, source, device_str=None: Kernel(name),
            "torch._inductor.scheduler.Scheduler.create_backend": lambda self, device: get_scheduling_for_device("cpu")(self),
            "torch._inductor.scheduler.BaseSchedulerNode.is_cpu": lambda self: False,
            "torch._inductor.scheduler.is_gpu": lambda device: True,
            "torch._inductor.ir.is_gpu": lambda device: True,
            "torch.utils._triton.triton_hash_with_backend": lambda: "none",
        }
        # A result that lies otherwise than its operands could become two: computed, then copied.
        _, apart = collect(roster_of, [], [MAPS.shipped], "^(RoPE, halves|image of bytes)$")
        for problem in (problem_of(TEXTS[0]), *apart):
            t = MAPS.operands(problem, "cpu")
            with self.subTest(problem.name), contextlib.ExitStack() as stack:
                stack.enter_context(torch.no_grad())
                stack.enter_context(config.patch(cpu_backend="triton", force_disable_caches=True))
                for target, value in fixed.items():
                    stack.enter_context(mock.patch(target, value))
                launched.clear()
                call = CompiledDefault().prepare(problem, t)
                self.assertEqual((len(launched), call.config, call.remark), (1, "1 kernel", ""))


class Rounded:
    """The fp64 result in the type of the text, and its strides."""

    name = "vitune"

    def prepare(self, problem, t):
        out = operands.make_out(problem, "cpu")
        out.copy_(MAPS.reference(problem, t).values)
        return Call(lambda: out, "c", "exact")


@needs_library
@needs_torch
class SessionTest(SessionCase):
    def test_all_peers_are_timed_and_judged_and_the_tables_name_them(self):
        self.use(MAPS, TEXTS)
        self.problems = [
            MAPS.problem({**one.as_json(), "group": "reduced" if one.reduction else "points"}) for one in self.problems
        ]

        def compiled(function, **_):
            torch._inductor.metrics.generated_kernel_count += 2
            return function

        with mock.patch.object(torch, "compile", compiled):
            found = self.run_session([Rounded(), Compiled(), CompiledDefault(), Eager()])
        self.assertEqual(found["peers"], ["vitune", "compiled", "compiled_default", "eager"])
        for row, problem in zip(found["rows"], self.problems):
            with self.subTest(row["problem"]):
                self.assertEqual((row["failed"], row["refused"]), ({}, {}))
                self.assertEqual(row["repeats"]["vitune"], {"calls": 100, "different": 0})
                self.assertEqual(row["config"]["compiled"], "2 kernels")
                self.assertIn("compiled: 2 kernels a call, and not one", row["flags"])
        sizes = [MAPS.output_bytes(problem, None)[0] for problem in self.problems]
        poisoned = [call.args[0][0] for call in self.poisoned.call_args_list if call.args[1] == 255]
        self.assertEqual(poisoned, [size for size in sizes for _ in range(4)])
        page = table.page(found)
        for words in (
            "Peers: `torch.compile` with all of its tuning and `torch.compile` with default options.",
            "group `points`, geometric mean over the best peer",
            "group `reduced`, geometric mean over the best peer",
        ):
            self.assertIn(words, page)
        self.assertIn("`points`: element by element", table.readme(found))


if __name__ == "__main__":
    unittest.main()
