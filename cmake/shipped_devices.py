#!/usr/bin/env python3
# cmake/shipped_devices.py -- The table of GPUs with shipped winners, made from the databases that are shipped.
#
# Usage: shipped_devices.py [--root DIR] [--check | --self-test]. Writes the table between the marks of README.md and
# docs/fleet.md; with --check it writes nothing, names each file whose table is another and exits 1. check_docs.py
# checks the same. Reads data/*.db, databases and packs alike.
# SPDX-License-Identifier: Apache-2.0
import argparse
import pathlib
import sqlite3
import sys
import tempfile

PAGES = ("README.md", "docs/fleet.md")
BEGIN, END = "<!-- devices:begin (cmake/shipped_devices.py) -->", "<!-- devices:end -->"
HEAD = "| GPU | winners shipped | tuned | CUDA driver | compiler |\n|--|--|--|--|--|\n"
COLUMNS = "device.key, device.name, cc_major, cc_minor, sm_count, operator, winner.driver_version, compiler_version, tuned_at"
QUERY = f"SELECT {COLUMNS} FROM winner JOIN device USING (device_id) JOIN problem USING (problem_id) WHERE verified = 1"


class Device:
    """What is shipped for one kind of GPU."""

    def __init__(self, name, major, minor, multiprocessors):
        self.title = f"{name} (sm_{major}{minor}, {multiprocessors} SMs)"
        self.winners, self.days, self.drivers, self.compilers = {}, set(), set(), set()

    def add(self, operator, driver, compiler, tuned):
        self.winners[operator] = self.winners.get(operator, 0) + 1
        self.days.add(tuned[:10])
        self.drivers.add(f"{driver // 1000}.{driver % 1000 // 10}")
        # "nvrtc 13.0 e65868e6f307": its digest is for programs.
        self.compilers.add(" ".join(compiler.split()[:2]))

    def row(self):
        counts = ", ".join(f"`{operator}` {count}" for operator, count in sorted(self.winners.items()))
        days = sorted({min(self.days), max(self.days)})
        cells = (self.title, counts, " to ".join(days), ", ".join(sorted(self.drivers)), ", ".join(sorted(self.compilers)))
        return "| " + " | ".join(cells) + " |\n"


def devices(root):
    """The devices of all shipped databases, in the order of their names."""
    found = {}
    for path in sorted((root / "data").glob("*.db")):
        connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        try:
            for key, name, major, minor, multiprocessors, *winner in connection.execute(QUERY):
                found.setdefault(key, Device(name, major, minor, multiprocessors)).add(*winner)
        finally:
            connection.close()
    return sorted(found.values(), key=lambda device: device.title)


def table(root):
    return HEAD + "".join(device.row() for device in devices(root))


def with_table(text, rows):
    """The page with the table between its marks; None if it has no marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rows}{END}{after}" if begin and end else None


def problems(root):
    """One line for each page whose table is not what the shipped databases say."""
    if not list((root / "data").glob("*.db")):
        return
    if sqlite3.sqlite_version_info < (3, 37):
        print("documents: the table of devices is not checked: Python's SQLite is older than 3.37", file=sys.stderr)
        return
    rows = table(root)
    for page in PAGES:
        text = (root / page).read_text(encoding="utf-8")
        wanted = with_table(text, rows)
        if wanted is None:
            yield f"{page}: the marks of the table of devices are missing"
        elif wanted != text:
            yield f"{page}: the table of devices is not what data/*.db holds; run cmake/shipped_devices.py"


def write(root):
    rows = table(root)
    for page in PAGES:
        path = root / page
        wanted = with_table(path.read_text(encoding="utf-8"), rows)
        if wanted is None:
            sys.exit(f"{page}: the marks of the table of devices are missing")
        path.write_text(wanted, encoding="utf-8")


def self_test():
    """A tree of two databases: a table that drifts is noticed, and writing it mends it."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in ("data", "docs"):
            (root / name).mkdir()
        for page in PAGES:
            (root / page).write_text(f"# A page\n\n{BEGIN}\n{END}\n\nMore.\n")
        for number, name in enumerate(("GPU B", "GPU A")):
            connection = sqlite3.connect(root / "data" / f"{number}.db")
            connection.executescript(f"""
                CREATE TABLE device (device_id, key, name, cc_major, cc_minor, sm_count);
                CREATE TABLE problem (problem_id, operator);
                CREATE TABLE winner (device_id, problem_id, driver_version, compiler_version, tuned_at, verified);
                INSERT INTO device VALUES (1, '{name}', '{name}', 9, 0, 132);
                INSERT INTO problem VALUES (1, 'attention'), (2, 'norm');
                INSERT INTO winner VALUES (1, 1, 13000, 'nvrtc 13.0 abc', '2026-11-23T10:00:00Z', 1),
                    (1, 2, 12080, 'nvrtc 13.0 abc', '2026-11-22T10:00:00Z', 1), (1, 2, 13000, 'x', '2026-11-25T10:00:00Z', 0);
            """)
            connection.close()
        if len(list(problems(root))) != len(PAGES):
            faults.append("an empty table was not noticed")
        write(root)
        faults += [f"written, and still: {one}" for one in problems(root)]
        row = "| GPU A (sm_90, 132 SMs) | `attention` 1, `norm` 1 | 2026-11-22 to 2026-11-23 | 12.8, 13.0 | nvrtc 13.0 |\n| GPU B"
        if row not in (root / PAGES[0]).read_text():
            faults.append("the rows are not those of the databases: " + (root / PAGES[0]).read_text())
        (root / PAGES[1]).write_text("# No marks\n")
        if not any("marks" in one for one in problems(root)):
            faults.append("missing marks were not noticed")
    return faults


def main():
    parser = argparse.ArgumentParser(description="Writes the table of GPUs with shipped winners.")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="only say whether the pages are as they should be")
    choice.add_argument("--self-test", action="store_true", help="check the checker on a planted tree")
    arguments = parser.parse_args()
    if not arguments.check and not arguments.self_test:
        write(arguments.root)
        return 0
    found = self_test() if arguments.self_test else list(problems(arguments.root))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
