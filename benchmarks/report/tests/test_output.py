# benchmarks/report/tests/test_output.py -- Files that the user named: replaced whole, as links, pipes and permissions ask.
# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import stat
import tempfile
import threading
import unittest
from unittest import mock

from report import output


class Output(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.page = self.folder / "page.html"

    def test_a_new_file_is_as_the_mask_says(self):
        output.write(self.page, "new")
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual((self.page.read_text(), stat.S_IMODE(self.page.stat().st_mode)), ("new", 0o666 & ~mask))

    def test_an_older_ones_permissions_are_kept(self):
        self.page.write_text("older")
        self.page.chmod(0o640)
        output.write(self.page, "new")
        self.assertEqual((self.page.read_text(), stat.S_IMODE(self.page.stat().st_mode)), ("new", 0o640))

    def test_links_are_followed_and_stay(self):
        link, into_nothing = self.folder / "link", self.folder / "into_nothing"
        link.symlink_to(self.page.name)
        self.page.write_text("older")
        output.write(link, "new")
        into_nothing.symlink_to("later.html")
        output.write(into_nothing, "late")
        self.assertTrue(link.is_symlink() and into_nothing.is_symlink())
        self.assertEqual((self.page.read_text(), (self.folder / "later.html").read_text()), ("new", "late"))

    def test_a_pipe_is_written_into(self):
        pipe, read = self.folder / "pipe", []
        os.mkfifo(pipe)
        reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
        reader.start()
        output.write(pipe, "through")
        reader.join(60)
        self.assertEqual(read, ["through"])
        self.assertTrue(stat.S_ISFIFO(pipe.stat().st_mode))

    def test_a_descriptor_that_has_no_name_is_written_into(self):
        with tempfile.TemporaryFile("w+") as file:
            output.write(pathlib.Path(f"/proc/self/fd/{file.fileno()}"), "nameless")
            self.assertEqual(file.read(), "nameless")

    def test_a_failure_leaves_the_older_file_alone(self):
        self.page.write_text("older")
        with mock.patch.object(os, "replace", side_effect=OSError(28, "No space left on device")):
            with self.assertRaises(OSError):
                output.write(self.page, "new")
        self.assertEqual(self.page.read_text(), "older")
        self.assertEqual(os.listdir(self.folder), ["page.html"])


if __name__ == "__main__":
    unittest.main()
