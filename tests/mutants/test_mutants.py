# tests/mutants/test_mutants.py -- The named lines are still there, and the draw does as it says; nothing is built.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import itertools
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import draw  # noqa: E402
import run  # noqa: E402
from mutant import Mutant  # noqa: E402
from named import NAMED  # noqa: E402


class NamedTest(unittest.TestCase):
    def test_each_line_is_there_once_and_is_changed(self):
        for mutant in NAMED:
            with self.subTest(mutant.name):
                text = (run.ROOT / mutant.file).read_text(encoding="utf-8")
                self.assertNotEqual(mutant.changed(text), text)
                self.assertTrue(mutant.checks)

    def test_names_and_changes_are_unlike_each_other(self):
        self.assertEqual(len({mutant.name for mutant in NAMED}), len(NAMED))
        self.assertEqual(len({run.key_of(mutant) for mutant in NAMED}), len(NAMED))

    def test_a_text_that_is_gone_or_there_twice_is_said(self):
        mutant = Mutant("a name", "core/a.cpp", "old", "new")
        for text in ("", "old old"):
            with self.subTest(text), self.assertRaisesRegex(ValueError, "core/a.cpp .*'a name'"):
                mutant.changed(text)
        self.assertEqual(mutant.changed("an old one"), "an new one")


class DrawTest(unittest.TestCase):
    def changes(self, operator, text):
        return [new for _, _, new in draw.places(text, operator)]

    def test_each_operator_makes_its_changes_and_no_other(self):
        cases = {
            ("negated condition", "  if (a && f(b)) {"): ["  if (!(a && f(b))) {"],
            ("negated condition", "  if (const int a = f()) {"): [],
            ("moved bound", "  if (a < b && c >= d) f<int>(x << 2);"):
                ["  if (a <= b && c >= d) f<int>(x << 2);", "  if (a < b && c > d) f<int>(x << 2);"],
            ("dropped guard", "  if (a) return b;"): [""],
            ("dropped guard", "  if (a) f();"): [],
            ("number plus one", '  x = y0 + 7 * f("3") + 1.5 + 0x10;  // 9'): ['  x = y0 + 8 * f("3") + 1.5 + 0x10;  // 9'],
            ("other connective", '  return a && g("x && y") || c;'):
                ['  return a || g("x && y") || c;', '  return a && g("x && y") && c;'],
        }
        for (operator, text), wanted in cases.items():
            with self.subTest(operator=operator, text=text):
                self.assertEqual(self.changes(operator, text), wanted)

    def test_lines_that_only_declare_or_speak_and_rows_of_tables_are_left_alone(self):
        for text in ("#if A < 2", "static_assert(a < 3);", '  throw Error(formatted("{}", a < 3 && b));', "    {64, 32, 1},"):
            for operator in draw.OPERATORS:
                with self.subTest(operator=operator, text=text):
                    self.assertEqual(self.changes(operator, text), [])

    def test_a_seed_draws_the_same_mutants_again_and_another_seed_draws_others(self):
        def of(seed):
            return list(itertools.islice(draw.drawn(run.ROOT, seed), 12))
        self.assertEqual(of(3), of(3))
        self.assertNotEqual(of(3), of(4))
        for mutant in of(3):
            text = (run.ROOT / mutant.file).read_text(encoding="utf-8")
            self.assertNotEqual(mutant.changed(text), text)
            self.assertTrue(run.checks_of(mutant.file, run.ROOT))


class VerdictTest(unittest.TestCase):
    def test_two_of_forty_may_live_and_no_line_of_safety(self):
        plain, safety = Mutant("a", "f", "x", "y"), Mutant("b", "f", "x", "z", safety=True)

        def verdict(alive, killed):
            with contextlib.redirect_stdout(io.StringIO()):
                return run.verdict_on([(mutant, "lives") for mutant in alive] + [(plain, "killed")] * killed)
        self.assertEqual(verdict([plain] * 2, 38), 0)
        self.assertEqual(verdict([plain] * 3, 37), 1)
        self.assertEqual(verdict([safety], 39), 1)


if __name__ == "__main__":
    unittest.main()
