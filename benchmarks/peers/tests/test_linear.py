# benchmarks/peers/tests/test_linear.py -- Linear layers: problems, operands, reference, peers that run here.
# SPDX-License-Identifier: Apache-2.0
import ctypes
import json
import math
import re
import sys
import types
import unittest
from unittest import mock

from .session_support import LINEARS as TEXTS
from .support import HAS_GPU, ROOT, needs_library, needs_torch, needs_triton, torch

from peers.engine import judge, precompile
from peers.engine.peer import Absent, Refused, Settings
from peers.engine.problems import BadProblem, collect
from peers.rosters import ROSTERS, roster_of

LINEARS = ROSTERS[2]

if torch is not None:
    from peers.linear import cublaslt, selfcheck
    from peers.linear.cudnn_peer import Cudnn, Graph
    from peers.linear.operands import activation_of, formula
    from peers.linear.package_peers import DeepGemm, Quack
    from peers.linear.torch_peers import REP, Eager, compilers
    from peers.linear.vitune_peers import Vitune, VituneDefault, VituneOwn


#: Layers that training asks: vitune and PyTorch alone have a form of it.
TRAINING = (
    "linear bf16 m=12 n=16 k=24 wt",
    "linear bf16 m=12 n=16 k=24 wt=@32 residual",
    "linear fp16 m=12 n=16 k=24 dact=gelu wt",
    "linear bf16 m=12 n=16 k=24 dact=gelu_tanh",
    "linear bf16 m=12 n=16 k=24 dact=relu wt",
    "linear bf16 m=12 n=16 k=24 dact=quick_gelu wt",
    "linear bf16 m=12 n=16 k=24 dact=silu wt",
    "linear bf16 m=12 n=16 k=24 bias scale factor=4 residual out=fp32",
    "linear fp16 m=12 n=16 k=24 bias act=gelu out=fp32",
)


def problem_of(text, **more):
    return LINEARS.problem({"problem": text, **more})


def operands_of(text):
    problem = problem_of(text)
    return problem, LINEARS.operands(problem, "cpu")


