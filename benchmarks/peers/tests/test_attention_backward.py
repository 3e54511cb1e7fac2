# benchmarks/peers/tests/test_attention_backward.py -- Gradients of attention: problems, operands, reference, peers that run here.
# SPDX-License-Identifier: Apache-2.0
import json
import unittest
from unittest import mock

from .support import HAS_GPU, needs_library, needs_torch, torch

from peers.engine.peer import Refused
from peers.engine.problems import BadProblem, collect
from peers.rosters import ROSTERS, roster_of

BACKWARD = ROSTERS[5]
TEXTS = (
    "attention_backward bf16 b=2 h=4 hkv=2 nq=9 nk=9 d=16 layout=packed causal",
    "attention_backward fp16 b=4 h=2 nq=7 nk=5 d=8 layout=bnhd bias=fp32:2x1x7x5 dbias",
    "attention_backward bf16 b=2 h=2 nq=6 nk=8 d=8 layout=bhnd mask=bool:2x1x1x8",
)

if torch is not None:
    from peers.attention_backward import torch_peers
    from peers.attention_backward.vitune_peers import _inputs, _outputs


def problem_of(text, **more):
    return BACKWARD.problem({"problem": text, **more})


def operands_of(text):
    problem = problem_of(text)
    return problem, BACKWARD.operands(problem, "cpu")


@needs_library
class ProblemsTest(unittest.TestCase):
    def test_all_21_of_the_shipped_file_are_taken_with_their_canonical_texts_and_floors(self):
        roster, found = collect(roster_of, [], [BACKWARD.shipped])
        self.assertIs(roster, BACKWARD)
        self.assertEqual(len({one.name for one in found}), 21)
        written = [entry["problem"] for entry in json.loads(roster.shipped.read_text())["problems"]]
        self.assertEqual([one.text for one in found], written)
        self.assertEqual({one.group for one in found}, set(roster.groups))
        for one in found:
            desc = one.desc
            heads, pairs = desc.batch * desc.heads, desc.nq * desc.nk
            if desc.causal:
                pairs = desc.nq * (desc.nq + 1) // 2
            numbers = 8 * heads * desc.nq * desc.d + one.has_dbias * 2 * desc.heads * desc.nq * desc.nk
            floor = 1e6 * max(10 * heads * pairs * desc.d / 790e12, 2 * numbers / 4.3e12)
            self.assertAlmostEqual(one.floor_us / floor, 1, delta=0.03, msg=one.name)

    def test_words_come_in_one_order(self):
        problem = problem_of("attention_backward d=8 dbias n=9 bias=fp16:9x9 h=2 b=1 bf16")
        wanted = "attention_backward bf16 b=1 h=2 nq=9 nk=9 d=8 layout=packed bias=fp16:1x1x9x9 dbias"
        self.assertEqual((problem.text, problem.has_dbias), (wanted, True))

    def test_words_about_gradients_alone_are_refused(self):
        for word in ("dq=bnhd", "do=bhnd", "dbias=fp32"):
            with self.subTest(word), self.assertRaisesRegex(BadProblem, word):
                problem_of(f"attention_backward bf16 b=1 h=2 n=9 d=8 bias=bf16:9x9 {word}")
        with self.assertRaisesRegex(BadProblem, "needs bias="):
            problem_of("attention_backward bf16 b=1 h=2 n=9 d=8 dbias")


