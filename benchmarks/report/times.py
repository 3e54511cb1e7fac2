# benchmarks/report/times.py -- Times of vitune and its peers, problem by problem, in microseconds.
# SPDX-License-Identifier: Apache-2.0
"""Of a file of benchmarks/peers, or of `vitune tune`, `bench`, `show` or vitune_bench_operators beside the stored times of
the peers."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any

from . import documents
from .problem import Attention, attention

KINDS = ("cold", "warm")
LABELS = {
    "vitune": "vitune",
    "vitune_default": "vitune, untuned",
    "cudnn": "cuDNN",
    "flash": "FlashAttention-2",
    "flash2": "FlashAttention-2",
    "effic": "memory-efficient",
    "efficient": "memory-efficient",
    "fa3": "FlashAttention-3",
    "fa4": "FlashAttention-4",
    "flex": "FlexAttention",
    "triton": "Triton",
    "compiled": "torch.compile",
    "eager": "PyTorch eager",
}


def label(peer: str) -> str:
    """The name that a reader knows."""
    return LABELS.get(peer, peer[:40])


def is_fused_peer(peer: str) -> bool:
    """Whether it is another implementation in one kernel."""
    return peer != "eager" and not peer.startswith("vitune")


def geometric_mean(values: Iterable[float]) -> float:
    """1 for none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


@dataclasses.dataclass
class Row:
    """One problem."""

    name: str
    text: str
    us: dict[str, dict[str, float]]  #: peer -> kind -> microseconds
    floor_us: float | None = None
    memory: dict[str, float] = dataclasses.field(default_factory=dict)
    origin: str = "measured"
    layer: str = ""  #: "user", "site" or "shipped", of a database
    is_among_others: bool = False  #: whether rows of other layers stand beside it

    @property
    def problem(self) -> Attention | None:
        """Its extents, if it is attention."""
        return attention(self.text)

    def ours(self, kind: str) -> float | None:
        """vitune's own time."""
        return self.us.get("vitune", {}).get(kind)

    def best(self, kind: str) -> tuple[str, float] | None:
        """The fastest fused peer and its time."""
        found = [
            (times[kind], peer)
            for peer, times in self.us.items()
            if kind in times and is_fused_peer(peer)
        ]
        return min(found)[::-1] if found else None

    def ratio(self, kind: str) -> float | None:
        """Best peer over vitune: above 1, vitune is faster."""
        ours, best = self.ours(kind), self.best(kind)
        return best[1] / ours if ours and best else None

    @property
    def replayed(self) -> bool:
        """Whether its times come from a recording."""
        return self.origin == "replayed"

    @property
    def marked(self) -> str:
        """The name, with a word where the times are replayed, and one for what is not the user's own."""
        words = [self.layer] * (self.is_among_others and self.layer != "user") + ["replayed"] * self.replayed
        return self.name + (f" ({', '.join(words)})" if words else "")


@dataclasses.dataclass
class Times:
    """A run."""

    device: str
    date: str
    versions: str
    rows: list[Row]
    stored_peers: bool = False  #: the peers' times are of another run
    absent: tuple[str, ...] = ()
    peers_from: str = ""  #: "NVIDIA H200, 2026-11-22", of stored ones

    @property
    def replayed(self) -> int:
        """How many rows come from a recording."""
        return sum(row.replayed for row in self.rows)

    @property
    def peers(self) -> list[str]:
        """The names of the fused ones, as a reader knows them."""
        known = dict.fromkeys(peer for row in self.rows for peer in row.us if is_fused_peer(peer))
        return list(dict.fromkeys(map(label, known)))

    def by_layer(self) -> list[tuple[str, list[Row]]]:
        """A word for each group of rows, the user's own first; one without a word where all are of one layer."""
        if not any(row.is_among_others for row in self.rows):
            return [("", self.rows)]
        layers = sorted({row.layer for row in self.rows}, key=lambda layer: (layer != "user", layer))
        return [("yours" if layer == "user" else layer, [row for row in self.rows if row.layer == layer]) for layer in layers]


def _kinds(document: dict[str, Any], holder: dict[str, Any]) -> dict[str, float]:
    return {kind: us for kind in KINDS if (us := documents.positive(document, holder, kind))}


def _peer_row(document: dict[str, Any], entry: dict[str, Any]) -> Row:
    us = documents.members(document, entry, "us")
    if len(us) > 64:
        raise documents.fail(document, "us", "names more than 64 peers")
    known = {peer: _kinds(document, documents.members(document, us, peer)) for peer in us}
    memory = documents.members(document, entry, "memory")
    sizes = {p: size for p in memory if p in us and (size := documents.positive(document, memory, p))}
    name, text = documents.text(entry, "name"), documents.text(entry, "problem")
    return Row(name or text, text, known, documents.positive(document, entry, "floor_us"), sizes)


def of_peers(document: dict[str, Any]) -> Times:
    """Of a document of benchmarks/peers."""
    rows = [_peer_row(document, entry) for entry in documents.rows(document, "rows")]
    absent = tuple(label(peer) for peer in documents.members(document, document, "absent"))
    found = Times(documents.device_name(document), documents.day(document), documents.versions(document), rows,
                  absent=absent)
    return _with_times(document, found)