def by_hand(problem, t):
    """The output in fp64, by the formula of docs/problems.md, the norm from x itself."""
    x = t.x.double()
    if problem.has_norm:
        mean = x.mean(1, keepdim=True)
        x = (x - mean) / (((x - mean) ** 2).mean(1, keepdim=True) + 1e-6).sqrt()
    weight = t.weight.double().T if problem.is_transposed else t.weight.double()
    y = (x[:, None, :] * weight[None, :, :]).sum(2)
    if problem.derivative:
        pre = t.pre.double().requires_grad_()
        activation_of(problem.derivative)(pre).backward(y)
        return pre.grad
    if t.bias is not None:
        y = y + t.bias.double()
    if problem.activation == "gelu":
        y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
    if problem.activation == "gelu_tanh":
        y = y * 0.5 * (1 + (math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)).tanh())
    if problem.activation in ("silu", "quick_gelu"):
        y = y / (1 + (-y * (1.702 if problem.activation == "quick_gelu" else 1)).exp())
    if problem.activation == "relu":
        y = y * (y > 0)
    if t.scale is not None:
        y = y * t.scale.double()
    if t.factor is not None:
        y = y * t.factor.double().repeat_interleave(problem.factor_rows)[:, None]
    if t.residual is not None:
        y = y + t.residual.double().repeat(y.shape[0] // t.residual.shape[0], 1)
    return y


@needs_library
class ProblemsTest(unittest.TestCase):
    def shipped(self):
        return collect(roster_of, [], [LINEARS.shipped])

    def test_all_59_of_the_shipped_file_are_taken_and_stand_in_one_group(self):
        roster, found = self.shipped()
        self.assertIs(roster, LINEARS)
        self.assertEqual(len(found), 59)
        self.assertEqual(len({one.name for one in found}), 59)
        for one in found:
            with self.subTest(one.name):
                more = one.activation or one.has_norm or one.has("scale") or one.has("residual")
                small = one.number("m") <= 1600
                self.assertEqual(one.group, "small" if small else "fused" if more else "plain")
        written = [entry["problem"] for entry in json.loads(LINEARS.shipped.read_text())["problems"]]
        self.assertEqual([one.text for one in found], written)  # the file has the canonical texts

    def test_floors_are_of_operations_or_of_bytes_each_once(self):
        for one in self.shipped()[1]:
            m, n, k = (one.number(key) for key in "mnk")
            size = m * k + n * k + m * n + n * one.has("bias") + n * one.has("scale")
            size = 2 * (size + one.period * n * one.has("residual"))
            size += (8 * m + 4 * n) * one.has_norm
            floor = 1e6 * max(2 * m * n * k / 790e12, size / 4.3e12)
            self.assertAlmostEqual(one.floor_us, floor, delta=0.006, msg=one.name)

    def test_some_model_of_the_catalogue_asks_each_shape(self):
        catalogue = (ROOT / "data/timm_calls.json").read_text()
        for one in self.shipped()[1]:
            m, n, k = (one.number(key) for key in "mnk")
            if "patches" in one.name:  # a convolution there
                continue
            rows = re.findall(rf'"linear dtype m=(\d+)\*images n={n} k={k}[ "]', catalogue)
            self.assertTrue(any(m % int(row) == 0 for row in rows), one.name)

    def test_words_come_in_one_order_and_what_says_the_default_is_left_out(self):
        for text, canonical in (
            ("linear k=8 act=none bias n=16 m=4 bf16 x=@8", "linear bf16 m=4 n=16 k=8 bias"),
            (
                "linear fp16 m=4 n=8 k=8 period=2 residual scale act=gelu bias w=@16 norm=layer",
                "linear fp16 m=4 n=8 k=8 norm=layer bias act=gelu scale w=@16 residual period=2",
            ),
        ):
            with self.subTest(text):
                problem = problem_of(text)
                self.assertEqual((problem.text, problem.name), (canonical, canonical))
                self.assertEqual(LINEARS.problem(problem.as_json()), problem)
        self.assertEqual((problem.period, problem.stride("w"), problem.stride("x")), (2, 16, 8))
        self.assertEqual((problem.activation, problem.has_norm, problem.dtype), ("gelu", True, "float16"))

    def test_what_not_all_peers_have_a_form_of_is_refused_with_the_word(self):
        for text, word in (
            ("linear bf16 m=4 n=8 k=8 norm=rms", "norm=rms"),
            ("linear bf16 m=4 n=8 k=8 aux", "aux"),
            ("linear bf16 m=4 n=8 k=8 dact=gelu post", "post"),
            ("linear bf16 m=4 n=8 k=8 dact=gelu pre=@16", "pre=@16"),
            ("linear bf16 m=4 n=8 k=8 out=@16", "out=@16"),
            ("linear bf16 m=4 n=8 k=8 bias params=fp32", "params=fp32"),
            ("linear bf16 m=4 n=8 k=8 residual=@16", "residual=@16"),
            ("linear bf16 m=4 n=8 k=8 period=2", "residual"),
            ("linear bf16 m=4 n=8", "k"),
        ):
            with self.subTest(text), self.assertRaisesRegex(BadProblem, word):
                problem_of(text)

    def test_compiles_that_share_kernels_are_in_one_group_and_nothing_is_lost(self):
        _, chosen = self.shipped()
        work = precompile.groups(LINEARS, chosen, LINEARS.compiled)
        tasks = [(task["peer"], task["problem"]["problem"]) for group in work for task in group]
        self.assertEqual(
            sorted(tasks), sorted((peer, one.text) for peer in LINEARS.compiled for one in chosen)
        )
        for peer, groups in (("compiled", 59), ("quack", 9), ("triton", 20)):
            found = [group for group in work if group[0]["peer"] == peer]
            self.assertLessEqual(len(found), groups, peer)


@needs_library
@needs_torch
class ReferenceTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_operands_have_the_shapes_types_and_memory_of_the_text(self):
        for text in TEXTS:
            with self.subTest(text):
                problem, t = operands_of(text)
                m, n, k = (problem.number(key) for key in "mnk")
                self.assertEqual({str(x.dtype) for x in t.given}, {f"torch.{problem.dtype}"})
                self.assertEqual((tuple(t.x.shape), tuple(t.weight.shape)), ((m, k), (n, k)))
                self.assertEqual(t.x.stride(), (problem.stride("x"), 1))
                self.assertEqual(t.weight.stride(), (problem.stride("w"), 1))
                for word in ("bias", "scale", "residual"):
                    self.assertEqual(getattr(t, word) is not None, problem.has(word), word)
                if problem.has("residual"):
                    self.assertEqual(tuple(t.residual.shape), (problem.period, n))
                self.assertEqual(t.mean is not None, problem.has_norm)
                self.assertEqual(LINEARS.output_bytes(problem, t), [m * n * 2])

    def test_statistics_are_those_of_the_rows_and_sums_those_of_the_weight(self):
        _, t = operands_of("linear bf16 m=9 n=8 k=40 norm=layer bias")
        x = t.x.double()
        self.assertLess((t.mean - x.mean(1)).abs().max().item(), 1e-6)
        deviation = (t.rstd - 1 / (x.std(1, unbiased=False) ** 2 + 1e-6).sqrt()).abs().max()
        self.assertLess(deviation.item(), 1e-6)
        self.assertLess((t.sums - t.weight.double().sum(1)).abs().max().item(), 1e-6)
        self.assertGreater(t.mean.abs().max().item(), 0.3)

    def test_operands_of_training_have_the_shapes_and_types_of_the_text(self):
        problem, t = operands_of("linear bf16 m=12 n=16 k=24 wt=@32 dact=gelu")
        self.assertEqual((tuple(t.weight.shape), t.weight.stride()), ((24, 16), (32, 1)))
        self.assertEqual((tuple(t.pre.shape), t.pre.dtype), ((12, 16), torch.bfloat16))
        problem, t = operands_of("linear bf16 m=12 n=16 k=24 factor=4 residual out=fp32")
        self.assertEqual((tuple(t.factor.shape), t.factor.dtype), ((3,), torch.float32))
        self.assertEqual(t.residual.dtype, torch.float32)
        self.assertEqual(LINEARS.output_bytes(problem, t), [12 * 16 * 4])

    def test_it_is_the_formula_in_fp64(self):
        for text in (*TEXTS, *TRAINING):
            with self.subTest(text):
                problem, t = operands_of(text)
                errors = LINEARS.reference(problem, t).errors(by_hand(problem, t))
                self.assertEqual(list(errors), ["out"])
                # The statistics are fp32.
                self.assertLess(errors["out"].max, 1e-5 if problem.has_norm else 1e-12)

    def test_pieces_of_a_large_output_are_all_compared(self):
        problem, t = operands_of(TEXTS[0])
        out = by_hand(problem, t)
        out[-1, -1] += 0.5
        with mock.patch("peers.linear.reference._PIECE", 3 * out.shape[1]):
            error = LINEARS.reference(problem, t).errors(out)["out"]
        self.assertAlmostEqual(error.max, 0.5)
        self.assertAlmostEqual(error.rms, 0.5 / math.sqrt(out.numel()))

    def test_an_element_that_was_not_written_and_another_shape_are_wrong(self):
        problem, t = operands_of(TEXTS[0])
        out = by_hand(problem, t)
        reference = LINEARS.reference(problem, t)
        with self.assertRaisesRegex(ValueError, "output of"):
            reference.errors(out[:2])
        out[1, 2] = math.nan
        self.assertIn("finite", judge.wrong(reference.errors(out)["out"].relative))

    def test_the_other_gelu_is_told_though_its_error_is_small(self):
        for asked, other, named in (
            ("gelu", "gelu_tanh", "tanh form"),
            ("gelu_tanh", "gelu", "by erf"),
        ):
            text = "linear bf16 m=512 n=1024 k=32 bias act="
            problem, t = operands_of(text + asked)
            reference = LINEARS.reference(problem, t)
            for act, instead in ((asked, False), (other, True)):
                given = formula(problem_of(text + act))
                # As a fused epilogue rounds, and as a model that rounds the sums too.
                fused = given(*(x.float() for x in t.given)).bfloat16()
                for out in (fused, given(*t.given)):
                    with self.subTest(asked=asked, act=act):
                        self.assertLess(reference.errors(out)["out"].relative, judge.WRONG)
                        self.assertEqual(named in reference.instead(out), instead)

    def test_of_small_outputs_and_other_activations_nothing_is_said(self):
        for text in ("linear bf16 m=37 n=40 k=32 act=gelu", "linear bf16 m=512 n=1024 k=8 act=relu"):
            problem, t = operands_of(text)
            out = formula(problem_of(text.replace("=gelu", "=gelu_tanh")))(*t.given)
            self.assertEqual(LINEARS.reference(problem, t).instead(out), "")


@needs_library
@needs_torch
class PeersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def check(self, peer, text):
        """The call of a right output."""
        problem, t = operands_of(text)
        with torch.no_grad():
            call = peer.prepare(problem, t)
            errors = LINEARS.reference(problem, t).errors(call.run())
        self.assertLess(errors["out"].relative, 0.01, text)
        return call

    def refuses(self, peer, text, reason):
        with self.subTest(text), self.assertRaisesRegex(Refused, reason):
            peer.prepare(*operands_of(text))

    def test_pytorchs_own_kernels_are_right_and_name_who_provides_them(self):
        for text in (*TEXTS, *TRAINING):
            call = self.check(Eager(), text)
            self.assertEqual((call.provider, call.instead), ("PyTorch", ""))

    def test_what_training_asks_is_refused_by_the_librarys_peers(self):
        for text in TRAINING:
            for prepare in (cublaslt.form_of, lambda problem: Graph(None, None, problem, None)):
                with self.subTest(text), self.assertRaisesRegex(Refused, r"W as \[n, k\]"):
                    prepare(problem_of(text))

    def test_the_formula_is_compiled_whole_in_both_modes_and_tuned_for_a_short_time(self):
        from torch._inductor import config

        asked, compile = [], torch.compile

        def compiled(function, **options):
            made = compile(function, backend="aot_eager", fullgraph=options["fullgraph"])

            def run(*given):
                asked.append((options["mode"], config.inductor_default_autotune_rep))
                return made(*given)

            return run

        with mock.patch.object(torch, "compile", compiled):
            for text in (*TEXTS, *TRAINING):
                for peer in compilers():
                    self.assertEqual(self.check(peer, text).provider, "Inductor")
        self.assertEqual(set(asked[::4]), {("max-autotune-no-cudagraphs", REP)})
        self.assertEqual(set(asked[2::4]), {(None, REP)})

    def test_compiling_ahead_keeps_no_choice_that_was_made_on_a_busy_gpu(self):
        from torch._inductor import config

        seen = []

        def compiled(function, **_):
            seen.append((config.autotune_local_cache, config.fx_graph_cache))
            return function

        problem, t = operands_of(TEXTS[0])
        usual = (config.autotune_local_cache, config.fx_graph_cache)
        with mock.patch.object(torch, "compile", compiled):
            for name in ("compiled", "compile_default"):
                LINEARS.compile_ahead(name, problem, t, Settings())
            compilers()[0].prepare(problem, t)
        self.assertEqual(seen, [(False, False), (False, False), usual])

    def test_quack_is_called_by_its_forms_once_a_form_ahead(self):
        calls = []

        def product(x, weight, bias):
            return torch.nn.functional.linear(x, weight.t(), bias)

        def gemm(x, weight, bias=None):
            calls.append("gemm")
            return product(x, weight, bias)

        def gemm_add(x, weight, c, bias=None):
            calls.append("gemm_add")
            return product(x, weight, bias) + c

        def gemm_act(x, weight, bias, activation, store_preact):
            calls.append(activation)
            self.assertFalse(store_preact)
            name = {"gelu_erf": "gelu", "gelu_tanh_approx": "gelu_tanh", "relu": "relu"}[activation]
            from peers.linear.operands import activation_of

            return None, activation_of(name)(product(x, weight, bias))

        interface = types.SimpleNamespace(gemm=gemm, gemm_add=gemm_add, gemm_act=gemm_act)
        modules = {"quack": types.ModuleType("quack"), "quack.gemm_interface": interface}
        start = "linear bf16 m=37 n=24 k=40"
        with mock.patch.dict(sys.modules, modules), mock.patch.dict("os.environ"):
            import os

            for words in ("", " bias", " bias act=gelu", " bias act=gelu_tanh", " bias residual"):
                self.assertEqual(self.check(Quack(), start + words).provider, "quack")
            self.assertEqual(os.environ["QUACK_FORCE_CACHE_UPDATE"], "1")
            self.assertEqual(
                calls[::2], ["gemm", "gemm", "gelu_erf", "gelu_tanh_approx", "gemm_add"]
            )
            for words in (" norm=layer", " scale", " residual period=1", " act=relu residual"):
                self.refuses(Quack(), start + words, "has no|before the activation")
            calls.clear()
            roster = type(LINEARS)()
            for m in (8, 16):
                roster.compile_ahead("quack", *operands_of(f"linear bf16 m={m} n=8 k=8"), Settings())
            self.assertEqual(calls, ["gemm"])

    def test_deepgemm_does_the_bare_product_alone(self):
        def bf16_gemm_nt(x, weight, out):
            torch.mm(x, weight.t(), out=out)

        with mock.patch.dict(sys.modules, {"deep_gemm": types.SimpleNamespace(bf16_gemm_nt=bf16_gemm_nt)}):
            self.check(DeepGemm(), "linear bf16 m=37 n=24 k=40")
            for words in ("bf16 m=8 n=8 k=8 bias", "bf16 m=8 n=8 k=8 act=relu", "bf16 m=8 n=8 k=8 norm=layer"):
                self.refuses(DeepGemm(), f"linear {words}", "no epilogue")
            self.refuses(DeepGemm(), "linear fp16 m=8 n=8 k=8", "bf16 alone")

    def test_a_package_that_is_not_installed_is_absent(self):
        for peer, module in ((Quack(), "quack"), (DeepGemm(), "deep_gemm"), (Cudnn(), "cudnn")):
            with (
                mock.patch.dict(sys.modules, {module: None}),
                self.assertRaisesRegex(Absent, "cannot be imported"),
            ):
                peer.prepare(*operands_of("linear bf16 m=8 n=8 k=8"))

    def test_peers_come_in_the_order_of_tables(self):
        found = LINEARS.peers(["eager", "vitune", "quack", "cublaslt"], Settings())
        self.assertEqual([peer.name for peer in found], ["vitune", "cublaslt", "quack", "eager"])
        everyone = LINEARS.peers(LINEARS.names, Settings())
        self.assertEqual(tuple(peer.name for peer in everyone), LINEARS.names)

    def test_vitune_writes_new_tensors_and_gives_every_other_its_place(self):
        from .test_vitune_peers import AskedContext

        stream = types.SimpleNamespace(cuda_stream=77)
        AskedContext.made.clear()
        with (
            mock.patch("vitune.Context", AskedContext),
            mock.patch("torch.cuda.current_stream", lambda: stream),
        ):
            problem, t = operands_of("linear bf16 m=4 n=16 k=8 norm=layer bias scale residual")
            call = Vitune(Settings(objective="warm")).prepare(problem, t)
            out = call.run()
            VituneDefault(Settings()).prepare(problem, t)
        addresses, _, _, at = AskedContext.made[0].addresses[-1]
        given = (t.x, t.weight, t.bias, t.scale, t.residual, out)
        places = [*(x.data_ptr() for x in given), 0]  # aux
        places += [x.data_ptr() for x in (t.mean, t.rstd, t.sums)]
        places += [0] * (len(addresses) - len(places))  # nothing else is given
        self.assertEqual((addresses, at), (places, 77))
        self.assertEqual((tuple(out.shape), out.dtype), ((4, 16), torch.bfloat16))
        self.assertEqual(AskedContext.made[0].options["objective"], "warm")
        self.assertEqual(AskedContext.made[1].options["shipped_database"], "")

    def test_vitunes_own_kernels_are_served_above_the_database_and_no_librarys_passes_for_one(self):
        from .test_vitune_peers import AskedContext

        AskedContext.made.clear()
        problem, t = operands_of("linear bf16 m=4 n=16 k=8 bias")
        tuned, own = ROOT / "data/winners.db", ROOT / "data/bench_problems.json"  # any two files
        for config, provider in (
            ("family=sm80 kBlockM=64", "vitune"),
            ("family=cublaslt kTile=20", "vitune's cublaslt"),
            ("family=chain kTile=20", "vitune's chain"),
        ):
            selection = types.SimpleNamespace(config=config, outcome="exact")
            with (
                self.subTest(config),
                mock.patch("vitune.Context", AskedContext),
                mock.patch.object(AskedContext, "query", lambda self, asked: selection),
                mock.patch("torch.cuda.current_stream", lambda: types.SimpleNamespace(cuda_stream=1)),
            ):
                call = Vitune(Settings(tuned)).prepare(problem, t)
                self.assertEqual((call.provider, call.config), (provider, config))
                peer = VituneOwn(Settings(tuned, "warm", own))
                if provider == "vitune":
                    self.assertEqual(peer.prepare(problem, t).provider, "vitune")
                    options = AskedContext.made[-1].options
                    self.assertEqual(options["database"], own.resolve())
                    self.assertEqual(options["shipped_database"], tuned.resolve())
                else:
                    with self.assertRaisesRegex(Refused, "serves this problem; --own-db"):
                        peer.prepare(problem, t)


@needs_library
@needs_torch
class CublasLtTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_a_form_is_told_by_the_words_and_another_function_is_named(self):
        start = "linear bf16 m=8 n=8 k=8"
        for words, epilogue, beta, instead in (
            ("", 1, 0.0, ""),
            (" bias", 4, 0.0, ""),
            (" bias residual", 4, 1.0, ""),
            (" residual", 1, 1.0, ""),
            (" bias act=relu", 6, 0.0, ""),
            (" act=gelu_tanh", 32, 0.0, ""),
            (" bias act=gelu_tanh", 36, 0.0, ""),
            (" bias act=gelu", 36, 0.0, "GELU's tanh form"),
        ):
            form = cublaslt.form_of(problem_of(start + words))
            self.assertEqual((form.epilogue, form.beta, form.instead), (epilogue, beta, instead), words)
        for words, reason in (
            (" norm=layer", "no norm"),
            (" bias scale", "factor"),
            (" residual period=2", "repeats"),
            (" act=relu residual", "before the activation"),
            (" act=silu", "no silu"),
        ):
            with self.assertRaisesRegex(Refused, reason):
                cublaslt.form_of(problem_of(start + words))

    def library(self):
        try:
            return cublaslt.Library()
        except Absent as reason:
            self.skipTest(str(reason))

    def test_the_librarys_descriptors_say_what_the_operands_are(self):
        library = self.library()
        problem, t = operands_of("linear bf16 m=8 n=16 k=12 bias residual x=@16")
        product = cublaslt.Product(library, cublaslt.form_of(problem), t)
        written = ctypes.c_size_t()

        def read(entry, of, attribute, value):
            library.call(entry, of, attribute, ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(written))
            return value.value

        entry = "cublasLtMatmulDescGetAttribute"
        for attribute, value in ((3, 1), (4, 0), (7, 4)):  # transposed, not, bias
            self.assertEqual(read(entry, product.description, attribute, ctypes.c_int32()), value)
        pointer = read(entry, product.description, 8, ctypes.c_uint64())
        self.assertEqual(pointer, t.bias.data_ptr())
        entry = "cublasLtMatrixLayoutGetAttribute"
        for layout, rows, columns, stride in (
            (product.weight, 12, 16, 12),
            (product.x, 12, 8, 16),
            (product.y, 16, 8, 16),
        ):
            self.assertEqual(read(entry, layout, 0, ctypes.c_uint32()), 14)  # CUDA_R_16BF
            self.assertEqual(read(entry, layout, 2, ctypes.c_uint64()), rows)
            self.assertEqual(read(entry, layout, 3, ctypes.c_uint64()), columns)
            self.assertEqual(read(entry, layout, 4, ctypes.c_int64()), stride)

    def test_a_status_is_an_error_with_the_entry_points_name(self):
        with self.assertRaisesRegex(cublaslt.Failed, "cublasLtMatrixLayoutGetAttribute: status"):
            self.library().call("cublasLtMatrixLayoutGetAttribute", None, 0, None, 0, None)

    def test_a_launch_hands_every_argument_over_whole(self):
        library, seen = self.library(), []
        problem, t = operands_of("linear bf16 m=8 n=16 k=12 bias residual x=@16")
        product = cublaslt.Product(library, cublaslt.form_of(problem), t)
        pointer, size, stream = ctypes.c_void_p, ctypes.c_size_t, (1 << 40) + 8
        # As cublasLt.h declares it: fourteen pointers, a size, a stream.
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 14, size, pointer)
        launch = kind(lambda *arguments: seen.append(arguments) or 0)
        launch.argtypes = cublaslt._SIGNATURES["cublasLtMatmul"]
        workspace = torch.empty(16, dtype=torch.uint8)
        current = mock.Mock(cuda_stream=stream)
        with (
            mock.patch.object(library._library, "cublasLtMatmul", launch),
            mock.patch("torch.cuda.current_stream", return_value=current),
        ):
            product.run(None, cublaslt._Algorithm(), workspace)
        self.assertEqual(seen[0][3], t.weight.data_ptr())
        self.assertEqual(seen[0][13:], (workspace.data_ptr(), cublaslt.WORKSPACE, stream))
        with self.assertRaisesRegex(TypeError, "takes 16 arguments, not 2"):
            library.call("cublasLtMatmul", None, None)

    def test_structures_have_the_sizes_of_the_headers(self):
        self.assertEqual(ctypes.sizeof(cublaslt._Algorithm), 64)
        self.assertEqual(ctypes.sizeof(cublaslt._Heuristic), 96)

    def test_the_fastest_is_taken_and_those_that_fail_are_passed_over(self):
        times = {"a": 3.0, "b": 1.0, "c": 2.0}

        def call_of(name):
            if name == "broken":
                raise cublaslt.Failed("status 15")
            return lambda: name

        found = cublaslt.fastest(["broken", *times], call_of, lambda run: times[run()])
        self.assertEqual(found, "b")
        with self.assertRaisesRegex(Refused, "none of its 2 algorithms runs.*status 15"):
            cublaslt.fastest(["broken", "broken"], call_of, None)
        with self.assertRaisesRegex(Refused, "no algorithm"):
            cublaslt.fastest([], call_of, None)

    def test_a_library_that_is_not_there_is_absent(self):
        with (
            mock.patch("ctypes.CDLL", side_effect=OSError("no such file")),
            self.assertRaisesRegex(Absent, "no such file"),
        ):
            cublaslt.Library()


