# benchmarks/tuner/race.py -- Configs of each problem in one race, by vitune_bench_variants.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import pathlib
import re
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["device_name", "known_from", "text_of", "times_of"]

_LINE = re.compile(r"(p\d+)/(c\d+) \S+\s+warm\s+([\d.]+) us")


def text_of(config: Mapping[str, Any]) -> str:
    """As the race's program reads it."""
    return " ".join(f"{name}={value}" for name, value in sorted(config.items()))


def known_from(path: pathlib.Path) -> list[dict[str, Any]]:
    """Problems and configs of a document of this program, or of a file of such lines. Raises OSError, ValueError."""
    text = path.read_text()
    try:
        whole = json.loads(text)
        rows = whole["rows"] if "rows" in whole else [whole]
    except ValueError:
        rows = [json.loads(line) for line in text.splitlines() if line]
    if any(not isinstance(row, dict) or not {"problem", "config"} <= row.keys() for row in rows):
        raise ValueError(f"{path} has a row without a problem and a config")
    return [{"problem": row["problem"], "config": row["config"]} for row in rows]


def times_of(rows: Iterable[Mapping[str, Any]], program: str, templates: pathlib.Path, folder: pathlib.Path) -> dict[str, dict[str, float]]:
    """{problem: {config: warm microseconds}}. Raises RuntimeError where one of them was not timed."""
    configs: dict[str, list[str]] = {}
    for row in rows:
        of_problem = configs.setdefault(row["problem"], [])
        if row["config"] not in of_problem:
            of_problem.append(row["config"])
    cases = [f"p{i}/c{j}; {problem}; {config}" for i, (problem, all_) in enumerate(configs.items()) for j, config in enumerate(all_)]
    (folder / "cases").write_text("\n".join(cases) + "\n")
    run = subprocess.run([program, "--templates", f"t={templates}", "--cases", str(folder / "cases")], capture_output=True, text=True)
    found: dict[str, dict[str, float]] = {problem: {} for problem in configs}
    for problem, config, us in _LINE.findall(run.stdout):
        text = list(configs)[int(problem[1:])]
        found[text][configs[text][int(config[1:])]] = float(us)
    missing = sum(len(all_) - len(found[problem]) for problem, all_ in configs.items())
    if run.returncode != 0 or missing:
        raise RuntimeError(f"'{program}' ended with {run.returncode} and timed all but {missing} configs: {(run.stderr or run.stdout).strip()[-500:]}")
    return found


def device_name(command: str) -> str:
    """Of the GPU that the command uses; "" if it does not say."""
    run = subprocess.run([command, "devices", "--json"], capture_output=True, text=True)
    try:
        return json.loads(run.stdout)["devices"][0]["name"]
    except (ValueError, LookupError, TypeError):
        return ""