def _with_times(document: dict[str, Any], found: Times) -> Times:
    found.rows = [row for row in found.rows if row.ours("cold") or row.ours("warm")]
    if not found.rows:
        raise documents.fail(document, "it", "holds no time of vitune; measure again, or give another file")
    return found


def _own_row(document: dict[str, Any], entry: dict[str, Any], stored: dict[str, Row]) -> Row | None:
    winner = entry.get("winner")
    if not isinstance(winner, dict):
        return None
    text = documents.text(entry, "problem")
    known = stored.get(text)
    us = {"vitune": {}} | (known.us if known else {})
    for kind in KINDS:
        if median := documents.positive(document, documents.members(document, winner, kind), "median_us"):
            us["vitune"] = us["vitune"] | {kind: median}
    floor = documents.positive(document, winner, "floor_us") or (known.floor_us if known else None)
    return Row(documents.text(entry, "name") or text, text, us, floor, origin=documents.text(winner, "origin"),
               layer=documents.text(entry, "layer"))


def of_winners(document: dict[str, Any], name: str, stored: dict[str, Row], peers_from: str = "") -> Times:
    """Of a document of `vitune tune` ("results") or `vitune show` ("winners"); the device with the most rows of the user's own, then
    of all. peers_from: where and when the stored peers were measured."""
    entries = documents.rows(document, name)
    devices: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        devices.setdefault(documents.device_name(entry) or documents.device_name(document), []).append(entry)
    own = {key: sum(documents.text(entry, "layer") == "user" for entry in found) for key, found in devices.items()}
    device = max(devices, key=lambda key: (own[key], len(devices[key])), default="")
    chosen = devices.get(device, [])
    rows = [row for entry in chosen if (row := _own_row(document, entry, stored))]
    mixed = len({row.layer for row in rows}) > 1
    rows = sorted((dataclasses.replace(row, is_among_others=mixed) for row in rows), key=lambda row: mixed and row.layer != "user")
    date = max((documents.text(entry.get("winner"), "tuned_at")[:10] for entry in chosen), default="")
    found = Times(device, date, documents.versions(document), rows, stored_peers=any(len(row.us) > 1 for row in rows),
                  peers_from=peers_from)
    return _with_times(document, found)


def stored_from(document: dict[str, Any]) -> str:
    """Where and when the peers of data/bench_problems.json were measured."""
    measured = documents.members(document, document, "measured")
    return ", ".join(filter(None, (documents.text(measured, name) for name in ("device", "date"))))


def _measured_call(run_name: str, label: str) -> tuple[str, str, str, str] | None:
    """Peer, kind, name and problem of a benchmark: of "linear/bf16 m=8 n=8 k=8/cold/iterations:1", whose label is what
    people call the problem, or of "vitune/cold/ViT/iterations:1", when peers ran beside, whose label is the problem."""
    parts = re.split("/(?:iterations|repeats|manual_time)", run_name)[0].split("/")
    if len(parts) > 2 and parts[-1] in KINDS:
        text = f"{parts[0]} {'/'.join(parts[1:-1])}"
        return "vitune", parts[-1], label or text, text
    return (parts[0], parts[1], "/".join(parts[2:]), label) if len(parts) > 2 and parts[1] in KINDS else None


def of_benchmarks(document: dict[str, Any], stored: dict[str, Row], peers_from: str = "") -> Times:
    """Of what vitune_bench_operators wrote: the medians of its repetitions. peers_from: as of of_winners()."""
    rows: dict[str, Row] = {}
    for entry in documents.rows(document, "benchmarks"):
        run_name, label = entry.get("run_name"), entry.get("label", "")
        if entry.get("aggregate_name") != "median" or not isinstance(run_name, str) or not isinstance(label, str):
            continue
        call = _measured_call(run_name, label)
        us = documents.positive(document, entry, "real_time")
        if call is None or us is None:
            continue
        if entry.get("time_unit") != "us":
            raise documents.fail(document, "time_unit", "is not us, as vitune_bench_operators writes it")
        peer, kind, name, text = call
        known = stored.get(text)
        row = rows.setdefault(text, Row(name, text, dict(known.us) if known else {}))
        row.us[peer] = row.us.get(peer, {}) | {kind: us}
        if kind == "cold":
            row.floor_us = documents.positive(document, entry, "floor_us")
    context = document.get("context")
    found = Times(documents.text(context, "vitune_device"), documents.day(document), documents.versions(document),
                  list(rows.values()), stored_peers=any(text in stored for text in rows), peers_from=peers_from)
    return _with_times(document, found)


def stored_rows(document: dict[str, Any]) -> dict[str, Row]:
    """The peers' times of data/bench_problems.json, by problem."""
    found = {}
    for entry in documents.rows(document, "problems"):
        row = _peer_row(document, {**entry, "us": entry.get("peers_us")})
        found[row.text] = row
    return found
