#!/usr/bin/env python3
# tests/mutants/run.py -- Changes one line of the program at a time and counts whom the tests let live.
#
# Usage: run.py [--drawn N] [--seed S] [--only WORDS] [--nice N] [--resume] [--list]. Works on the commit that is checked out, in
# a worktree of its own (build/mutants/tree). Exit status 0: at most one in twenty lives, and no line of safety; 1: more
# live; 2: it could not be told. A mutant is built and tested program by program, the tests nearest to its file first, until
# one fails; in the end those that failed must pass without any mutant. --resume takes over what an earlier run found out
# about mutants that were killed, and the emulated kernels that it compiled.
# SPDX-License-Identifier: Apache-2.0
import argparse
import dataclasses
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
#: Tests that need a GPU, or a toolkit's compiler.
NOT_HERE = ("*GpuTest.*", "Gpu*", "AttentionKernel*", "*Compile.*", "CompiledCubinCode.*", "LaidOutKernels.*",
            "ShippedKernelsTest.*")
#: Tests of the library and the judge that run on the emulated device, for who lived through the others.
EMULATED = {"runtime": "*Library*GpuTest.*-CublasLt*", "tuner": "GpuJudge.*:NormGpuTest.*"}
#: Of an operator's folder: those of its kernels.
EMULATED_KERNELS = {"attention": "AttentionGpuTest.*:*AttentionFeatureGpuTest*-*ManyWindows:*OneLaunch*",
                    "group_norm": "*GroupNorm*GpuTest*", "linear": "*Linear*GpuTest*-*LinearWeightGrad*",
                    "linear_weight_grad": "*LinearWeightGrad*GpuTest*", "norm": "NormGpuTest.*:ShiftedRowsGpuTest.*",
                    "packed_attention": "*PackedAttention*GpuTest*", "window_attention": "*WindowAttention*GpuTest*-*WindowAttentionBackward*",
                    "window_attention_backward": "*WindowAttentionBackward*GpuTest*"}
#: How long a program may say nothing: the most that CTest gives to one.
SILENCE_S = 900.0


class Failure(Exception):
    """The tool cannot go on."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    kind: str  #: "killed", "lives" or "no program"
    why: str = ""  #: the test that failed, or the compiler's words
    target: str = ""  #: the program of the test
    emulated: bool = False


class Tree:
    """A worktree with a build of its own; whatever is changed in it is restored."""

    def __init__(self, folder: pathlib.Path, jobs: int, priority: int) -> None:
        self.root, self.build, self.jobs = folder / "tree", folder / "tree" / "build" / "default", jobs
        self.nice = ["nice", "-n", str(priority)]
        self.kernels = folder / "kernels"

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

    def make(self, check: Check) -> str:
        """Builds the program of `check`; what the compiler says if that fails, else nothing."""
        targets = [check.target, *(["vitune_emulated_cuda", "vitune_emulated_nvrtc"] if check.emulated else [])]
        done = subprocess.run([*self.nice, "ninja", "-C", str(self.build), "-j", str(self.jobs), *targets],
                              capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout[-4000:] or "the build failed"

    def run(self, check: Check) -> str:
        """Runs the tests of `check`: "" if all pass, else the first that fails or is silent for too long."""
        program = self.build / "tests" / check.target
        with tempfile.TemporaryDirectory(dir=self.root.parent) as folder:
            os.chmod(folder, 0o755)  # some tests are another user for a while
            environment = {**os.environ, "TMPDIR": folder, "HOME": folder}
            if check.emulated:
                device = str(self.build / "tests" / "emulator" / "device")
                environment.update(LD_LIBRARY_PATH=device, CUDA_HOME=device, VITUNE_CUBLASLT=f"{device}/absent",
                                   VITUNE_EMULATED_KERNELS=str(self.kernels))
            with open(pathlib.Path(folder) / "said", "w+", encoding="utf-8", errors="replace") as said:
                running = subprocess.Popen(
                    [*self.nice, str(program), f"--gtest_filter={check.filter}", "--gtest_fail_fast"], stdout=said,
                    stderr=subprocess.STDOUT, env=environment, cwd=self.build / "tests", start_new_session=True)
                ended = wait_while_it_speaks(running, said.fileno())
                said.seek(0)
                return failed_test(said.read()) if running.returncode or not ended else ""

    def judge(self, mutant: Mutant) -> Verdict:
        path = self.root / mutant.file
        original = path.read_text(encoding="utf-8")
        path.write_text(mutant.changed(original), encoding="utf-8")
        try:
            for check in mutant.checks or checks_of(mutant.file, self.root):
                complaint = self.make(check)
                if complaint:
                    return Verdict("no program", complaint)
                failed = self.run(check)
                if failed:
                    return Verdict("killed", failed, check.target, check.emulated)
        finally:
            path.write_text(original, encoding="utf-8")
        return Verdict("lives")

    def require_without(self, killed: list[Verdict]) -> None:
        """Raises Failure unless the tests that failed with mutants pass without: each program is built once more."""
        for target, emulated in sorted({(verdict.target, verdict.emulated) for verdict in killed}):
            failed = {verdict.why for verdict in killed if (verdict.target, verdict.emulated) == (target, emulated)}
            check = Check(target, ":".join(sorted(failed)), emulated)
            complaint = self.make(check)
            if complaint:
                raise Failure(f"{target} does not build without any mutant:\n{complaint}")
            still = self.run(check)
            if still:
                raise Failure(f"{still} of {target} fails without any mutant too")


def wait_while_it_speaks(running: subprocess.Popen, output: int) -> bool:
    """Whether it ends by itself; it is killed, with its children, where nothing comes for SILENCE_S."""
    size, since = 0, time.monotonic()
    while running.poll() is None:
        now = os.fstat(output).st_size
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > SILENCE_S:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            return False
        time.sleep(0.1)
    return True


def failed_test(said: str) -> str:
    """The first test that failed, or else the last that began, by what a program of GoogleTest said."""
    failed = re.search(r"\[  FAILED  \] ([\w/]+\.[\w/]+)", said)
    begun = re.findall(r"\[ RUN      \] ([\w/]+\.[\w/]+)", said)
    return failed.group(1) if failed else begun[-1] if begun else "*"


def suites_of(text: str) -> list[str]:
    return sorted(set(re.findall(r"^(?:TEST(?:_F|_P)?|TYPED_TEST)\((\w+),", text, re.M)))


def near_suites(file: str, tests: pathlib.Path) -> tuple[list[str], list[str]]:
    """Suites of `tests` that read a header of the file's folder, or whose file is named as it or as the folder; and those
    for a GPU that read the file's own header."""
    path = pathlib.PurePosixPath(file)
    folders = path.parent.parts[1:]
    words = {path.stem, *folders}
    host, emulated = set(), set()
    for test in tests.glob("*_test.cpp"):
        text = test.read_text(encoding="utf-8")
        reads = f'"{path.with_suffix(".h")}"' in text
        for suite in suites_of(text):
            if suite.endswith("GpuTest") or suite.startswith("Gpu"):
                emulated.update([suite] if reads else [])
            elif reads or folders and f'"{path.parent}/' in text or any(word in test.name for word in words):
                host.add(suite)
    return [f"*{suite}.*" for suite in sorted(host)], [f"*{suite}.*" for suite in sorted(emulated)]


