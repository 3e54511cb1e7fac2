# benchmarks/report/cli.py -- The command line of the report: which files, where the page goes.
# SPDX-License-Identifier: Apache-2.0
"""Without arguments the page is of what `vitune show --json` gives of the user's database."""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys

from . import documents, output, picture
from .assemble import Inputs, assemble
from .documents import BadInput
from .page import Page, render
from .times import Row, Times, of_benchmarks, of_peers, of_winners, stored_from, stored_rows

_NAMES = ("models", "train_models", "peers", "tune", "bench_operators", "ceilings", "cold_start", "first_calls", "reference_peers",
          "peers_norm", "peers_group_norm")
_MADE_BY = {
    "models": ("models", "'make models'"),
    "train_models": ("train_models", "'make train-models'"),
    "peers": ("peers", "'make peers'"),
    "ceilings": ("devices", "'vitune devices --measure --json'"),
    "first_calls": ("first_calls", "'benchmarks/peers/run.py --first-calls'"),
    "reference_peers": ("peers", "benchmarks/peers/run.py"),
    "peers_norm": ("peers", "'make peers'"),
    "peers_group_norm": ("peers", "'make peers'"),
}


class _ShowFailed(Exception):
    """What the command that was asked for the database says, and how it ended."""

    def __init__(self, done: subprocess.CompletedProcess) -> None:
        super().__init__(done.stderr.rstrip() or f"vitune: error: {done.args[0]} show ended with {done.returncode}")
        self.status = done.returncode if done.returncode > 0 else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vitune report", description=__doc__)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("report.html"))
    parser.add_argument("--results", type=pathlib.Path)
    for name in _NAMES:
        parser.add_argument("--" + name.replace("_", "-"), type=pathlib.Path)
    parser.add_argument("--figures", type=pathlib.Path)
    parser.add_argument("--data-dir", type=pathlib.Path)
    parser.add_argument("--db", type=pathlib.Path)
    parser.add_argument("--command", default="vitune", help="the vitune that is asked for the database")
    parser.add_argument("--quiet", "-q", action="store_true")
    return parser.parse_args()


def _chosen(given: argparse.Namespace) -> dict[str, pathlib.Path]:
    if given.results and not given.results.is_dir():
        raise BadInput(f"--results '{given.results}' is not a folder")
    if sum(map(bool, (given.peers, given.tune, given.bench_operators))) > 1:
        raise BadInput("--peers, --tune and --bench-operators are times of the same kernels; leave one of them")
    found = {}
    for name in _NAMES:
        path = getattr(given, name)
        if path is None and given.results and (given.results / f"{name}.json").exists():
            path = given.results / f"{name}.json"
        if path is not None:
            found[name] = path
    return found


def _of_database(given: argparse.Namespace) -> Times:
    command = [given.command, "show", "--json", *(["--db", str(given.db)] if given.db else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BadInput(f"{given.command} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise _ShowFailed(done)
    document = documents.parse(done.stdout, "vitune show --json")
    if not document.get("winners"):
        raise BadInput("the database holds no winner yet: run 'vitune tune', or give --results, --peers or --tune")
    return of_winners(document, "winners", *_stored(given))


def _stored(given: argparse.Namespace) -> tuple[dict[str, Row], str]:
    """The stored times of the peers, by problem, and where they were measured, if the data are there."""
    path = given.data_dir / "bench_problems.json" if given.data_dir else None
    if not path or not path.exists():
        return {}, ""
    document = documents.read(path)
    return stored_rows(document), stored_from(document)


def _times(given: argparse.Namespace, files: dict[str, pathlib.Path], read: dict) -> Times | None:
    if "peers" in files:
        return of_peers(read["peers"])
    if "tune" in files:
        if read["tune"].get("command") not in ("tune", "bench"):
            raise BadInput(f"{files['tune']}: is not what 'vitune tune --json' wrote")
        return of_winners(read["tune"], "results", *_stored(given))
    if "bench_operators" in files:
        return of_benchmarks(read["bench_operators"], *_stored(given))
    # Other files alone make a page; nothing at all means the database.
    return None if files else _of_database(given)


def _inputs(given: argparse.Namespace) -> Inputs:
    files = _chosen(given)
    if given.results and not files:
        raise BadInput(f"--results '{given.results}' holds none of the files of docs/report.md")
    read = {name: documents.read(path, *_MADE_BY.get(name, ())) for name, path in files.items()}
    times = _times(given, files, read)
    return Inputs(times, read.get("models"), read.get("ceilings"), read.get("first_calls"), read.get("cold_start"),
                  of_peers(read["reference_peers"]) if "reference_peers" in read else None,
                  [of_peers(read[name]) for name in ("peers_norm", "peers_group_norm") if name in read], read.get("train_models"))


def _write(path: pathlib.Path, text: str) -> None:
    try:
        output.write(path, text)
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error.strerror}): check its folder, its permissions and the space "
                      "left, or name another with --output") from None


def _write_all(given: argparse.Namespace, page: Page) -> int:
    _write(given.output, render(page))
    pictures = [one for section in page.sections for one in section.pictures]
    if given.figures:
        given.figures.mkdir(parents=True, exist_ok=True)
        for one in pictures:
            _write(given.figures / f"{one.name}.svg", picture.standalone(one))
    return len(pictures)


def main() -> int:
    """0, 1 for what cannot be written, 2 for wrong input, and what `vitune show` ended with where it failed."""
    given = _arguments()
    try:
        count = _write_all(given, assemble(_inputs(given)))
    except BadInput as error:
        print(f"vitune: error: {error}", file=sys.stderr)
        return 2
    except _ShowFailed as error:
        print(error, file=sys.stderr)
        return error.status
    except OSError as error:
        print(f"vitune: error: {error}", file=sys.stderr)
        return 1
    if not given.quiet:
        print(f"{given.output}: {count} pictures; it opens in any browser, offline", file=sys.stderr)
    return 0
