# benchmarks/peers/cli.py -- Options and order: compile ahead, measure, make the tables.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import vitune

from . import table
from .engine import document, first_calls, precompile, problems, supervise
from .engine.peer import Settings
from .engine.roster import Roster
from .rosters import ROSTERS, roster_of

RUN = pathlib.Path(__file__).resolve().parent / "run.py"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="peers",
        description="Measures vitune beside all that PyTorch users could take in its place. "
        "benchmarks/peers/README.md says how.",
    )
    take = parser.add_argument_group("problems (default: data/bench_problems.json)")
    take.add_argument("--problem", action="append", default=[], metavar="TEXT")
    take.add_argument(
        "--from",
        action="append",
        default=[],
        dest="files",
        type=pathlib.Path,
        metavar="FILE",
        help=".json, .jsonl or .txt, see docs/problems.md",
    )
    take.add_argument("--only", metavar="REGEX", help="in a name, a group or a text")
    usual = "; ".join(f"{roster.name}: {','.join(roster.usual)}" for roster in ROSTERS)
    parser.add_argument("--peers", metavar="LIST", help=f"default: {usual}")
    parser.add_argument(
        "--db", type=pathlib.Path, help="vitune's database; default: as vitune does"
    )
    choices = "; ".join(f"{roster.name}: {', '.join(roster.objectives)}" for roster in ROSTERS)
    parser.add_argument(
        "--objective",
        metavar="STATE",
        help=f"whose winners vitune serves; the first is the default: {choices}",
    )
    parser.add_argument(
        "--own-db",
        type=pathlib.Path,
        metavar="FILE",
        help="of linear layers: what vitune_own is served where a library's kernel won in --db "
        "(linear/own_winners.py); default: nothing, and it is refused there",
    )
    parser.add_argument("--library", type=pathlib.Path, help="the libvitune.so.0 to load")
    parser.add_argument(
        "--json",
        type=pathlib.Path,
        metavar="FILE",
        default=pathlib.Path("peers.json"),
        help="default: %(default)s; written row by row",
    )
    parser.add_argument("--md", type=pathlib.Path, metavar="FILE", help="Markdown of the result")
    parser.add_argument(
        "--first-calls",
        type=pathlib.Path,
        metavar="FILE",
        help="measures nothing but each peer's first call, in processes of their own; its JSON",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=480.0,
        metavar="SECONDS",
        help="for everything; default: %(default)g",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, min(12, (os.cpu_count() or 2) - 2)),
        help="processes that compile ahead, 0 for none; default: %(default)s",
    )
    parser.add_argument(
        "--row-seconds",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="the least share of the time that a problem gets, rather than leaving peers out: the last "
        "problems are then unfinished, and --resume goes on there",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the rows that --json FILE has of an earlier run, and measure the others",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=random.randrange(1 << 31),
        help="of data and orders; default: another one each time",
    )
    for hidden in ("--worker", "--compile-worker"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--first-call-worker", metavar="PEER", help=argparse.SUPPRESS)
    parser.add_argument("--excluded", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser


def _names(options: argparse.Namespace, roster: Roster) -> list[str]:
    """The peers that take part. Raises BadProblem."""
    if options.peers is None:
        return list(roster.usual)
    names = options.peers.split(",")
    unknown = [name for name in names if name not in roster.names]
    if unknown:
        raise problems.BadProblem(
            f"no peer of {roster.name} is called {unknown[0]}: {', '.join(roster.names)}"
        )
    return names


def _settings(options: argparse.Namespace, roster: Roster) -> Settings:
    """What is asked of vitune. Raises BadProblem."""
    objective = options.objective or roster.objectives[0]
    if objective not in roster.objectives:
        raise problems.BadProblem(
            f"--objective {objective}: of {roster.name} vitune serves the winners for "
            f"{' or '.join(roster.objectives)} calls here"
        )
    return Settings(options.db, objective, options.own_db)


def _journal(result: pathlib.Path) -> pathlib.Path:
    return result.with_name(result.name + ".now")


def _sees_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _measure(options: argparse.Namespace, roster: Roster, chosen: list[problems.Problem]) -> int:
    """The measuring process."""
    from .engine.session import POISONED, Journal, OtherDevice, Poisoned, Session

    if not _sees_gpu():
        print("peers: PyTorch sees no CUDA device; measuring needs one", file=sys.stderr)
        return 3
    names, settings = _names(options, roster), _settings(options, roster)
    barred = json.loads(options.excluded.read_text())
    try:
        peers = roster.peers(names, settings)
        for name, reason in roster.broken(names).items():
            for problem in chosen:
                barred.setdefault(problem.text, {}).setdefault(name, f"failed: {reason}")
        session = Session(
            roster,
            peers,
            options.json,
            Journal(_journal(options.json)),
            barred,
            options.seed,
            objective=settings.objective,
        )
        session.begin(options.resume)
        session.run(chosen, options.until, options.row_seconds)
    except Poisoned as error:
        print(f"peers: the GPU no longer answers in this process: {error}", file=sys.stderr)
        return POISONED
    except OtherDevice as error:
        print(f"peers: --resume: {error}: name another --json", file=sys.stderr)
        return 2
    return 0


def _again(options: argparse.Namespace, excluded: pathlib.Path, until: float) -> list[str]:
    """The command line of a child with the same options."""
    words = [
        sys.executable,
        str(RUN),
        "--json",
        str(options.json),
        "--seed",
        str(options.seed),
        "--until",
        str(until),
        "--excluded",
        str(excluded),
        "--row-seconds",
        str(options.row_seconds),
    ]
    for text in options.problem:
        words += ["--problem", text]
    for path in options.files:
        words += ["--from", str(path)]
    for option in ("peers", "only", "db", "own_db", "objective", "library"):
        if getattr(options, option) is not None:
            words += [f"--{option.replace('_', '-')}", str(getattr(options, option))]
    return words


def missing() -> str | None:
    """What measuring lacks here, as a sentence; looked for without PyTorch's seconds of import."""
    if importlib.util.find_spec("torch") is None:
        return f"{sys.executable} has no PyTorch, which measuring needs"
    # In a child: CUDA, once opened, would stay in this process.
    look = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0) != 0)"
    if subprocess.run([sys.executable, "-c", look], capture_output=True).returncode:
        return "no CUDA driver with a GPU is here, and measuring needs one"
    return None