class NotSupported(Exception):
    """cuDNN's of a graph without a plan."""


class FakeNode:
    """A tensor of a graph: given, with extents and strides of its own, or what a function makes of others."""

    def __init__(self, make):
        self.make, self.output, self.kind = make, False, None

    def set_output(self, output):
        self.output = output
        return self

    def set_data_type(self, kind):
        self.kind = kind
        return self


class FakeGraph:
    """cudnn.pygraph, evaluated by PyTorch in fp32: plan 0 does not build, plan 1 needs too much memory."""

    made = []

    def __init__(self, io_data_type, intermediate_data_type, compute_data_type, handle):
        self.types = (io_data_type, intermediate_data_type, compute_data_type)
        self.handle, self.steps = handle, []
        FakeGraph.made.append(self)

    def tensor(self, name, dim, stride, data_type):
        node = FakeNode(None)
        node.make = lambda given: given[node].as_strided(dim, stride).float()
        return node

    def _of(self, function, *nodes):
        return FakeNode(lambda given: function(*(node.make(given) for node in nodes)))

    def matmul(self, A, B, name):
        return self._of(torch.matmul, A, B)

    def add(self, a, b):
        return self._of(torch.add, a, b)

    def mul(self, a, b):
        return self._of(torch.mul, a, b)

    def __getattr__(self, name):
        functions = {"gelu": "gelu", "gelu_approx_tanh": "gelu_tanh", "relu": "relu", "swish": "silu"}
        if name not in functions:
            raise AttributeError(name)
        from peers.linear.operands import activation_of

        return lambda input: self._of(activation_of(functions[name]), input)

    def validate(self):
        self.steps.append("validate")

    def build_operation_graph(self):
        self.steps.append("graph")

    def create_execution_plans(self, modes):
        if self.handle.declines:
            raise NotSupported("no engine")
        self.steps.append(tuple(modes))

    def get_execution_plan_count(self):
        return 9

    def build_plan_at_index(self, index):
        self.steps.append(index)
        if index == 0:
            raise NotSupported("does not build")

    def get_workspace_size_plan_at_index(self, index):
        return 1 << 40 if index == 1 else 0

    def get_plan_name_at_index(self, index):
        return f"plan {index}"

    def execute_plan_at_index(self, bound, workspace, index, handle):
        (out,) = (node for node in bound if node.output)
        bound[out].copy_(out.make(bound)[0])


