# benchmarks/peers/tests/test_attention.py -- Operands, reference, and peers that run here.
# SPDX-License-Identifier: Apache-2.0
import math
import unittest
from unittest import mock

from .support import HAS_GPU, needs_library, needs_torch, needs_triton, torch

from peers.attention import selfcheck
from peers.engine import judge
from peers.engine.peer import Refused

if torch is not None:
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend
    from peers.attention import torch_peers
    from peers.attention.operands import make_operands
    from peers.attention.problem import Problem
    from peers.attention.reference import judged_entries, make_reference

    def problem_of(text):
        return Problem.of({"problem": text})

    def errors_of(reference, out):
        return reference.errors(out)["out"]

    def plain(problem, t):
        """The output in fp64 by PyTorch's own formula, on tensors made dense first."""
        mask = None
        if t.mask is not None:
            b, h, nq, nk = problem.desc.batch, problem.desc.heads, problem.desc.nq, problem.desc.nk
            mask = t.mask.repeat(b // t.mask.shape[0], 1, 1, 1).expand(b, h, nq, nk)
            mask = mask if mask.dtype is torch.bool else mask.double()
        return F.scaled_dot_product_attention(
            t.q.double(),
            t.k.double(),
            t.v.double(),
            mask,
            is_causal=bool(problem.desc.causal),
            scale=problem.scale,
            enable_gqa=problem.kv_heads != problem.desc.heads,
        )


@needs_library
@needs_torch
class OperandsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_views_have_the_shapes_and_strides_of_the_text(self):
        for text in (
            *selfcheck.PROBLEMS,
            "bf16 b=2 h=3 n=9 d=16 layout=bhnd v=packed",
            "bf16 b=3 h=2 nq=1 nk=9 d=8",
        ):
            with self.subTest(text):
                problem = problem_of(text)
                desc, t = problem.desc, make_operands(problem, "cpu")
                for name, heads, rows in (
                    ("q", desc.heads, desc.nq),
                    ("k", problem.kv_heads, desc.nk),
                    ("v", problem.kv_heads, desc.nk),
                ):
                    tensor, wanted = getattr(t, name), getattr(desc, name)
                    self.assertEqual(tuple(tensor.shape), (desc.batch, heads, rows, desc.d))
                    self.assertEqual(tensor.stride(), (wanted.batch, wanted.head, wanted.row, 1))
                    self.assertAlmostEqual(tensor.double().std().item(), 1.0, delta=0.3)

    def test_packed_operands_are_views_of_one_tensor_that_do_not_overlap(self):
        t = make_operands(problem_of("bf16 b=2 h=4 hkv=2 n=5 d=8"), "cpu")
        self.assertEqual(len({x.untyped_storage().data_ptr() for x in (t.q, t.k, t.v)}), 1)
        for number, tensor in enumerate((t.q, t.k, t.v)):
            tensor.fill_(number)
        self.assertEqual([x.unique().tolist() for x in (t.q, t.k, t.v)], [[0], [1], [2]])

    def test_masks_keep_what_they_broadcast_and_widen_by_windows(self):
        t = make_operands(problem_of("bf16 b=4 h=2 n=9 d=8 bias=fp32:2x1x9x9"), "cpu")
        self.assertEqual(tuple(t.mask.shape), (2, 1, 9, 9))
        self.assertTrue(torch.equal(t.wide_mask[2:], t.mask))
        rows = make_operands(
            problem_of("fp16 b=1 h=2 n=33 d=32 bias=fp16:1x2x33x33@0,1320,40,1"), "cpu"
        ).mask
        self.assertEqual((rows.stride(2), rows.stride(3)), (40, 1))

    def test_no_row_of_a_bool_mask_is_without_a_key(self):
        mask = make_operands(problem_of("bf16 b=2 h=2 n=40 d=8 mask=bool:2x1x40x40"), "cpu").mask
        self.assertTrue(mask.any(-1).all())
        self.assertFalse(mask.all())


@needs_library
@needs_torch
class ReferenceTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_it_is_the_formula_in_fp64(self):
        for text in selfcheck.PROBLEMS:
            with self.subTest(text):
                problem = problem_of(text)
                t = make_operands(problem, "cpu")
                errors = errors_of(make_reference(problem, t), plain(problem, t))
                self.assertLess(errors.max, 1e-12)

    def test_large_problems_are_judged_on_evenly_spaced_heads(self):
        problem = problem_of("bf16 b=2 h=5 n=16 d=8")
        self.assertEqual(judged_entries(problem), list(range(10)))
        self.assertEqual(judged_entries(problem, 5 * 256), [0, 2, 4, 6, 8])
        self.assertEqual(judged_entries(problem, 1), [0])
        t = make_operands(problem, "cpu")
        few = make_reference(problem, t, 5 * 256)
        out = plain(problem, t)
        self.assertLess(errors_of(few, out).max, 1e-12)
        out[0, 2, 3, 1] += 1.0  # entry 2
        self.assertAlmostEqual(errors_of(few, out).max, 1.0)

    def test_one_wrong_element_is_the_largest_error_and_its_share_of_the_mean(self):
        problem = problem_of("bf16 b=1 h=2 n=8 d=8")
        t = make_operands(problem, "cpu")
        out = plain(problem, t)
        out[0, 1, 7, 7] += 0.5
        errors = errors_of(make_reference(problem, t), out)
        self.assertAlmostEqual(errors.max, 0.5)
        self.assertAlmostEqual(errors.rms, 0.5 / math.sqrt(128))

    def test_an_element_that_was_not_written_counts_as_wrong(self):
        problem = problem_of("bf16 b=1 h=2 n=8 d=8")
        t = make_operands(problem, "cpu")
        out = plain(problem, t)
        out[0, 0, 3, 3] = math.nan
        errors = errors_of(make_reference(problem, t), out)
        self.assertEqual(errors.max, math.inf)
        self.assertIn("finite", judge.wrong(errors.relative))


@needs_library
@needs_torch
class TorchPeersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_the_unfused_backend_and_flex_formulas_are_right(self):
        from torch.nn.attention.flex_attention import flex_attention

        eager = torch_peers.Sdpa("eager", SDPBackend.MATH)
        for text in selfcheck.PROBLEMS:
            problem = problem_of(text)
            t = make_operands(problem, "cpu")
            reference = make_reference(problem, t)
            with self.subTest(text):
                self.assertLess(
                    errors_of(reference, eager.prepare(problem, t).run()).relative, 0.01
                )
                out = flex_attention(
                    t.q.float(), t.k.float(), t.v.float(), **torch_peers.flex_keywords(problem, t)
                )
                self.assertLess(errors_of(reference, out).relative, 1e-5)

    def test_a_backend_that_is_not_there_refuses_and_none_steps_in(self):
        problem = problem_of("fp16 b=1 h=2 n=9 d=16")
        t = make_operands(problem, "cpu")
        with self.assertRaises(Refused):
            torch_peers.Sdpa("cudnn", SDPBackend.CUDNN_ATTENTION).prepare(problem, t)

    def test_a_mask_and_causal_at_once_are_refused(self):
        problem = problem_of("fp16 b=1 h=2 n=9 d=16 causal bias=fp16:1x2x9x9")
        t = make_operands(problem, "cpu")
        for peer in (torch_peers.Sdpa("eager", SDPBackend.MATH), torch_peers.Flex()):
            with self.assertRaises(Refused):
                peer.prepare(problem, t)

    def test_the_compiled_formula_is_right_and_refuses_what_it_leaves_out(self):
        compiled = []
        with mock.patch.object(torch, "compile", lambda f, **_: compiled.append(f) or f):
            for text in ("fp16 b=2 h=3 n=33 d=16", "bf16 b=1 h=2 nq=7 nk=21 d=8"):
                problem = problem_of(text)
                t = make_operands(problem, "cpu")
                out = torch_peers.Compiled().prepare(problem, t).run()
                self.assertLess(errors_of(make_reference(problem, t), out).relative, 0.01)
            # PyTorch bounds the compilations of one code object, not of a run.
            self.assertNotEqual(*(formula.__code__.co_name for formula in compiled))
            for words in ("n=9 causal", "n=9 bias=fp16:1x2x9x9", "n=9 hkv=1"):
                problem = problem_of(f"fp16 b=1 h=2 d=16 {words}")
                with self.subTest(words), self.assertRaisesRegex(Refused, "plain formula"):
                    torch_peers.Compiled().prepare(problem, make_operands(problem, "cpu"))

    def test_a_package_that_is_not_installed_is_absent(self):
        with self.assertRaisesRegex(torch_peers.Absent, "no_such_module"):
            torch_peers.FlashAttentionPackage("fa3", "no_such_module").prepare(None, None)


@needs_library
@needs_triton
class TritonTest(unittest.TestCase):
    """On a GPU, else in Triton's interpreter."""

    def setUp(self):
        torch.manual_seed(11)

    def test_the_kernel_is_right_on_every_kind_of_problem(self):
        for text in selfcheck.PROBLEMS:
            with self.subTest(text):
                self.assertLess(selfcheck.triton_error(text, "cuda" if HAS_GPU else "cpu"), 0.002)

    def test_blocks_larger_than_the_problem_and_smaller_ones_agree(self):
        from peers.attention import triton_attention

        problem = problem_of("fp16 b=1 h=2 nq=70 nk=90 d=48 causal layout=bnhd")
        t = make_operands(problem, "cuda" if HAS_GPU else "cpu")
        reference = make_reference(problem, t)
        for m, n in ((16, 16), (16, 128), (128, 32), (64, 64)):
            with self.subTest(m=m, n=n):
                out = triton_attention.attention(
                    problem, t, triton_attention.kernel, BLOCK_M=m, BLOCK_N=n
                )
                self.assertLess(errors_of(reference, out).relative, 0.002)

    def test_pruning_keeps_configs_that_fit_and_never_none(self):
        from peers.attention import triton_attention as ours

        for nq, nk, largest in ((1, 729, 16), (49, 49, 64), (4096, 4096, 128)):
            kept = ours.pruned(ours.CONFIGS, {"nq": nq, "nk": nk})
            self.assertGreater(len(kept), 1)
            self.assertEqual(max(config.kwargs["BLOCK_M"] for config in kept), largest)