def _not_measured(
    options: argparse.Namespace, chosen: list[problems.Problem]
) -> list[problems.Problem]:
    """What a resumed run has no row of, else all."""
    if not options.resume or not options.json.exists():
        return chosen
    done = {row["problem"] for row in document.read(options.json)["rows"]}
    return [problem for problem in chosen if problem.text not in done]


def _run(options: argparse.Namespace, roster: Roster, chosen: list[problems.Problem]) -> int:
    lacking = missing()
    if lacking is not None:
        print(f"peers: {lacking}", file=sys.stderr)
        return 3
    until = time.time() + options.budget
    options.json.parent.mkdir(parents=True, exist_ok=True)
    compiled = [name for name in _names(options, roster) if name in roster.compiled]
    todo = _not_measured(options, chosen)
    with tempfile.TemporaryDirectory(prefix="vitune_peers_") as folder:
        excluded = pathlib.Path(folder) / "excluded.json"
        base = _again(options, excluded, until)
        verdicts: precompile.Verdicts = {}
        if options.jobs > 0 and compiled and todo:
            began = time.time()
            verdicts = precompile.run_pool(
                precompile.groups(roster, todo, compiled),
                [*base, "--compile-worker"],
                options.jobs,
                0.35 * options.budget,
                0.2 * options.budget,
            )
            print(f"compiled ahead in {time.time() - began:.0f} s", flush=True)
        excluded.write_text(json.dumps(verdicts))
        status = supervise.watch(
            lambda resume: [*base, "--worker", *["--resume"] * (resume or options.resume)],
            _journal(options.json),
            excluded,
            until,
            stall=max(60.0, 0.25 * options.budget),
        )
    if status == 3 or not options.json.exists():
        return status or 1
    found = document.read(options.json)
    print("\n" + table.console(found))
    if options.md is not None:
        options.md.write_text(table.markdown(found))
    return status or int(bool(found["unfinished"]))


def _first_calls(
    options: argparse.Namespace, roster: Roster, chosen: list[problems.Problem]
) -> int:
    """Processes that each make a first call; the JSON of them. This one opens CUDA last."""
    lacking = missing()
    if lacking is not None:
        print(f"peers: {lacking}", file=sys.stderr)
        return 3
    asked = _names(options, roster)
    names = [name for name in asked if roster.first_calls and name in roster.first_calls.peers]
    base = _again(options, pathlib.Path(os.devnull), 0)
    found = first_calls.collect(
        names, lambda name: [*base, "--first-call-worker", name], 0.9 * options.budget
    )
    print(first_calls.table(found), flush=True)
    from .engine.device import describe

    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    first_calls.write(found, describe(), chosen, now, options.first_calls)
    return int(not found["us"])


def _asked(options: argparse.Namespace) -> tuple[Roster, list[problems.Problem]]:
    """Whose peers are measured, and of which problems. Raises BadProblem, VituneError."""
    if options.library is not None:
        vitune.use_library(options.library)
    for option, path in (("--db", options.db), ("--own-db", options.own_db)):
        if path is not None and not path.is_file():
            raise problems.BadProblem(f"{option} {path}: there is no such file")
    first, texts = options.first_calls or options.first_call_worker, options.problem
    if first and not texts and not options.files:
        texts = list(ROSTERS[0].first_calls.problems)
    roster, chosen = problems.collect(roster_of, texts, options.files, options.only)
    if first and roster.first_calls is None:
        raise problems.BadProblem(f"first calls of {roster.name} are not measured: leave --first-calls out")
    if first and len(chosen) < 2:
        raise problems.BadProblem("first calls need two problems: the first and the next one")
    _names(options, roster)
    _settings(options, roster)
    return roster, chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; its exit status: 0, 1 unfinished or failed, 2 usage, 3 no GPU."""
    options = _parser().parse_args(arguments)
    try:
        roster, chosen = _asked(options)
        if options.resume and options.json.exists():
            document.read(options.json)
    except (problems.BadProblem, document.BadDocument, vitune.VituneError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    if options.compile_worker:
        return precompile.worker(roster, _settings(options, roster))
    if options.first_call_worker is not None:
        # PyTorch is not imported before it is timed.
        settings = _settings(options, roster)
        return first_calls.worker(roster, options.first_call_worker, chosen, settings)
    if options.first_calls is not None:
        return _first_calls(options, roster, chosen)
    return _measure(options, roster, chosen) if options.worker else _run(options, roster, chosen)
