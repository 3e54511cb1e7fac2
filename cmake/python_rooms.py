# cmake/python_rooms.py -- Checks the imports between the folders of the Python package: part of check_architecture.py.
# SPDX-License-Identifier: Apache-2.0
import ast
import re

# The Python package's rooms are its folders. The overview has a row for each: what it holds, and which of those above it imports.
PYTHON = "python/vitune/"
ROOM = re.compile(r"^\| `python/vitune/([\w/]*?)/?` \|[^|\n]*\|([^|\n]*)\|$", re.M)


def rooms_of(text):
    """Room -> the line of its row, and what it may import. The package's own files are the room ''."""
    return {row.group(1): (text.count("\n", 0, row.start()) + 1, re.findall(r"`(\w[\w/]*)`", row.group(2))) for row in ROOM.finditer(text)}


def imported_by(node, package):
    """Of a node of Python's syntax: the places in the package that it imports, as lists of names. A late import is one too."""
    if isinstance(node, ast.ImportFrom):
        names = node.module.split(".") if node.module else []
        if node.level:
            names = [*package[:len(package) + 1 - node.level], *names]
        elif names.pop(0) != "vitune":
            return
        yield from ([*names, alias.name] for alias in node.names)
        return
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, (ast.Attribute, ast.Name)) and getattr(called, "attr", getattr(called, "id", "")) == "import_module":
        given = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
    else:
        given = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    for name in given:
        if name.startswith("."):
            yield [*package, *name[1:].split(".")]
        elif name.split(".")[0] == "vitune":
            yield name.split(".")[1:]


def check(root, paths, overview):
    """Imports of the Python package between rooms, beside the overview's table of them. paths: of the tree's files."""
    listed, made = rooms_of(overview), set()
    files = [path for path in paths if path.startswith(PYTHON) and path.endswith(".py")]
    rooms = {"", *(path[len(PYTHON):].rpartition("/")[0] for path in files)}
    for path in sorted(files):
        room = path[len(PYTHON):].rpartition("/")[0]
        if room not in listed:
            yield f"{path}:1: ARCHITECTURE.md has no row for the room '{PYTHON}{room}'"
            continue
        for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8"))):
            for names in imported_by(node, room.split("/") if room else []):
                target = next("/".join(names[:end]) for end in range(len(names), -1, -1) if "/".join(names[:end]) in rooms)
                made.add((room, target))
                if target not in (room, *listed[room][1]):
                    yield f"{path}:{node.lineno}: {room or 'vitune'} may not import '{'.'.join(names)}' (ARCHITECTURE.md: {', '.join(listed[room][1])})"
    above = []
    for room, (line, targets) in listed.items():
        yield from (f"ARCHITECTURE.md:{line}: '{target}' is no room above" for target in targets if target not in above)
        yield from (f"ARCHITECTURE.md:{line}: nothing there imports '{target}'" for target in targets if (room, target) not in made)
        above.append(room)
