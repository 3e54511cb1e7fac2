#!/usr/bin/env python3
# cmake/check_architecture.py -- Checks the arrows between folders and the "only in" rules.
#
# Usage: check_architecture.py [--root DIR] [--self-test | --add-licence]. Prints one line per violation and exits 1
# if there is any; --add-licence writes the licence's line where it is missing. The rules are those of ARCHITECTURE.md; only the standard library is used.
# SPDX-License-Identifier: Apache-2.0
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import python_rooms

# Folder -> folders whose headers it may include (itself is always allowed).
ARROWS = {
    "include": set(),
    "core": {"include"},
    "db": {"core"},
    "generator": {"core"},
    "catalogue": {"generator", "core"},
    "model": {"generator", "core"},
    "tuner": {"generator", "db", "core"},
    "probe": {"tuner", "generator", "db", "core"},
    "runtime": {"model", "generator", "db", "core", "include"},
    "cli": {"probe", "tuner", "runtime", "catalogue", "model", "generator", "db", "core", "include"},
    "benchmarks": {"probe", "tuner", "runtime", "catalogue", "model", "generator", "db", "core", "include",
                   "tests"},
    "examples": {"include"},
    "examples/operator_": {"generator", "core"},  # an operator, as those in generator/ are
}
# Launch parameters are one struct for host and kernel: the only files of templates/ that host code reads.
SHARED_WITH_KERNELS = re.compile(r"templates/\w+/((\w+_)?params|geometry_\w+)\.cuh$")
MAY_SHARE = {"generator", "tuner", "probe"}

CODE = {".cpp", ".h", ".hpp", ".cuh", ".cu"}
NAMED = CODE | {".sql", ".cmake", ".py", ".sh"}
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 120  # a main loop is read from top to bottom
OF_OTHERS = "third_party/"  # headers that come along as they are
HOST = {"core", "db", "generator", "catalogue", "model", "tuner", "probe", "runtime", "cli"}


class Only:
    """A pattern that may occur in some files only; tests may plant it anywhere."""

    def __init__(self, what, pattern, allowed, suffixes=CODE, flags=0):
        self.what = what
        self.pattern = re.compile(pattern, flags)
        self.allowed = re.compile(allowed)
        self.suffixes = suffixes


ONLY_IN = [
    Only("inline assembly", r"\basm\b\s*(?:volatile|__volatile__)?\s*[({]", r"templates/primitives/"),
    Only("sqlite3_", r"\bsqlite3_\w+", r"db/sqlite(_open)?\.(cpp|h)$"),
    Only("an NVRTC call", r"\bnvrtc[A-Z]\w*", r"generator/(compiler\.cpp|nvrtc_api\.(h|cpp))$"),
    Only("a cuBLASLt call", r"\bcublasLt[A-Z]\w*\s*\(", r"generator/cublaslt(_api)?\.(cpp|h)$"),
    Only("getenv", r"\b(?:secure_)?getenv\s*\(|\benviron\b", r"core/env\.cpp$"),
    Only("fmt::format", r"\bfmt::v?format\b", r"core/format\.(cpp|h)$"),
    Only("CREATE TABLE", r"\bcreate\s+table\b", r"db/schema/[^/]+\.sql$", CODE | {".sql"}, re.I),
]
# Code that knows operators through generator/operator.h alone: none of their names is in it.
NEUTRAL = re.compile(r"((core|db|tuner)/.*|runtime/(?!api/).*|cli/.*|generator/(?!operators\.cpp)[^/]*)$")

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)
# Strings first, so that "//" inside one is no comment.
TOKEN = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.S)
SQL_COMMENT = re.compile(r"--[^\n]*")