@needs_library
@needs_torch
class CudnnTest(unittest.TestCase):
    """The graph that cuDNN is given, evaluated by PyTorch on the same memory; and the race of its plans."""

    def setUp(self):
        torch.manual_seed(11)
        FakeGraph.made.clear()
        self.handle, self.streams = types.SimpleNamespace(declines=False), []
        kinds = types.SimpleNamespace(BFLOAT16="bf16", HALF="fp16", FLOAT="fp32")
        cudnn = types.SimpleNamespace(
            pygraph=FakeGraph,
            data_type=kinds,
            heur_mode=types.SimpleNamespace(A="A", FALLBACK="F"),
            create_handle=lambda: self.handle,
            set_stream=lambda handle, stream: self.streams.append(stream),
            cudnnGraphNotSupportedError=NotSupported,
        )
        stream = types.SimpleNamespace(cuda_stream=77)
        for patcher in (
            mock.patch.dict(sys.modules, {"cudnn": cudnn}),
            mock.patch("torch.cuda.current_stream", lambda: stream),
            mock.patch("peers.linear.cudnn_peer.milliseconds", lambda run: run() is None or 1.0),
        ):
            patcher.start()
            self.addCleanup(patcher.stop)

    def test_every_form_is_the_formula_and_the_first_plan_that_runs_is_taken(self):
        peer = Cudnn()
        for words in (
            *("", " bias", " bias act=gelu", " bias act=gelu_tanh", " act=relu", " act=silu scale"),
            *(" bias scale residual", " bias x=@24 w=@32 residual"),
        ):
            text = f"linear fp16 m=30 n=40 k=20{words}"
            problem, t = operands_of(text)
            with self.subTest(text):
                call = peer.prepare(problem, t)
                errors = LINEARS.reference(problem, t).errors(call.run())
                self.assertLess(errors["out"].relative, 0.001)
                self.assertEqual((call.provider, call.config), ("cuDNN", "plan 2"))
                graph = FakeGraph.made[-1]
                self.assertEqual(graph.types, ("fp16", "fp32", "fp32"))
                self.assertEqual(graph.steps, ["validate", "graph", ("A", "F"), 0, 1, 2, 3])
        self.assertEqual(set(self.streams), {77})

    def test_what_it_has_no_graph_or_no_plan_for_is_refused(self):
        for words, reason in (
            (" norm=layer", "norm"),
            (" residual period=2", "repeats"),
            (" act=quick_gelu", "quick_gelu"),
        ):
            with self.subTest(words), self.assertRaisesRegex(Refused, reason):
                Cudnn().prepare(*operands_of(f"linear bf16 m=8 n=8 k=8{words}"))
        self.handle.declines = True
        with self.assertRaisesRegex(Refused, "no plan for this graph.*no engine"):
            Cudnn().prepare(*operands_of("linear bf16 m=8 n=8 k=8"))