def checks_of(file: str, root: pathlib.Path) -> tuple[Check, ...]:
    """Of a drawn mutant: the near suites of all rooms, the others of its own, its operator's kernels, the other rooms."""
    parts = pathlib.PurePosixPath(file).parts
    rooms = ROOMS[parts[0]]
    near = {room: near_suites(file, root / "tests" / room) for room in rooms}
    program = "vitune_{}_test".format
    checks = [Check(program(room), f"{':'.join(host)}-{':'.join(NOT_HERE)}") for room, (host, _) in near.items() if host]
    checks += [Check(program(room), ":".join(emulated), True) for room, (_, emulated) in near.items() if emulated]
    whole = [Check(program(room), f"*-{':'.join((*NOT_HERE, *host))}") for room, (host, _) in near.items()]
    kernels = EMULATED_KERNELS.get(parts[1])
    checks += [whole[0], *([Check(program("tuner"), kernels, True)] if kernels else []), *whole[1:]]
    return tuple(checks + [Check(program(room), EMULATED[room], True) for room in rooms if room in EMULATED])


def said_of(mutant: Mutant, verdict: Verdict, seconds: float) -> str:
    mark = "safety" if mutant.safety else ""
    why = verdict.why if verdict.kind == "killed" or mutant.checks else ""
    return f"{verdict.kind:<10}  {mark:<6}  {seconds:6.0f} s  {mutant.name}  ({mutant.file}){': ' + why if why else ''}"


def key_of(mutant: Mutant) -> str:
    return json.dumps([mutant.file, mutant.old, mutant.new])


def examine(tree: Tree, mutants, wanted: int, known: dict[str, Verdict], save) -> list[tuple[Mutant, Verdict]]:
    """Judges mutants until `wanted` of them were programs."""
    found = []
    for mutant in mutants:
        if len(found) == wanted:
            break
        start = time.monotonic()
        verdict = known.get(key_of(mutant)) or tree.judge(mutant)
        known[key_of(mutant)] = verdict
        save()
        print(said_of(mutant, verdict, time.monotonic() - start), flush=True)
        if verdict.kind != "no program":
            found.append((mutant, verdict))
        elif mutant.checks:
            raise Failure(f"'{mutant.name}' is no program any more: name it anew")
    return found


def verdict_on(found: list[tuple[Mutant, Verdict]]) -> int:
    alive = [mutant for mutant, verdict in found if verdict.kind == "lives"]
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
    if not options.resume:
        shutil.rmtree(tree.kernels, ignore_errors=True)
    kept = json.loads(results.read_text()) if options.resume and results.exists() else {}
    known = {key: Verdict(**value) for key, value in kept.items() if value["kind"] != "lives"}

    def save() -> None:
        results.write_text(json.dumps({key: dataclasses.asdict(value) for key, value in known.items()}, indent=1))
    found = examine(tree, named, len(named), known, save)
    found += examine(tree, drawn(tree.root, options.seed), by_chance, known, save)
    tree.require_without([verdict for _, verdict in found if verdict.kind == "killed"])
    return verdict_on(found)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"mutants: {failure}", file=sys.stderr)
        sys.exit(2)
