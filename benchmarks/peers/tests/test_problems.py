# benchmarks/peers/tests/test_problems.py -- Problems from the shipped file, texts and other files; whose they are.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import tempfile
import unittest

from .support import needs_library

from peers.engine import precompile, problems
from peers.engine.peer import OURS
from peers.engine.problems import BadProblem
from peers.rosters import ROSTERS, roster_of

ATTENTION, NORMS, LINEARS, WEIGHT_GRADS, PACKED, BACKWARD, MAPS, NORM_BACKWARD = ROSTERS


def of(text, **more):
    return ATTENTION.problem({"problem": text, **more})


def collect(texts=(), files=(), only=None):
    return problems.collect(roster_of, texts, files, only)[1]


@needs_library
class RosterTest(unittest.TestCase):
    def test_the_first_word_tells_the_operator_and_attentions_may_lack_it(self):
        for text, roster in (
            ("bf16 b=2 h=3 n=49 d=32", ATTENTION),
            ("attention bf16 b=2 h=3 n=49 d=32", ATTENTION),
            ("  norm bf16 m=4 d=8 weight bias", NORMS),
            ("group_norm bf16 n=1 c=8 l=4 g=2 weight bias", NORMS),
            ("linear bf16 m=4 n=8 k=8", LINEARS),
            ("linear_weight_grad bf16 m=4 n=8 k=8", WEIGHT_GRADS),
            ("packed_attention bf16 h=3 d=32 lengths=4,5", PACKED),
            ("attention_backward bf16 b=2 h=3 n=49 d=32", BACKWARD),
            ("map n=4 a=bf16 x=a out=bf16", MAPS),
            ("norm_backward bf16 m=4 d=8 weight bias residual", NORM_BACKWARD),
            ("", ATTENTION),
            ("normal", ATTENTION),
        ):
            with self.subTest(text):
                self.assertIs(roster_of(text), roster)

    def test_what_a_roster_says_of_its_peers_is_consistent(self):
        for roster in ROSTERS:
            with self.subTest(roster.name):
                ours = [name for name in OURS if name in roster.names]
                self.assertEqual(list(roster.names[: len(ours)]), ours)
                self.assertEqual(ours[0], "vitune")
                self.assertIn("vitune_default", ours)
                self.assertLessEqual(set(roster.ways), set(ours))
                names = set(roster.names)
                self.assertEqual(len(names), len(roster.names))
                firsts = roster.first_calls.peers if roster.first_calls else ()
                for some in (roster.usual, roster.compiled, roster.unfused, roster.labels, firsts):
                    self.assertLessEqual(set(some), names)
                self.assertTrue(roster.shipped.is_file())
                self.assertTrue(all(roster_of(f"{word} x") is roster for word in roster.words))

    def test_problems_of_two_rosters_are_refused_with_what_to_do(self):
        mixed = [
            "bf16 b=2 h=3 n=49 d=32",
            "norm bf16 m=4 d=8 weight bias",
            "linear bf16 m=4 n=8 k=8",
            "linear_weight_grad bf16 m=4 n=8 k=8",
            "attention_backward bf16 b=2 h=3 n=49 d=32",
            "packed_attention bf16 h=3 d=32 lengths=4,5",
            "map n=4 a=bf16 x=a out=bf16",
            "norm_backward bf16 m=4 d=8 weight bias residual",
        ]
        with self.assertRaises(BadProblem) as refused:
            collect(mixed)
        for words in (
            "attention (1) and norms (1) and linear (1) and linear_weight_grad (1) and attention_backward (1)",
            *("'^(attention) '", "'^(norm|group_norm) '", "'^(linear) '", "'^(linear_weight_grad) '"),
            "'^(attention_backward) '",
        ):
            self.assertIn(words, str(refused.exception))
        for roster in ROSTERS:
            only = f"^({'|'.join(roster.words)}) "
            found, chosen = problems.collect(roster_of, mixed, (), only)
            self.assertEqual((found, len(chosen)), (roster, 1))


