# benchmarks/lab/defaults.py -- How much longer a problem takes with its default config than with its winner, by the trials that are stored.
# SPDX-License-Identifier: Apache-2.0
"""Nothing is measured. The defaults are those of the program at hand (`vitune explain`, with no winner in sight); their times are those of
the shipped database and of its former versions in git, which kept more trials of a problem. A config's
time over the winner's is of one search. "In the race of its tuning": what was the default then.

    python3 benchmarks/lab/defaults.py                  # a table for each GPU, operator and objective; no GPU needed
    python3 benchmarks/lab/defaults.py --rows linear    # and each problem of these operators, the slowest first
"""
from __future__ import annotations

import argparse
import collections
import json
import pathlib
import sqlite3
import statistics
import subprocess
import tempfile
from typing import Iterator, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATABASE = "data/winners.db"
#: Tunables that make a tile; configs with the same ones are neighbours.
TILE = {
    "linear": ("kFamily", "kBlockM", "kBlockN", "kGroups", "kSchedule", "kSplits"),
    "norm": ("kRowThreads", "kPersistent", "kEarlyStart"),
    "group_norm": ("kCluster", "kTurns", "kChunks", "kGroups", "kEarlyStart"),
}
#: Of a config that an older version wrote without them.
ABSENT = {"kWidePanels": 0, "kCluster": 0, "kTurns": 1}
_TRIALS = """SELECT d.name, p.text, t.config, t.cold_us, t.warm_us FROM trial t JOIN device d USING (device_id) JOIN problem p USING (problem_id)
             WHERE t.status = 'ok'"""
_WINNERS = """SELECT d.name, p.operator, p.text, w.objective, w.config, w.default_us, w.cold_us, w.warm_us
              FROM winner w JOIN device d USING (device_id) JOIN problem p USING (problem_id) ORDER BY 1, 2, 3"""

Config = frozenset  #: of (name, value); zeros and what is absent are left out
Search = dict  #: of a version: config -> (cold, warm)


def config_of(text: str) -> Config:
    values = dict(word.split("=") for word in text.split() if not word.startswith("family="))
    return frozenset((name, int(value)) for name, value in values.items() if int(value) != ABSENT.get(name, 0))


def versions(folder: pathlib.Path) -> Iterator[sqlite3.Connection]:
    """The database as it is, then its former versions, the latest first."""
    log = subprocess.run(["git", "log", "--format=%H", "--", DATABASE], cwd=ROOT, capture_output=True, text=True, check=False)
    for commit in [None, *log.stdout.split()[1:]]:
        path = ROOT / DATABASE
        if commit:
            path = folder / f"{commit}.db"
            path.write_bytes(subprocess.run(["git", "show", f"{commit}:{DATABASE}"], cwd=ROOT, capture_output=True, check=True).stdout)
        yield sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def defaults(vitune: str, problems: list[str]) -> dict[str, Config]:
    """The first default of each problem on an H200 (an H100 has as many SMs)."""
    with tempfile.TemporaryDirectory() as bare:
        for path in (ROOT / "data").glob("*.json"):
            (pathlib.Path(bare) / path.name).symlink_to(path)
        command = [vitune, "explain", "--json", "--quiet", "--device", "replay:h200", "--data-dir", bare, "--from", "-"]
        done = subprocess.run(command, input="\n".join(problems), env={"XDG_CACHE_HOME": bare}, capture_output=True, text=True, check=True)
    chosen = {}
    for entry in json.loads(done.stdout)["problems"]:
        config = entry["choices"][0]["config"]
        chosen[entry["problem"]] = config_of(" ".join(f"{name}={value}" for name, value in config.items()))
    return chosen


def over_winner(searches: list[Search], config: Config, winner: Config, at: int) -> Optional[float]:
    """By the latest search that tried the config."""
    for search in searches:
        if config in search:
            return search[config][at] / search.get(winner, min(search.values(), key=lambda times: times[at]))[at]
    return None


def neighbour(searches: list[Search], config: Config, operator: str) -> Optional[Config]:
    def tile(of: Config) -> tuple:
        return tuple(dict(of).get(name, ABSENT.get(name, 0)) for name in TILE.get(operator, ()))

    alike = [other for search in searches for other in search if operator in TILE and tile(other) == tile(config)]
    return min(alike, key=lambda other: (len(other ^ config), sorted(other)), default=None)


def figures(values: list[float]) -> str:
    if not values:
        return f"{0:4}" + 4 * f"{'-':>8}"
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{len(values):4}" + "".join(f"{100 * (x - 1):8.1f}" for x in (statistics.mean(values), statistics.median(values), p95, ordered[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vitune", default=str(ROOT / "build/default/vitune"))
    parser.add_argument("--rows", nargs="*", default=[], metavar="OPERATOR")
    arguments = parser.parse_args()
    searches: dict[tuple[str, str], list[Search]] = collections.defaultdict(list)
    winners: list[tuple] = []
    with tempfile.TemporaryDirectory() as folder:
        for connection in versions(pathlib.Path(folder)):
            winners = winners or connection.execute(_WINNERS).fetchall()
            version: dict[tuple[str, str], Search] = collections.defaultdict(dict)
            for gpu, text, config, cold, warm in connection.execute(_TRIALS):
                version[gpu, text][config_of(config)] = (cold, warm)
            for key, search in version.items():
                searches[key].append(search)
    chosen = defaults(arguments.vitune, sorted({row[2] for row in winners}))
    groups: dict[tuple[str, str, str], list[tuple]] = collections.defaultdict(list)
    for gpu, operator, text, objective, winner_text, default_us, cold, warm in winners:
        at, winner, default = (objective == "warm"), config_of(winner_text), chosen[text]
        exact = 1.0 if default == winner else over_winner(searches[gpu, text], default, winner, at)
        beside = None if exact else neighbour(searches[gpu, text], default, operator)
        near = over_winner(searches[gpu, text], beside, winner, at) if beside else None
        then = default_us / (warm if at else cold) if default_us else None
        groups[gpu, operator, objective].append((exact, near, then, text))
    print(f"{'percent over the winner':44}   n    mean     p50     p95   worst")
    for (gpu, operator, objective), rows in sorted(groups.items()):
        name = f"{gpu.split()[1]} {operator} {objective}"
        print(f"{name + ', in the race of its tuning':44}{figures([row[2] for row in rows if row[2]])}")
        print(f"{'  the default, where it was tried':44}{figures([row[0] for row in rows if row[0]])}")
        print(f"{'  the same tile, where another was':44}{figures([row[1] for row in rows if row[1]])}")
        print(f"{'  never tried':44}{sum(not row[0] and not row[1] for row in rows):4}")
        if operator in arguments.rows:
            for exact, near, then, text in sorted(rows, key=lambda row: -(row[0] or row[1] or 9)):
                shown = f"{exact:.3f} " if exact else f"{near:.3f}~" if near else "  ?   "
                print(f"    {shown} {then or 0:.3f} {text}")


if __name__ == "__main__":
    main()