@needs_library
@needs_triton
class TritonTest(unittest.TestCase):
    """On a GPU, else in Triton's interpreter, which has no bfloat16."""

    def setUp(self):
        torch.manual_seed(11)

    def test_every_form_is_right_and_of_the_gelu_that_was_asked(self):
        for text in selfcheck.PROBLEMS:
            with self.subTest(text):
                self.assertLess(selfcheck.triton_error(text, "cuda" if HAS_GPU else "cpu"), 0.002)

    def test_the_self_check_finds_the_other_gelu(self):
        text = "linear fp16 m=1024 n=512 k=32 bias act=gelu"
        right = selfcheck.triton_error
        from peers.linear import triton_linear

        made = triton_linear.linear
        other = problem_of(text + "_tanh")
        with mock.patch.object(
            triton_linear, "linear", lambda problem, *rest, **more: made(other, *rest, **more)
        ):
            self.assertEqual(right(text, "cuda" if HAS_GPU else "cpu"), math.inf)

    def test_its_gelu_is_within_an_ulp_of_erfs_on_a_grid(self):
        from peers.linear import triton_linear
        from peers.linear.operands import Operands

        grid = torch.arange(-8192, 8192, dtype=torch.float64).div(1024).half()
        x = torch.zeros(len(grid), 16, dtype=torch.float16)
        x[:, 0] = grid
        weight = torch.zeros(16, 16, dtype=torch.float16)
        weight[:, 0] = 1
        device = "cuda" if HAS_GPU else "cpu"
        t = Operands(x.to(device), weight.to(device))
        problem = problem_of(f"linear fp16 m={len(grid)} n=16 k=16 act=gelu")
        out = triton_linear.linear(problem, t, triton_linear.kernel, **selfcheck.CONFIG)
        exact = torch.nn.functional.gelu(grid.double())
        ulp = torch.maximum(exact.abs() * 2**-10, torch.tensor(2.0**-24, dtype=torch.float64))
        # Below -3 1 + erf cancels in fp32.
        off = (out[:, 0].double().cpu() - exact).abs()
        self.assertLessEqual((off - 1e-6).div(ulp).max().item(), 1)

    def test_rows_that_tensor_descriptors_do_not_take_are_refused(self):
        from peers.linear import triton_linear

        for text in ("linear fp16 m=8 n=8 k=12", "linear fp16 m=8 n=12 k=8"):
            problem, t = operands_of(text)
            with self.assertRaisesRegex(Refused, "16 bytes"):
                triton_linear.arguments(problem, t, triton_linear.new_output(t))

    def test_configs_that_a_small_problem_does_not_fill_are_left_out(self):
        from peers.linear import triton_linear

        kept = triton_linear.pruned(triton_linear.CONFIGS, {"M": 32, "N": 1000})
        self.assertEqual({config.kwargs["BLOCK_M"] for config in kept}, {64})
        large = triton_linear.pruned(triton_linear.CONFIGS, {"M": 6304, "N": 3072})
        self.assertEqual(len(large), len(triton_linear.CONFIGS))


if __name__ == "__main__":
    unittest.main()
