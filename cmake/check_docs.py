#!/usr/bin/env python3
# cmake/check_docs.py -- Checks the documents: every page is in the site's list, every relative link resolves, README is short, the table of devices is true.
#
# Usage: check_docs.py [--root DIR] [--self-test]. Prints one line per violation and exits 1 if there is any. Only
# the standard library is used, so that it runs where mkdocs is not.
# SPDX-License-Identifier: Apache-2.0
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import shipped_devices

NAV = re.compile(r"^\s+- (?:[^:#\n]+: )?([\w./-]+\.md)\s*$", re.M)
FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.M)
FOREIGN = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)")
# Beside docs/, these are pages of the site (cmake/docs_site.py).
NOTES, INDEX = "lab/", "index.md"
# README's prose: words at most, and figures (numbers with a point) in one paragraph that no program writes.
MOST_WORDS, MOST_FIGURES = 900, 3
GENERATED = re.compile(r"<!-- (\w+):begin.*?<!-- \1:end -->", re.S)
FIGURE = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\.)")
AT_ROOT = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "THIRD_PARTY_NOTICES.md")


def documents(root):
    """Markdown files that git knows or would take; all of them where there is no repository."""
    if not (root / ".git").exists():
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.md"))
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    return sorted({name for name in names if name and (root / name).is_file()})


def without_code(text):
    """The text with its code blanked out, line by line, so that no link is seen in it."""
    text = FENCE.sub(lambda found: "\n" * found.group(0).count("\n"), text)
    lines, previous_blank, in_block = [], True, False
    for line in text.split("\n"):
        in_block = line.startswith("    ") and (previous_blank or in_block)
        previous_blank = not line.strip()
        lines.append("" if in_block else CODE.sub("`", line))
    return "\n".join(lines)


def anchors(text):
    """What a link may put behind '#': the headings' names, as GitHub and mkdocs make them."""
    names = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        names.add(re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-"))
    return names


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_links(root, name):
    text = (root / name).read_text(encoding="utf-8")
    plain = without_code(text)
    for match in LINK.finditer(plain):
        link = match.group(1)
        if FOREIGN.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (root / name).parent / path if path else root / name
        where = f"{name}:{line_of(plain, match.start())}"
        if not target.exists():
            yield f"{where}: the link '{link}' leads to nothing"
        elif root.resolve() not in [target.resolve(), *target.resolve().parents]:
            yield f"{where}: the link '{link}' leaves this tree"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield f"{where}: {target.name} has no heading for '#{anchor}'"


def check_notes(root, pages):
    """Notes of the laboratory are one entry of the site's list: their index lists them."""
    index = root / "docs" / NOTES / INDEX
    text = index.read_text(encoding="utf-8") if index.is_file() else ""
    yield from (f"docs/{NOTES}{INDEX}: '{page}' is not in the table" for page in pages if f"]({page[len(NOTES):]})" not in text)


def check_nav(root, names):
    listed = NAV.findall((root / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [name[len("docs/"):] for name in names if name.startswith("docs/")]
    pages += [name for name in AT_ROOT if (root / name).is_file()]
    yield from check_notes(root, [page for page in pages if page.startswith(NOTES) and page != NOTES + INDEX])
    pages = [page for page in pages if not page.startswith(NOTES) or page == NOTES + INDEX]
    yield from (f"mkdocs.yml: '{page}' is not in the list of pages" for page in pages if page not in listed)
    yield from (f"mkdocs.yml: there is no '{page}'" for page in dict.fromkeys(listed) if page not in pages)
    yield from (f"mkdocs.yml: '{page}' is listed twice" for page in sorted({p for p in listed if listed.count(p) > 1}))


def prose(text):
    """Line by line, without code, tables and the targets of links."""
    lines = (re.sub(r"\]\([^)]*\)|<!--.*?-->", "]", line) for line in without_code(text).split("\n"))
    return ["" if line.lstrip().startswith("|") else line for line in lines]


def check_readme(root):
    """A newcomer reads it in a few minutes, and figures stand in its tables."""
    text = (root / "README.md").read_text(encoding="utf-8")
    words = sum(len(line.split()) for line in prose(text))
    if words > MOST_WORDS:
        yield f"README.md: {words} words of prose, more than {MOST_WORDS}"
    written = GENERATED.sub(lambda found: "\n" * found.group(0).count("\n"), text)
    begin, figures = 1, 0
    for number, line in enumerate([*prose(written), ""], 1):
        if not line.strip() or line.startswith("- "):
            if figures > MOST_FIGURES:
                yield f"README.md:{begin}: {figures} figures in one paragraph, more than {MOST_FIGURES}: a table tells them better"
            begin, figures = number if line.strip() else number + 1, 0
        figures += len(FIGURE.findall(line))


def check_tree(root):
    names = documents(root)
    problems = [*check_nav(root, names), *check_readme(root)]
    for name in names:
        problems.extend(check_links(root, name))
    problems.extend(shipped_devices.problems(root))
    return problems


def self_test():
    """Plants one violation of each kind, and documents that must pass."""
    files = {
        "mkdocs.yml": "nav:\n  - Start: README.md\n  - One: one.md\n  - More:\n      - two.md\n      - Gone: gone.md\n"
                      "      - Again: two.md\n      - Notes: lab/index.md\n",
        "README.md": "# A start\n[one](docs/one.md#a-part-of-it) [code](core/a.cpp) [out](https://example.org/x.md)\n\n| 1.1 1.2 | 1.3 1.4 |\n\n"
                     "- from 8.0 on 1.5 and 1.6\n- and 1.7 to 1.8\n\nIt takes 1.1, 1.2, 1.3\nor 1.4 ms, by vitune 0.1.0.\n\n" + "word " * 900,
        "docs/one.md": "# One\n\n## A part of `it`\n\n`[no](link.md)`\n\n    [no](link.md)\n\n```\n[no](link.md)\n```\n",
        "docs/two.md": "[back](one.md#no-such-part)\n\n[lost](three.md)\n\n[here](#nowhere)\n",
        "docs/lab/index.md": "| [known](known.md) |\n",
        "docs/lab/known.md": "# Known\n",
        "docs/lab/unknown.md": "# Unknown\n",
        "docs/unlisted.md": "[out](../../outside.md)\n",
        "core/a.cpp": "",
    }
    wanted = [
        "mkdocs.yml: 'unlisted.md' is not in the list of pages",
        "mkdocs.yml: there is no 'gone.md'",
        "docs/lab/index.md: 'lab/unknown.md' is not in the table",
        "mkdocs.yml: 'two.md' is listed twice",
        "README.md: 929 words of prose, more than 900",
        "README.md:9: 4 figures in one paragraph, more than 3: a table tells them better",
        "docs/two.md:1: one.md has no heading for '#no-such-part'",
        "docs/two.md:3: the link 'three.md' leads to nothing",
        "docs/two.md:5: two.md has no heading for '#nowhere'",
        "docs/unlisted.md:1: the link '../../outside.md' leaves this tree",
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "tree"
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (pathlib.Path(folder) / "outside.md").write_text("# Outside\n")
        found = check_tree(root)
    return [f"not found: {one}" for one in wanted if one not in found] + \
           [f"blamed: {one}" for one in found if one not in wanted] + shipped_devices.self_test()


def main():
    parser = argparse.ArgumentParser(description="Checks the links and the site's list of the documents.")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true", help="check the checker on planted files")
    arguments = parser.parse_args()
    problems = self_test() if arguments.self_test else check_tree(arguments.root)
    for problem in problems:
        print(problem)
    if not problems:
        print("documents: self-test passed" if arguments.self_test else "documents: no violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
