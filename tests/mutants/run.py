#!/usr/bin/env python3
# tests/mutants/run.py -- Changes one line of the program at a time and counts whom the tests let live.
#
# Usage: run.py [--drawn N] [--seed S] [--only WORDS] [--nice N] [--resume] [--list]. Works on the commit that is checked out, in
# a worktree of its own (build/mutants/tree). Exit status 0: at most one in twenty lives, and no line of safety; 1: more
# live; 2: it could not be told. --resume takes over what an earlier run found out about mutants that were killed.
# SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from draw import drawn  # noqa: E402
from mutant import Check, Mutant  # noqa: E402
from named import NAMED  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Programs whose tests look at a folder's code, those of its own first.
ROOMS = {
    "core": ("core", "db", "runtime", "tuner"),
    "db": ("db", "runtime", "tuner"),
    "generator": ("generator", "runtime", "tuner"),
    "runtime": ("runtime",),
    "tuner": ("tuner",),
}
#: Tests of the library and the judge that run on the emulated device, for who lived through the others.
EMULATED = {"runtime": "*Library*GpuTest.*-CublasLt*", "tuner": "GpuJudge.*:NormGpuTest.*"}
LEAST_LIMIT_S = 120.0


class Failure(Exception):
    """The tool cannot go on."""


class Tree:
    """A worktree with a build of its own; whatever is changed in it is restored."""

    def __init__(self, folder: pathlib.Path, jobs: int, priority: int) -> None:
        self.root, self.build, self.jobs = folder / "tree", folder / "tree" / "build" / "default", jobs
        self.nice = ["nice", "-n", str(priority)]
        self.limits: dict[Check, float] = {}

    def prepare(self) -> None:
        git = ["git", "-C", str(ROOT)]
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        if not (self.root / ".git").exists():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([*git, "worktree", "add", "--quiet", "--force", "--detach", str(self.root), head], check=True)
        own = ["git", "-C", str(self.root)]
        subprocess.run([*own, "checkout", "--quiet", "--force", "--detach", head], check=True)
        if not (self.build / "build.ninja").exists():
            subprocess.run(["cmake", "--preset", "default"], cwd=self.root, check=True, stdout=subprocess.DEVNULL)

    def make(self, targets: list[str]) -> str:
        """Builds; what the compiler says if that fails, else nothing."""
        done = subprocess.run([*self.nice, "ninja", "-C", str(self.build), "-j", str(self.jobs), *targets],
                              capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout[-4000:] or "the build failed"

    def run(self, check: Check, limit_s: float) -> str:
        """Runs the tests of `check`: "" if all pass, else the first that fails."""
        program = self.build / "tests" / check.target
        with tempfile.TemporaryDirectory(dir=self.root.parent) as folder:
            environment = {**os.environ, "TMPDIR": folder, "HOME": folder}
            if check.emulated:
                device = str(self.build / "tests" / "emulator" / "device")
                environment.update(LD_LIBRARY_PATH=device, CUDA_HOME=device, VITUNE_CUBLASLT=f"{device}/absent")
            running = subprocess.Popen(
                [*self.nice, str(program), f"--gtest_filter={check.filter}", "--gtest_fail_fast",
                 "--gtest_brief=1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                env=environment, cwd=self.build / "tests", start_new_session=True)
            try:
                said, _ = running.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.communicate()
                return f"no end within {limit_s:.0f} s"
        if running.returncode == 0:
            return ""
        failed = re.search(r"\[  FAILED  \] ([\w/]+\.\w+)", said)
        return failed.group(1) if failed else f"exit status {running.returncode}"

    def limit_of(self, check: Check) -> float:
        """How long the tests may take, by the time that they take without any mutant, when all must pass."""
        if check not in self.limits:
            complaint = self.make([check.target, *emulated_targets(check)])
            if complaint:
                raise Failure(f"{check.target} does not build without any mutant:\n{complaint}")
            start = time.monotonic()
            failed = self.run(check, 3600)
            if failed:
                raise Failure(f"{check} fails without any mutant: {failed}")
            self.limits[check] = max(LEAST_LIMIT_S, 10 * (time.monotonic() - start))
        return self.limits[check]

    def judge(self, mutant: Mutant) -> tuple[str, str]:
        """"killed" and by whom; "lives"; "no program" and the compiler's words."""
        path = self.root / mutant.file
        original = path.read_text(encoding="utf-8")
        for check in mutant.checks or checks_of(mutant.file, self.root):
            limit_s = self.limit_of(check)
            path.write_text(mutant.changed(original), encoding="utf-8")
            try:
                complaint = self.make([check.target, *emulated_targets(check)])
                if complaint:
                    return "no program", complaint
                failed = self.run(check, limit_s)
            finally:
                path.write_text(original, encoding="utf-8")
            if failed:
                return "killed", failed
        return "lives", ""


def emulated_targets(check: Check) -> list[str]:
    return ["vitune_emulated_cuda", "vitune_emulated_nvrtc"] if check.emulated else []


def suites_of(file: pathlib.Path) -> list[str]:
    return sorted(set(re.findall(r"^TEST(?:_F|_P)?\((\w+),", file.read_text(encoding="utf-8"), re.M)))


def checks_of(file: str, root: pathlib.Path) -> tuple[Check, ...]:
    """Of a drawn mutant: tests that are named as the file, the room's, those of the rooms above, the emulated."""
    rooms, stem = ROOMS[file.split("/", 1)[0]], pathlib.PurePosixPath(file).stem
    near = [suite for path in sorted((root / "tests" / rooms[0]).glob(f"*{stem}*_test.cpp"))
            if "_gpu_" not in path.name for suite in suites_of(path)]
    checks = [Check(f"vitune_{rooms[0]}_test", ":".join(f"*{suite}.*" for suite in near))] if near else []
    checks += [Check(f"vitune_{room}_test", "*-*GpuTest.*:Gpu*:AttentionKernel*") for room in rooms]
    return tuple(checks + [Check(f"vitune_{room}_test", EMULATED[room], True) for room in rooms if room in EMULATED])


def said_of(mutant: Mutant, verdict: str, why: str, seconds: float) -> str:
    mark = "safety" if mutant.safety else ""
    return f"{verdict:<10}  {mark:<6}  {seconds:6.0f} s  {mutant.name}  ({mutant.file}){': ' + why if why else ''}"


def key_of(mutant: Mutant) -> str:
    return json.dumps([mutant.file, mutant.old, mutant.new])


def examine(tree: Tree, mutants, wanted: int, known: dict, save) -> list[tuple[Mutant, str]]:
    """Judges mutants until `wanted` of them were programs."""
    found = []
    for mutant in mutants:
        if len(found) == wanted:
            break
        start = time.monotonic()
        verdict, why = known.get(key_of(mutant)) or tree.judge(mutant)
        known[key_of(mutant)] = [verdict, why]
        save()
        shown = why.splitlines()[0] if verdict == "killed" else why if verdict == "no program" and mutant.checks else ""
        print(said_of(mutant, verdict, shown, time.monotonic() - start), flush=True)
        if verdict != "no program":
            found.append((mutant, verdict))
        elif mutant.checks:
            raise Failure(f"'{mutant.name}' is no program any more: name it anew")
    return found


def verdict_on(found: list[tuple[Mutant, str]]) -> int:
    alive = [mutant for mutant, verdict in found if verdict == "lives"]
    safety = [mutant.name for mutant in alive if mutant.safety]
    print(f"\n{len(alive)} of {len(found)} mutants live" + (f"; of lines of safety: {', '.join(safety)}" if safety else ""))
    return 1 if safety or 20 * len(alive) > len(found) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts the mutants that the tests let live.")
    parser.add_argument("--drawn", type=int, default=20, help="how many are drawn beside the named ones (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--only", default="", help="named mutants whose name or file has these words, none drawn")
    parser.add_argument("--jobs", type=int, default=2, help="of the build (2)")
    parser.add_argument("--nice", type=int, default=19, help="priority of builds and tests (19: what nobody else needs)")
    parser.add_argument("--resume", action="store_true", help="take over who was killed by an earlier run")
    parser.add_argument("--list", action="store_true", help="list the mutants and change nothing")
    options = parser.parse_args()
    named = [mutant for mutant in NAMED if options.only in f"{mutant.name} {mutant.file}"]
    by_chance = 0 if options.only else options.drawn
    if options.list:
        for mutant in [*named, *itertools.islice(drawn(ROOT, options.seed), by_chance)]:
            print(f"{mutant.name}: {mutant.new.strip() or '(nothing)'}")
        return 0
    for tool in ("git", "cmake", "ninja", "nice"):
        if shutil.which(tool) is None:
            raise Failure(f"there is no {tool}")
    folder = ROOT / "build" / "mutants"
    tree = Tree(folder, options.jobs, options.nice)
    tree.prepare()
    results = folder / "results.json"
    kept = json.loads(results.read_text()) if options.resume and results.exists() else {}
    known = {key: value for key, value in kept.items() if value[0] != "lives"}

    def save() -> None:
        results.write_text(json.dumps(known, indent=1))
    found = examine(tree, named, len(named), known, save)
    found += examine(tree, drawn(tree.root, options.seed), by_chance, known, save)
    return verdict_on(found)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"mutants: {failure}", file=sys.stderr)
        sys.exit(2)
