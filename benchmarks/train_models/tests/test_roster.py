# benchmarks/train_models/tests/test_roster.py -- Rows by name, in the order of their weight.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import unittest

from . import support  # noqa: F401: sets the path

from models.program import share_of
from train_models import cli
from train_models.roster import LOSSES, TASKS, Task, tasks_of


class RosterTest(unittest.TestCase):
    def test_no_row_is_listed_twice_and_the_leading_ones_come_first(self):
        names = list(map(str, [*TASKS, *LOSSES]))
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(set(names[:5]), {"vit_base_patch16_224 b64 amp", "swin_tiny_patch4_window7_224 b128 amp",
                                          "deit3_small_patch16_224 b128 amp", "beit_base_patch16_224 b64 amp",
                                          "vit_large_patch14_reg4_dinov2 b8 amp"})  # fmt: skip
        for model in ("cct_14_7x2_384", "cct_14_7x2_384_plain"):
            self.assertLessEqual({f"{model} b8 amp", f"{model} b64 amp"}, set(names))
        for name in ("vit_base_patch16_224 b64 bf16", "vit_large_patch14_reg4_dinov2 b8 bf16"):
            self.assertIn(name, names)

    def test_three_rows_search_after_all_others(self):
        self.assertEqual([task.kind for task in TASKS], ["steps"] * 16 + ["searched"] * 3)
        for task in TASKS[16:]:
            self.assertIn(Task("steps", task.model, task.batch), TASKS)

    def test_four_processes_have_all_rows_once_and_about_the_same_to_do(self):
        shares = [share_of(TASKS, f"{number}/4") for number in range(4)]
        self.assertCountEqual([task for share in shares for task in share], TASKS)
        seconds = [sum(task.expected_seconds for task in share if not task.later) for share in shares]
        self.assertLess(max(seconds), 1.3 * min(seconds))
        self.assertLess(max(seconds), 520)  # as much as a call has
        self.assertEqual(sorted(sum(task.later for task in share) for share in shares), [0, 1, 1, 1])
        self.assertLessEqual(set(TASKS[:5]), {task for share in shares for task in share[:2]})  # the leading rows are soon begun

    def test_rows_by_hand(self):
        wanted = [Task("steps", "a", 2), Task("steps", "b", 8, "bf16"), Task("searched", "b", 8, "bf16"), Task("graph", "a", 2), Task("eager", "a", 2), Task("losses", "c", 4)]
        self.assertEqual(tasks_of("a:2,b:8:bf16,searched/b:8:bf16,graph/a:2,eager/a:2,losses/c:4"), wanted)
        for bad in ("", "a", "a:", "a:0", "a:x", "a:1:fp16", "a:1:amp:1", "plain/a:1", "losses/:1"):
            with self.assertRaises(ValueError, msg=bad):
                tasks_of(bad)

    def listed(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            status = cli.main(["--list", *words])
        return status, out.getvalue().splitlines()

    def test_losses_are_measured_where_they_are_asked_for(self):
        self.assertEqual(self.listed(), (0, list(map(str, TASKS))))
        self.assertEqual(self.listed("--losses")[1][-1], "losses cct_7_3x1_32")
        self.assertEqual(self.listed("--only=^vit_base.*bf16"), (0, ["vit_base_patch16_224 b64 bf16"]))
        self.assertEqual(self.listed("--only=nobody")[0], 2)
