# benchmarks/peers/tests/test_problems.py -- Problems from the shipped file, texts and other files.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import tempfile
import unittest

from .support import needs_library

from peers import precompile
from peers.problems import BadProblem, Problem, collect


def of(text, **more):
    return Problem.of({"problem": text, **more})


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
        problems = collect()
        self.assertEqual(len(problems), 40)
        self.assertEqual({problem.group for problem in problems}, {"vit", "bias", "long"})
        self.assertTrue(all(problem.floor_us > 0 for problem in problems))
        self.assertEqual(problems[0].name, "ViT-B/16@224 b1")

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
        self.assertEqual(Problem.of(problem.as_json()), problem)

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
        bad_json, bad_line = self.files(d_json='{"problems": []}', e_jsonl="{")
        cases = {
            "bf16 b=2 h=3 n=49 d=31": "31",
            "nonsense": "nonsense",
            "bf16 b=2 h=3 n=49 d=32 lse": "lse",
        }
        for text, word in cases.items():
            with self.subTest(text), self.assertRaisesRegex(BadProblem, word):
                collect([text])
        for path in (bad_json, bad_line, pathlib.Path("/nowhere.json")):
            with self.subTest(path), self.assertRaisesRegex(BadProblem, path.name):
                collect([], [path])
        with self.assertRaisesRegex(BadProblem, "zebra"):
            collect(only="zebra")

    def test_compiles_that_share_kernels_are_in_one_group_and_nothing_is_lost(self):
        problems = collect()
        work = precompile.groups(problems, ["triton", "flex"])
        tasks = [(task["peer"], task["problem"]["problem"]) for group in work for task in group]
        self.assertEqual(
            sorted(tasks), sorted((peer, p.text) for peer in ("triton", "flex") for p in problems)
        )
        self.assertTrue(all(len({task["peer"] for task in group}) == 1 for group in work))
        self.assertLess(len(work), 40 + 25)
        self.assertTrue(all(len(group) == 1 for group in work if group[0]["peer"] == "flex"))