@needs_library
class ProblemsTest(unittest.TestCase):
    def files(self, **texts):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        paths = [pathlib.Path(folder.name) / name.replace("_", ".") for name in texts]
        for path, text in zip(paths, texts.values()):
            path.write_text(text)
        return paths

    def test_all_forty_are_taken_by_default_with_names_groups_and_floors(self):
        found = collect()
        self.assertEqual(len(found), 40)
        self.assertEqual({problem.group for problem in found}, {"vit", "bias", "long"})
        self.assertTrue(all(problem.floor_us > 0 for problem in found))
        self.assertEqual(found[0].name, "ViT-B/16@224 b1")

    def test_a_text_is_made_canonical_by_the_library(self):
        problem = of("bf16 b=2 h=3 n=49 d=32")
        self.assertEqual(problem.text, "attention bf16 b=2 h=3 nq=49 nk=49 d=32 layout=packed")
        self.assertEqual(
            (problem.name, problem.group, problem.floor_us), (problem.text, "given", None)
        )
        self.assertAlmostEqual(problem.scale, 32**-0.5)
        self.assertEqual(of("fp16 b=1 h=8 hkv=2 n=5 d=8 scale=0.25").kv_heads, 2)

    def test_an_object_round_trips(self):
        problem = of("bf16 b=2 h=3 n=49 d=32", name="mine", group="g", floor_us=1.5)
        self.assertEqual(ATTENTION.problem(problem.as_json()), problem)

    def test_files_of_lines_and_documents_are_read_and_equal_texts_are_one_problem(self):
        paths = self.files(
            a_txt="# none\n\nbf16 b=1 h=12 n=197 d=64\n",
            b_jsonl='{"name": "mine", "problem": "fp16 b=2 h=3 n=49 d=32"}\n'
            "bf16 b=1 h=12 nq=197 nk=197 d=64\n",
            c_json=json.dumps(
                {"schema": 1, "problems": [{"problem": "bf16 b=3 h=3 n=49 d=32", "group": "x"}]}
            ),
        )
        found = collect(["bf16 b=9 h=1 n=5 d=8"], paths)
        self.assertEqual([problem.desc.batch for problem in found], [9, 1, 2, 3])
        self.assertEqual([problem.name for problem in found][2], "mine")

    def test_only_looks_at_names_groups_and_texts(self):
        self.assertEqual({problem.group for problem in collect(only="^bias$")}, {"bias"})
        self.assertEqual([problem.name for problem in collect(only="CCT-7")], ["CCT-7@32 b128"])
        self.assertEqual(len(collect(only=" causal$")), 3)

    def test_mistakes_are_named(self):
        bad_json, bad_line, bad_entry, empty = self.files(
            d_json='{"problems": []}', e_jsonl="{", f_json='{"schema": 1, "problems": [7]}', g_txt="#\n"
        )
        cases = {
            "bf16 b=2 h=3 n=49 d=31": "31",
            "nonsense": "nonsense",
            "bf16 b=2 h=3 n=49 d=32 lse": "lse",
            "convolution bf16 n=1 c=8 k=8": "convolution",
        }
        for text, word in cases.items():
            with self.subTest(text), self.assertRaisesRegex(BadProblem, word):
                collect([text])
        for path in (bad_json, bad_line, empty.with_name("absent.json"), empty):
            with self.subTest(path), self.assertRaisesRegex(BadProblem, path.name):
                collect([], [path])
        with self.assertRaisesRegex(BadProblem, "without a text 'problem': 7"):
            collect([], [bad_entry])
        for only in ("zebra", "zebra("):
            with self.subTest(only), self.assertRaisesRegex(BadProblem, "zebra"):
                collect(only=only)

    def test_compiles_that_share_kernels_are_in_one_group_and_nothing_is_lost(self):
        chosen = collect()
        work = precompile.groups(ATTENTION, chosen, ["triton", "flex"])
        tasks = [(task["peer"], task["problem"]["problem"]) for group in work for task in group]
        self.assertEqual(
            sorted(tasks), sorted((peer, p.text) for peer in ("triton", "flex") for p in chosen)
        )
        self.assertTrue(all(len({task["peer"] for task in group}) == 1 for group in work))
        self.assertLess(len(work), 40 + 25)
        self.assertTrue(all(len(group) == 1 for group in work if group[0]["peer"] == "flex"))
