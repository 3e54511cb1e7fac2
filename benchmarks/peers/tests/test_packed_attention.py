# benchmarks/peers/tests/test_packed_attention.py -- Packed attention: problems, operands, reference, peers that run here.
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

PACKED = ROSTERS[4]
MIXED = "packed_attention bf16 tokens=16 longest=9 sequences=4 h=2 d=8 lengths=7,0x2,9"
EQUAL = "packed_attention fp16 tokens=15 longest=5 sequences=3 h=2 d=16 lengths=5x3"

if torch is not None:
    import torch.nn.functional as F

    from peers.packed_attention import torch_peers


def operands_of(text):
    torch.manual_seed(1)
    problem = PACKED.problem({"problem": text})
    return problem, PACKED.operands(problem, "cpu")


@needs_library
class ProblemsTest(unittest.TestCase):
    def test_all_12_of_the_shipped_file_are_taken_with_their_groups_and_floors(self):
        roster, found = collect(roster_of, [], [PACKED.shipped])
        self.assertIs(roster, PACKED)
        self.assertEqual(len({one.name for one in found}), 12)
        written = [entry["problem"] for entry in json.loads(roster.shipped.read_text())["problems"]]
        self.assertEqual([one.text for one in found], written)
        for one in found:
            heads, d, lengths = one.number("h"), one.number("d"), one.lengths
            operations = 4 * heads * d * sum(n * n for n in lengths)
            moved = 8 * heads * d * sum(lengths) + 4 * (len(lengths) + 1)
            self.assertAlmostEqual(one.floor_us, 1e6 * max(operations / 790e12, moved / 4.3e12), delta=0.006, msg=one.name)
            self.assertEqual(one.group, "equal" if len(set(lengths)) == 1 else "mixed", one.name)

    def test_lengths_are_those_of_the_text(self):
        problem = PACKED.problem({"problem": MIXED})
        self.assertEqual((problem.lengths, problem.dtype), ([7, 0, 0, 9], "bfloat16"))

    def test_what_not_all_peers_have_a_form_of_is_refused_with_the_word(self):
        for text, sentence in ((MIXED + " causal", "'causal' is not compared here"),
                               ("packed_attention bf16 tokens=8 longest=8 sequences=1 h=1 d=8", "say lengths="),
                               ("packed_attention bf16 tokens=8 h=1 d=8", "longest=")):
            with self.subTest(text), self.assertRaisesRegex(BadProblem, sentence):
                PACKED.problem({"problem": text})


@needs_library
@needs_torch
class PeersTest(unittest.TestCase):
    def by_math(self):
        """PyTorch's own formula in the place of cuDNN, which is not here."""
        return mock.patch.object(torch_peers, "sdpa_kernel", lambda backends: mock.MagicMock())

    def test_the_reference_is_attention_of_each_sequence(self):
        problem, t = operands_of(MIXED)
        parts = [F.scaled_dot_product_attention(*(one.double() for one in three))[0].transpose(0, 1) for three in t.each()]
        errors = PACKED.reference(problem, t).errors(torch.cat(parts))
        self.assertLess(errors["out"].max, 1e-12)
        self.assertEqual(PACKED.output_bytes(problem, t), [16 * 2 * 8 * 2])

    def test_each_form_gives_the_same_rows(self):
        for text in (MIXED, EQUAL):
            problem, t = operands_of(text)
            reference = PACKED.reference(problem, t)
            for peer in (torch_peers.CudnnBatch(), torch_peers.CudnnPadded(), torch_peers.CudnnEach()):
                if peer.name == "cudnn_batch" and text == MIXED:
                    continue
                with self.subTest(peer.name, text=text), self.by_math():
                    self.assertLess(reference.errors(peer.prepare(problem, t).run())["out"].max, 0.02)

    def test_a_neighbours_token_is_an_error(self):
        problem, t = operands_of(MIXED)
        reference = PACKED.reference(problem, t)
        t.lengths = [8, 0, 0, 8]
        with self.by_math():
            self.assertGreater(reference.errors(torch_peers.CudnnEach().prepare(problem, t).run())["out"].max, 0.1)

    def test_lengths_that_differ_are_no_batch(self):
        problem, t = operands_of(MIXED)
        with self.assertRaisesRegex(Refused, "lengths differ"):
            torch_peers.CudnnBatch().prepare(problem, t)

    def test_packages_that_are_not_here_are_absent_and_get_the_packed_tensors_where_they_are(self):
        problem, t = operands_of(EQUAL)
        for peer, module, name in ((torch_peers.VarlenAttn(), "torch.nn.attention.varlen", "varlen_attn"),
                                   (torch_peers.Flash4(), "flash_attn.cute", "flash_attn_varlen_func")):
            with self.subTest(peer.name):
                with mock.patch.dict(sys.modules, {module: None}), self.assertRaises(Absent):
                    peer.prepare(problem, t)
                calls = []

                def answer(*arguments, **keywords):
                    calls.append((arguments, keywords))
                    return arguments[0]
                fake = types.ModuleType(module)
                setattr(fake, name, answer)
                with mock.patch.dict(sys.modules, {module: fake}):
                    self.assertIs(peer.prepare(problem, t).run(), t.q)
                arguments, keywords = calls[-1]
                self.assertTrue(any(one is t.offsets for one in (*arguments, *keywords.values())))


if __name__ == "__main__":
    unittest.main()