@needs_library
@needs_torch
class PeersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def test_the_reference_is_autograds_derivative_in_fp64(self):
        for text in TEXTS:
            with self.subTest(text):
                problem, t = operands_of(text)
                forward = t.forward
                q, k, v = (x.double().requires_grad_() for x in (forward.q, forward.k, forward.v))
                mask, wanted = forward.mask, [q, k, v]
                if problem.has_dbias:
                    mask = t.bias.double().requires_grad_()
                    wanted.append(mask)
                wide = mask if mask is None else mask.repeat(problem.desc.batch // mask.shape[0], 1, 1, 1)
                out = torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, wide, is_causal=bool(problem.desc.causal), scale=problem.forward.scale, enable_gqa=True
                )
                self.assertLess((out - t.out).abs().max().item(), 0.02)
                gradients = torch.autograd.grad(out, wanted, t.dout.double())
                reference = BACKWARD.reference(problem, t)
                for name, error in reference.errors(gradients).items():
                    self.assertLess(error.relative, 1e-10, name)
                self.assertEqual(len(BACKWARD.output_bytes(problem, t)), len(wanted))

    def test_an_output_that_lacks_a_gradient_or_has_another_shape_is_refused(self):
        problem, t = operands_of(TEXTS[1])
        reference = BACKWARD.reference(problem, t)
        values = tuple(reference.values.values())
        with self.assertRaises(ValueError):
            reference.errors(values[:3])
        with self.assertRaises(ValueError):
            reference.errors((values[0].transpose(2, 3), *values[1:]))
        self.assertEqual(reference.errors((values[0] * float("nan"), *values[1:]))["dq"].relative, float("inf"))

    def test_pytorchs_formula_gives_the_gradients(self):
        eager = torch_peers.torch_peers()[-1]
        for text in TEXTS:
            problem, t = operands_of(text)
            with self.subTest(text):
                with torch.no_grad():  # as a session
                    output = eager.prepare(problem, t).run()
                for name, error in BACKWARD.reference(problem, t).errors(output).items():
                    self.assertLess(error.relative, 0.03, name)

    def test_each_stream_has_a_forward_pass_and_leaves_of_its_own(self):
        """Accumulators of gradients belong to the stream of the first pass, which a capture of another one may not wait for."""
        streams, wanted, grad = ["default"], [], torch.autograd.grad

        def noted(out, leaves, *more, **keywords):
            wanted.append((out, *leaves))
            return grad(out, leaves, *more, **keywords)

        eager = torch_peers.torch_peers()[-1]
        for text in TEXTS:
            problem, t = operands_of(text)
            wanted.clear()
            with (
                self.subTest(text),
                mock.patch.object(torch_peers, "_stream", lambda: streams[-1]),
                mock.patch.object(torch.autograd, "grad", noted),
                torch.no_grad(),
            ):
                call = eager.prepare(problem, t)
                streams.append("side")
                outputs = call.run(), call.run()
                streams.pop()
                call.run()
            default, side, again, back = wanted
            for one, other in zip(default[1:], side[1:]):
                self.assertIsNot(one, other)
                self.assertTrue(one.is_leaf and other.is_leaf)
                self.assertEqual(one.data_ptr(), other.data_ptr())
            self.assertIsNot(default[0], side[0])
            self.assertEqual([id(x) for x in side], [id(x) for x in again])
            self.assertEqual([id(x) for x in default], [id(x) for x in back])
            for output in outputs:
                for name, error in BACKWARD.reference(problem, t).errors(output).items():
                    self.assertLess(error.relative, 0.03, name)

    def test_a_backend_without_a_gradient_of_the_bias_refuses(self):
        problem, t = operands_of(TEXTS[1])
        eager = torch_peers.torch_peers()[-1]

        def without(q, k, v, attn_mask, **more):
            return q @ k.transpose(-2, -1) @ v

        with mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", without):
            with self.assertRaisesRegex(Refused, "no gradient of the bias"):
                eager.prepare(problem, t)

    def test_ours_is_given_what_the_text_says_and_writes_views_of_one_tensor(self):
        problem, t = operands_of(TEXTS[0])
        outputs = _outputs(problem, t, ("dq", "dk", "dv"))
        for of, gradient in zip((t.forward.q, t.forward.k, t.forward.v), outputs):
            self.assertEqual((gradient.shape, gradient.stride()), (of.shape, of.stride()))
            self.assertEqual(gradient.untyped_storage().data_ptr(), outputs[0].untyped_storage().data_ptr())
            self.assertNotEqual(gradient.data_ptr(), of.data_ptr())
        self.assertIsNone(_inputs(t)["bias"])
        problem, t = operands_of(TEXTS[1])
        self.assertEqual(len(_outputs(problem, t, ("dq", "dk", "dv", "dbias"))), 4)
        self.assertIs(_inputs(t)["bias"], t.forward.mask)


@needs_library
@needs_torch
@unittest.skipUnless(HAS_GPU, "no CUDA device")
class CaptureTest(unittest.TestCase):
    def test_gradients_by_pytorchs_backends_are_captured_after_they_ran_on_the_default_stream(self):
        from peers.engine.timing import DeviceTimer

        problem, timer, calls = problem_of("attention_backward bf16 b=2 h=4 n=64 d=64"), DeviceTimer(), {}
        t = BACKWARD.operands(problem)
        with torch.no_grad():  # as a session
            for peer in torch_peers.torch_peers():
                if isinstance(peer, torch_peers.Sdpa):
                    calls[peer.name] = peer.prepare(problem, t)
                    timer.capture(peer.name, calls[peer.name], 1000.0)
            self.assertEqual(set(timer.warm_round(list(calls), calls)), {"cudnn", "flash", "effic", "eager"})


if __name__ == "__main__":
    unittest.main()
