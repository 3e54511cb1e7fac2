# python/vitune/_export/fuse.py -- Joins nodes of a file: copies that a view says, pieces of a `cat`, chains of pointwise maps, norms before layers.
# SPDX-License-Identifier: Apache-2.0
"""Every step leaves the meaning as it is. A tensor is written once, or piece by piece, so whoever reads it reads what its writers wrote."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

from .expression import letters_of, parsed, put, steps
from .graph import MOST_OPERANDS, MOST_STEPS, OPERANDS, View, dense

Node = dict[str, Any]
_RESULTS = ("out", "sum")


def fused(nodes: list[Node], values: dict[str, tuple[str, tuple[int, ...]]], types: dict[str, str],
          outputs: dict[str, View]) -> list[Node]:
    """As few nodes as these rules make of them; the results' views stay. types: of the inputs."""
    graph = _Graph([dict(node) for node in nodes], values, types, outputs)
    while any(graph.swept(rule) for rule in (graph.without_copy, graph.into_place, graph.by_pieces, graph.in_one_map, graph.as_residual,
                                             graph.norm_in_layer)):
        pass
    return graph.nodes


class _Graph:
    def __init__(self, nodes: list[Node], values: dict[str, tuple[str, tuple[int, ...]]], types: dict[str, str],
                 outputs: dict[str, View]) -> None:
        self.nodes, self._values, self._types = nodes, values, types
        self._kept = {view.of for view in outputs.values()}

    def swept(self, rule: Callable[[Node], Optional[list[Node]]]) -> bool:
        """Whether a rule changed anything. A rule says what stands in the place of a node: None, if it leaves it."""
        self._look()
        nodes, changed = [], False
        for node in self.nodes:
            if not self._touched.isdisjoint(self._names(node)):
                nodes.append(node)
                continue
            made = rule(node)
            changed |= made is not None
            nodes += [node] if made is None else made
        self.nodes = [node for node in nodes if node.get("op")]
        self._drop_unread()
        return changed

    def _look(self) -> None:
        self._writers: dict[str, list[Node]] = {}
        self._readers: dict[str, list[tuple[Node, str, View]]] = {}
        self._touched: set[str] = set()
        for node in self.nodes:
            for key, view in _views(node):
                if key in _RESULTS:
                    self._writers.setdefault(view.of, []).append(node)
                else:
                    self._readers.setdefault(view.of, []).append((node, key, view))

    def _names(self, node: Node) -> set[str]:
        return {view.of for _, view in _views(node)}

    def _touch(self, *nodes: Node) -> None:
        for node in nodes:
            self._touched |= self._names(node)

    def _drop_unread(self) -> None:
        while True:
            self._look()
            left = [node for node in self.nodes if any(view.of in self._kept or view.of in self._readers
                                                       for key, view in _views(node) if key in _RESULTS)]
            if len(left) == len(self.nodes):
                return
            self.nodes = left

    def _only_writer(self, name: str) -> Optional[Node]:
        """Of a tensor of the pass."""
        writers = self._writers.get(name, [])
        return writers[0] if len(writers) == 1 and name not in self._kept else None

    # --- rules

    def without_copy(self, node: Node) -> Optional[list[Node]]:
        """Reads what a copy was made of, where a view can say it."""
        for key, view in _views(node):
            writer = self._only_writer(view.of) if key not in _RESULTS else None
            if writer is None or not _is_copy(writer) or not self._touched.isdisjoint(self._names(writer)):
                continue
            source, out = writer["a"], writer["out"]
            if self._type(source.of) not in (self._values[view.of][0], ""):
                continue
            if view == out:
                seen = source
            elif key == "x" and node["op"] in ("linear", "norm") and _is_whole(view, self._values[view.of][1]) and out.is_dense() and (
                    out.offset == 0 and _rows_stay(view, source)) and (node["op"] == "linear" and "norm" not in node):
                seen = source
            else:
                continue
            self._touch(node, writer)
            return [{**node, key: seen}]
        return None

    def into_place(self, node: Node) -> Optional[list[Node]]:
        """Whoever makes what is copied into a part of a tensor writes it there."""
        if not _is_copy(node):
            return None
        source = node["a"]
        writer = self._only_writer(source.of)
        if writer is None or len(self._readers[source.of]) != 1 or writer["out"] != source or "sum" in writer:
            return None
        if self._values[source.of][0] != self._values[node["out"].of][0] or not self._touched.isdisjoint(self._names(writer)):
            return None
        self._touch(node, writer)
        writer["out"] = node["out"]
        return []

    def by_pieces(self, node: Node) -> Optional[list[Node]]:
        """What is computed of each element of a tensor that is written in pieces is computed of each piece."""
        if node["op"] != "map" or "by" in node:
            return None
        for letter in _letters(node):
            view = node[letter]
            pieces = self._writers.get(view.of, [])
            if len(pieces) < 2 or view.of in self._kept or len(self._readers[view.of]) != 1:
                continue
            shape = self._values[view.of][1]
            if not _is_whole(view, shape) or view.extents != node["out"].extents:
                continue
            places = [_place(piece["out"], shape) for piece in pieces]
            if any(place is None for place in places) or not self._touched.isdisjoint(set().union(*map(self._names, pieces))):
                continue
            self._touch(node, *pieces)
            return [self._piece(node, view, piece, place) for piece, place in zip(pieces, places)]
        return None

    def _piece(self, node: Node, view: View, writer: Node, place: tuple[tuple[int, ...], tuple[int, ...]]) -> Node:
        """A map of one piece of `view`, which its writer writes into a tensor of its own."""
        name = f"{view.of}.{place[0]}"
        own = View(name, 0, writer["out"].extents, dense(writer["out"].extents))
        self._values[name] = (self._values[view.of][0], own.extents)
        writer["out"] = own
        cut = {key: _cut(each, place) if isinstance(each, View) else each for key, each in node.items()}
        return {key: own if each == _cut(view, place) and key != "out" else each for key, each in cut.items()}

    def in_one_map(self, node: Node) -> Optional[list[Node]]:
        """A map of what another map made is one map."""
        if node["op"] != "map":
            return None
        for letter in _letters(node):
            view = node[letter]
            writer = self._only_writer(view.of)
            if writer is None or writer["op"] != "map" or writer["out"] != view or any(
                    reader is not node or seen != view for reader, _, seen in self._readers[view.of]):
                continue
            if not self._touched.isdisjoint(self._names(writer)):
                continue
            made = _joined(writer, node, view)
            if made is not None:
                self._touch(node, writer)
                writer["op"] = ""
                return [made]
        return None

    def as_residual(self, node: Node) -> Optional[list[Node]]:
        """A sum with what a layer made is the layer's residual."""
        if node["op"] != "map" or node["x"] not in ("add(a,b)", "add(b,a)") or "by" in node or "y" in node:
            return None
        for letter, other in (("a", "b"), ("b", "a")):
            view, added = node[letter], node[other]
            writer = self._only_writer(view.of)
            if writer is None or writer["op"] != "linear" or "residual" in writer or writer["out"] != view or (
                    len(self._readers[view.of]) != 1 or not self._touched.isdisjoint(self._names(writer))):
                continue
            kind = self._type(view.of)
            if kind != self._type(node["out"].of) or self._type(added.of) not in (kind, ""):
                continue
            self._touch(node, writer)
            made = {**{key: value for key, value in writer.items() if key != "out"}, "residual": added, "out": node["out"]}
            writer["op"] = ""
            return [made]
        return None

    def norm_in_layer(self, node: Node) -> Optional[list[Node]]:
        """A norm that one layer alone reads."""
        if node["op"] != "linear" or "norm" in node:
            return None
        view = node["x"]
        writer = self._only_writer(view.of)
        if writer is None or writer["op"] != "norm" or len(self._readers[view.of]) != 1 or writer["out"] != view or (
                "residual" in writer or "sum" in writer or not self._touched.isdisjoint(self._names(writer))):
            return None
        if self._type(writer["x"].of) not in (self._type(view.of), "") or view.extents[-1] != node["w"].extents[-1]:
            return None
        self._touch(node, writer)
        norm = {key: writer[key] for key in ("kind", "weight", "bias", "eps") if key in writer}
        writer["op"] = ""
        return [{"op": "linear", "at": node["at"], **({"act": node["act"]} if "act" in node else {}), "x": writer["x"], "norm": norm,
                 **{key: value for key, value in node.items() if key not in ("op", "at", "act", "x")}}]

    def _type(self, name: str) -> str:
        """Of a tensor of the pass or an input; "": one that the file holds, in whatever type its readers need."""
        return self._values[name][0] if name in self._values else self._types.get(name, "")