def without_comments(path, text):
    if path.endswith(".sql"):
        return SQL_COMMENT.sub("", text)
    return TOKEN.sub(lambda m: m.group(1) or "\n" * m.group(0).count("\n"), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_includes(path, code):
    folder = "examples/operator_" if path.startswith("examples/operator_") else path.split("/", 1)[0]
    for match in INCLUDE.finditer(code):
        target, system = match.group(1), match.group(2)
        where = f"{path}:{line_of(code, match.start())}"
        if folder == "templates":
            # A template reaches nothing outside templates/: NVRTC is given no other file.
            if system or "/" not in target or ".." in target:
                yield f"{where}: a template includes '{system or target}', which is not below templates/"
            continue
        if system or folder not in ARROWS:
            continue
        if SHARED_WITH_KERNELS.match(target) and folder in MAY_SHARE:
            continue
        if folder == "examples" and "/" not in target:
            continue  # beside it: the installed examples build without this tree
        layer = "include" if target.startswith("vitune/") else target.split("/", 1)[0]
        if layer != folder and layer not in ARROWS[folder]:
            yield f"{where}: {folder} may not include '{target}' (allowed: {allowed_text(folder)})"


def allowed_text(folder):
    return ", ".join(sorted(ARROWS[folder] | {folder}))


def operators_of(root):
    """Names of the folders of generator/ that hold an operator."""
    return sorted(path.parent.name for path in root.glob("generator/*/operator.h"))


# A name that is a word of the language as well: what says that the operator is meant.
MEANT = {"map": r"\bgenerator/map/|\btemplates/map/|\bMap(?:Problem|Operand|Params|Reduction)\b|\bmap_(?:of|operator)\b|\"map[ \"]"}


def name_pattern(name):
    """The name as a part of identifiers and texts: in_snake_case, InCamelCase; "norm" is not in "normal"."""
    if name in MEANT:
        return MEANT[name]
    camel = "".join(part.capitalize() for part in name.split("_"))
    return rf"(?<![A-Za-z]){name}(?![a-z])|(?<![A-Z]){camel}(?![a-z])|(?<![A-Z_]){name.upper()}(?![A-Z])"


def check_only_in(path, code, operators):
    if path.startswith("tests/"):
        return
    for rule in ONLY_IN:
        if pathlib.PurePosixPath(path).suffix not in rule.suffixes or rule.allowed.match(path):
            continue
        for match in rule.pattern.finditer(code):
            yield f"{path}:{line_of(code, match.start())}: {rule.what} belongs to {rule.allowed.pattern}"
    if NEUTRAL.match(path) and operators:
        for match in re.finditer("|".join(map(name_pattern, operators)), code):
            yield f"{path}:{line_of(code, match.start())}: operator-neutral code says '{match.group(0)}'"


def check_shape(path, text):
    lines = text.splitlines()
    head = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
    mark = re.compile(r"(//|#|--) " + re.escape(path) + r" -- \S")
    if not head or not mark.match(head[0]):
        yield f"{path}:1: the first line does not name the file and what it is for"


LICENCE = "SPDX-License-Identifier: Apache-2.0"
# Templates have none yet; REUSE.toml speaks for them.
WITHOUT_LICENCE_LINE = re.compile(r"templates/")


def comment_mark(path):
    return {".py": "#", ".sh": "#", ".cmake": "#", ".sql": "--"}.get(pathlib.PurePosixPath(path).suffix, "//")


def after_head(path, lines):
    """Where the comment that a file begins with ends."""
    at = 1 if lines and lines[0].startswith("#!") else 0
    while at < len(lines) and lines[at].startswith(comment_mark(path)):
        at += 1
    return at


def check_licence(path, text):
    lines = text.splitlines()
    if WITHOUT_LICENCE_LINE.match(path):
        return
    if f"{comment_mark(path)} {LICENCE}" not in lines[:after_head(path, lines)]:
        yield f"{path}:1: the comment at the top has no line '{LICENCE}' (--add-licence writes it)"


def add_licences(root):
    for path in files_of(root):
        if pathlib.PurePosixPath(path).suffix not in NAMED:
            continue
        text = (root / path).read_text(encoding="utf-8")
        if any(check_licence(path, text)):
            lines = text.split("\n")
            lines.insert(after_head(path, lines), f"{comment_mark(path)} {LICENCE}")
            (root / path).write_text("\n".join(lines), encoding="utf-8")


# Bodies as clang-format leaves them: one ends at the first `}` as far from the margin as its statement begins.
TYPE = re.compile(r"^ *(?:template\b.*> )?(?:class|struct|union|namespace|enum|extern)\b")


def function_lengths(code):
    """Line and length in lines of each function outside other functions."""
    lines = code.splitlines()
    at = 0
    while at < len(lines):
        begin, at = at, at + 1
        if not lines[begin].endswith("{"):
            continue
        first = begin
        while first > 0 and lines[first - 1].strip() and not lines[first - 1].endswith((";", "{", "}", ":")):
            first -= 1
        if TYPE.match(" ".join(lines[first:begin + 1])):
            continue
        closing = lines[first][:len(lines[first]) - len(lines[first].lstrip())] + "}"
        end = next((i for i in range(at, len(lines)) if lines[i].startswith(closing)), begin + 1)
        yield first + 1, end - begin - 1
        at = end + 1


def check_functions(path, code):
    room = path.split("/", 1)[0]
    if room not in HOST | {"templates"}:
        return
    most = MAX_KERNEL_LINES if room == "templates" else MAX_FUNCTION_LINES
    for line, length in function_lengths(code):
        if length > most:
            yield f"{path}:{line}: a function of {length} lines; {most} are the most"


# A path that a test takes for absent, or for its own, may be somebody's: it must lie below the test's own folder.
TESTS = re.compile(r"(?:tests|python/tests|benchmarks/[\w/]*tests)/")
STRAY_PATH = re.compile(r"""(?<![+A-Z] )["'=:\s]/(?:tmp|nonexist\w*|nowhere|absent|missing|no|not|does)(?=[/"'.\s)])""")


def check_stray_paths(path, code):
    if not TESTS.match(path):
        return
    for match in STRAY_PATH.finditer(code):
        yield f"{path}:{line_of(code, match.end())}: '{match.group(0)[1:]}' is a place outside the test's own folder"


# Private words that the field's words have replaced (docs/glossary.md). Names of tunables in stored configs are texts, not
# identifiers, and stay.
PRIVATE_WORDS = {word + plural for word in ("turn", "spare", "dealt", "outgrown", "lone", "panel") for plural in ("", "s")}
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
PART_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def has_private_word(name):
    return any(part.lower() in PRIVATE_WORDS for part in PART_OF_NAME.findall(name))


def check_words(path, code):
    if path.split("/", 1)[0] not in {"templates", "generator"}:
        return
    if has_private_word(pathlib.PurePosixPath(path).stem):
        yield f"{path}:1: the file's name has a word that is not the field's"
    for match in IDENTIFIER.finditer(STRING.sub(lambda text: " " * len(text.group(0)), code)):
        if has_private_word(match.group(0)):
            yield f"{path}:{line_of(code, match.start())}: '{match.group(0)}' has a word that is not the field's"


# A type of a header, at the margin: one in the project's namespace.
HEADER_TYPE = re.compile(r"^(?:class|struct|enum|enum class) (\w+)(?: final)?(?: :[^;{]*)? \{", re.M)


class TypeNames:
    """Two types of one name are two definitions of their inline functions, of which the linker takes any one."""

    def __init__(self):
        self.home = {}

    def check(self, path, code):
        if path.split("/", 1)[0] not in HOST or not path.endswith(".h"):
            return
        for match in HEADER_TYPE.finditer(code):
            home = self.home.setdefault(match.group(1), path)
            if home != path:
                yield f"{path}:{line_of(code, match.start())}: {home} has a type '{match.group(1)}' too"


# A file that a document names: a folder of ours, then a path; a name without suffix stands for its files.
MENTION = re.compile(r"(?<![\w./$<-])((?:core|db|generator|catalogue|model|tuner|probe|runtime|cli|templates|include|cmake|examples"
                     r"|python|data|tests|benchmarks|docs)"
                     r"/[\w./*-]*\w[\w/*]*)(?![\w<{])")


# In ARCHITECTURE.md also: what an arrow of a flow leads to, and files that are named without their folder.
STEP = re.compile(r"^    .*?$", re.M)
ARROW_TO = re.compile(r"-> ([a-z]\w*)(?![\w/.])")
BARE_FILE = re.compile(r"`(\w+\.(?:cpp|h|hpp|cuh|md|py|json|sql))`")


def check_overview(root, path, text):
    """Names of the overview's flows and tables that no file of the tree has."""
    files = [pathlib.PurePosixPath(name) for name in files_of(root)]
    names = {file.name for file in files}
    stems = {file.stem for file in files} | {file.parent.name for file in files}
    for match in BARE_FILE.finditer(text):
        if match.group(1) not in names:
            yield f"{path}:{line_of(text, match.start())}: there is no '{match.group(1)}'"
    for line in STEP.finditer(text):
        steps = [column for column in line.group(0).split("  ") if "/" in column]
        for match in (match for column in steps for match in ARROW_TO.finditer(column)):
            if match.group(1) not in stems:
                yield f"{path}:{line_of(text, line.start())}: there is no '{match.group(1)}'"


def check_mentions(root, path, text):
    for match in MENTION.finditer(text):
        name = match.group(1).rstrip("/")
        if not any(any(root.glob(name + suffix)) for suffix in ("", ".*")):
            yield f"{path}:{line_of(text, match.start())}: there is no '{match.group(1)}'"


def check_file(path, text, operators):
    suffix = pathlib.PurePosixPath(path).suffix
    if suffix not in NAMED:
        return
    yield from check_shape(path, text)
    yield from check_licence(path, text)
    yield from check_stray_paths(path, without_comments(path, text) if suffix in CODE else text)
    if suffix in CODE | {".sql"}:
        code = without_comments(path, text)
        yield from check_includes(path, code)
        yield from check_only_in(path, code, operators)
        yield from check_functions(path, code)
        yield from check_words(path, code)


def files_of(root):
    """Tracked and new files of our own, without what git ignores; every file where there is no repository."""
    if not (root / ".git").exists():
        return [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()]
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    return [name for name in listed.split("\0") if name and not name.startswith(OF_OTHERS) and (root / name).is_file()]


def check_tree(root):
    violations = []
    types = TypeNames()
    operators = operators_of(root)
    for path in sorted(files_of(root)):
        suffix = pathlib.PurePosixPath(path).suffix
        if suffix in NAMED:
            text = (root / path).read_text(encoding="utf-8", errors="replace")
            violations.extend(check_file(path, text, operators))
            violations.extend(types.check(path, without_comments(path, text)))
        if suffix == ".md" and path != "CHANGELOG.md" and not path.startswith(("benchmarks/results/", "docs/lab/")):
            text = (root / path).read_text(encoding="utf-8")
            violations.extend(check_mentions(root, path, text))
            if path == "ARCHITECTURE.md":
                violations.extend(check_overview(root, path, text))
                violations.extend(python_rooms.check(root, files_of(root), text))
    return violations


ROOMS_FOR_SELF_TEST = """| room | holds | imports |
| `python/vitune/_low/` | | nothing |
| `python/vitune/_high/under/` | | `_low` |
| `python/vitune/_high/` | | `_low`, `_high/under`, `_high/above` |
| `python/vitune/` | | `_high`, `_low` |
"""


def self_test():
    """Plants one violation of each rule, and code that must pass."""

    def first_line(path):
        mark = comment_mark(path)
        licence = "" if WITHOUT_LICENCE_LINE.match(path) else f"{mark} {LICENCE}\n"
        return f"{mark} {path} -- A planted file.\n{licence}"

    planted = {
        "core/up.cpp": '#include "db/store.h"\n',
        "db/up.cpp": '#include "generator/source.h"\n',
        "generator/up.cpp": '#include "tuner/loop/tuner.h"\n',
        "tuner/loop/side.cpp": '#include "runtime/dispatch/dispatcher.h"\n',
        "probe/side.cpp": '#include "cli/main.h"\n',
        "catalogue/up.cpp": '#include "tuner/loop/tuner.h"\n',
        "model/up.cpp": '#include "runtime/dispatch/dispatcher.h"\n',
        "runtime/side.cpp": '#include "tuner/loop/tuner.h"\n',
        "core/beside.cpp": '#include "error.h"\n',
        "examples/inside.cpp": '#include "core/log.h"\n',
        "examples/operator_x/up.cpp": '#include "tuner/loop/tuner.h"\n',
        "cli/share.cpp": '#include "templates/attention/params.cuh"\n',
        "tuner/share.cpp": '#include "templates/attention/mask.cuh"\n',
        "templates/attention/outside.cuh": "#include <cuda_fp16.h>\n",
        "templates/attention/ptx.cuh": 'void f() { asm volatile("trap;"); }\n',
        "db/other.cpp": "int x = sqlite3_open(a, b);\n",
        "generator/other.cpp": "int x = nvrtcCreateProgram();\n",
        "cli/env.cpp": 'char* x = getenv("HOME");\n',
        "cli/output/text.cpp": 'std::string x = fmt::format("{}", 1);\n',
        "db/table.cpp": 'const char* x = "create  table t(a)";\n',
        "db/word.cpp": 'const char* x = "Attention";\n',
        "tuner/judge/word.cpp": "int attention_cost = 0;\n",
        "runtime/context/word.cpp": "void launch(const vitune_attention_desc& desc);\n",
        "cli/verbs/word.cpp": "GroupNormProblem problem;\n",
        "generator/word.cpp": "int kAttentionRows = 64;\n",
        "tuner/loop/word.cpp": "MapProblem problem;\n",
        "db/twin.h": "namespace vitune {\nstruct Twin {\n};\n}\n",
        "tests/db/absent_test.cpp": 'const char* file = "/nonexistent.db";\n',
        "tests/cli/recorded_test.cpp": 'const char* place = "replay:/nowhere/x";\n',
        "benchmarks/peers/tests/test_x.py": "open('/tmp/x')\n",
        "core/long.cpp": "int f() {\n" + "  g();\n" * (MAX_FUNCTION_LINES + 1) + "}\n",
        "core/long.h": "class A {\n  int f() {\n" + "    g();\n" * (MAX_FUNCTION_LINES + 1) + "  }\n};\n",
        "templates/linear/long.cuh": "void f() {\n" + "  g();\n" * (MAX_KERNEL_LINES + 1) + "}\n",
        "templates/linear/word.cuh": "constexpr int kSpareRows = 8;\n",
        "templates/linear/lone_copier.cuh": "void copy();\n",
        "generator/linear/word.h": "int turns_of(int wave);\n",
        "python/vitune/_low/up.py": "def f():\n    from .._high import top\n",
        "python/vitune/_low/face.py": "import vitune.torch\n",
        "python/vitune/_high/under/late.py": "importlib.import_module('vitune._high.top')\n",
        "python/vitune/_lost/room.py": "import os\n",
    }
    clean = {
        "templates/linear/type.cuh": "template <class T>\nstruct A {\n" + "  int b;\n" * (MAX_KERNEL_LINES + 1) + "};\n",
        "templates/linear/loop.cuh": "void f() {\n" + "  g();\n" * (MAX_KERNEL_LINES - 2) + "}\n",
        "templates/linear/good.cuh": "int g() { return alone(kTurnover); }  // each in turn, in panels\n",
        "generator/linear/good.cpp": 'int spared = config.at("kSpareRows");\n',
        "core/words.cpp": "int turn = 0;\n",
        "core/brief.cpp": ("int f() {\n" + "  g();\n" * MAX_FUNCTION_LINES + "}\n") * 2,
        "core/twin.h": "namespace vitune {\nstruct Twin {\n};\n}\n",
        "db/no_twin.h": "struct Twin;\nclass NoTwin {\n  struct Twin {};\n};\n",
        "core/good.cpp": '#include "core/error.h"\n// sqlite3_open and getenv() are only named here\n',
        "db/good.cpp": '#include "core/log.h"\n/* about attention */ const char* u = "http://a";\n',
        "db/schema/001_initial.sql": "CREATE TABLE device (a INTEGER);\n",
        "examples/beside.cpp": '#include "gpu.h"\n#include "vitune/vitune.hpp"\n',
        "examples/operator_x/good.cpp": '#include "generator/operator.h"\n',
        "generator/attention/good.h": '#include "templates/attention/params.cuh"\n'
        '#include "templates/attention/geometry_sm80.cuh"\n',
        "generator/attention/operator.h": "struct AttentionProblem;\n",
        "generator/group_norm/operator.h": "struct GroupNormProblem;\n",
        "generator/map/operator.h": "struct MapProblem;\n",
        "generator/operators.cpp": '#include "generator/attention/operator.h"\n',
        "runtime/api/good.cpp": "void launch(const vitune_attention_desc& desc);\n",
        "tuner/judge/good.cpp": "int attentional = 0, group_normal = 0;\n",
        "tuner/judge/mapped.cpp": "std::map<int, int> map;\nTensorMapSlot slot;\n",
        "cli/good.cpp": 'std::string x = formatted("{}", fmt::join(y, " "));\n',
        "templates/primitives/mma.cuh": 'void f() { asm volatile("nop;"); }\n',
        "tests/db/own_test.cpp": 'auto a = folder + "/absent"; auto b = folder / "nowhere";  // not /tmp\n',
        "python/vitune/__init__.py": "importlib.import_module('._high.top', __name__)\n",
        "python/vitune/torch.py": "import torch\nfrom torch import nn\n",
        "python/vitune/_low/base.py": "from . import other\n",
        "python/vitune/_high/top.py": "from .._low.base import name\nfrom .under import low\n",
        "python/vitune/_high/under/low.py": "from vitune._low import base\n",
        "tests/db/good_test.cpp": 'const char* hostile = "CREATE TABLE x(a)";\n',
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, body in (planted | clean).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(first_line(path) + body)
        (root / "core/nameless.h").write_text(f"// {LICENCE}\n#pragma once\n")
        (root / "core/unlicensed.h").write_text(f"// core/unlicensed.h -- A planted file.\n\n// {LICENCE}\n")
        (root / "stale.md").write_text("See `core/gone.cpp`.\n")
        (root / "true.md").write_text("See `core/good.cpp`, core/good, db/schema/ and core/*.h; not other/core/x.\n")
        (root / "ARCHITECTURE.md").write_text("`good.cpp`, `gone.cpp`\n\n    core/good -> brief\n    core/good -> lost\n" + ROOMS_FOR_SELF_TEST)
        found = check_tree(root)
    failures = [f"ARCHITECTURE.md:{line}: '{name}' was not missed" for line, name in ((1, "gone.cpp"), (4, "lost"))
                if f"ARCHITECTURE.md:{line}: there is no '{name}'" not in found]
    failures += [f"'{wanted}' was not said" for wanted in ("ARCHITECTURE.md:8: '_high/above' is no room above",
                                                           "ARCHITECTURE.md:9: nothing there imports '_low'") if wanted not in found]
    failures += [f"{path}: its violation was not found" for path in [*planted, "core/nameless.h", "core/unlicensed.h", "stale.md"]
                if not any(line.startswith(path + ":") for line in found)]
    failures += [f"clean file blamed: {line}" for line in found
                 if line.split(":")[0] in {*clean, "true.md"}
                 or line.startswith(("ARCHITECTURE.md:2", "ARCHITECTURE.md:3"))]
    return failures


def main():
    parser = argparse.ArgumentParser(description="Checks the architecture rules of this tree.")
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true", help="check the checker on planted files")
    parser.add_argument("--add-licence", action="store_true", help="write the licence's line where it is missing")
    arguments = parser.parse_args()
    if arguments.add_licence:
        add_licences(arguments.root)
    problems = self_test() if arguments.self_test else check_tree(arguments.root)
    for problem in problems:
        print(problem)
    if not problems:
        print("architecture: self-test passed" if arguments.self_test else "architecture: no violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
