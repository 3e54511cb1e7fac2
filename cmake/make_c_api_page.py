#!/usr/bin/env python3
# cmake/make_c_api_page.py -- Writes docs/c_api.md, the reference page of the C interface, from vitune.h.
#
# Usage: make_c_api_page.py [--check]. The header's comments are the text: a comment above a declaration
# describes it, one after a field describes the field. --check writes nothing and exits 1 if the page is
# not what the header gives. Only the standard library is used.
# SPDX-License-Identifier: Apache-2.0
import argparse
import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include/vitune/vitune.h"
PAGE = ROOT / "docs/c_api.md"

# The comment above (without a blank line between), then the declaration.
COMMENT = r"(?P<comment>(?:^//[^\n]*\n)*)"
ENUM = re.compile(COMMENT + r"^(?:typedef int32_t (?P<name>\w+);\n)?enum \{(?P<body>.*?)\};\n", re.M | re.S)
STRUCT = re.compile(COMMENT + r"^typedef struct (?P<name>\w+) \{\n(?P<body>.*?)^\} \w+;\n"
                    r"(?:#define (?P<init>\w+_INIT)\b)?", re.M | re.S)
CALLBACK = re.compile(COMMENT + r"^typedef (?P<type>[^;]*\(\*(?P<name>\w+)\)\([^;]*\));\n", re.M)
FUNCTION = re.compile(COMMENT + r"^(?:VITUNE_NODISCARD )?VITUNE_API (?P<declaration>[^;]*?\b(?P<name>vitune_\w+)\([^;]*\));\n", re.M)
INLINE = re.compile(COMMENT + r"^static inline (?P<declaration>[^{]*?\b(?P<name>vitune_\w+)\([^{]*\)) \{\n", re.M)


def prose(lines):
    """Comment lines as Markdown: indented ones are code, an empty one ends a paragraph."""
    text = [re.sub(r"^\s*// ?", "", line) for line in lines if "SPDX-License-Identifier" not in line]
    out, code = [], False
    for line in text:
        if line.startswith("  ") and not code:
            out += ["```c"]
            code = True
        elif not line.startswith("  ") and code:
            out += ["```"]
            code = False
        out.append(line[2:] if code else re.sub(r"\bdocs/(\w+\.md)", r"[docs/\1](\1)", line))
    return "\n".join(out + ["```"] * code).strip()


def comment_of(match):
    return prose(match.group("comment").splitlines())


def cell(text):
    text = re.sub(r"\bdocs/(\w+\.md)", r"[docs/\1](\1)", text)
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def entries(body):
    """(code, remark, own lines before) of each line group of a struct or enum body."""
    result, above = [], []
    for line in body.splitlines():
        code, slashes, remark = line.partition("//")
        if code.strip():
            result.append([code.strip(), remark.strip(), " ".join(above)])
            above = []
        elif slashes:
            # The continuation of a remark stands further right than a comment of its own.
            indent = len(line) - len(line.lstrip())
            if indent > 2 and result:
                result[-1][1] += " " + remark.strip()
            else:
                above.append(remark.strip())
    return result


def joined(parts):
    return cell(" ".join(part for part in parts if part))


def enum_rows(body):
    flat = " ".join(line.partition("//")[0] for line in body.splitlines())
    remarks = {}
    for code, remark, above in entries(body):
        names = re.findall(r"\b(VITUNE_\w+)\s*=", code)
        if len(names) == 1:
            remarks[names[0]] = joined([remark, above])
    return [(name, value, remarks.get(name, "")) for name, value in re.findall(r"(VITUNE_\w+)\s*=\s*(\d+)", flat)]


def enum_section(match):
    rows = enum_rows(match.group("body"))
    name = match.group("name")
    lines = [f"`{name}`: {comment_of(match)}" if name else comment_of(match), ""]
    if any(remark for _, _, remark in rows):
        lines += ["| name | value | meaning |", "|--|--:|--|"]
        lines += [f"| `{name}` | {value} | {remark} |" for name, value, remark in rows]
    else:
        lines += ["| name | value |", "|--|--:|"]
        lines += [f"| `{name}` | {value} |" for name, value, _ in rows]
    return "\n".join(lines).strip()


def struct_section(match):
    lines = [f"### {match.group('name')}", "", comment_of(match), ""]
    lines += ["| field | type | meaning |", "|--|--|--|"]
    for code, remark, above in entries(match.group("body")):
        kind, fields = re.match(r"((?:const )?\w+\*?)\s+(.*);$", code).groups()
        names = ", ".join(f"`{field.strip()}`" for field in fields.split(","))
        lines.append(f"| {names} | `{kind}` | {joined([above, remark])} |")
    if match.group("init"):
        lines += ["", f"Start from `{match.group('init')}`."]
    return "\n".join(lines)


def function_section(match, before=""):
    declaration = re.sub(r"\s*\n\s*", " ", match.group("declaration")).replace("( ", "(")
    return f"### {match.group('name')}\n\n```c\n{wrap(declaration)};\n```\n\n{before or comment_of(match)}".strip()


def wrap(declaration):
    if len(declaration) <= 96:
        return declaration
    head, arguments = declaration.rstrip(")").split("(", 1)
    lines, line = [], "    "
    for argument in arguments.split(", "):
        if len(line) + len(argument) > 94:
            lines.append(line.rstrip())
            line = "    "
        line += argument + ", "
    return f"{head}(\n" + "\n".join(lines + [line.rstrip(", ")]) + ")"


def page(header):
    top = header[: header.index("#ifndef")].splitlines()
    title = re.sub(r"^// \S+ -- ", "", top[0]).rstrip(".")
    parts = [f"# {title}", "<!-- Written by cmake/make_c_api_page.py from include/vitune/vitune.h: change that file, "
             "then `make c-api-page`. -->", prose(top[1:])]
    parts += ["## Constants"] + [enum_section(match) for match in ENUM.finditer(header)]
    parts += ["## Structs"] + [struct_section(match) for match in STRUCT.finditer(header)]
    parts += ["## Functions"]
    parts += [f"### {match.group('name')}\n\n```c\ntypedef {match.group('type')};\n```\n\n{comment_of(match)}"
              for match in CALLBACK.finditer(header)]
    parts += [function_section(match) for match in FUNCTION.finditer(header)]
    shared = ""  # helpers that stand together have one comment above the first
    for match in INLINE.finditer(header):
        shared = comment_of(match) or shared
        parts.append(function_section(match, shared))
    return "\n\n".join(parts) + "\n"


def missing(header, text):
    """Names the header declares that the page does not show: the patterns above must not lose any."""
    names = set(re.findall(r"\b(?:vitune|VITUNE)_\w+", re.sub(r"//[^\n]*", "", header)))
    names -= set(re.findall(r"#(?:define|ifndef) (VITUNE_\w+)", header)) - {n for n in names if n.endswith("_INIT")}
    return sorted(name for name in names if name not in text)


def main():
    parser = argparse.ArgumentParser(description="Writes docs/c_api.md from include/vitune/vitune.h.")
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    header = HEADER.read_text(encoding="utf-8")
    text = page(header)
    lost = missing(header, text)
    if lost:
        print(f"make_c_api_page.py does not understand the declaration of {', '.join(lost)}", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    for line in difflib.unified_diff(old.splitlines(), text.splitlines(), "docs/c_api.md", "vitune.h", lineterm=""):
        print(line)
    if old != text:
        print("docs/c_api.md is not what the header gives: run `make c-api-page`")
        return 1
    print("docs/c_api.md: as the header says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