def _views(node: Node) -> list[tuple[str, View]]:
    found = [(key, value) for key, value in node.items() if isinstance(value, View)]
    return found + [(f"norm.{key}", value) for key, value in node.get("norm", {}).items() if isinstance(value, View)]


def _letters(node: Node) -> list[str]:
    return [letter for letter in OPERANDS if letter in node]


def _is_copy(node: Node) -> bool:
    return node["op"] == "map" and node["x"] == "a" and "by" not in node and "y" not in node and "a" in node


def _is_whole(view: View, shape: tuple[int, ...]) -> bool:
    elements = 1
    for extent in shape:
        elements *= extent
    return view.offset == 0 and view.is_dense() and view.elements == elements


def _rows_stay(view: View, source: View) -> bool:
    """Whether a layer's rows of `view` are rows of `source` too: some of its last dimensions are a row."""
    columns, place = 1, len(source.extents)
    while place and columns < view.extents[-1]:
        place -= 1
        columns *= source.extents[place]
    return columns == view.extents[-1]


def _place(out: View, shape: tuple[int, ...]) -> Optional[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(starts, extents) of a piece of a dense tensor."""
    strides = dense(shape)
    if len(out.extents) != len(shape) or any(a != b and extent != 1 for a, b, extent in zip(out.strides, strides, out.extents)):
        return None
    starts, rest = [], out.offset
    for stride in strides:
        start, rest = divmod(rest, stride)
        starts.append(start)
    return tuple(starts), out.extents


def _cut(view: View, place: tuple[tuple[int, ...], tuple[int, ...]]) -> View:
    for dim, (start, count) in enumerate(zip(*place)):
        view = view.narrowed(dim, start, count)
    return view


def _joined(first: Node, second: Node, view: View) -> Optional[Node]:
    """Both maps as one; None where that is beyond a file's limits, or no single map."""
    if "by" in first and ("by" in second or "y" in first or len(_letters(second)) != 1 or first["by"] == "softmax" or "y" in second):
        return None
    mine = [letter for letter in _letters(second) if second[letter] == view]
    if "by" in first:
        text = str(put(parsed(second["x"]), {mine[0]: "r"}))
        if steps(parsed(text)) > MOST_STEPS:
            return None
        return {**{key: value for key, value in first.items() if key != "out"}, "at": second["at"], "y": text, "out": second["out"]}
    operands: list[View] = []

    def letter_of(operand: View) -> str:
        if operand not in operands:
            operands.append(operand)
        return OPERANDS[operands.index(operand)] if operands.index(operand) < MOST_OPERANDS else "?"
    inner = {letter: letter_of(first[letter]) for letter in _letters(first)}
    inside = put(parsed(first["x"]), inner)
    outer = {letter: inside if letter in mine else letter_of(second[letter]) for letter in _letters(second)}
    if len(operands) > MOST_OPERANDS or "y" in second and letters_of(parsed(second["y"])) != ["r"]:
        return None
    expression = put(parsed(second["x"]), outer)
    if steps(expression) > MOST_STEPS:
        return None
    rest = {key: value for key, value in second.items() if key not in OPERANDS and key not in ("x", "out")}
    return {**rest, "x": str(expression), **dict(zip(OPERANDS, operands)), "out": second["out"]}
