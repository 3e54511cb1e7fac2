# tests/mutants/test_mutants.py -- The named lines are still there, and the draw does as it says; nothing is built.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import itertools
import pathlib
import sys
import tempfile
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
            ("moved bound", "  return a > 0 && f(a) ? a : 0;"): [],
            ("moved bound", "  return a > 0 ? b : 0;"): ["  return a >= 0 ? b : 0;"],
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
        for text in ("#if A < 2", "static_assert(a < 3);", '  throw Error(formatted("{}", a < 3 && b));', "    {64, 32, 1},",
                     "constexpr milliseconds kSlice{20};", "  wait(std::chrono::seconds(3));"):
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


    def test_a_change_of_one_file_leaves_the_draws_from_the_others(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for number in range(12):
                path = root / draw.FOLDERS[number % len(draw.FOLDERS)] / f"file{number}.cpp"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"if (a < {number}) return b && c;\n")
            before = list(itertools.islice(draw.drawn(root, 5), 20))
            (root / "core/file0.cpp").write_text("x = 1;\n")
            after = list(itertools.islice(draw.drawn(root, 5), 20))
        others = [mutant for mutant in before if mutant.file != "core/file0.cpp"]
        self.assertLess(len(others), len(before))
        kept = [mutant for mutant in after if mutant.file != "core/file0.cpp"]
        self.assertEqual(kept[:len(others)], others[:len(kept)])


class RunTest(unittest.TestCase):
    def test_the_nearest_tests_come_first_and_run_once(self):
        with tempfile.TemporaryDirectory() as name:
            tests = pathlib.Path(name) / "tests"
            reading = '#include "generator/sieve.h"\n'
            for path, text in {"generator/sieve_test.cpp": "TEST(Sieve, A) {}\nTEST(SieveGpuTest, B) {}",
                               "generator/far_test.cpp": "TEST(Far, A) {}",
                               "tuner/reader_test.cpp": reading + "TEST_F(Reader, A) {}",
                               "tuner/reader_gpu_test.cpp": reading + "TEST_F(ReaderGpuTest, A) {}"}.items():
                (tests / path).parent.mkdir(parents=True, exist_ok=True)
                (tests / path).write_text(text)
            checks = run.checks_of("generator/sieve.cpp", tests.parent)
        self.assertEqual([(check.target, check.filter.split("-")[0], check.emulated) for check in checks[:4]],
                         [("vitune_generator_test", "*Sieve.*", False), ("vitune_tuner_test", "*Reader.*", False),
                          ("vitune_tuner_test", "*ReaderGpuTest.*", True), ("vitune_generator_test", "*", False)])
        self.assertTrue(checks[3].filter.endswith(":*Sieve.*"))
        self.assertTrue(checks[-1].emulated)

    def test_an_operators_kernels_run_on_the_emulated_device_before_the_others(self):
        emulated = [check.filter for check in run.checks_of("generator/linear/sm90.cpp", run.ROOT) if check.emulated]
        self.assertEqual(emulated[0], run.EMULATED_KERNELS["linear"])
        self.assertEqual(len(emulated), 3)

    def test_who_failed_is_read_from_what_the_program_said(self):
        begun = "[ RUN      ] A/Suite.Works/7\n[       OK ] A/Suite.Works/7 (3 ms)\n[ RUN      ] Suite.Dies\n"
        for said, wanted in {begun: "Suite.Dies", begun + "[  FAILED  ] Suite.Fails (1 ms)\n[ RUN      ] Suite.Last": "Suite.Fails",
                             "error while loading": "*"}.items():
            with self.subTest(said):
                self.assertEqual(run.failed_test(said), wanted)


class VerdictTest(unittest.TestCase):
    def test_two_of_forty_may_live_and_no_line_of_safety(self):
        plain, safety = Mutant("a", "f", "x", "y"), Mutant("b", "f", "x", "z", safety=True)

        def verdict(alive, killed):
            with contextlib.redirect_stdout(io.StringIO()):
                return run.verdict_on([(mutant, run.Verdict("lives")) for mutant in alive] +
                                      [(plain, run.Verdict("killed", "A.Test"))] * killed)
        self.assertEqual(verdict([plain] * 2, 38), 0)
        self.assertEqual(verdict([plain] * 3, 37), 1)
        self.assertEqual(verdict([safety], 39), 1)


if __name__ == "__main__":
    unittest.main()
